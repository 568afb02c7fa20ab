#!/usr/bin/python3
"""A training run on emulated accelerators with energy meters, without a power cap and with one."""

import argparse
import json
import os
import subprocess
import sys
import time

SCRIPTS = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, SCRIPTS)
sys.path.insert(0, os.path.join(SCRIPTS, "..", "tests", "chaos"))

from lab import DONE, Lab, find_reseat  # pylint: disable=wrong-import-position
from watts import Watts, emulate, settle, totals  # pylint: disable=wrong-import-position

BUILD = os.path.join(SCRIPTS, "..", "build")
CAP_W = 60  # the small device fits under it, beside what the large one draws idle
RUN_SECONDS = 300
POLL_SECONDS = 0.05
DRAIN_SECONDS = 1.0  # after a cap is set launches that were given end


def training(lab, name):
    return [os.path.join(lab.build, "tests", "programs", "train"), "--fixed", "--steps", str(lab.steps),
            "--every", str(lab.steps // 4), "--times", lab.path(name + ".times")]


def steps_of(lab, name, begin):
    """[(seconds, steps)] by the program's own clock, which is ours."""
    with open(lab.path(name + ".times"), encoding="ascii") as file:
        lines = [line.split() for line in file if line.endswith("\n")]
    return [(float(when) - begin, int(step)) for step, when in lines]


class Story:
    """One run, and what was seen of it."""

    def __init__(self, lab, name, natively):
        self.lab, self.name, self.natively = lab, name, natively
        self.places, self.caps = [], []
        settle(lab)
        self.reload()
        before = totals(lab.meters)
        self.watts = Watts(lab)
        self.process = lab.start(
            [lab.reseat, "run", "--name", name, "--device", lab.large, "--", *training(lab, name)],
            subprocess.PIPE, subprocess.DEVNULL)
        self.before = before

    def reload(self):
        if self.lab.control("config", "reload", "--json")[0] != DONE:
            raise SystemExit("demo: the agent did not read its configuration again")

    def cap(self, watts):
        settle(self.lab, watts)
        self.reload()
        self.caps.append((self.watts.now(), watts))
        print(f"{self.watts.now():6.1f} s  a cap of {watts} W is set", flush=True)

    def look(self):
        apps = self.lab.control("ps", "--json")[1]["apps"]
        app = next((app for app in apps if app["name"] == self.name), None)
        device = app and app["device"]
        now = self.watts.now()
        if self.places and self.places[-1][2] == device:
            self.places[-1][1] = now
        elif device:
            if self.places:
                self.places[-1][1] = now
            self.places.append([now, now, device])
            print(f"{now:6.1f} s  {self.name} is on {device}", flush=True)

    def progress(self):
        try:
            return len(steps_of(self.lab, self.name, 0))
        except OSError:
            return 0

    def tell(self, cap_at=None):
        """Follow the run to its end; a cap is set once it took so many steps."""
        while self.process.poll() is None:
            if self.watts.now() > RUN_SECONDS:
                self.process.kill()
                raise SystemExit(f"demo: {self.name} did not end within {RUN_SECONDS} s")
            self.look()
            if cap_at and not self.caps and self.progress() >= cap_at:
                self.cap(CAP_W)
            time.sleep(POLL_SECONDS)
        out = self.process.stdout.read()
        if self.process.returncode != 0 or out != self.natively:
            raise SystemExit(f"demo: {self.name} ended with {self.process.returncode} and {out!r}, natively it "
                             f"prints {self.natively!r}")
        seconds = self.watts.now()
        self.watts.stop()
        since = self.caps[0][0] + DRAIN_SECONDS if self.caps else None
        above = self.watts.above(CAP_W, since) if self.caps else []
        after = totals(self.lab.meters)
        return {"name": self.name, "seconds": seconds, "caps": self.caps, "places": self.places,
                "samples": self.watts.samples(), "steps": steps_of(self.lab, self.name, self.watts.begin),
                "joules": sum(after[name][0] - self.before[name][0] for name in after) / 1e6,
                "above": len(above)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", required=True, help="folder for the picture")
    parser.add_argument("--build", default=BUILD, help="build folder")
    parser.add_argument("--steps", type=int, default=300, help="training steps of a run")
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    os.environ.setdefault("EMU_LIBRARY", os.path.join(build, "tests", "emu", "libreseat-emu.so"))
    with Lab(["emulated"], find_reseat(os.path.join(build, "agent", "reseat"))) as lab:
        lab.build, lab.steps = build, options.steps
        emulate(lab)
        natively = subprocess.run(training(lab, "natively"), env=lab.env, check=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        lab.large = lab.devices()[0]
        uncapped = Story(lab, "uncapped", natively).tell()
        capped = Story(lab, "capped", natively).tell(cap_at=lab.steps // 4)
    picture = os.path.join(options.output, "energy.svg")
    data = os.path.join(options.output, "energy.json")
    with open(data, "w", encoding="utf-8") as file:
        json.dump({"energy": [uncapped, capped]}, file)
    subprocess.run([os.path.join(SCRIPTS, "plot"), data, picture], check=True)
    print("\nThe loss and the weights are the same to the bit natively, uncapped and capped:\n" +
          natively.decode().strip())
    print("\n| run | seconds | joules | samples above the cap |\n|---|--:|--:|--:|")
    for story in (uncapped, capped):
        above = story["above"] if story["caps"] else ""
        print(f"| {story['name']} | {story['seconds']:.1f} | {story['joules']:.0f} | {above} |")
    print(f"\npicture: {picture}")
    if capped["above"]:
        raise SystemExit(f"demo: {capped['above']} samples are above the cap of {CAP_W} W")


if __name__ == "__main__":
    main()
