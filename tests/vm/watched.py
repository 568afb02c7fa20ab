#!/usr/bin/python3
"""
Virtual machines whose clocks differ share a folder of images and watch each other: nobody asks.

  watched.py BUILD

The first one has two programs, and is powered off: each is recovered by exactly one of the two others. One of
these then stands still, the last one recovers what it had, and it goes on: it finds itself fenced. What is
printed is what native runs print, once for each program.
"""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time

from debian import Kernel, PackageError
from guest import GuestError, require_qemu
from hosts import Host
from initramfs import ImageError
from tenant import ENVIRONMENT, LOG, Tenant, tenant_image

MEBIBYTES = 384
VIRTIOFSD = "/usr/lib/qemu/virtiofsd"
SHARE, SHARED = "share", "/srv"
IMAGES, UNTIL = f"{SHARED}/images", f"{SHARED}/until"
SAID = "/tmp/said"  # by the watch, and by what it started
PROGRAM = "/bin/resumable"
# It sleeps for most of its time until it is told not to.
ARGUMENTS = ["--size", "64", "--steps", "800"]
SLOWLY = ["--pause", "15000"]
PROGRAMS = {"urgent": ("5", "1"), "other": ("0", "2")}  # their priorities and seeds
CLOCKS = {"a": 0, "b": 9 * 86400, "c": -1800}  # seconds; what certificates allow for
LEASE = 15 * int(os.environ.get("TEST_PATIENCE", "1"))
SECONDS = 240 * int(os.environ.get("TEST_PATIENCE", "1"))
POLL_SECONDS = 2
ITEMS_S = 4000000
SKIPPED = 77  # as meson has it


def fail(why):
    sys.exit(f"watched: {why}")


class Watching(Tenant):
    """A guest with the shared folder, whose clock is not that of others."""

    def __init__(self, folder, name, image, kernel, shared):
        self.folder, self.name = os.path.join(folder, name), name
        os.mkdir(self.folder, 0o700)
        socket = os.path.join(self.folder, "files")
        # It ends with the machine.
        command = ["setpriv", "--pdeathsig", "KILL", VIRTIOFSD, f"--socket-path={socket}", "-o", f"source={shared}", "-o",
                   "cache=none", "-o", "sandbox=chroot"]
        with open(os.path.join(self.folder, "virtiofsd.log"), "wb") as log:
            self.files = subprocess.Popen(command if os.geteuid() == 0 else ["unshare", "--map-root-user", *command],
                                          stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until("the shared folder is served", lambda: os.path.exists(socket) or self.files.poll() is not None)
        clock = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + CLOCKS[name]))
        super().__init__(self.folder, image, kernel, MEBIBYTES, [
            "-rtc", f"base={clock}", "-object", f"memory-backend-memfd,id=all,size={MEBIBYTES}M,share=on",
            "-numa", "node,memdev=all", "-chardev", f"socket,id=files,path={socket}",
            "-device", f"vhost-user-fs-pci,chardev=files,tag={SHARE}"])

    def __exit__(self, *problem):
        super().__exit__(*problem)
        self.files.kill()
        self.files.wait()

    def ready(self, device):
        self.wait_boot()
        self.check(f"hostname {self.name}; mkdir {SHARED} && mount -t virtiofs {SHARE} {SHARED}")
        until(f"{self.name} has a device", lambda: self.has(device))
        self.check(f". {ENVIRONMENT}; export TEST_UNTIL={UNTIL}; (exec reseat recover {IMAGES} --watch --lease {LEASE} </dev/null >{SAID} 2>&1) "
                   ">/dev/null 2>&1 &")

    def has(self, device):
        """Where the processor is a program, an agent or a server may be too late for what asked."""
        try:
            return device in self.devices() or self.stop_agent()
        except GuestError:
            return False

    def begin(self, name):
        priority, seed = PROGRAMS[name]
        command = shlex.join(["reseat", "run", "--name", name, "--priority", priority, "--", PROGRAM, *ARGUMENTS,
                              *SLOWLY, "--seed", seed, "--log", f"/tmp/{name}"])
        self.check(f". {ENVIRONMENT}; export TEST_UNTIL={UNTIL}; (setsid {command} </dev/null >/dev/null 2>{LOG} &)")
        until(f"{name} begins", lambda: self.check(f"cat /tmp/{name} 2>/dev/null || true"))
        answer = self.reseat("checkpoint", name, "--to", IMAGES, "--lease", str(LEASE))
        if not answer["image"]:
            fail(f"the image of {name}: {answer}")

    def told(self):
        """What its watch and programs said, for who reads that something failed."""
        try:
            return self.run(f"tail -n 30 {SAID} {LOG}")[1].decode(errors="replace")
        except GuestError as error:
            return str(error)

    def said(self):
        return self.check(f"cat {SAID}").decode(errors="replace")

    def recovered(self):
        """Names of the programs that it recovered, each as often as it says so."""
        return [line.split()[0] for line in self.said().splitlines() if ": recovered as process " in line]

    def states(self):
        return {app["name"]: app["state"] for app in self.reseat("ps")["apps"]}

    def stand_still(self, stop=True):
        self.machines[-1].qmp.execute("stop" if stop else "cont")


