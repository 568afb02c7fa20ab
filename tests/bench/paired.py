#!/usr/bin/python3
"""How much longer a program takes under reseat than natively, by pairs of runs, with its confidence.

  paired.py [--pairs N] [--vendors NAME,...] [--device DEVICE] [--run OPTIONS] [--published PER_CENT] -- COMMAND...

OPTIONS are more of reseat run's, as in --run '--objective time --spread gpu1'.

The two runs of a pair follow each other, in turn natively first and under reseat first, after one run of each that
is not counted. Printed are the mean of the ratios, and between which values it lies with 95 % confidence (by
resampling the pairs, so that no distribution is assumed).
"""

import argparse
import math
import os
import random
import shlex
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "chaos")]

from lab import SYSTEM, Lab, find_reseat  # noqa: E402

SAMPLES = 10000


def seconds(lab, command):
    begin = time.monotonic()
    run = subprocess.run(command, env=lab.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                         stderr=subprocess.PIPE, check=False)
    if run.returncode != 0:
        sys.exit(f"paired: {' '.join(command)} ended with {run.returncode}: {run.stderr[-500:].decode(errors='replace')}")
    return time.monotonic() - begin


def mean_ratio(logarithms):
    return math.exp(statistics.fmean(logarithms))


def interval(logarithms):
    """Of the mean ratio, 95 %."""
    chance = random.Random(1)
    means = sorted(mean_ratio(chance.choices(logarithms, k=len(logarithms))) for _ in range(SAMPLES))
    return means[SAMPLES // 40], means[-SAMPLES // 40]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--vendors", default=SYSTEM)
    parser.add_argument("--device", help="default: the first")
    parser.add_argument("--run", default="", metavar="OPTIONS")
    parser.add_argument("--published", type=float, help="per cent, to stand beside what is measured")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    reseat = find_reseat()
    if not reseat:
        sys.exit("paired: no reseat command (scripts/build, or $RESEAT)")
    with Lab(options.vendors.split(","), reseat) as lab:
        under = lab.run_command("paired", options.device or lab.devices()[0])
        under = under[:-1] + shlex.split(options.run) + under[-1:] + options.command
        ways, taken = (options.command, under), []
        for pair in range(options.pairs + 1):
            native, reseated = (seconds(lab, way) for way in ways) if pair % 2 else reversed(
                [seconds(lab, way) for way in reversed(ways)])
            if pair:
                taken.append((native, reseated))
                print(f"pair {pair}: {native:.3f} s, under reseat {reseated:.3f} s", flush=True)
    logarithms = [math.log(reseated / native) for native, reseated in taken]
    least, most = interval(logarithms)
    published = "" if options.published is None else f"; published: {options.published:+.2f} %"
    print(f"natively {statistics.median(native for native, _ in taken):.3f} s; under reseat "
          f"{(mean_ratio(logarithms) - 1) * 100:+.2f} % ({(least - 1) * 100:+.2f} to {(most - 1) * 100:+.2f} %)"
          f"{published}")


if __name__ == "__main__":
    main()
