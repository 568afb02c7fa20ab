#!/usr/bin/python3
"""
Launches placed for an objective, on two emulated devices with meters: what both devices took in all, how
long the program ran, and that it prints what it prints natively.

    objective.py TRAIN [STORY...]
"""

import os
import subprocess
import sys
import time

from lab import Lab, find_reseat
from watts import emulate, totals

STEPS = 30
TRIES, MOST_TRIES = 3, 9  # a busy machine makes a run longer
# Name: watts idle and busy, work-items a second.
FRUGAL = {"a": (5, 205, 500_000), "b": (5, 45, 400_000)}  # b takes longer, and a quarter of the energy
ALIKE = {"a": (5, 105, 400_000), "b": (5, 105, 400_000)}


def expect(what, is_so, seen=""):
    if not is_so:
        sys.exit(f"objective.py: {what}: {seen}")


class World(Lab):
    """Two devices, of which programs start on the first, and the agent that reads their meters."""

    def __init__(self, train, devices, meters=True):
        super().__init__(["emulated"], find_reseat(), program=[train])
        self.work = [train, "--fixed", "--queues", "one", "--steps", str(STEPS), "--every", "10"]
        emulate(self, devices)
        if not meters:
            with open(self.settings, "w", encoding="ascii") as file:
                file.write("policy = { };\n")
        self.native = subprocess.run(self.work, env=self.env, stdout=subprocess.PIPE, check=True).stdout
        self.devices()

    def joules(self):
        return sum(microjoules for microjoules, _ in totals(self.meters).values()) / 1e6

    def run(self, objective, watch=lambda: None):
        """Seconds and joules of a run, which prints what the native one prints."""
        joules, begin = self.joules(), time.monotonic()
        process = self.start([self.reseat, "run", "--name", "work", "--device", "gpu0", "--spread", "gpu1",
                              "--float", "any", "--objective", objective, "--", *self.work],
                             subprocess.PIPE, subprocess.DEVNULL)
        while process.poll() is None:
            watch()
            time.sleep(0.05)
        out = process.communicate()[0]
        expect(f"{objective} ends as natively", (process.returncode, out) == (0, self.native),
               (process.returncode, out))
        return time.monotonic() - begin, self.joules() - joules

    def explained(self):
        run = subprocess.run([self.reseat, "explain", "work"], env=self.env, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, check=False)
        return run.stdout.decode()


def least(runs):
    """The shortest time, and the least energy."""
    return min(seconds for seconds, _ in runs), min(joules for _, joules in runs)


def compare(world, objective, is_good):
    """The least of some runs without and with the objective, in turn; of more while they are not good."""
    without, with_it = [], []
    while len(without) < TRIES or (len(without) < MOST_TRIES and not is_good(least(without), least(with_it))):
        without.append(world.run("none"))
        with_it.append(world.run(objective))
    return least(without), least(with_it)


def busy_seconds(device, before, after):
    """How long launches took between two totals of the device's meter, from what it drew beyond idle."""
    idle, busy, _ = device
    microjoules, nanoseconds = (late - early for late, early in zip(after, before))
    return (microjoules / 1e6 - idle * nanoseconds / 1e9) / (busy - idle)


def energy_falls(train):
    with World(train, FRUGAL) as world:
        plain, frugal = compare(world, "energy", lambda plain, frugal: frugal[1] < 0.8 * plain[1])
        before = totals(world.meters)
        world.run("energy")
        after = totals(world.meters)
        busy = {name: busy_seconds(FRUGAL[name], before[name], after[name]) for name in FRUGAL}
        print(f"none {plain[0]:.2f} s {plain[1]:.0f} J, energy {frugal[0]:.2f} s {frugal[1]:.0f} J, "
              f"launches took {busy['a']:.2f} s on a, {busy['b']:.2f} on b")
        expect("much of the work leaves", busy["b"] > busy["a"] / 2, busy)
        expect("energy falls", frugal[1] < 0.8 * plain[1], (plain, frugal))


def at_no_loss_is_not_slower(train):
    with World(train, FRUGAL) as world:
        plain, kept = compare(world, "energy-at-no-loss", lambda plain, kept:
                              kept[0] < 1.1 * plain[0] and kept[1] < 1.05 * plain[1])
        print(f"none {plain[0]:.2f} s {plain[1]:.0f} J, at no loss {kept[0]:.2f} s {kept[1]:.0f} J")
        expect("it is not slower", kept[0] < 1.1 * plain[0], (plain, kept))
        expect("it takes no more energy", kept[1] < 1.05 * plain[1], (plain, kept))


def unknown_power_is_said(train):
    with World(train, ALIKE, meters=False) as world:
        seen = set()
        world.run("energy", lambda: seen.add(world.explained()))
        expect("explain says that the power is not known",
               any("is not known" in text for text in seen), seen)


def main():
    train = os.path.abspath(sys.argv[1])
    for story in (energy_falls, at_no_loss_is_not_slower, unknown_power_is_said):
        if len(sys.argv) < 3 or story.__name__ in sys.argv[2:]:
            story(train)
            print(f"ok {story.__name__}", flush=True)


if __name__ == "__main__":
    main()
