#!/usr/bin/python3
"""What protection and images cost, against the same program or the same bytes without, in one run.

  protect.py [--device DEVICE] [--mib N] [--solver-mib N] [--steps N] [--rounds N] [--seconds N]
             [--only PART[,PART...]] [--json FILE]

Parts, all by default:

  overhead  a solver protected and not, in turn, in its own process's driver and isolated
  pauses    how long points stop a program with --mib on its device, a hundredth of it rewritten each second
  redone    what a run takes longer that loses its device, in intervals of a quarter of the run
  recovery  from a loss until the first command on the new device, against a resume of the same program there
  images    of --mib, into memory, against plain writes of as many bytes; and a second one, a hundredth changed, in
            parts of 64 KiB all over, and in one piece

Drivers are those of $OCL_ICD_VENDORS. What a program prints is compared with what it prints natively, words
on the device with what they must be; where they differ the run ends with status 1.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "chaos"))

from lab import DONE, SYSTEM, Lab, find_reseat  # pylint: disable=wrong-import-position

PARTS = ("overhead", "pauses", "redone", "recovery", "images")
WAIT_SECONDS = 300
POLL_SECONDS = 0.1
TRACE_SECONDS = 3600
REST = ["--rest", "1000"]  # a hundredth each second
CHANGE_SECONDS = 3  # a few rewrites of the same hundredth
MIB = 1 << 20


def fail(why):
    sys.exit(f"protect.py: {why}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--device", help="one of reseat's (the first)")
    parser.add_argument("--mib", type=int, default=256, help="of pauses, recovery and images")
    parser.add_argument("--solver-mib", type=int, default=64)
    parser.add_argument("--steps", type=int, default=1000, help="of the solver")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30, help="that pauses are looked at")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--json", help="file for all of it")
    options = parser.parse_args()
    options.only = options.only.split(",")
    if not set(options.only) <= set(PARTS):
        parser.error(f"parts are {', '.join(PARTS)}")
    return options


def find(name):
    for folder in (os.environ.get("PROGRAMS", ""), os.path.join(HERE, "bin"),
                   os.path.join(HERE, "..", "..", "build", "tests", "programs")):
        path = os.path.join(folder, name)
        if folder and os.access(path, os.X_OK):
            return path
    return fail(f"no {name}; see $PROGRAMS")


def until(what, check, seconds=WAIT_SECONDS):
    end = time.monotonic() + seconds
    while not (found := check()):
        if time.monotonic() > end:
            fail(f"{what} did not come")
        time.sleep(POLL_SECONDS)
    return found


class Program:
    """One under reseat, and what it prints."""

    def __init__(self, bench, command, *how):
        self.bench, self.name = bench, "protected"
        self.told, self.output = bench.lab.path("told"), bench.lab.path("output")
        if os.path.exists(self.told):
            os.unlink(self.told)
        self.begun = time.monotonic()
        with open(self.output, "wb") as file:
            environment = {"TEST_UNTIL": self.told} if command[0].endswith("busy") else {}
            self.process = bench.lab.start(
                [bench.lab.reseat, "run", "--name", self.name, "--device", bench.device, *how, "--", *command],
                file, None, environment)

    def printed(self):
        with open(self.output, "rb") as file:
            return file.read()

    def app(self):
        return self.bench.lab.app(self.process.pid)

    def await_app(self, what, is_so):
        def look():
            if self.process.poll() is not None:
                fail(f"the program ended with {self.process.returncode} before {what}")
            app = self.app()
            return app if app and is_so(app) else None
        return until(what, look)

    def ready(self):
        until("what is written first", lambda: self.process.poll() is not None or self.printed())

    def end(self, expected):
        """Seconds that it took; at its end it has printed what it must."""
        with open(self.told, "wb"):
            pass
        self.process.wait(timeout=WAIT_SECONDS)
        took = time.monotonic() - self.begun
        if self.process.returncode or self.printed() != expected:
            fail(f"it ended with {self.process.returncode} and printed {self.printed()[-200:]}, "
                 f"not {expected[-200:]}")
        return took


class Bench:
    """An agent of our own, its device, and what is measured with it."""

    def __init__(self, options, lab):
        self.options, self.lab = options, lab
        self.device = options.device or lab.devices()[0]
        lab.control("agent", "start")
        self.results = {}
        self.solver = [find("solver"), "--tiles", "-1", "--every", "0", "--mib", str(options.solver_mib),
                       "--steps", str(options.steps)]
        self.solved = subprocess.run(self.solver, env=lab.env, stdout=subprocess.PIPE, check=True,
                                     timeout=WAIT_SECONDS).stdout

    def control(self, *args):
        """Seconds that a command takes."""
        begin = time.monotonic()
        status, answer = self.lab.control(*args, "--json")
        if status != DONE:
            fail(f"reseat {' '.join(args)} ended with status {status}: {answer}")
        return time.monotonic() - begin

    def show(self, name, value, goal, about):
        self.results[name] = value
        print(f"{name:44}{value:10.3f}  {goal:10}  {about}", flush=True)

    def solve(self, *how):
        """(Seconds, points that were made)"""
        program, points = Program(self, self.solver, *how), 0
        while program.process.poll() is None:
            points = max(points, ((program.app() or {}).get("protection") or {}).get("snapshots", 0))
            try:
                program.process.wait(5 * POLL_SECONDS)
            except subprocess.TimeoutExpired:
                pass
        return program.end(self.solved), points

    def overhead(self):
        for ways, isolation in (("", "--no-isolate"), (", isolated", "--isolate")):
            took, points = {"off": [], "10": []}, []
            for turn in range(self.options.rounds):
                for protect in sorted(took, reverse=turn % 2 == 1):
                    seconds, count = self.solve(isolation, f"--protect={protect}")
                    took[protect].append(seconds)
                    if protect != "off":
                        points.append(count)
            if min(points) == 0:
                fail("a protected run ended without a point: take more --steps")
            about = f"{min(points)} to {max(points)} points in {statistics.median(took['10']):.2f} s"
            for word, of in (("median", statistics.median), ("best", min)):
                self.show(f"protected : not{ways}, {word}", of(took["10"]) / of(took["off"]), "<= 1.01", about)

    def busy(self, *more):
        return [find("busy"), "--mib", str(self.options.mib), *REST, *more]

    BUSY = b"ready\nevery word is right\n"

    def pauses(self):
        program = Program(self, self.busy(), "--protect=1")
        program.ready()
        seen, last = [], 0
        end = time.monotonic() + self.options.seconds
        while time.monotonic() < end:
            said = program.await_app("its first point", lambda app: app["protection"]["snapshots"])["protection"]
            if said["snapshots"] != last:
                seen.append(said["snapshot_downtime_ns"] / 1e6)
            last = said["snapshots"]
            time.sleep(POLL_SECONDS)
        program.end(self.BUSY)
        if len(seen) < 3:
            fail(f"{len(seen)} points were seen: take more --seconds")
        about = f"{said['points']} points, {said['paused_ns'] / said['protected_ns']:.2%} of the time"
        self.show("pause of a point, median, ms", statistics.median(seen), "<= 5", about)
        self.show("pause of a point, longest, ms", max(seen), "<= 5", about)

    def kill(self, program):
        """What was known of it then."""
        app = program.await_app("a point", lambda app: app["protection"]["snapshots"])
        os.kill(self.lab.driver_process() or fail("no process has the program's driver"), signal.SIGKILL)
        return app

    def redone(self):
        whole, more = [], []
        for _ in range(self.options.rounds):
            seconds, _ = self.solve("--isolate", "--protect=off")
            interval = round(seconds / 4)  # it is told whole seconds
            if interval < 1:
                fail(f"a run takes {seconds:.1f} s, and a quarter of it is no second: take more --steps")
            how = ("--isolate", f"--protect={interval}")
            undisturbed, _ = self.solve(*how)
            program = Program(self, self.solver, *how)
            time.sleep(undisturbed * 0.6)
            age = self.kill(program)["protection"]["snapshot_age_ns"] / 1e9
            program.await_app("its recovery", lambda app: app["protection"]["recoveries"] == 1)
            took = program.end(self.solved)
            whole.append((took - undisturbed) / undisturbed)
            more.append(f"{age:.2f} s after a point +{took - undisturbed:.2f} s of {undisturbed:.2f}")
        self.show("a loss takes, of the run, median", statistics.median(whole), "<= 0.25", "; ".join(more))

    def trace(self, program, act):
        """[(begin, end, name, category)] in seconds, while @act."""
        file = self.lab.path("trace")
        tracer = self.lab.start([self.lab.reseat, "trace", program.name, "--seconds", str(TRACE_SECONDS),
                                 "--output", file], subprocess.DEVNULL, None)
        time.sleep(1)
        act()
        tracer.send_signal(signal.SIGINT)
        tracer.wait(timeout=WAIT_SECONDS)
        with open(file, encoding="utf-8") as text:
            return [(event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6, event["name"], event["cat"])
                    for event in json.load(text)["traceEvents"] if event["ph"] == "X"]

    @staticmethod
    def opened(events, to):
        """(When the last move that was done to @to began, when the program could go on, seconds of building.)"""
        moves = [event for event in events
                 if event[3] == "move" and event[2] == f"move to {to}: done"]
        if not moves:
            fail(f"the trace has no move to {to}: {sorted({event[2] for event in events})}")
        begin, end = moves[-1][:2]
        gates = [event[1] for event in events if event[3] == "gate" and begin <= event[0] and event[1] <= end + 1e-3]
        if not gates:
            fail("the trace does not say when the program could go on")
        return begin, max(gates), sum(event[1] - event[0] for event in events
                                      if event[3] == "build" and begin <= event[0] and event[1] <= end)

    # What a recovery goes through, one after the other, and the spans that end it.
    STEPS = (("noticed", "recovery", "notice"), ("chosen", "recovery", "choose"), ("opened", "move", "open"),
             ("built", "build", "build"), ("state in", "recovery", "restore"), ("journal", "recovery", "journal"))

    @classmethod
    def steps(cls, events, begin, end):
        """[(step, seconds)] from @begin, when the loss was noticed, to @end, when the program could go on."""
        at, steps = begin, []
        for step, category, name in cls.STEPS:
            ends = [event[1] for event in events
                    if event[2] == name and event[3] == category and at <= event[1] <= end + 1e-3]
            if ends:  # a build may have been had from elsewhere
                steps.append((step, max(ends) - at))
                at = max(ends)
        return steps + [("goes on", end - at)]

    def recovery(self):
        ratios, moves, about, steps = [], [], [], {}
        for _ in range(self.options.rounds):
            program = Program(self, self.busy(), "--isolate", "--protect=1")
            program.ready()
            before = program.app()["protection"]["snapshots"]
            program.await_app("a point of all of it", lambda app, before=before: (
                app["protection"]["snapshots"] > before + 1))
            after = {}

            def lose(program=program, after=after):
                self.kill(program)
                after.update(program.await_app("its recovery", lambda app: (
                    app["protection"]["recoveries"] == 1 and app["state"] == "running")))

            events = self.trace(program, lose)
            moved, went_on, built = self.opened(events, after["device"])
            notices = [event[0] for event in events if event[3] == "recovery" and event[2] == "notice"]
            if not notices:
                fail("the trace does not say when the loss was noticed")
            after["noticed"] = notices[-1]
            lost = went_on - after["noticed"]
            for step, seconds in self.steps(events, after["noticed"], went_on):
                steps.setdefault(step, []).append(seconds)

            def fetch(program=program, after=after):
                self.control("suspend", program.name)
                self.control("resume", program.name, after["device"], "--whole")

            begin, end, built_then = self.opened(self.trace(program, fetch), after["device"])
            program.end(self.BUSY)
            if not 0 < lost < WAIT_SECONDS:
                fail(f"the loss was noticed {lost:.3f} s before the program went on")
            resumed = end - begin
            ratios.append(lost / resumed)
            moves.append((went_on - moved) / resumed)
            about.append(f"{lost * 1e3:.0f} ms to {after['device']}: {(moved - after['noticed']) * 1e3:.0f} until "
                         f"its move began, {built * 1e3:.0f} building; resumed there in {resumed * 1e3:.0f}: "
                         f"{built_then * 1e3:.0f} building")
        self.show("recovery : resume, median", statistics.median(ratios), "<= 1.3", "; ".join(about))
        self.show("the same, from its move's beginning", statistics.median(moves), "", "")
        for step, seconds in steps.items():
            self.show(f"recovery until {step}, median, ms", statistics.median(seconds) * 1e3, "",
                      ", ".join(f"{one * 1e3:.1f}" for one in seconds))

    def write(self, folder, part):
        """Seconds for as many bytes as the program has, one after the other."""
        path = os.path.join(folder, "plain")
        begin = time.monotonic()
        with open(path, "wb", buffering=0) as file:
            for _ in range(self.options.mib * MIB // len(part)):
                if file.write(part) != len(part):
                    fail(f"{path} is full")
            os.fsync(file.fileno())
        took = time.monotonic() - begin
        os.unlink(path)
        return took

    def images(self):
        for where, more in (("scattered", ()), ("contiguous", ("--contiguous", "1"))):
            self.images_of(where, more)

    def images_of(self, where, more):
        base = "/dev/shm" if os.path.isdir("/dev/shm") else None
        for kind, options, part in (("noise", (), os.urandom(4 * MIB)),
                                    ("compressible", ("--flat", "1"), bytes(range(256)) * (4 * MIB // 256))):
            speeds, seconds_of = [], []
            for _ in range(self.options.rounds):
                with tempfile.TemporaryDirectory(prefix="reseat-protect-", dir=base) as folder:
                    program = Program(self, self.busy(*options, *more), "--protect=off")
                    program.ready()
                    images = os.path.join(folder, "images")
                    plain = self.write(folder, part)
                    first = self.control("checkpoint", program.name, "--to", images, "--every", "3600")
                    plain = (plain + self.write(folder, part)) / 2
                    time.sleep(CHANGE_SECONDS)
                    second = self.control("checkpoint", program.name, "--to", images)
                    self.control("image", "verify", images)
                    program.end(self.BUSY)
                speeds.append(plain / first)
                seconds_of.append((first, second, plain))
            about = "; ".join(f"{first:.2f} s, plain {plain:.2f}" for first, _, plain in seconds_of)
            if not more:
                self.show(f"image's speed : plain writes', {kind}", statistics.median(speeds), ">= 0.8", about)
            self.show(f"second image, 1 % {where} : first, {kind}",
                      statistics.median(second / first for first, second, _ in seconds_of), "<= 0.05",
                      "; ".join(f"{second:.3f} s" for _, second, _ in seconds_of))


def main():
    options = parse()
    with Lab([SYSTEM], find_reseat()) as lab:
        bench = Bench(options, lab)
        print(f"{bench.device}, {options.mib} MiB; a solver of {options.solver_mib} MiB; {options.rounds} rounds")
        print(f"{'':44}{'':10}  {'goal':10}")
        for part in PARTS:
            if part in options.only:
                getattr(bench, part)()
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(bench.results, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
