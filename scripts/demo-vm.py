#!/usr/bin/python3
"""
A program in a virtual machine computes on devices of hosts outside, while the machine changes hosts.

One machine plays both hosts: each has a device server, with an authority and devices of its own, and
a QEMU for the guest. The devices are emulated over POCL, so that a step takes its time on them.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time

SCRIPTS = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(SCRIPTS, "..", "tests", "vm"))

# pylint: disable=wrong-import-position
from debian import PackageError
from guest import GuestError
from hosts import HostError
from initramfs import ImageError
from scene import EVERY, NEW_HOST, OLD_HOST, Scene

BUILD = os.path.join(SCRIPTS, "..", "build")
STEP_MS = 100
PART_STEPS = 25  # of the program between two events
MEGABYTES_S = 100  # a migration that takes a second
DROP_SECONDS = 60
POLL_SECONDS = 0.1
VENDORS = ("pocl", "emu", "cuda", "nvidia", "llvm", "mesa", "oclgrind")  # in names of libraries


class Wrong(Exception):
    """Something is not as the story has it."""


def require(holds, what):
    if not holds:
        raise Wrong(what)


class Teller:
    """Says what happens, and when."""

    def __init__(self):
        self.begin = time.monotonic()
        self.events = []  # (begin, end, what), in the watch's seconds

    def say(self, text):
        print(f"{time.monotonic() - self.begin:6.1f} s  {text}", flush=True)

    def more(self, text):
        print(f"          {text}", flush=True)


def check_no_device(scene):
    """The guest has no device, the program nothing of a vendor's: (its parts of ours, its sockets)."""
    held = scene.tenant.held()
    require(not held["pci"] and not held["file"], f"the guest has a device: {held}")
    drivers = [path for path in held["maps"] if any(word in path.lower() for word in VENDORS)]
    ours = [os.path.basename(path) for path in held["maps"] if "reseat" in path]
    require(not drivers, f"the program has a vendor's library: {drivers}")
    require("libreseat-remote.so" in ours, f"no remote driver: {held}")
    sockets = [path for path in held["open"] if path.startswith("socket:")]
    others = [path for path in held["open"] if path.startswith("/dev/") and path != "/dev/null"]
    require(sockets and not others, f"the program has open: {held['open']}")
    return ours, sockets


def move(scene, teller, device):
    """An operator's `reseat move` in the guest."""
    before = scene.watch.launches()[device]
    began = scene.watch.now()
    answer = scene.move(device)
    ended = scene.watch.now()
    require(answer["result"] == "done", f"the move: {answer}")
    teller.events.append((began, ended, f"moved to {device}"))
    teller.more(f"{answer['from']} -> {answer['to']}: {answer['bytes'] / (1 << 20):.1f} MiB in "
                f"{answer['total_ns'] / 1e9:.1f} s; the program stood still for "
                f"{answer['downtime_ns'] / 1e9:.2f} s of them.")
    scene.wait_steps_more(PART_STEPS)
    require(scene.watch.launches()[device] > before, f"nothing runs on {device}")
    check_no_device(scene)


def migrate(scene, teller, device):
    """The VM to another QEMU, while its program computes on a host that it leaves."""
    held, step = scene.watch.launches()[device], scene.watch.step
    machine = scene.tenant.machines[0].process.pid
    require(scene.old.connections(machine), f"{OLD_HOST} has no connection with the guest")
    began = scene.watch.now()
    answer = scene.migrate(MEGABYTES_S)
    arrived = scene.watch.now()
    meanwhile = scene.watch.launches()[device] - held
    teller.more(f"QEMU: {answer['ram']['transferred'] / (1 << 20):.0f} MiB of the guest's memory in "
                f"{answer['total-time'] / 1000:.2f} s, the guest stood still for "
                f"{answer['downtime']} ms.")
    require(meanwhile > 0, f"{device} did nothing while the guest migrated")
    teller.more(f"Meanwhile {device} of {OLD_HOST} did {meanwhile} launches for it.")
    scene.wait_steps_more(2 * EVERY)
    resumed = scene.watch.now()
    teller.events.append((began, arrived, "the VM migrates"))
    teller.say(f"Its connections were reset on the way. {resumed - arrived:.1f} s later the session "
               "goes on over new ones:")
    teller.more(f"step {step} before, step {scene.watch.step} now, on the same device.")
    until = time.monotonic() + DROP_SECONDS
    while any(stale := [host.connections(machine) for host in (scene.old, scene.new)]):
        require(time.monotonic() < until, f"the servers keep stale connections: {stale}")
        time.sleep(POLL_SECONDS)
    scene.tenant.leave_old()
    check_no_device(scene)
    teller.more("The servers have dropped the stale connections, to the QEMU that the guest left; now "
                "it ends.")


