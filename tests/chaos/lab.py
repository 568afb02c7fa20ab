"""A private world for running programs under reseat: its own agent, vendors and caches."""

import copy
import fcntl
import itertools
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

# What each vendor's .icd file says, and the variables that make it show devices.
VENDORS = {
    "pocl": ("libpocl.so.2", {"POCL_DEVICES": "basic pthread"}),
    "rusticl": ("libRusticlOpenCL.so.1", {"RUSTICL_ENABLE": "llvmpipe"}),
    "oclgrind": ("/usr/lib/oclgrind/liboclgrind-rt-icd.so", {}),
    "nvidia": ("libnvidia-opencl.so.1", {}),
    # Of the server that $RESEAT_SERVER names (tests/remote/served.py).
    "remote": (os.environ.get("TEST_REMOTE", "libreseat-remote.so"), {}),
}
EMULATED = "emulated"  # GPUS, by $EMU_LIBRARY
GPUS = """
[a] name=gpu-a base=1 own_memory=yes
[b] name=gpu-b base=1 own_memory=yes link_mb_s=4000
[c] name=cpu-c base=1 type=cpu host_unified=yes
"""
PACED = "paced"  # PACED_GPUS: a launch takes its time however busy this machine is
PACED_GPUS = """
[a] name=gpu-a base=1 own_memory=yes items_per_s=400000 paced=compute,places,memory
[b] name=gpu-b base=1 own_memory=yes items_per_s=400000 paced=compute,places,memory
[c] name=cpu-c base=1 type=cpu host_unified=yes items_per_s=200000 paced=compute,places,memory
"""
TIMED = "timed"  # TIMED_GPUS: every launch takes its time
TIMED_GPUS = """
[a] name=gpu-a base=1 own_memory=yes items_per_s=4000000
[b] name=gpu-b base=1 own_memory=yes items_per_s=4000000
[c] name=gpu-c base=1 own_memory=yes items_per_s=4000000
"""
SYSTEM = "system"  # whatever a loader would read: $OCL_ICD_VENDORS, or /etc/OpenCL/vendors

DONE, ROLLED_BACK, USAGE, NO_SUCH, REFUSED, DEADLINE = range(6)
OUTCOMES = {DONE: "done", ROLLED_BACK: "rolled back", USAGE: "usage", NO_SUCH: "no such program",
            REFUSED: "refused", DEADLINE: "deadline"}

# A long test may do what it does again and again so many times as often.
TIMES = int(os.environ.get("TEST_TIMES", "1"))

APPEAR_SECONDS = 60
POLL_SECONDS = 0.05
COMMAND_SECONDS = 300
STILL_SECONDS = 120
PATIENCE = 120 * int(os.environ.get("TEST_PATIENCE", "1"))
SKIPPED = 77  # what meson takes for a skipped test


def fail(text):
    sys.exit(f"{os.path.basename(sys.argv[0])}: {text}")


def say(text):
    print(f"\n{text}", flush=True)


def check(what, is_so, seen=""):
    if not is_so:
        fail(f"{what}: {seen}")


def expect(what, got, wanted):
    check(what, got == wanted, f"{got!r}, not {wanted!r}")


def until(what, ready, seen=lambda: ""):
    """What @ready gives, as soon as that is something."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        got = ready()
        if got:
            return got
        time.sleep(POLL_SECONDS)
    return fail(f"never came about: {what}; {seen()}")


def free_port(address="127.0.0.1"):
    with socket.socket() as one:
        one.bind((address, 0))
        return one.getsockname()[1]


def touch(path):
    with open(path, "w", encoding="utf-8"):
        pass


def lines(path):
    """Those of a file, none if there is no file yet."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []


def reason(answer):
    """Why a command was refused, by its JSON object."""
    answer = answer or {}
    return answer.get("reason") or (answer.get("error") or {}).get("message") or ""


