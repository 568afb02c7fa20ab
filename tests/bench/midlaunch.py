#!/usr/bin/python3
"""A device that is lost in the middle of one long kernel, with snapshots in it and without.

  midlaunch.py [--seconds N] [--at PERCENT] [--rounds N] [--json FILE]

One launch of longlaunch, of about --seconds, takes its time on an emulated device however busy this machine is. At
--at per cent of it the process that has its driver is killed. It is run

  undisturbed       not protected, and protected
  every quarter     with a snapshot each quarter of it: between pieces, so that at most a quarter is done again
  chosen            with the interval that is chosen for a mean time to a fault of as long as the launch takes
  whole             in one piece, as a kernel that cannot be cut: all that was done of it is done again, and the launch
                    in front of it, where no snapshot could be made between the two

beside what equation 1 of the published evaluation predicts (policy/interval.h) with the figures measured in that run:
one fault in the time of the launch, half an interval done again. Published: a fault at 50 % of a kernel with a
snapshot at each 25 % of its groups. The program compares every word that it computes; where one differs the run ends with status 1.
"""

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "chaos"))

from lab import PACED, Lab, find_reseat  # pylint: disable=wrong-import-position

ITEMS_PER_S = 40000
GROUP = 64
# Few bytes and small pieces, so that on a busy machine snapshots are not put off.
DEVICES = "".join(f"[{name}] name={name} type=cpu base=1 own_memory=yes items_per_s={ITEMS_PER_S} paced=compute\n"
                  for name in ("one", "two"))
WAIT_SECONDS = 300


def fail(why):
    sys.exit(f"midlaunch.py: {why}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=int, default=8, help="that the launch takes; a multiple of 4")
    parser.add_argument("--at", type=float, default=50, help="per cent of the launch at the loss")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="file for all of it")
    options = parser.parse_args()
    if options.seconds < 4 or options.seconds % 4:
        parser.error("--seconds is a multiple of 4: intervals are whole seconds")
    return options


def find(name):
    for folder in (os.environ.get("PROGRAMS", ""), os.path.join(HERE, "..", "..", "build", "tests", "programs")):
        path = os.path.join(folder, name)
        if folder and os.access(path, os.X_OK):
            return path
    return fail(f"no {name}; see $PROGRAMS")


class Bench:
    def __init__(self, options, lab):
        self.options, self.lab = options, lab
        self.device = lab.devices()[0]
        items = options.seconds * ITEMS_PER_S // GROUP * GROUP
        self.command = [find("longlaunch"), "--only", "pieces", "--times", "--mib", "1", "--loops", "16",
                        "--items", str(items), "--group", str(GROUP)]

    def launch(self, lose, *how, environment=None):
        """(Seconds of the launch, what ps says of its protection after the loss, and with "again" how long before the
        loss its last snapshot was.)"""
        process = subprocess.Popen([self.lab.reseat, "run", "--name", "midlaunch", "--device", self.device, "--isolate",
                                    *how, "--", *self.command], env=dict(self.lab.env, **(environment or {})),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        took, said = None, {}
        for line in process.stdout:
            words = line.split()
            if words[0] == "begun" and lose:
                time.sleep(max(0, float(words[1]) + self.options.seconds * self.options.at / 100 - time.monotonic()))
                asked = time.monotonic()
                age = ((self.lab.app(process.pid) or {}).get("protection") or {}).get("snapshot_age_ns", 0)
                os.kill(self.lab.driver_process() or fail("no process has the program's driver"), signal.SIGKILL)
                end, again = time.monotonic() + WAIT_SECONDS, age + (time.monotonic() - asked) * 1e9
                while not said.get("recoveries"):
                    said = (self.lab.app(process.pid) or {}).get("protection") or {}
                    if time.monotonic() > end or process.poll() is not None:
                        fail("it was not recovered")
                said["again"] = again
            elif words[0] == "pieces":
                took = float(words[1])
        if process.wait(timeout=WAIT_SECONDS) or took is None:
            fail(f"it ended with {process.returncode}")
        return took, said

    def median(self, lose, *how, environment=None):
        runs = [self.launch(lose, *how, environment=environment) for _ in range(self.options.rounds)]
        return statistics.median(took for took, _ in runs), [said for _, said in runs]


def seconds(reports, name):
    return statistics.median(report[name] for report in reports) / 1e9


def main():
    options = parse()
    results = {}
    with Lab([PACED], find_reseat()) as lab:
        lab.env["EMU_CONFIG"] = lab.path("devices.conf")
        with open(lab.env["EMU_CONFIG"], "w", encoding="utf-8") as file:
            file.write(DEVICES)
        bench = Bench(options, lab)
        quarter = options.seconds // 4
        bare, _ = bench.median(False, "--protect=off")
        kept, _ = bench.median(False, f"--protect={quarter}")
        print(f"{bench.device}: a launch of {bare:.2f} s, {options.rounds} rounds, medians; lost at {options.at:g} %")
        print(f"{'':24}{'interval':>10}{'launch':>10}{'outage':>10}{'again':>9}{'predicted':>11}{'measured':>10}")
        print(f"{'protected, undisturbed':24}{quarter:9.2f}s{kept:9.2f}s{'':>10}{'':>9}{'':>11}{kept / bare:10.2f}")
        results["undisturbed"] = kept / bare
        mean = {"RESEAT_MEAN_TIME_TO_FAULT": str(options.seconds)}
        for name, how, environment in (("every quarter", (f"--protect={quarter}",), None),
                                       ("chosen", ("--protect=on",), mean),
                                       ("whole", (f"--protect={quarter}", "--slice", "0"), None)):
            took, said = bench.median(True, *how, environment=environment)
            outage, cost = seconds(said, "outage_ns"), seconds(said, "cost_ns")
            interval = seconds(said, "interval_ns")
            again = seconds(said, "again") / bare
            predicted = None if name == "whole" else 1 + (outage + interval / 2) / bare + cost / interval
            results[name] = {"interval_s": interval, "launch_s": took, "outage_s": outage, "snapshot_s": cost,
                             "again": again, "predicted": predicted, "measured": took / bare,
                             "best_s": math.sqrt(2 * bare * cost)}
            print(f"{name:24}{interval:9.2f}s{took:9.2f}s{outage:9.2f}s{again:9.1%}"
                  f"{'' if name == 'whole' else f'{predicted:.2f}':>11}{took / bare:10.2f}")
        lost = options.at / 100
        print(f"{'started from scratch':24}{'':>10}{bare * (1 + lost):9.2f}s{'':>10}{lost:9.1%}{'':>11}{1 + lost:10.2f}"
              "  (without what starting takes)")
        print("again: since the last snapshot at the loss, of a launch; predicted, measured: of the undisturbed launch")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
