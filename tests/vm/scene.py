"""Two hosts, a guest on the first, and a program in it; and what there is to see of them."""

import os
import re
import subprocess
import tempfile
import threading
import time

from debian import Kernel
from guest import GuestError, disk, require_qemu
from hosts import Host
from tenant import Tenant, tenant_image

WIDTH = 2048  # cells a row, as the solver has it
ROWS = 64  # of 1 MiB in two buffers
KERNEL = "advance"  # what a step launches
STEPS = 100000  # more than it will take: it is told when to end
EVERY = 5  # steps are reported
STALL_SECONDS = 120  # without a step, and then something is wrong
# The driver gives a server 10 s to answer when a program begins. With others on this machine that may
# be too little for a guest, whose processor is a program here: then what asked is begun again.
BEGINS = 5
NATIVE_SECONDS = 120
SAMPLE_SECONDS = 0.2
DISK_BYTES = 1 << 30  # more than a guest's memory, of which it has images; what nobody wrote takes no room

OLD_HOST, NEW_HOST = "old-host", "new-host"
OLD_DEVICES, NEW_DEVICES = ("gpu-a", "gpu-b"), ("gpu-c",)


class Watch(threading.Thread):
    """Looks at what the program prints, in the guest, and at what its devices run, on the hosts."""

    def __init__(self, tenant, hosts):
        super().__init__(daemon=True)
        self.tenant, self.hosts = tenant, hosts
        self.begin = time.monotonic()
        self.changed = threading.Condition()
        self.text = b""  # what the program has printed
        self.step = 0
        self.samples = []  # (seconds, {device: launches})
        self.problem, self.over, self.paused, self.ended = None, False, False, False
        self.asking = threading.Lock()

    def now(self):
        return time.monotonic() - self.begin

    def launches(self):
        return {device: count for host in self.hosts for device, count in host.launches().items()}

    def run(self):
        try:
            while not self.over:
                self._look()
                time.sleep(SAMPLE_SECONDS)
        except GuestError as error:
            self.problem = str(error)
            with self.changed:
                self.changed.notify_all()

    def _look(self):
        sample = (self.now(), self.launches())
        # While the guest changes machines nobody can ask it; the hosts can be looked at all the same.
        ended = False
        with self.asking:
            if not self.paused:
                new, ended = self.tenant.output(len(self.text))
                self.text += new
        steps = re.findall(rb"^step (\d+) of", self.text, re.MULTILINE)
        with self.changed:
            self.samples.append(sample)
            self.step = int(steps[-1]) if steps else 0
            self.ended = ended
            self.changed.notify_all()

    def stop(self):
        self.over = True
        self.join()


