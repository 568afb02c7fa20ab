"""A small Debian guest under QEMU: commands are run in it, and it changes machines while it runs."""

import base64
import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time

from debian import Kernel, busybox
from initramfs import Image
from qmp import Qmp, QmpError, connect

QEMU = "qemu-system-x86_64"
HERE = os.path.dirname(os.path.abspath(__file__))
MODULES = ("virtio_pci", "virtio_net", "virtio_console", "virtio_rng", "virtio_blk")
DISK = "/dev/vda"
NAME = "guest"
ADDRESS, GATEWAY = "10.0.2.15/24", "10.0.2.2"  # as QEMU's user network has it
CHANNELS = ("operator", "watcher")  # who asks the guest; each waits for nobody but itself

SOCKET_SECONDS = 30
BOOT_SECONDS = 120
COMMAND_SECONDS = 60
ANSWER_SECONDS = 20  # beyond a command's own deadline, which the guest keeps
MIGRATE_SECONDS = 60
POLL_SECONDS = 0.02
CONSOLE_LINES = 25


class GuestError(Exception):
    """The guest does not boot, answer or migrate, or a command in it failed."""


def require_qemu():
    if not shutil.which(QEMU):
        raise GuestError(f"there is no {QEMU}: install qemu-system-x86")


def disk(path):
    """Options of a machine: the bytes of a file are the guest's DISK."""
    return ["-drive", f"file={path},format=raw,if=virtio,cache=unsafe"]