def play(scene, teller):
    scene.open_hosts()
    teller.say(f"Two hosts: {OLD_HOST} with {', '.join(scene.old.devices)}; {NEW_HOST} with "
               f"{', '.join(scene.new.devices)}.")
    teller.more("Each serves its devices over TCP with TLS to who has a certificate of its own "
                "authority.")
    scene.boot()
    teller.say(f"A guest with a kernel and BusyBox of Debian's has booted under QEMU on {OLD_HOST}.")
    scene.start(scene.old.devices[0])
    require(set(scene.names) == set(scene.old.devices), f"the guest lists {scene.names}")
    teller.say(f"In it a solver was started under reseat, on {scene.old.devices[0]} of {OLD_HOST}, "
               "through the network.")
    scene.wait_step(PART_STEPS)
    ours, sockets = check_no_device(scene)
    teller.more("The guest has no GPU on its bus and no device file of one; of OpenCL the program has")
    teller.more(f"{', '.join(ours)} and {len(sockets)} sockets. So it stays, which is looked at after "
                "each step of this story.")

    target = scene.old.devices[1]
    teller.say(f"Step {scene.watch.step}. An operator moves it: reseat move solver "
               f"{scene.names[target]}, which is {target} of the same host.")
    move(scene, teller, target)

    teller.say(f"Step {scene.watch.step}. The VM is migrated live to a second QEMU, on {NEW_HOST}.")
    migrate(scene, teller, target)

    scene.wait_steps_more(PART_STEPS)
    target = scene.new.devices[0]
    teller.say(f"Step {scene.watch.step}. Of {NEW_HOST} the guest knows nothing but its name. An "
               "operator copies its credentials there:")
    teller.more(f"reseat server add tcp:{NEW_HOST}:{scene.new.port} {NEW_HOST}")
    began = scene.watch.now()
    added = scene.add_new_host()
    teller.events.append((began, scene.watch.now(), f"{NEW_HOST} is added"))
    require(added and all(name.startswith(NEW_HOST + "/") for name in added), f"added: {added}")
    require(not scene.watch.launches()[target], f"{target} ran what nobody had moved there")
    teller.more(f"{', '.join(added)} is listed {scene.watch.now() - began:.1f} s later; the solver goes "
                "on meanwhile.")
    scene.wait_steps_more(EVERY)

    teller.say(f"Step {scene.watch.step}. The program follows its VM: reseat move solver "
               f"{scene.names[target]}, which is {target} of {NEW_HOST}.")
    move(scene, teller, target)

    scene.old.stop()
    teller.events.append((scene.watch.now(),) * 2 + (f"{OLD_HOST} is off",))
    teller.say(f"Step {scene.watch.step}. {OLD_HOST} is switched off.")
    scene.wait_steps_more(PART_STEPS)
    lines = scene.end().splitlines()
    teller.say(f"Step {scene.watch.step}. The solver was told to end, and has. Its {len(lines)} lines, "
               f"with {len(lines) - 1} checksums of all cells on the way")
    teller.more(f"and \"{lines[-1].decode()}\" at the end, are to the byte those of a native run.")


def tell(options, teller):
    with Scene(options.build, STEP_MS) as scene:
        play(scene, teller)
        if options.output:
            draw(options.output, scene, teller)


def draw(folder, scene, teller):
    data, picture = (os.path.join(folder, "vm" + ending) for ending in (".json", ".svg"))
    devices = scene.old.devices + scene.new.devices
    with open(data, "w", encoding="utf-8") as file:
        json.dump({"guest": [(when, [launches[device] for device in devices])
                             for when, launches in scene.watch.samples],
                   "devices": devices, "events": teller.events}, file)
    subprocess.run([os.path.join(SCRIPTS, "plot"), data, picture], check=True)
    teller.more(f"The picture: {os.path.relpath(picture)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", help="folder for the picture; without it there is none")
    parser.add_argument("--build", default=BUILD, help="build folder")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("demo: told to end"))
    try:
        tell(options, Teller())
    except (GuestError, HostError, ImageError, PackageError, Wrong) as error:
        sys.exit(f"demo: {error}")
    except KeyboardInterrupt:
        sys.exit("demo: interrupted")


if __name__ == "__main__":
    main()
