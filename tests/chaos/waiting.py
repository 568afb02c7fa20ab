"""
Programs that wait for room on a device: they go on when there is some, or are told that there is
none, and print what they print natively.

One emulated device, of which programs may have 24 blocks of a MiB. The agent is stopped and
started while they wait.
"""

import os
import signal
import subprocess

from lab import DONE, PATIENCE, REFUSED, Program, check, expect, lines, touch, until

MIB = 1 << 20
DEVICES = "[one] name=one base=1 memory=64MiB\n"
ALL = 24  # what programs may have, in blocks
HELD = 15  # by the one that holds up the others
LEFT = ALL - HELD
GROWN = 8  # of the one that waits, which has small objects besides
PART = 10  # two that hold it leave too little for either
STEPS = 20  # of the thread that goes on meanwhile
DEADLINE = 1  # second


def size(path):
    return os.path.getsize(path) if os.path.exists(path) else 0


def take_most(lab):
    """What all programs together may have."""
    expect("limit", lab.control("limit", lab.devices()[0], "--memory", f"{ALL}MiB")[0], DONE)


class Grower(Program):
    """A grower, kept busy until it is released."""

    def __init__(self, lab, grower, name, *work, ways="wait"):
        self.name, self.said = name, lab.path(name + ".said")
        with open(self.said, "wb") as said:
            super().__init__(lab, [grower, *work], "--name", name, "--on-full", ways, busy=True, stderr=said)

    def lines(self):
        return lines(self.said)

    def says(self, line):
        until(f"{self.name} says {line!r}", lambda: line in self.lines() or (self.app() and False),
              lambda: f"{self.lines()}, {self.app()}")

    def waits(self, blocks):
        app = self.comes_to(f"{self.name} waits with {blocks} blocks",
                            lambda app: app["state"] == "waiting" and app["waiting"] == 1 and
                            app["device_bytes"] // MIB == blocks)
        check("it has a ticket", app["ticket"], app)

    def finish(self, natively):
        expect(f"the end of {self.name}", self.end(), (0, natively))


def natively(lab, grower, blocks, *work):
    """What it prints, and says, alone on a device of that many blocks."""
    config = lab.path("native.conf")
    with open(config, "w", encoding="utf-8") as file:
        file.write(DEVICES.replace("64MiB", f"{blocks}MiB"))
    run = subprocess.run([grower, *work], env=dict(lab.env, EMU_CONFIG=config), check=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE)
    return run.stdout, run.stderr.decode().splitlines()


def restart(lab, **env):
    expect("agent stop", lab.control("agent", "stop")[0], DONE)
    lab.env.update(env)
    expect("agent start", lab.control("agent", "start")[0], DONE)


def one_waits_for_the_other(lab, grower):
    take_most(lab)
    hold, work = ["--from", str(HELD)], ["--from", "4", "--step", "4"]
    # Natively first: two programs do not compile the same in one cache at once.
    held, grown = (natively(lab, grower, ALL, *words, "--to", str(HELD))[0]
                   for words in (hold, work))
    holds = Grower(lab, grower, "holds", *hold, "--to", str(HELD))
    holds.says(f"{HELD} blocks")
    beside = lab.path("beside")
    waits = Grower(lab, grower, "waits", *work, "--to", str(HELD), "--beside", beside)
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
    take_most(lab)
    grow = lab.path("grow")
    work = ["--from", str(PART), "--to", str(HELD), "--step", str(HELD - PART)]
    alone = natively(lab, grower, ALL, *work)[0]
    both = [Grower(lab, grower, name, *work, "--when", grow) for name in ("left", "right")]
    for program in both:
        program.says(f"{PART} blocks")
    touch(grow)

    def winner():
        return next((p for p in both if f"{HELD} blocks" in p.lines()), None)

    first = until("one of them has all that it wants", winner)
    last = both[1 - both.index(first)]
    for turn in range(2):
        app = last.comes_to("it is displaced", lambda app: app["state"] == "suspended")
        expect("that it comes back", (app["displaced"], app["ticket"] > 0), (True, True))
        expect("what it said", last.lines(), [f"{PART} blocks"])
        if turn == 0:
            restart(lab)
    first.finish(alone)
    last.says(f"{HELD} blocks")
    last.finish(alone)


def one_has_waited_long_enough(lab, grower):
    take_most(lab)
    restart(lab, RESEAT_WAIT_DEADLINE=f"{DEADLINE}s")
    holds = Grower(lab, grower, "holds", "--from", str(HELD), "--to", str(HELD))
    holds.says(f"{HELD} blocks")
    work = ["--from", "4", "--to", str(HELD), "--step", "4", "--settle", "1"]
    output, said = natively(lab, grower, LEFT, *work)
    expect("what it says natively", said, ["4 blocks", "8 blocks", f"full: {LEFT} blocks"])
    settles = Grower(lab, grower, "settles", *work)
    settles.says(said[-1])
    expect("what it said", settles.lines(), said)
    app = settles.comes_to("it runs", lambda app: app["state"] == "running")
    expect("how often it was refused", app["refusals"], 1)
    check("it waited for long", app["waited_ms"] >= DEADLINE * 1000, app["waited_ms"])
    settles.finish(output)
    holds.finish(natively(lab, grower, ALL, "--from", str(HELD), "--to", str(HELD))[0])


def nobody_waits_for_an_agent_that_is_stopped(lab, grower):
    """It has room on the device that it was not granted: as without an agent, it takes it."""
    take_most(lab)
    grow, most = lab.path("on"), 2 * ALL
    work = ["--from", str(ALL // 2), "--to", str(most), "--step", str(most - ALL // 2)]
    output = natively(lab, grower, most + ALL // 2, *work)[0]
    grows = Grower(lab, grower, "grows", *work, "--when", grow)
    grows.says(f"{ALL // 2} blocks")
    agent = lab.control("agent", "status", "--json")[1]["agent"]["pid"]
    os.kill(agent, signal.SIGSTOP)
    try:
        touch(grow)
        until("it goes on", lambda: f"{most} blocks" in grows.lines(), grows.lines)
        grows.finish(output)
    finally:
        os.kill(agent, signal.SIGCONT)


def one_may_have_less_than_it_needs_at_once(lab, grower):
    """A pass takes two blocks and the other thread's words; nothing of that may fail."""
    take_most(lab)
    device = lab.devices()[0]

    def limit(what, size):
        return lab.control("limit", what, "--memory", size)[0]

    work = ["--from", str(HELD), "--to", str(HELD), "--pause-ms", "5"]
    alone = natively(lab, grower, ALL, *work)[0]
    tight = Grower(lab, grower, "tight", *work, ways="wait,spill")
    tight.says(f"{HELD} blocks")
    tight.comes_to("it says what it needs", lambda app: app["least_bytes"] >= 2 * MIB)
    expect("limit of the program", limit("tight", "1MiB"), REFUSED)
    for _ in range(3):
        expect("limit", limit(device, "1MiB"), DONE)
        app = tight.comes_to("it is suspended", lambda app: app["state"] == "suspended")
        expect("that it comes back", app["displaced"], True)
        expect("limit", limit(device, "4MiB"), DONE)
        tight.comes_to("it spills", lambda app: app["state"] == "spilled")
        expect("limit", limit(device, f"{ALL}MiB"), DONE)
        tight.comes_to("it runs", lambda app: app["state"] == "running" and
                       app["device_bytes"] // MIB >= HELD)
    tight.finish(alone)
