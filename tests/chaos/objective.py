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
TRIES = 3  # a busy machine makes a run longer
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


def least(world, objective):
    """The shortest time, and the least energy, of some runs."""
    runs = [world.run(objective) for _ in range(TRIES)]
    return min(seconds for seconds, _ in runs), min(joules for _, joules in runs)


def busy_seconds(device, before, after):
    """How long launches took between two totals of the device's meter, from what it drew beyond idle."""
    idle, busy, _ = device
    microjoules, nanoseconds = (late - early for late, early in zip(after, before))
    return (microjoules / 1e6 - idle * nanoseconds / 1e9) / (busy - idle)


def energy_falls(train):
    with World(train, FRUGAL) as world:
        seconds, joules = least(world, "none")
        before = totals(world.meters)
        seconds_energy, joules_energy = least(world, "energy")
        after = totals(world.meters)
        busy = {name: busy_seconds(FRUGAL[name], before[name], after[name]) for name in FRUGAL}
        print(f"none {seconds:.2f} s {joules:.0f} J, energy {seconds_energy:.2f} s {joules_energy:.0f} J, "
              f"launches took {busy['a']:.2f} s on a, {busy['b']:.2f} on b")
        expect("much of the work leaves", busy["b"] > busy["a"] / 2, busy)
        expect("energy falls", joules_energy < 0.8 * joules, (joules, joules_energy))


def at_no_loss_is_not_slower(train):
    with World(train, FRUGAL) as world:
        seconds, joules = least(world, "none")
        seconds_kept, joules_kept = least(world, "energy-at-no-loss")
        print(f"none {seconds:.2f} s {joules:.0f} J, at no loss {seconds_kept:.2f} s {joules_kept:.0f} J")
        expect("it is not slower", seconds_kept < 1.1 * seconds, (seconds, seconds_kept))
        expect("it takes no more energy", joules_kept < 1.05 * joules, (joules, joules_kept))


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