def find_reseat(named=None):
    """The reseat command: as named, as $RESEAT says, beside the build, or on the path."""
    here = os.path.dirname(os.path.abspath(__file__))
    beside = os.path.join(here, "..", "..", "build", "agent", "reseat")
    for candidate in (named, os.environ.get("RESEAT"), beside, shutil.which("reseat")):
        if candidate and os.access(candidate, os.X_OK):
            return os.path.abspath(candidate)
    return None


def take_cache(command=()):
    """A folder for what POCL compiles that nobody else uses, warm if there is one, and its lock:
    in one cache two programs that link the same fail, natively too. Each program of a @command
    has its own, since no other has its kernels."""
    name = next((word for word in command if os.path.isfile(word)), "".join(command[:1]) or "lab")
    name = os.path.basename(name)
    base = os.environ.get("POCL_CACHE_DIR") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"),
        "reseat-tests-pocl")
    for number in itertools.count():
        cache = os.path.join(base, f"{name}-{number}")
        os.makedirs(cache, exist_ok=True)
        lock = open(cache + ".lock", "w", encoding="utf-8")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock, cache
        except BlockingIOError:
            lock.close()


class Lab:
    """A folder with everything; leave it (it is a context manager) and all of it is gone."""

    def __init__(self, vendors, reseat=None, keep=False, extra_env=None, program=(), devices=None):
        self.programs = []
        self.user, self.identity = "", {}
        self.folder = tempfile.mkdtemp(prefix="reseat-lab-")
        self.keep = keep
        self.reseat = reseat
        self.vendors = vendors
        icd = os.path.join(self.folder, "vendors")
        runtime = os.path.join(self.folder, "run")
        os.mkdir(icd)
        os.mkdir(runtime, 0o700)
        self.cache_lock, cache = take_cache(program)
        self.env = dict(os.environ, OCL_ICD_VENDORS=icd, XDG_RUNTIME_DIR=runtime,
                        XDG_STATE_HOME=os.path.join(self.folder, "state"),
                        RESEAT_LINKS=os.path.join(self.folder, "links"),
                        XDG_CONFIG_HOME=os.path.join(self.folder, "config"), POCL_CACHE_DIR=cache)
        # Compilers are to be tried as well, so that a library of binaries is asked for by name.
        if self.env.setdefault("RESEAT_LIBRARY_LIMIT", "0") != "0":
            self.env["XDG_CACHE_HOME"] = os.path.join(self.folder, "cache")
        self.env.pop("RESEAT_CONFIG", None)
        self.env.pop("OCL_ICD_FILENAMES", None)
        for vendor in vendors:
            if vendor == SYSTEM:
                shutil.copytree(os.environ.get("OCL_ICD_VENDORS", "/etc/OpenCL/vendors"), icd,
                                dirs_exist_ok=True)
                continue
            library, variables = VENDORS.get(vendor) or self.emulated(
                devices or {PACED: PACED_GPUS, TIMED: TIMED_GPUS}.get(vendor, GPUS))
            with open(os.path.join(icd, vendor + ".icd"), "w", encoding="utf-8") as file:
                file.write(library + "\n")
            for name, value in variables.items():
                self.env.setdefault(name, value)
        self.env.update(extra_env or {})

    def emulated(self, devices):
        """By default GPUs with memory of their own, which is where maps are copies."""
        config = self.path("gpus.conf")
        with open(config, "w", encoding="utf-8") as file:
            file.write(devices)
        return os.environ["EMU_LIBRARY"], {"EMU_CONFIG": config, "POCL_DEVICES": "basic pthread"}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for program in self.programs:
            program.kill()
        if self.reseat:
            self.control("agent", "stop")
        if not self.keep:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.cache_lock.close()

    def of(self, user, uid):
        """The same world for another user, who has a home: only root can ask for it."""
        home, other = self.path(user), copy.copy(self)
        os.mkdir(home, mode=0o700)
        os.chown(home, uid, uid)
        os.chmod(self.folder, 0o711)
        other.user, other.identity = user, {"user": uid, "group": uid, "extra_groups": []}
        other.env = dict(self.env, HOME=home, RESEAT_LINKS=os.path.join(home, "links"))
        for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "POCL_CACHE_DIR"):
            other.env[name] = home
        return other

    def path(self, name):
        return os.path.join(self.folder, name)

    def use_new_cache(self):
        """For programs that link: POCL's cache does not survive two processes that link the same."""
        self.env["POCL_CACHE_DIR"] = self.path("pocl")
        os.mkdir(self.env["POCL_CACHE_DIR"])

    def control(self, *args):
        """Run a reseat command; (exit status, its JSON or None)."""
        try:
            run = subprocess.run([self.reseat, *args], env=self.env, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                                 timeout=COMMAND_SECONDS, **self.identity)
        except subprocess.TimeoutExpired:
            return DEADLINE, None
        try:
            return run.returncode, json.loads(run.stdout)
        except ValueError:
            return run.returncode, None

    def show(self, *words, without=r"^$"):
        """Run a command of reseat as an operator would, and show it, without some lines. Its exit status."""
        print(f"  {self.user}$ reseat " + " ".join(words), flush=True)
        done = subprocess.run([self.reseat, *words], env=self.env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                              timeout=COMMAND_SECONDS, text=True, **self.identity)
        for line in done.stdout.splitlines():
            if not re.search(without, line):
                print("    " + line, flush=True)
        return done.returncode

    def must(self, *words, **more):
        expect("the status of that", self.show(*words, **more), DONE)

    def devices(self):
        """Names of all devices, in the order in which reseat shows them."""
        self.control("agent", "start")
        status, answer = self.control("devices", "--json")
        if status != DONE or not answer:
            raise RuntimeError(f"reseat devices failed with status {status}")
        return [device["name"] for device in answer["devices"]]

    def app(self, pid):
        """What ps says of the program with that process id, or None."""
        _, answer = self.control("ps", "--json")
        for app in (answer or {}).get("apps", []):
            if app.get("pid") == pid:
                return app
        return None

    def driver_processes(self):
        """What has isolated programs' drivers, the oldest first: the agent's server makes one a client."""
        _, agent = self.control("agent", "status", "--json")
        found = []
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
            parent = parent_of(pid)
            if (agent and is_server(pid) and not is_reaper(pid) and is_server(parent)
                    and parent_of(parent) == agent["agent"]["pid"]):
                found.append((begun_at(pid), pid))
        return [pid for _, pid in sorted(found)]

    def driver_process(self):
        """That of the only program, or None: a spare one is younger."""
        return next(iter(self.driver_processes()), None)

    def run_command(self, name, device=None, present=None, seats=1):
        command = [self.reseat, "run", "--name", name]
        if device:
            command += ["--device", device]
        if seats > 1:
            command += ["--devices", str(seats)]
        if present:
            command += ["--present", present]
        return command + ["--"]

    def start(self, command, stdout, stderr, extra_env=None, stdin=subprocess.DEVNULL):
        return subprocess.Popen(command, env=dict(self.env, **(extra_env or {})),
                                stdin=stdin, stdout=stdout, stderr=stderr, **self.identity)

    def native(self, command, seconds=PATIENCE, **env):
        """(exit status, standard output) without reseat."""
        run = subprocess.run(command, env=dict(self.env, **env), stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, check=False, timeout=seconds)
        return run.returncode, run.stdout

    def tail(self, name, size):
        """The end of a file in this folder."""
        try:
            with open(self.path(name), "rb") as file:
                return file.read()[-size:].decode(errors="replace")
        except FileNotFoundError:
            return ""