def guest_image(kernel, modules=()):
    """What every guest has: BusyBox, the modules, and the first process. For more to be added."""
    image = Image()
    image.add_file(busybox(), "/bin/busybox", 0o755)
    image.add_link("/bin/sh", "busybox")
    image.add_file(os.path.join(HERE, "guest-init"), "/init", 0o755)
    loaded = []
    for source in kernel.with_needed(MODULES + tuple(modules)):
        place = "/lib/modules/" + os.path.basename(source)
        image.add_file(source, place, 0o644)
        loaded.append(place)
    image.add_text("/etc/guest", f"NAME={NAME}\nADDRESS={ADDRESS}\nGATEWAY={GATEWAY}\n"
                                 f"MODULES=\"{' '.join(loaded)}\"\n")
    image.add_text("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
    image.add_text("/etc/group", "root:x:0:\n")
    image.add_text("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n")
    image.add_text("/etc/hosts", f"127.0.0.1 localhost {NAME}\n")
    return image


class Machine:
    """One QEMU: a host's share of the guest's life."""

    def __init__(self, folder, name, image, kernel, mebibytes, more=(), incoming=False):
        self.folder = os.path.join(folder, name)
        self.name = name
        os.mkdir(self.folder, 0o700)
        self.console = os.path.join(self.folder, "console")
        self.incoming = self.path("incoming")
        command = ["setpriv", "--pdeathsig", "KILL", QEMU,
                   "-accel", "tcg,thread=multi", "-M", "q35", "-cpu", "max", "-m", str(mebibytes),
                   "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
                   "-kernel", kernel.image, "-initrd", image,
                   "-append", "console=ttyS0 quiet panic=-1 no_timer_check", "-serial", "stdio",
                   "-netdev", "user,id=n0", "-device", "virtio-net-pci,netdev=n0,romfile=",
                   "-device", "virtio-rng-pci", "-device", "virtio-serial-pci",
                   "-qmp", f"unix:{self.path('qmp')},server=on,wait=off"]
        for channel in CHANNELS:
            command += ["-chardev",
                        f"socket,id={channel},path={self.path(channel)},server=on,wait=off",
                        "-device", f"virtserialport,chardev={channel},name={channel}"]
        command += more
        if incoming:
            command += ["-incoming", f"unix:{self.incoming}"]
        with open(self.console, "wb") as console:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=console,
                                            stderr=subprocess.STDOUT)
        self.qmp, self.sockets = None, {}
        try:
            self.qmp = Qmp(self.path("qmp"), SOCKET_SECONDS)
            self.sockets = {channel: connect(self.path(channel), SOCKET_SECONDS)
                            for channel in CHANNELS}
        except QmpError as error:
            self.end()
            raise GuestError(f"{name}: {error}\n{self.told()}") from error
        except BaseException:
            self.end()
            raise

    def path(self, name):
        return os.path.join(self.folder, name)

    def told(self):
        """The end of its console, for who reads that something failed."""
        with open(self.console, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()[-CONSOLE_LINES:]
        return "\n".join([f"the console of {self.name} ends with:", *lines])

    def end(self):
        # First the process: whoever reads from it is woken by its end, not by a close here.
        self.process.kill()
        self.process.wait()
        for connection in self.sockets.values():
            connection.close()
        if self.qmp:
            self.qmp.close()


class Channel:
    """Commands to the guest, one at a time."""

    def __init__(self, name):
        self.name, self.number = name, 0
        self.lock = threading.Lock()  # of the socket and all that goes over it
        self.socket = None

    def ask(self, command, seconds):
        """(status, output) of a shell command in the guest; its status is 137 after @seconds."""
        with self.lock:
            self.number += 1
            coded = base64.b64encode(command.encode()).decode()
            try:
                self.socket.settimeout(seconds + ANSWER_SECONDS)
                self.socket.sendall(f"{self.number} {seconds} {coded}\n".encode())
                head = self._until_newline().split()
                if len(head) != 3 or int(head[0]) != self.number:
                    raise GuestError(f"the guest answered {head} to request {self.number}")
                return int(head[1]), self._exactly(int(head[2]))
            except socket.timeout as error:
                raise GuestError(f"no answer within {seconds} s to: {command}") from error
            except (OSError, ValueError) as error:
                raise GuestError(f"{error}, as an answer to: {command}") from error

    def _until_newline(self):
        line = b""
        while not line.endswith(b"\n"):
            line += self._exactly(1)
        return line

    def _exactly(self, size):
        parts = []
        while size:
            part = self.socket.recv(size)
            if not part:
                raise GuestError("the guest's machine has ended")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


class Guest:
    """
    Leave it (it is a context manager) and its machines are gone.

    Its machines are called machine-1, machine-2, …; the guest is on the last one.

    @more  Options of QEMU's: disk(), for one.
    """

    def __init__(self, folder, image, kernel, mebibytes=512, more=()):
        require_qemu()
        self.make = (image, kernel, mebibytes, more)
        self.folder = folder
        self.channels = {name: Channel(name) for name in CHANNELS}
        self.machines = []
        self.count = 0
        self._new_machine()
        self._speak_to(self.machines[0])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for machine in self.machines:
            machine.end()

    def _new_machine(self, incoming=False):
        self.count += 1
        machine = Machine(self.folder, f"machine-{self.count}", *self.make, incoming)
        self.machines.append(machine)
        return machine

    def _speak_to(self, machine):
        for name, channel in self.channels.items():
            channel.socket = machine.sockets[name]

    def run(self, command, seconds=COMMAND_SECONDS, channel="operator"):
        """(status, output) of a shell command in the guest."""
        try:
            return self.channels[channel].ask(command, seconds)
        except GuestError as error:
            raise GuestError(f"{error}\n{self.machines[-1].told()}") from error

    def check(self, command, seconds=COMMAND_SECONDS, channel="operator"):
        """Output of a command that has to succeed."""
        status, output = self.run(command, seconds, channel)
        if status:
            raise GuestError(f"in the guest, `{command}` ended with status {status}:\n"
                             + output.decode(errors="replace"))
        return output

    def wait_boot(self):
        self.check("true", BOOT_SECONDS)

    def migrate(self, megabytes_s=1000, downtime_ms=300, meanwhile=None):
        """
        Live, to a new machine; the old one stays, stopped, until leave_old() ends it.

        @meanwhile  Is called with the old machine once the migration has begun.

        Returns what QEMU says of it: total-time, downtime (both ms), ram. When it fails, or is
        cancelled, the guest goes on where it was and there is no new machine.
        """
        old, new = self.machines[-1], self._new_machine(incoming=True)
        with contextlib.ExitStack() as locks:
            # What a port has not yet given to the guest does not migrate: nobody asks meanwhile.
            for channel in self.channels.values():
                locks.enter_context(channel.lock)
            try:
                old.qmp.execute("migrate-set-parameters", max_bandwidth=megabytes_s * 1000 * 1000,
                                downtime_limit=downtime_ms)
                old.qmp.execute("migrate", uri=f"unix:{new.incoming}")
                if meanwhile:
                    meanwhile(old)
                answer = self._wait_migrated(old)
            except BaseException as error:
                self.machines.remove(new)
                new.end()
                if isinstance(error, QmpError):
                    raise GuestError(f"{error}\n{old.told()}") from error
                raise
            self._speak_to(new)
        return answer

    @staticmethod
    def _wait_migrated(old):
        until = time.monotonic() + MIGRATE_SECONDS
        while True:
            answer = old.qmp.execute("query-migrate")
            if answer.get("status") == "completed":
                return answer
            if answer.get("status") in ("failed", "cancelled"):
                raise GuestError(f"the migration {answer['status']}: "
                                 f"{answer.get('error-desc', 'nobody said why')}")
            if time.monotonic() > until:
                old.qmp.execute("migrate_cancel")
                raise GuestError(f"the migration took more than {MIGRATE_SECONDS} s")
            time.sleep(POLL_SECONDS)

    def leave_old(self):
        """End the machines where the guest was."""
        for machine in self.machines[:-1]:
            machine.end()
        del self.machines[:-1]
