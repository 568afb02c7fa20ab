#!/usr/bin/python3
"""How many times as fast long launches are on several devices as on one of them.

  elastic.py [--vendors NAME,...] [--from DEVICE] [--over DEVICE,...] [--launches N] [--slice MS]
             [--stays] [--program FILE] [-- ARGUMENT...]
  elastic.py --scenarios [--launches N] [--slice MS] [--program FILE] [-- ARGUMENT...]

One program, its launches in pieces: on --from alone; on --over as well; and on --from alone again,
with a non-blocking move to the first of --over in the middle of one. Of the first two the median
seconds of a launch, the first one apart, and their ratio; of the last, which --stays leaves out, what all of its
launches took, as a ratio to the first. Every word of the results is checked by the program (longlaunch).
`--vendors paced` is three emulated devices that take a time of their own for each work-item: equal
ones, gpu0 and gpu1, and cpu0 of half their speed.

`--scenarios` is the figure of A. Vaishnav, K. D. Pham, D. Koch: Live Migration for OpenCL FPGA Accelerators (FPT 2018) that
has an equally busy target, a busier and a less busy one, for blocking and non-blocking moves and for elastic launches, on
these devices: how much less time all launches take than on the device where they begin. Published is
what moves to a less busy node gain.
"""

import argparse
import os
import re
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "chaos")]

from lab import DONE, Lab, find_reseat  # noqa: E402

PATIENCE_SECONDS = 300
MOVED = 2  # so many launches are over before


def launches(lab, options, over=None, move_to=None, how=("--non-blocking",)):
    """Seconds that each launch takes; moved in the middle of one."""
    output, number = lab.path("stdout"), time.monotonic_ns()
    until = lab.path(f"until-{number}")
    command = lab.run_command("elastic", options.device)
    command[-1:-1] = ["--slice", options.slice] + (["--spread", over] if over else [])
    command += [options.program, "--times", "--only", "pieces"] + options.arguments
    with open(output, "wb") as out:
        process = lab.start(command, out, None, {"TEST_UNTIL": until})
    end, took = time.monotonic() + PATIENCE_SECONDS, []
    while process.poll() is None and time.monotonic() < end:
        with open(output, encoding="ascii") as file:
            took = [float(text) for text in re.findall(r"^pieces (.*)$", file.read(), re.M)]
        if move_to and len(took) == MOVED:
            time.sleep(took[-1] / 2)
            status, answer = lab.control("move", str(process.pid), move_to, *how, "--json")
            if status != DONE:
                sys.exit(f"elastic.py: {answer}")
            move_to = None
        if len(took) >= options.launches:
            with open(until, "w", encoding="ascii"):
                pass
        time.sleep(0.05)
    if process.poll() is None:
        process.kill()
    if process.wait() != 0 or len(took) < options.launches:
        sys.exit(f"elastic.py: {' '.join(command)} ended with {process.returncode}")
    return took[:options.launches]


SCENARIOS = (("equally busy", "gpu0", "gpu1"), ("busier", "gpu0", "cpu0"), ("less busy", "cpu0", "gpu0"))
PUBLISHED_GAINS = "17 to 37.5 %"


def scenarios(lab, options):
    print("| target | blocking | non-blocking | elastic | published |\n|---|---|---|---|---|")
    for name, options.device, target in SCENARIOS:
        alone = sum(launches(lab, options))
        gains = [100 * (1 - sum(launches(lab, options, **how)) / alone)
                 for how in ({"move_to": target, "how": ()}, {"move_to": target}, {"over": target})]
        print(f"| {name} ({options.device} to {target}) | " + " | ".join(f"{gain:.1f} %" for gain in gains)
              + f" | {PUBLISHED_GAINS if name == 'less busy' else ''} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reseat", help="the reseat command")
    parser.add_argument("--vendors", default="paced")
    parser.add_argument("--from", dest="device", default="gpu0")
    parser.add_argument("--over", default="gpu1")
    parser.add_argument("--launches", type=int, default=6)
    parser.add_argument("--slice", default="10")
    parser.add_argument("--stays", action="store_true", help="no move: --over may be slow")
    parser.add_argument("--scenarios", action="store_true", help="a table of targets and forms")
    parser.add_argument("--program", help="longlaunch")
    parser.add_argument("arguments", nargs="*",
                        default=["--items", "1638400", "--mib", "1", "--loops", "1"])
    options = parser.parse_args()
    reseat = find_reseat(options.reseat)
    tests = os.path.join(os.path.dirname(reseat), "..", "tests")
    programs = os.environ.get("PROGRAMS") or os.path.join(tests, "programs")
    options.program = options.program or os.path.join(programs, "longlaunch")
    os.environ.setdefault("EMU_LIBRARY", os.path.join(tests, "emu", "libreseat-emu.so"))
    with Lab(options.vendors.split(","), reseat) as lab:
        if options.scenarios:
            scenarios(lab, options)
            return
        alone = launches(lab, options)
        over = launches(lab, options, over=options.over)
        moved = [] if options.stays else launches(
            lab, options, move_to=options.over.split(",", maxsplit=1)[0])
    one, several = statistics.median(alone[1:]), statistics.median(over[1:])
    print(f"on {options.device}: {one:.3f} s a launch, the first {alone[0]:.3f}")
    print(f"on {options.device},{options.over}: {several:.3f} s a launch, the first {over[0]:.3f}")
    print(f"{one / several:.2f} times as fast, the first launch {alone[0] / over[0]:.2f} times")
    if moved:
        print(f"moved without blocking: {sum(moved):.3f} s for {len(moved)} launches, "
              f"{sum(moved) / sum(alone):.3f} of those on {options.device}")


if __name__ == "__main__":
    main()