class Scene:
    """
    Leave it (it is a context manager) and the guest, the servers and the folder are gone.

    @step_ms  What the devices need for a step of the program.
    @criu     To be in the guest as well: tenant_image(). Guests have a disk then, one after another.
    """

    def __init__(self, build, step_ms, criu=None):
        self.criu, self.disk = criu, None
        self.build = os.path.abspath(build)
        self.arguments = ["--mib", "1", "--steps", str(STEPS), "--every", str(EVERY), "--sums", "1",
                          "--tiles", "1"]
        self.items_s = WIDTH * ROWS * 1000 // step_ms
        self.folder, self.old, self.new, self.tenant, self.watch = None, None, None, None, None
        self.names = {}  # of devices: the hosts' -> reseat's in the guest

    def __enter__(self):
        require_qemu()  # before anything is made for it
        self.temporary = tempfile.TemporaryDirectory(prefix="reseat-vm-")
        os.chmod(self.temporary.name, 0o711)  # for the hosts' own user
        self.folder = self.temporary.name
        if self.criu:
            self.disk = os.path.join(self.folder, "disk")
            with open(self.disk, "wb") as file:
                file.truncate(DISK_BYTES)
        return self

    def __exit__(self, *_):
        if self.watch:
            self.watch.over = True
        if self.tenant:
            self.tenant.__exit__()
        if self.watch:
            self.watch.stop()
        for host in (self.old, self.new):
            if host:
                host.stop()
        self.temporary.cleanup()

    def native(self, end):
        """What the program prints on POCL, on this machine and without reseat, ended at that step."""
        env = {key: value for key, value in os.environ.items() if not key.startswith("RESEAT")}
        env.update(OCL_ICD_VENDORS="/etc/OpenCL/vendors/pocl.icd", POCL_DEVICES="pthread",
                   POCL_CACHE_DIR=os.path.join(self.folder, "native-pocl-cache"))
        env.pop("OCL_ICD_FILENAMES", None)
        told = os.path.join(self.folder, "end")
        with open(told, "w", encoding="ascii") as file:
            file.write(f"{end}\n")
        return subprocess.run([os.path.join(self.build, "tests", "programs", "solver"),
                               *self.arguments, "--end", told], env=env, stdin=subprocess.DEVNULL,
                              check=True, stdout=subprocess.PIPE, timeout=NATIVE_SECONDS).stdout

    def open_hosts(self):
        self.old = Host(self.folder, OLD_HOST, self.build, OLD_DEVICES, KERNEL, self.items_s)
        self.new = Host(self.folder, NEW_HOST, self.build, NEW_DEVICES, KERNEL, self.items_s)
        self.old.start()
        self.new.start()

    def boot(self, name="guest"):
        """@name: of the folder of its machines; each guest has another one, and the same image."""
        kernel = Kernel()
        folder = os.path.join(self.folder, name)
        image = os.path.join(self.folder, "initramfs")
        os.mkdir(folder, 0o700)
        if not os.path.exists(image):
            tenant_image(kernel, self.build, self.folder, self.old, [self.new],
                         self.criu).write(image)
        self.tenant = Tenant(folder, image, kernel, more=disk(self.disk) if self.disk else ())
        self.tenant.wait_boot()
        wanted = set(self.old.devices)
        for _ in range(BEGINS):
            self.names = self.tenant.devices()
            if wanted <= set(self.names):
                return
            self.tenant.stop_agent()
        raise GuestError(f"the guest sees of {sorted(wanted)} only {sorted(self.names)}:\n"
                         + self.told())

    def add_new_host(self):
        """To what reseat in the guest uses: what it calls that host's devices."""
        added = self.tenant.add_server(self.new)
        self.names.update(self.tenant.devices())
        missing = set(self.new.devices) - set(self.names)
        if missing:
            raise GuestError(f"the guest does not list {sorted(missing)}:\n{self.told()}")
        return added

    def start(self, device):
        for _ in range(BEGINS):
            self.tenant.start(self.arguments, self.names[device])
            self.watch = Watch(self.tenant, [self.old, self.new])
            self.watch.start()
            if self._began():
                return
            self.watch.stop()
        raise GuestError(f"the program does not begin:\n{self.told()}")

    def watch_again(self):
        """Of a program that was restored: all that it prints, and printed."""
        self.watch = Watch(self.tenant, [self.old, self.new])
        self.watch.start()

    def _began(self):
        """Whether the program prints; False when it ended as it had no answer in time."""
        try:
            self._wait(lambda: self.watch.text, "the program is to begin")
            return True
        except GuestError:
            if self.watch.ended and self.tenant.was_late():
                return False
            raise

    def _wait(self, reached, what):
        """Until reached(); the program has to take steps meanwhile."""
        watch = self.watch
        with watch.changed:
            last, since = watch.step, time.monotonic()
            while not reached():
                if watch.step != last:
                    last, since = watch.step, time.monotonic()
                why = watch.problem or ("it has ended" if watch.ended else None)
                if not why and time.monotonic() - since > STALL_SECONDS:
                    why = f"no step within {STALL_SECONDS} s"
                if why:
                    raise GuestError(f"{what}: it took {watch.step}: {why}\n{self.told()}")
                watch.changed.wait(1)

    def wait_step(self, step):
        """Until the program says that it took so many."""
        self._wait(lambda: self.watch.step >= step, f"the program is to take {step} steps")

    def wait_steps_more(self, steps):
        self.wait_step(self.watch.step + steps)

    def wait_end(self):
        """Until it has ended by itself: (its exit status, all that it printed)."""
        self._wait(lambda: self.watch.ended, "the program is to end")
        self.watch.stop()
        return self.tenant.status(), self.watch.text

    def end(self):
        """
        Tell the program to end after the steps that it is at.

        Returns all that it printed; that it is what a native run prints was seen.
        """
        self.tenant.end_at(self.watch.step + EVERY)
        status, output = self.wait_end()
        native = self.native(self.watch.step)
        if (status, output) != (0, native):
            raise GuestError(f"the program ended with status {status}. Natively it prints\n"
                             f"{native.decode()}\nand here\n{output.decode(errors='replace')}\n"
                             + self.told())
        return output

    def move(self, device):
        return self.tenant.move(self.names[device])

    def migrate(self, megabytes_s=1000, meanwhile=None):
        with self.watch.asking:
            self.watch.paused = True
        try:
            return self.tenant.migrate(megabytes_s, meanwhile=meanwhile)
        finally:
            self.watch.paused = False

    def told(self):
        """What everybody said, for who reads that something failed."""
        try:
            tenant = self.tenant.told()
        except GuestError as error:
            tenant = str(error)
        return "\n".join([tenant, self.old.told(), self.new.told()])