class Program:
    """A program under reseat, which its lab kills in the end. If it is to be @busy until end(), it is told by
    TEST_UNTIL, which those of tests/programs read."""

    def __init__(self, lab, command, *options, busy=False, stdout=subprocess.PIPE, stderr=None,
                 stdin=subprocess.DEVNULL, env=None):
        self.lab, self.until = lab, lab.path(f"until-{len(lab.programs)}")
        self.process = lab.start([lab.reseat, "run", *options, "--", *command], stdout, stderr,
                                 dict({"TEST_UNTIL": self.until} if busy else {}, **(env or {})), stdin)
        self.pid = str(self.process.pid)
        lab.programs.append(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def runs(self):
        return self.process.poll() is None

    def app(self):
        """What ps says of it."""
        check("the program runs", self.runs(), self.process.returncode)
        return self.lab.app(self.process.pid)

    def comes_to(self, what, ready):
        """What ps says of it once that is so."""
        return until(what, lambda: (app := self.app()) and ready(app) and app, self.app)

    def control(self, verb, *args):
        return self.lab.control(verb, self.pid, *args, "--json")

    def moves(self, device):
        status, answer = self.control("move", device)
        expect(f"move to {device} ({answer})", status, DONE)

    def is_refused(self, why, verb, *args):
        status, answer = self.control(verb, *args)
        check(f"{verb} is refused: {why}", status == REFUSED and why in reason(answer), (status, answer))

    def end(self, text=None):
        """(exit status, standard output) once it may end; @text is what it reads before."""
        touch(self.until)
        try:
            output, _ = self.process.communicate(text, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            fail("the program does not end")
        return self.process.returncode, output

    def kill(self):
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                stream.close()


def stat_of(pid):
    """What /proc says of a process from its state on, or None."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def parent_of(pid):
    return int((stat_of(pid) or "00")[1])


def begun_at(pid):
    """In ticks since the machine was booted; 0: it has ended."""
    return int((stat_of(pid) or "0" * 20)[19])


def is_reaper(pid):
    """The process beside a server that ends what its sessions leave: it has no driver."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
            return file.read() == "reseat-reaper\n"
    except OSError:
        return False


def is_server(pid):
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "reseat-serve"
    except OSError:
        return False


def processor_seconds(pid):
    """What a process and what it began took of the processors."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
            children = file.read().split()
    except OSError:  # it ended in between
        return 0
    own = sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    return own + sum(processor_seconds(child) for child in children)


class Patience:
    """When to give a process up: by what it takes of the processors, since others may have them."""

    def __init__(self, pid, seconds):
        self.pid, self.seconds = pid, seconds
        self.took, self.since = 0, time.monotonic()

    def is_out(self):
        """Why, or None."""
        took, now = processor_seconds(self.pid), time.monotonic()
        if took != self.took:
            self.took, self.since = took, now
        if took > self.seconds:
            return f"took {took:.0f} s of processor time and did not end"
        if now - self.since > STILL_SECONDS:
            return f"stood still for {STILL_SECONDS} s"
        return None

    def wait(self, process):
        """(its exit status, None), or (None, why it was killed)."""
        while process.poll() is None:
            why = self.is_out()
            if why:
                process.kill()
                process.wait()
                return None, why
            time.sleep(POLL_SECONDS)
        return process.returncode, None


class Mover(threading.Thread):
    """
    Moves a process at random times between devices until told to stop or it ends.

    By its process id: a child that it forks has its name.
    """

    def __init__(self, lab, pid, devices, seed, interval=(0.05, 0.5), suspend_every=0,
                 timeout=60, log=None, seats=1, spread=False):
        super().__init__(daemon=True)
        self.lab, self.pid, self.devices, self.seats = lab, pid, devices, seats
        self.random = random.Random(seed)
        self.interval, self.suspend_every, self.timeout = interval, suspend_every, timeout
        self.log, self.spread = log, spread
        self.spread_launches = self.spread_items = 0
        self.stop_asked = threading.Event()
        self.counts = {outcome: 0 for outcome in OUTCOMES.values()}
        self.last = "none"
        self.suspends = self.on_demand = 0
        self.downtimes = []
        self.reasons = {}

    def stop(self):
        self.stop_asked.set()
        self.join()

    def moves(self):
        return self.counts["done"]

    def told(self):
        """What became of the moves, for who reads that something failed."""
        counts = ", ".join(f"{n} {what}" for what, n in self.counts.items() if n)
        return f" (moves: {counts or 'none'}; the last: {self.last})"

    def _ready(self):
        end = time.monotonic() + APPEAR_SECONDS
        while not self.stop_asked.is_set() and time.monotonic() < end:
            app = self.lab.app(self.pid)
            if app and app.get("device"):
                return True
            time.sleep(POLL_SECONDS)
        return False

    def _note(self, verb, target, status, answer):
        answer = answer or {}
        self.last = f"{verb} {target}: {OUTCOMES.get(status, status)}"
        if self.log:
            self.log.write(f"{verb} {target}: {OUTCOMES.get(status, status)} "
                           f"{json.dumps(answer, sort_keys=True)}\n")
        if verb == "suspend":
            return
        if status == DONE and answer.get("starting"):
            return
        outcome = OUTCOMES.get(status, "no such program")
        self.counts[outcome] += 1
        if status == DONE:
            self.downtimes.append((answer.get("downtime_ns") or 0) / 1e9)
        elif status != NO_SUCH:
            why = reason(answer) or "?"
            self.reasons[why] = self.reasons.get(why, 0) + 1

    def _app(self):
        """What to move: the process, or mostly one virtual device of it."""
        if self.seats == 1 or self.random.randrange(5) == 0:
            return str(self.pid)
        return f"{self.pid}:{self.random.randrange(self.seats)}"

    def _spread(self):
        """Name other devices for its launches, or none; and see what came of those before."""
        app = self.lab.app(self.pid) or {}
        self.spread_launches = max(self.spread_launches, app.get("spread_launches", 0))
        self.spread_items = max(self.spread_items, app.get("spread_items", 0))
        named = self.random.sample(self.devices, self.random.randrange(len(self.devices)))
        how = [",".join(named)] if named else ["--off"]
        status, answer = self.lab.control("spread", str(self.pid), *how, "--json")
        if self.log:
            self.log.write(f"spread {how[0]}: {OUTCOMES.get(status, status)} {json.dumps(answer)}\n")
        self.stop_asked.wait(self.random.uniform(*self.interval))

    def _once(self, at, turn):
        app = self._app()
        if self.spread and turn % 2:
            self._spread()
        if self.seats > 1:
            at = None  # they are in several places
        others = [device for device in self.devices if device != at] or self.devices
        target = self.random.choice(others)
        pause = self.random.uniform(*self.interval)
        if self.suspend_every and turn % self.suspend_every == self.suspend_every - 1:
            status, answer = self.lab.control("suspend", app, "--json")
            self._note("suspend", "", status, answer)
            if status == DONE:
                self.suspends += 1
                time.sleep(pause)
                how = self.random.choice(("--on-demand", "--whole"))
                status, answer = self.lab.control("resume", app, target, how, "--json")
                self._note("resume", target, status, answer)
                return target if status == DONE else at
        # Some of those on demand so slowly that the next one finds most of it left behind.
        how = self.random.choice(([], ["--non-blocking"], ["--on-demand"],
                                  ["--on-demand", "--bandwidth", "256KiB"]))
        status, answer = self.lab.control("move", app, target, "--timeout", str(self.timeout), *how,
                                          "--json")
        self._note("move", target, status, answer)
        self.on_demand += status == DONE and "--on-demand" in how
        self.stop_asked.wait(pause)
        return target if status == DONE else at

    def run(self):
        if not self._ready():
            return
        at, turn = None, 0
        while not self.stop_asked.is_set():
            at = self._once(at, turn)
            turn += 1
