"""Programs that are moved before they begin, and that end in moves and builds."""

import os
import random
import subprocess
import threading
import time

from lab import DONE, Program, check, expect, lines, until

STATUS = 7
WAYS = ["return", "exit", "thread", "callback", "leave"]
RUNS, MOST_MS = 20, 800
WAIT = 'read -r line; exec "$@"'  # until it is moved


def starts_where_it_was(lab, *program):
    """Moved before it used OpenCL, to a device that is there no more."""
    lab.devices()
    trace = lab.path("trace")
    with Program(lab, ["sh", "-c", WAIT, "sh", "env", f"EMU_TRACE={trace}",
                       "EMU_FAIL=device=b;call=1;error=vanish", *program], "--device", "gpu-a",
                 stdin=subprocess.PIPE) as early:
        until("it is known", early.app)
        status, answer = early.control("move", "gpu-b")
        check("it is moved before it begins", status == DONE and answer["starting"], (status, answer))
        status, _ = early.end(b"\n")
    expect("exit status", status, 0)
    calls = [line.split() for line in lines(trace)]
    expect("devices that it ran on", {device for _, device, call, *_ in calls if call == "clCreateContext"}, {"a"})


def calls_no_driver_late(lab, exiting):
    """It ends while a callback of a build runs on: no driver is called after its handlers of exit()."""
    trace = lab.path("trace")
    late = Program(lab, [exiting, "late", str(STATUS)], "--device", lab.devices()[0],
                   env={"EMU_TRACE": trace, "TEST_LAST": trace})
    expect("exit status", late.end()[0], STATUS)
    calls = lines(trace)
    check("its handler ran", "last" in calls)
    expect("calls of a driver after its handlers", calls[calls.index("last") + 1:], [])


def move_on(program, devices, counts, stop, began):
    """Move the program to and fro until it is gone."""
    at = 0
    while not began() and not stop.is_set():
        time.sleep(0.01)
    while not stop.is_set():
        at += 1
        verb = ["suspend"] if at % 7 == 6 else ["move", devices[at % len(devices)]]
        if at % 7 == 0:
            verb = ["resume", devices[0]]
        counts[program.control(*verb)[0] == DONE] += 1


def ends_in_moves(lab, ending):
    """In each way that programs end, however far the move is that its end comes upon: as natively."""
    chance, counts = random.Random(1), {True: 0, False: 0}
    devices, out = lab.devices(), lab.path("stdout")
    want = {way: lab.native([ending, way, "--ms", "20", "--status", str(STATUS)], TEST_DEVICE="1") for way in WAYS}
    for turn in range(RUNS):
        way, ms = WAYS[turn % len(WAYS)], chance.randrange(MOST_MS)
        with open(out, "w+b") as file, Program(lab, [ending, way, "--ms", str(ms), "--status", str(STATUS)],
                                               "--device", devices[0], stdout=file) as program:
            stop = threading.Event()
            mover = threading.Thread(target=move_on, args=(program, devices, counts, stop,
                                                           lambda: os.path.getsize(out)))
            mover.start()
            try:
                status = program.process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                status = None
            stop.set()
            program.process.kill()
            mover.join()
            file.seek(0)
            expect(f"{way} after {ms} ms", (status, file.read()), want[way])
    print(f"{RUNS} runs, {counts[True]} moves, {counts[False]} that the end came before")
    check("some moves were made", counts[True])
