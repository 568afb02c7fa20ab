#!/usr/bin/python3
"""
A whole process is kept by CRIU in a guest, with what it has of OpenCL on devices outside, and restored.

  process.py BUILD

It is kept while it computes, and goes on; then it is kept and ends, and is restored, moved to another
device, and ends with the bytes of a native run. Then the image goes to a second guest, which never
ran it, and the same follows there. Natively: without reseat, and without a pause.
"""

import os
import shutil
import signal
import sys

from guest import DISK, GuestError, require_qemu
from scene import Scene
from tenant import ENVIRONMENT, ERRORS, NAME, OUTPUT, STATUS

STEP_MS, PART_STEPS = 50, 20
IMAGES = "/root/images"
KEEP_SECONDS = 120
COPY_SECONDS = 60
LAST_PID = "/proc/sys/kernel/ns_last_pid"  # the kernel gives the numbers after it next
CRIU, CRIU_LAST_PID = "/root/criu", "/root/last-pid"  # which notes what it was before it restores
SKIPPED = 77  # as meson has it


def fail(why):
    sys.exit(f"process: {why}")


def find_criu():
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return shutil.which("criu", path=path)


class Keeper:
    """The scene, as an operator in the guest who keeps and restores its program."""

    def __init__(self, scene):
        self.scene = scene
        self.pid = None

    def reseat(self, *arguments):
        try:
            return self.scene.tenant.reseat(*arguments, seconds=KEEP_SECONDS)
        except GuestError as error:
            log = self.scene.tenant.run(f"cat {IMAGES}/criu.log")[1].decode(errors="replace")
            raise GuestError(f"{error}\n{log}") from error

    def keep(self, *options):
        """An image of the program's process: what reseat says of it."""
        answer = self.reseat("checkpoint", NAME, "--process", "--to", IMAGES, *options)
        self.pid = answer["app"]["pid"]
        if answer["status"] != 0 or not answer["image"] or answer["image_bytes"] < 1 << 20:
            fail(f"the image: {answer}")
        verified = self.reseat("image", "verify", IMAGES)
        if verified["damaged"]:
            fail(f"what was written is damaged: {verified}")
        return answer

    def refused(self, words, *arguments):
        """A command that has to fail, with these words in what it says."""
        status, output = self.scene.tenant.run(f". {ENVIRONMENT}; reseat " + " ".join(arguments),
                                               KEEP_SECONDS)
        if status == 0 or words not in output.decode(errors="replace"):
            fail(f"{arguments} ended with {status}:\n{output.decode(errors='replace')}")

    def take_pid(self):
        """For a moment another process has the pid; those that begin next have numbers before it."""
        self.scene.tenant.check(
            f"for i in $(seq 100); do echo {self.pid - 1} >{LAST_PID}; sleep 3 >/dev/null 2>&1 & "
            f"[ $! = {self.pid} ] && echo 1 >{LAST_PID} && exit 0; kill $!; done; exit 1")

    def make_criu(self):
        self.scene.tenant.check(
            f"echo '#!/bin/sh' >{CRIU}; chmod 755 {CRIU}; "
            f"echo '[ $1 != restore ] || cat {LAST_PID} >{CRIU_LAST_PID}' >>{CRIU}; "
            f"echo 'exec criu \"$@\"' >>{CRIU}")

    def restore(self, device):
        """The process is there again, under its pid, and computes on @device."""
        tenant = self.scene.tenant
        tenant.check(f"rm -f {STATUS}")
        self.make_criu()
        self.take_pid()
        answer = self.reseat("restore", IMAGES, "--criu", CRIU, "--device", self.scene.names[device])
        if answer["app"]["pid"] != self.pid or answer["result"] != "done":
            fail(f"the restore: {answer}")
        if int(tenant.check(f"cat {CRIU_LAST_PID}")) < self.pid:
            fail("CRIU could have got the pid that it needed")
        # Nobody is its parent: that it ended well is seen by its last line.
        tenant.check(f"(while [ -d /proc/{self.pid} ]; do sleep 0.2; done; echo 0 >{STATUS}) "
                     ">/dev/null 2>&1 &")

    def pack(self):
        """The image, and the files that the program has open, go to the disk."""
        tenant = self.scene.tenant
        tenant.check(f": >{ERRORS}")  # the shell that began it has said there that it was killed
        tenant.check(f"tar cf {DISK} {IMAGES} {OUTPUT} {ERRORS} && sync", COPY_SECONDS)

    def unpack(self):
        self.scene.tenant.check(f"tar xf {DISK} -C /", COPY_SECONDS)


def compute_there(scene, keeper, device):
    """The restored program computes on @device, moves to the other one, and ends as natively."""
    other = next(name for name in scene.old.devices if name != device)
    before = scene.watch.launches()[device]
    scene.wait_steps_more(PART_STEPS)
    if scene.watch.launches()[device] <= before:
        fail(f"nothing runs on {device}")
    answer = scene.move(other)
    if answer["result"] != "done":
        fail(f"the move of what was restored: {answer}")
    scene.wait_steps_more(PART_STEPS)
    keeper.refused("is in use here", "restore", IMAGES)
    scene.end()


def play(scene):
    scene.open_hosts()
    scene.boot()
    keeper = Keeper(scene)
    first, second = scene.old.devices
    print("criu check in the guest:", scene.tenant.run("criu check")[1].decode().strip(), flush=True)
    scene.start(first)
    scene.wait_step(PART_STEPS)

    answer = keeper.keep()
    print(f"kept: {answer['image_bytes'] >> 20} MiB, stopped for {answer['downtime_ns'] / 1e9:.2f} s",
          flush=True)
    scene.wait_steps_more(PART_STEPS)
    keeper.refused("is in use here", "restore", IMAGES)
    scene.watch.stop()
    answer = keeper.keep("--end")
    print(f"kept, and ended: {answer['image']}", flush=True)
    step = scene.watch.step
    keeper.pack()

    scene.watch_again()
    keeper.restore(second)
    print(f"restored on {second}", flush=True)
    scene.wait_step(step + 1)
    compute_there(scene, keeper, second)
    print(f"it ended at step {scene.watch.step} with the bytes of a native run", flush=True)

    scene.tenant.__exit__()
    scene.boot("second")
    keeper.unpack()
    scene.watch_again()
    keeper.restore(first)
    compute_there(scene, keeper, first)
    print(f"and in a second guest, at step {scene.watch.step}", flush=True)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    signal.signal(signal.SIGTERM, lambda *_: fail("told to end"))
    criu = find_criu()
    try:
        require_qemu()
    except GuestError as error:
        print(f"skipped: {error}")
        sys.exit(SKIPPED)
    if not criu:
        fail("there is no criu: install the package (scripts/packages)")
    with Scene(sys.argv[1], STEP_MS, criu) as scene:
        play(scene)


if __name__ == "__main__":
    main()
