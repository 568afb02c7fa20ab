#!/usr/bin/env python3
"""
Programs that wait for room on a device: they go on when there is some, or are told that there is
none, and print what they print natively.

    waiting.py GROWER

One emulated device, of which programs may have 24 blocks of a MiB. The agent is stopped and
started while they wait.
"""

import os
import signal
import subprocess
import sys
import time

from lab import DONE, REFUSED, VENDORS, Lab, find_reseat

PATIENCE = 60
MIB = 1 << 20
ALL = 24  # what programs may have, in blocks
HELD = 15  # by the one that holds up the others
LEFT = ALL - HELD
GROWN = 8  # of the one that waits, which has small objects besides
PART = 10  # two that hold it leave too little for either
STEPS = 20  # of the thread that goes on meanwhile
DEADLINE = 1  # second


def fail(text):
    sys.exit(f"waiting.py: {text}")


def expect(what, got, wanted):
    if got != wanted:
        fail(f"{what}: {got!r}, not {wanted!r}")


def until(what, ready, seen=lambda: ""):
    """What @ready gives, as soon as that is something."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        got = ready()
        if got:
            return got
        time.sleep(0.05)
    return fail(f"never came about: {what}; {seen()}")


def touch(path):
    with open(path, "w", encoding="utf-8"):
        pass


def size(path):
    return os.path.getsize(path) if os.path.exists(path) else 0


class Program:
    """A grower under reseat, kept busy until it is released."""

    started = []

    def __init__(self, lab, grower, name, *work, ways="wait"):
        self.lab, self.name = lab, name
        self.told = lab.path(name + ".told")
        if os.path.exists(self.told):
            os.remove(self.told)
        self.said = lab.path(name + ".said")
        with open(self.said, "wb") as said:
            self.process = lab.start(
                [lab.reseat, "run", "--name", name, "--on-full", ways, "--", grower, *work],
                subprocess.PIPE, said, {"TEST_UNTIL": self.told})
        self.started.append(self.process)

    def app(self):
        if self.process.poll() is not None:
            fail(f"{self.name} ended with {self.process.returncode}: {self.lines()}")
        return self.lab.app(self.process.pid)

    def lines(self):
        with open(self.said, encoding="utf-8") as file:
            return file.read().splitlines()

    def says(self, line):
        until(f"{self.name} says {line!r}", lambda: line in self.lines() or
              (self.app() and False), lambda: f"{self.lines()}, {self.app()}")

    def comes_to(self, what, ready):
        return until(f"{self.name} {what}", lambda: (app := self.app()) and ready(app) and app,
                     lambda: f"{self.lines()}, {self.app()}")

    def waits(self, blocks):
        app = self.comes_to(f"waits with {blocks} blocks",
                            lambda app: app["state"] == "waiting" and app["waiting"] == 1 and
                            app["device_bytes"] // MIB == blocks)
        if not app["ticket"]:
            fail(f"{self.name} waits without a ticket: {app}")

    def finish(self, natively):
        touch(self.told)
        output, _ = self.process.communicate(timeout=PATIENCE)
        expect(f"exit status of {self.name} ({self.lines()})", self.process.returncode, 0)
        expect(f"output of {self.name}", output, natively)


def natively(lab, grower, blocks, *work):
    """What it prints, and says, alone on a device of that many blocks."""
    config = lab.path("native.conf")
    with open(config, "w", encoding="utf-8") as file:
        file.write(f"[one] name=one memory={blocks}MiB\n")
    run = subprocess.run([grower, *work], env=dict(lab.env, EMU_CONFIG=config), check=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE)
    return run.stdout, run.stderr.decode().splitlines()


def restart(lab, **env):
    expect("agent stop", lab.control("agent", "stop")[0], DONE)
    lab.env.update(env)
    expect("agent start", lab.control("agent", "start")[0], DONE)


def one_waits_for_the_other(lab, grower):
    hold, work = ["--from", str(HELD)], ["--from", "4", "--step", "4"]
    # Natively first: two programs do not compile the same in one cache at once.
    held, grown = (natively(lab, grower, ALL, *words, "--to", str(HELD))[0]
                   for words in (hold, work))
    holds = Program(lab, grower, "holds", *hold, "--to", str(HELD))
    holds.says(f"{HELD} blocks")
    beside = lab.path("beside")
    waits = Program(lab, grower, "waits", *work, "--to", str(HELD), "--beside", beside)
    for turn in range(2):
        waits.waits(GROWN)
        before = size(beside)
        until("its other thread goes on", lambda: size(beside) >= before + STEPS)
        expect("who waits", waits.app()["state"], "waiting")
        expect("what it said", waits.lines(), ["4 blocks", f"{GROWN} blocks"])
        if turn == 0:
            restart(lab)
    app = holds.app()
    expect("who holds", (app["state"], app["ticket"]), ("running", 0))
    holds.finish(held)
    waits.says(f"{HELD} blocks")
    waits.finish(grown)


def each_has_what_the_other_wants(lab, grower):
    grow = lab.path("grow")
    work = ["--from", str(PART), "--to", str(HELD), "--step", str(HELD - PART)]
    alone = natively(lab, grower, ALL, *work)[0]
    both = [Program(lab, grower, name, *work, "--when", grow) for name in ("left", "right")]
    for program in both:
        program.says(f"{PART} blocks")
    touch(grow)

    def winner():
        return next((p for p in both if f"{HELD} blocks" in p.lines()), None)

    first = until("one of them has all that it wants", winner)
    last = both[1 - both.index(first)]
    for turn in range(2):
        app = last.comes_to("is displaced", lambda app: app["state"] == "suspended")
        expect("that it comes back", (app["displaced"], app["ticket"] > 0), (True, True))
        expect("what it said", last.lines(), [f"{PART} blocks"])
        if turn == 0:
            restart(lab)
    first.finish(alone)
    last.says(f"{HELD} blocks")
    last.finish(alone)


def one_has_waited_long_enough(lab, grower):
    restart(lab, RESEAT_WAIT_DEADLINE=f"{DEADLINE}s")
    holds = Program(lab, grower, "holds", "--from", str(HELD), "--to", str(HELD))
    holds.says(f"{HELD} blocks")
    work = ["--from", "4", "--to", str(HELD), "--step", "4", "--settle", "1"]
    output, said = natively(lab, grower, LEFT, *work)
    expect("what it says natively", said, ["4 blocks", "8 blocks", f"full: {LEFT} blocks"])
    settles = Program(lab, grower, "settles", *work)
    settles.says(said[-1])
    expect("what it said", settles.lines(), said)
    app = settles.comes_to("runs", lambda app: app["state"] == "running")
    expect("how often it was refused", app["refusals"], 1)
    if app["waited_ms"] < DEADLINE * 1000:
        fail(f"it waited for {app['waited_ms']} ms")
    settles.finish(output)
    holds.finish(natively(lab, grower, ALL, "--from", str(HELD), "--to", str(HELD))[0])


def nobody_waits_for_an_agent_that_is_stopped(lab, grower):
    """It has room on the device that it was not granted: as without an agent, it takes it."""
    grow, most = lab.path("on"), 2 * ALL
    work = ["--from", str(ALL // 2), "--to", str(most), "--step", str(most - ALL // 2)]
    output = natively(lab, grower, most + ALL // 2, *work)[0]
    grows = Program(lab, grower, "grows", *work, "--when", grow)
    grows.says(f"{ALL // 2} blocks")
    agent = lab.control("agent", "status", "--json")[1]["agent"]["pid"]
    os.kill(agent, signal.SIGSTOP)
    try:
        touch(grow)
        until("it goes on", lambda: f"{most} blocks" in grows.lines(), grows.lines)
        touch(grows.told)
        expect("output", grows.process.communicate(timeout=PATIENCE)[0], output)
        expect("exit status", grows.process.returncode, 0)
    finally:
        os.kill(agent, signal.SIGCONT)


def one_may_have_less_than_it_needs_at_once(lab, grower):
    """A pass takes two blocks and the other thread's words; nothing of that may fail."""
    device = lab.devices()[0]

    def limit(what, size):
        return lab.control("limit", what, "--memory", size)[0]

    work = ["--from", str(HELD), "--to", str(HELD), "--pause-ms", "5"]
    alone = natively(lab, grower, ALL, *work)[0]
    tight = Program(lab, grower, "tight", *work, ways="wait,spill")
    tight.says(f"{HELD} blocks")
    tight.comes_to("says what it needs", lambda app: app["least_bytes"] >= 2 * MIB)
    expect("limit of the program", limit("tight", "1MiB"), REFUSED)
    for _ in range(3):
        expect("limit", limit(device, "1MiB"), DONE)
        app = tight.comes_to("is suspended", lambda app: app["state"] == "suspended")
        expect("that it comes back", app["displaced"], True)
        expect("limit", limit(device, "4MiB"), DONE)
        tight.comes_to("spills", lambda app: app["state"] == "spilled")
        expect("limit", limit(device, f"{ALL}MiB"), DONE)
        tight.comes_to("runs", lambda app: app["state"] == "running" and
                       app["device_bytes"] // MIB >= HELD)
    tight.finish(alone)


def main():
    grower = os.path.abspath(sys.argv[1])
    VENDORS["emu"] = (os.environ["EMU_LIBRARY"], {"POCL_DEVICES": "pthread"})
    with Lab(["emu"], find_reseat()) as lab:
        lab.env.update(EMU_CONFIG=lab.path("emu.conf"))
        with open(lab.env["EMU_CONFIG"], "w", encoding="utf-8") as file:
            file.write("[one] name=one memory=64MiB\n")
        device = lab.devices()[0]
        expect("limit", lab.control("limit", device, "--memory", f"{ALL}MiB")[0], DONE)
        try:
            for part in (one_waits_for_the_other, each_has_what_the_other_wants,
                         one_may_have_less_than_it_needs_at_once, one_has_waited_long_enough,
                         nobody_waits_for_an_agent_that_is_stopped):
                begin = time.monotonic()
                part(lab, grower)
                print(f"{part.__name__}: {time.monotonic() - begin:.1f} s", flush=True)
        finally:
            for process in Program.started:
                process.kill()


if __name__ == "__main__":
    main()
