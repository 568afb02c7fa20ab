"""Hosts with devices: each has a device server, with an authority and emulated GPUs of its own."""

import os
import select
import socket
import subprocess
import threading
import time

CLIENT = "guest"  # that all credentials are of
READY_SECONDS = 60
END_SECONDS = 20
FREE_PORTS_TRIED = 5
POLL_SECONDS = 0.05
ESTABLISHED, CLOSE_WAIT = "01", "08"  # as /proc/net/tcp writes them

NOBODY = 65534  # an ordinary user


class HostError(Exception):
    """A server does not start, or ended."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def established():
    """
    {(port, port at the other end): inode} of the machine's connections over IPv4 that are not
    closed. An end that was closed by the other side is still there: its own program has to do it.
    """
    found = {}
    with open("/proc/net/tcp", encoding="ascii") as file:
        for words in list(map(str.split, file))[1:]:
            if words[3] in (ESTABLISHED, CLOSE_WAIT):
                local, peer = (int(words[i].partition(":")[2], 16) for i in (1, 2))
                found[local, peer] = words[9]
    return found


def sockets_of(pid):
    """Inodes of the sockets that a process has."""
    found = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            link = os.readlink(f"/proc/{pid}/fd/{name}")
        except FileNotFoundError:  # closed in between
            continue
        if link.startswith("socket:["):
            found.add(link[8:-1])
    return found


def runs(pid):
    """Whether a process has not ended; who reaps it may be late."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Host:
    """
    A device server for TCP with TLS, whose devices are @devices: names in the order of its list.

    @build    The folder of the build.
    @items_s  Work-items a second of each device for kernels called as @paced says; a launch takes
              that long whatever else this machine does.
    """

    def __init__(self, folder, name, build, devices, paced, items_s):
        self.folder = os.path.join(folder, name)
        self.name, self.devices = name, devices
        self.serve = os.path.join(build, "remote", "reseat-serve")
        self.process, self.port = None, None
        self.lock = threading.Lock()
        self.traced, self.counts = 0, {device: 0 for device in devices}  # of its driver's trace:
        self.trace = self.path(f"pocl-cache/clients/{CLIENT}/trace")  # where its sessions may write
        os.mkdir(self.folder, 0o700)
        # An ordinary user's, whose sessions write where this class can look.
        self.user = []
        if os.geteuid() == 0:
            os.chown(self.folder, NOBODY, NOBODY)
            self.user = ["--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
        with open(self.path("devices"), "w", encoding="ascii") as file:
            for device in devices:
                file.write(f"[{device}] name={device} own_memory=yes items_per_s={items_s} "
                           f"paced={paced}\n")
        self.env = {key: value for key, value in os.environ.items() if not key.startswith("RESEAT")}
        self.env.pop("OCL_ICD_FILENAMES", None)
        self.env.update(OCL_ICD_VENDORS=os.path.join(build, "tests", "emu"),
                        EMU_CONFIG=self.path("devices"), EMU_TRACE=self.trace,
                        POCL_DEVICES="pthread", POCL_CACHE_DIR=self.path("pocl-cache"),
                        RESEAT_LOG="info", HOME=self.folder)
        self._authority("--init-ca", "--name", name)

    def path(self, name):
        return os.path.join(self.folder, name)

    def _authority(self, *arguments):
        done = subprocess.run(["setpriv", *self.user, self.serve, "--ca", self.path("ca"), *arguments], check=False,
                              text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=READY_SECONDS)
        if done.returncode:
            raise HostError(f"{self.name}: {done.stdout.strip()}")

    def issue(self):
        """A file with new credentials of the client."""
        path = self.path(CLIENT + ".pem")
        self._authority("--issue", CLIENT, "--out", path)
        return path

    def start(self):
        """
        Serve, at a port that is free.

        The server ends with the thread that calls this, if not before.
        """
        for _ in range(FREE_PORTS_TRIED):
            self.port = free_port()
            with open(self.path("log"), "ab") as log:
                self.process = subprocess.Popen(
                    ["setpriv", *self.user, "--pdeathsig", "KILL", self.serve, "--ca", self.path("ca"),
                     "--listen", f"tcp:127.0.0.1:{self.port}"],
                    env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
            said, _, _ = select.select([self.process.stdout], [], [], READY_SECONDS)
            if said and b"ready" in self.process.stdout.readline():
                return
            self.stop()  # somebody took the port in between
        raise HostError(f"{self.name} does not serve:\n{self.told()}")

    def _children(self):
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children",
                  encoding="ascii") as file:
            return file.read().split()

    def connections(self, owner):
        """How many connections to process @owner this server has and has not closed."""
        inodes, mine = established(), sockets_of(owner)
        return sum(local == self.port and inodes.get((peer, local)) in mine
                   for local, peer in inodes)

    def launches(self):
        """{device: launches that its driver was given, by all clients}"""
        with self.lock:
            try:
                with open(self.trace, "rb") as file:
                    file.seek(self.traced)
                    new = file.read()
            except FileNotFoundError:  # no client came yet
                new = b""
            whole = new.rpartition(b"\n")[0]
            self.traced += len(whole)
            for line in whole.decode("ascii").splitlines():
                words = line.split()
                if "clEnqueueNDRangeKernel" in words and words[1] in self.counts:
                    self.counts[words[1]] += 1
            return dict(self.counts)

    def told(self):
        """The end of its log, for who reads that something failed."""
        with open(self.path("log"), encoding="utf-8", errors="replace") as file:
            return "\n".join([f"the log of {self.name} ends with:", *file.read().splitlines()[-20:]])

    def stop(self, kill=False):
        """End the server, and see that its clients' processes end with it."""
        if not self.process:
            return
        children = self._children() if self.process.poll() is None else []
        if kill:
            self.process.kill()
        else:
            self.process.terminate()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.process = None
        until = time.monotonic() + END_SECONDS
        while any(runs(pid) for pid in children):
            if time.monotonic() > until:
                raise HostError(f"{self.name}: processes of its server go on: {children}")
            time.sleep(POLL_SECONDS)