def until(what, ready):
    end = time.monotonic() + SECONDS
    while not (got := ready()):
        if time.monotonic() > end:
            raise GuestError(f"never came about: {what}")
        time.sleep(POLL_SECONDS)
    return got


def recoveries(guests, wanted):
    """{program: who recovered it}, once all of @wanted were."""
    def seen():
        found = [(name, guest) for guest in guests for name in guest.recovered()]
        return found if {name for name, _ in found} >= set(wanted) else None

    found = until(f"{wanted} are recovered", seen)
    time.sleep(LEASE)  # somebody else might do the same
    found = [(name, guest) for guest in guests for name in guest.recovered()]
    if len(found) != len(wanted):
        fail(f"{wanted} were recovered by {[(name, guest.name) for name, guest in found]}")
    return dict(found)


def native(build, folder, seed):
    env = {key: value for key, value in os.environ.items() if not key.startswith("RESEAT")}
    env.update(OCL_ICD_VENDORS="/etc/OpenCL/vendors/pocl.icd", POCL_DEVICES="pthread",
               POCL_CACHE_DIR=os.path.join(folder, "native-pocl-cache"))
    env.pop("OCL_ICD_FILENAMES", None)
    return subprocess.run([os.path.join(build, "tests/programs/resumable"), *ARGUMENTS, "--seed", seed], env=env, text=True,
                          stdin=subprocess.DEVNULL, check=True, stdout=subprocess.PIPE, timeout=SECONDS).stdout


def play(build, folder, host, guests):
    a, others = guests["a"], [guests["b"], guests["c"]]
    for name in PROGRAMS:
        a.begin(name)
    clocks = {guest.name: int(guest.check("date +%s")) for guest in guests.values()}
    print("the clocks:", clocks, flush=True)
    if clocks["b"] - clocks["a"] < 86400 or clocks["a"] < clocks["c"]:
        fail("the clocks are the same")
    time.sleep(LEASE)
    for guest in others:
        if guest.recovered():
            fail(f"{guest.name} took a host for dead that lives: {guest.said()}")

    off = time.monotonic()
    a.machines[-1].end()
    by = recoveries(others, PROGRAMS)
    print(f"a lost its power, and {time.monotonic() - off - LEASE:.1f} s later both are recovered, by",
          {name: guest.name for name, guest in by.items()}, flush=True)

    still = by["urgent"]
    last, = (guest for guest in others if guest is not still)
    had = [name for name, guest in by.items() if guest is still]
    still.stand_still()
    recovered = set(last.recovered())
    until("the last one recovers them", lambda: set(last.recovered()) >= recovered | set(had))
    still.stand_still(False)
    until("what comes back is fenced", lambda: {still.states().get(name) for name in had} == {"fenced"})
    print(f"{still.name} stood still, {last.name} recovered what it had, and it finds itself fenced", flush=True)

    expected = sorted(native(build, folder, seed) for _, seed in PROGRAMS.values())
    with open(os.path.join(folder, "shared", "until"), "wb"):
        pass
    printed = until("both end", lambda: (lines := [line + "\n" for line in last.said().splitlines()
                                                   if line.startswith("resumable ")]) and len(lines) >= 2 and lines)
    time.sleep(LEASE)
    if sorted(printed) != expected or "resumable " in still.said():
        fail(f"they printed {printed} and natively {expected}\n{still.said()}")
    print("both ended there with the bytes of native runs", flush=True)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    signal.signal(signal.SIGTERM, lambda *_: fail("told to end"))
    build = os.path.abspath(sys.argv[1])
    try:
        require_qemu()
        kernel = Kernel()
    except (GuestError, PackageError) as error:
        print(f"skipped: {error}")
        sys.exit(SKIPPED)
    if not os.access(VIRTIOFSD, os.X_OK):
        fail(f"there is no {VIRTIOFSD}: install qemu-system-x86")
    with tempfile.TemporaryDirectory(prefix="reseat-vm-") as folder:
        os.chmod(folder, 0o711)  # for the host's own user
        os.makedirs(os.path.join(folder, "shared", "images"), 0o700)
        host, guests = Host(folder, "devices", build, ("gpu-a", "gpu-b"), "relax", ITEMS_S), {}
        try:
            host.start()
            image = tenant_image(kernel, build, folder, host, [], modules=("virtiofs",))
            image.add_file(os.path.join(build, "tests", "programs", "resumable"), PROGRAM, 0o755)
            image.write(os.path.join(folder, "initramfs"))
            for name in CLOCKS:
                guests[name] = Watching(folder, name, os.path.join(folder, "initramfs"), kernel,
                                        os.path.join(folder, "shared"))
                guests[name].ready(host.devices[0])
            play(build, folder, host, guests)
        except (GuestError, ImageError) as error:
            fail("\n".join([str(error), *(guest.told() for guest in guests.values()), host.told()]))
        finally:
            for guest in guests.values():
                guest.__exit__()
            host.stop()


if __name__ == "__main__":
    main()
