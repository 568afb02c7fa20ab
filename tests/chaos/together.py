"""Twenty devices under one program, in one context of it, and two more to go to."""

from lab import DONE, Mover, Program, check, expect, until

COUNT = 20
DEVICES = "".join(f"[d{i:02}] name=gpu-{i:02} base=1 own_memory=yes\n" for i in range(COUNT + 2))
MOVES = 20


def places(app):
    return [None if vdev["suspended"] else vdev["device"] for vdev in app["vdevs"]]


def has_image(lab, process, verb):
    """Now and then the program has no object that an image would keep."""
    status, answer = process.control(verb, "--to", lab.path(verb))
    if status != DONE and verb == "suspend":
        process.control("resume")
    check(f"{verb} ({answer})", status == DONE or "nothing to be kept" in str(answer), status)
    return status == DONE


def moves_one_by_one_and_all(lab, program):
    # Its output does not depend on the number of devices.
    native = lab.native([program, "--steps", "3"], OCL_ICD_VENDORS="/etc/OpenCL/vendors", POCL_DEVICES="pthread")
    devices = lab.devices()
    expect("devices", len(devices), COUNT + 2)
    with Program(lab, [program, "--steps", "3", "--least", str(COUNT)], "--device", ",".join(devices[:COUNT]), busy=True) as process:
        def control(verb, vdev, *args):
            status, answer = lab.control(verb, f"{process.pid}:{vdev}", *args, "--json")
            expect(f"{verb} of virtual device {vdev} ({answer})", status, DONE)

        at = devices[:COUNT]
        process.comes_to("each works where it was named", lambda app: places(app) == at and app["memories"])
        control("move", 7, devices[COUNT])
        control("move", 19, devices[COUNT + 1])
        control("suspend", 0)
        at = [None, *at[1:7], devices[COUNT], *at[8:19], devices[COUNT + 1]]
        process.comes_to("three have left", lambda app: places(app) == at)
        control("resume", 0)
        until("an image", lambda: has_image(lab, process, "checkpoint"))
        until("an image of what is suspended", lambda: has_image(lab, process, "suspend"))
        process.comes_to("all are suspended", lambda app: places(app) == COUNT * [None])
        status, answer = process.control("resume")
        expect(f"a resume ({answer})", status, DONE)
        at[0] = devices[0]
        process.comes_to("all are back", lambda app: places(app) == at)
        _, answer = lab.control("explain", process.pid, "--json")
        expect("explained", len(answer["app"]["vdevs"]), COUNT)
        mover = Mover(lab, process.process.pid, devices, COUNT, (0, 0.05), 5, seats=COUNT)
        mover.start()
        process.comes_to("it is moved", lambda app: mover.moves() >= MOVES)
        mover.stop()
        check("no move failed", mover.counts["done"] == sum(mover.counts.values()), mover.told())
        expect("its end", process.end(), native)
