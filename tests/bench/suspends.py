#!/usr/bin/python3
"""Suspends and resumes of a program that computes all the time, part by part, beside the driver's own checkpoints.

  suspends.py [--device DEVICE] [--mib N[,N...]] [--runs N] [--peer] [--json FILE]

For each size a solver that has so much on the device, and writes a part of it all the time, is suspended, resumed as a whole,
suspended again and resumed on demand, and both again on a device that was made ready for it meanwhile (reseat prewarm, "ready",
which does not count): with no host memory kept warm ("fresh"), and with as much as it takes ("warm", after one such turn that does
not count). Milliseconds, the median of --runs:

  asked     from the command to its end, as an operator waits
  open      what is made on the target: the context, programs, objects
  ahead     copied while the program runs
  stopped   the program is kept out of its device
  release   the device's memory and context are given back, or the host's
  rest      of asked: the command, the agent, and what none of the others is

With --peer the same machine's cuda_peer.py, and how many times as long its suspend and resume take: of a resume as a whole, and
of one on demand, after which the program runs while the rest comes.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
NAME = "suspended"
PARTS = ("open", "ahead", "stopped", "release")
WAIT_SECONDS = 300
POLL_SECONDS = 0.05
STATUS_SECONDS = 1.0  # what the agent knows of a program is no older
TRACE_SECONDS = 3600
MIB = 1 << 20


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--device", help="one of reseat's (the first)")
    parser.add_argument("--mib", default="1024,8192", help="sizes, comma-separated")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--peer", action="store_true", help="cuda_peer.py beside it")
    parser.add_argument("--json", help="file for all of it")
    return parser.parse_args(argv)


def find(name, variable, *beside):
    folders = [os.path.join(HERE, "bin"), *(os.path.join(HERE, "..", "..", "build", at) for at in beside)]
    paths = [os.path.join(folder, name) for folder in folders]
    if variable in os.environ:
        paths.insert(0, os.environ[variable])
    for path in paths:
        if os.access(path, os.X_OK):
            return path
    return sys.exit(f"suspends.py: no {name}; see ${variable}")


def until(what, check):
    end = time.monotonic() + WAIT_SECONDS
    while not check():
        if time.monotonic() > end:
            sys.exit(f"suspends.py: {what} did not come")
        time.sleep(POLL_SECONDS)


class World:
    """An agent of our own with a configuration of our own, and a program of one size."""

    def __init__(self, options, mib, warm_mib):
        self.folder = tempfile.mkdtemp(prefix="reseat-suspends-")
        self.reseat = find("reseat", "RESEAT", "agent")
        self.env = dict(os.environ, XDG_RUNTIME_DIR=self.path("run"), XDG_CONFIG_HOME=self.path("config"))
        self.env.pop("RESEAT_CONFIG", None)
        self.output = None
        self.program = None
        self.tracer = None
        os.makedirs(self.path("config", "reseat"))
        os.mkdir(self.path("run"), 0o700)
        with open(self.path("config", "reseat", "reseat.conf"), "w", encoding="utf-8") as file:
            file.write(f'programs = ( {{ match = "*"; warm = "{warm_mib}MiB"; }} );\n')
        self.ask("agent", "start")
        self.device = options.device or self.ask("devices")["devices"][0]["name"]
        self.start(find("solver", "SOLVER", "tests/programs"), mib)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def ask(self, *args):
        run = subprocess.run([self.reseat, *args, "--json"], env=self.env, stdout=subprocess.PIPE, check=False)
        if run.returncode:
            sys.exit(f"suspends.py: reseat {' '.join(args)} failed with status {run.returncode}")
        return json.loads(run.stdout)

    def start(self, solver, mib):
        self.output = open(self.path("output"), "w+", encoding="utf-8")
        self.program = subprocess.Popen(
            [self.reseat, "run", "--name", NAME, "--device", self.device, "--", solver, "--mib", str(mib),
             "--steps", "1000000000", "--every", "100", "--tiles", "1"], env=self.env, stdout=self.output)
        until("the program's first steps", self.has_stepped)

    def has_stepped(self):
        if self.program.poll() is not None:
            sys.exit(f"suspends.py: the program ended with {self.program.returncode}")
        return os.fstat(self.output.fileno()).st_size > 0

    def goes_on(self):
        size = os.fstat(self.output.fileno()).st_size
        until("a step of the resumed program", lambda: os.fstat(self.output.fileno()).st_size > size)

    def trace_begin(self):
        self.tracer = subprocess.Popen(
            [self.reseat, "trace", NAME, "--seconds", str(TRACE_SECONDS), "--output", self.path("trace")],
            env=self.env, stdout=subprocess.DEVNULL)
        time.sleep(0.5)

    def trace_end(self):
        self.tracer.send_signal(signal.SIGINT)
        self.tracer.wait()
        with open(self.path("trace"), encoding="utf-8") as file:
            return [event for event in json.load(file)["traceEvents"] if event["ph"] == "X"]

    def change(self, *args):
        """Milliseconds that a command takes."""
        begin = time.monotonic()
        self.ask(*args)
        took = (time.monotonic() - begin) * 1e3
        if args[0] == "resume":
            self.goes_on()
        return took

    def fetched(self):
        """Everything is on the device: host memory has none of it."""
        app = self.ask("ps")["apps"][0]
        return app["vdevs"][0]["to_fetch_bytes"] == 0

    def finish(self):
        self.program.kill()
        self.program.wait()
        self.output.close()
        self.ask("agent", "stop")
        shutil.rmtree(self.folder, ignore_errors=True)


def is_within(event, whole):
    return whole["ts"] - 1 <= event["ts"] and event["ts"] + event["dur"] <= whole["ts"] + whole["dur"] + 1


def parts_of(events, whole):
    """Milliseconds of what one move was made of."""
    inside = [event for event in events if is_within(event, whole) and event is not whole]

    def total(category, name=None, beside=()):
        return sum(event["dur"] for event in inside
                   if event["cat"] == category and (name is None or event["name"] == name)
                   and not any(is_within(event, other) for other in beside)) / 1e3

    gates = [event for event in inside if event["cat"] == "gate"]
    ahead = total("copy", beside=gates)
    return {"open": total("move", "plan") + total("move", "prepare") - ahead, "ahead": ahead,
            "stopped": total("gate"), "release": total("move", "resume")}


def turn(world, kind):
    """Eight moves: [(what, asked, parts)]."""
    said, asked = [], []
    world.trace_begin()
    for ready in (False, True):
        for what, how in (("resume", "--whole"), ("on demand", "--on-demand")):
            asked.append(world.change("suspend", NAME))
            said.append(f"suspend, {kind}")
            if ready:
                world.ask("prewarm", NAME, world.device)
            asked.append(world.change("resume", NAME, how))
            said.append(f"{what}, {kind}" + (", ready" if ready else ""))
            time.sleep(STATUS_SECONDS)
            until("the last byte of what was resumed", world.fetched)
    events = world.trace_end()
    moves = [event for event in events if event["cat"] == "move" and event["name"].startswith("move to ")]
    moves.sort(key=lambda event: event["ts"])
    if len(moves) != len(asked):
        sys.exit(f"suspends.py: {len(asked)} moves were asked for, and the trace has {len(moves)}")
    return [(what, ms, parts_of(events, move)) for what, ms, move in zip(said, asked, moves)]


def measure(options, mib):
    """{what: {part: median}}"""
    found = {}
    for kind in ("fresh", "warm"):
        world = World(options, mib, 0 if kind == "fresh" else mib + mib // 4 + 512)
        try:
            if kind == "warm":
                turn(world, kind)
            for _ in range(options.runs):
                for what, asked, parts in turn(world, kind):
                    found.setdefault(what, []).append({"asked": asked, **parts})
        finally:
            world.finish()
    medians = {}
    for what, runs in found.items():
        medians[what] = {part: statistics.median(run[part] for run in runs) for part in ("asked", *PARTS)}
        medians[what]["rest"] = medians[what]["asked"] - sum(medians[what][part] for part in PARTS)
    return medians


def peer(mib):
    script = os.path.join(HERE, "cuda_peer.py")
    run = subprocess.run([sys.executable, script, "--mib", str(mib), "--runs", "1"], stdout=subprocess.PIPE,
                         check=False, text=True)
    return json.loads(run.stdout.splitlines()[-1]) if run.returncode == 0 else None


def show(mib, medians, beside):
    print(f"{mib} MiB{'':>17} {'asked':>9} " + " ".join(f"{part:>9}" for part in (*PARTS, "rest")) +
          (f" {'peer':>9} {'ratio':>7}" if beside else ""))
    for what, median in medians.items():
        line = f"{what:<23} {median['asked']:9.1f} " + " ".join(
            f"{median[part]:9.1f}" for part in (*PARTS, "rest"))
        if beside:
            theirs = beside["suspend_s" if what.startswith("suspend") else "resume_s"] * 1e3
            line += f" {theirs:9.1f} {theirs / median['asked']:6.1f}x"
        print(line, flush=True)
    if beside:
        print(f"copies through registered memory: {beside['pinned_out_s'] * 1e3:.1f} out, "
              f"{beside['pinned_in_s'] * 1e3:.1f} in", flush=True)


def main(argv):
    options = parse(argv)
    results = {}
    for mib in (int(word) for word in options.mib.split(",")):
        medians = measure(options, mib)
        beside = peer(mib) if options.peer else None
        show(mib, medians, beside)
        results[mib] = {"moves": medians, "peer": beside}
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main(sys.argv[1:])
