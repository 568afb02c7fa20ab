#!/usr/bin/python3
"""Run a program natively and under reseat, moving it all the time; compare what it prints.

  chaos.py [options] -- PROGRAM [ARG...]

The program's standard output and exit status must be the same both times, and at least
--moves moves must have been made (with --moves 0 it runs where it starts). A program that reads
TEST_UNTIL (those of tests/programs do) is kept busy until then; any other has to run for long
enough by itself. Where Oclgrind is one of the vendors it must find no wrong access to memory.
"""

import argparse
import json
import os
import re
import statistics
import sys
import time

from isolated import Watch
from lab import DONE, EMULATED, SKIPPED, Lab, Mover, Patience, TIMES, VENDORS, find_reseat, touch


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--reseat", help="the reseat command")
    parser.add_argument("--vendors", default="pocl,rusticl", help=f"of {','.join(VENDORS)},{EMULATED}")
    parser.add_argument("--devices", default="", help="names to move between (all by default)")
    parser.add_argument("--moves", type=int, default=100,
                        help="moves to be made at least, TEST_TIMES in the environment as many")
    parser.add_argument("--interval", default="50-500", help="milliseconds between moves, LEAST-MOST")
    parser.add_argument("--suspend-every", type=int, default=10, help="suspend and resume each Nth time (0: never)")
    parser.add_argument("--slice", help="milliseconds of a piece of a long launch")
    parser.add_argument("--spread", action="store_true",
                        help="name other devices for its launches at random; some must be spread")
    parser.add_argument("--limit", help="what programs may have of each device, such as 4MiB")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--seconds", type=float, default=600,
                        help="of processor time, give up after")
    parser.add_argument("--seats", type=int, default=1, help="virtual devices of the program")
    parser.add_argument("--isolate", action="store_true",
                        help="with its drivers in other processes, none of which it may hold")
    parser.add_argument("--watch", action="store_true",
                        help="look at it so without --isolate: then something must be seen")
    parser.add_argument("--present", help="device type that the program is told")
    parser.add_argument("--native-device", default="0", help="TEST_DEVICE of the native run")
    parser.add_argument("--expect", type=int, default=0, help="exit status to expect, both times")
    parser.add_argument("--no-native", action="store_true",
                        help="drivers cannot run it: only the status is compared")
    parser.add_argument("--native-seconds", type=float, default=300)
    parser.add_argument("--keep", action="store_true", help="keep the folder with all output")
    parser.add_argument("--summary", help="file for the counts, as JSON")
    parser.add_argument("program", nargs="+")
    options = parser.parse_args(argv)
    options.moves *= TIMES
    return options


def moved(lab, options, devices):
    """(exit status, or why it was killed, standard output, mover) under reseat."""
    until = lab.path("until")
    name = f"chaos-{options.seed}"
    low, high = (int(part) / 1000 for part in options.interval.split("-"))
    with open(lab.path("stdout"), "wb") as out, open(lab.path("stderr"), "wb") as err, \
            open(lab.path("moves"), "w", encoding="utf-8") as log:
        command = lab.run_command(name, devices[0], options.present, options.seats)
        if options.slice:
            command[-1:-1] = ["--slice", options.slice]
        if options.isolate:
            command[-1:-1] = ["--isolate"]
        command += options.program
        process = lab.start(command, out, err, {"TEST_UNTIL": until})
        mover = Mover(lab, process.pid, devices, options.seed, (low, high), options.suspend_every,
                      log=log, seats=options.seats, spread=options.spread)
        watch = Watch(process.pid, options.isolate)
        if options.isolate or options.watch:
            watch.start()
        if options.moves:
            mover.start()
        patience, why = Patience(process.pid, options.seconds), None
        while process.poll() is None and not why:
            enough = mover.moves() >= options.moves and (mover.spread_items or not options.spread)
            if enough and not os.path.exists(until):
                touch(until)
            time.sleep(0.02)
            why = patience.is_out()
        status = process.poll()
        if status is None:
            process.kill()
            process.wait()
        if options.moves:
            mover.stop()
        mover.wrong = watch.wrong() if watch.ident else None
    with open(lab.path("stdout"), "rb") as file:
        return status if status is not None else why + mover.told(), file.read(), mover


def complaint(lab):
    """The first line in which Oclgrind tells of an error in a kernel, or None."""
    with open(lab.path("stderr"), "rb") as file:
        for line in file:
            if re.match(rb"\s*(Invalid (read|write)|Uninitialized value|.* race at)", line):
                return line.strip()
    return None


def report(options, devices, want, got, mover, seconds, checker):
    """Print the summary; the number of things that are wrong."""
    wrong = []
    if isinstance(got[0], str):
        wrong.append(got[0])
    elif got[0] != want[0]:
        wrong.append(f"exit status {got[0]}, natively {want[0]}")
    if want[1] is not None and got[1] != want[1]:
        wrong.append(f"standard output differs: {got[1][-300:]!r}, natively {want[1][-300:]!r}")
    if checker:
        wrong.append(f"Oclgrind says: {checker.decode(errors='replace')}")
    if mover.wrong:
        wrong.append(mover.wrong)
    if mover.moves() < options.moves:
        wrong.append(f"{mover.moves()} moves made of the {options.moves} asked for")
    if options.spread and not mover.spread_items:
        wrong.append("no launch was spread")
    counts = ", ".join(f"{n} {what}" for what, n in mover.counts.items() if n)
    print(f"chaos: {' '.join(options.program)}")
    print(f"  seed {options.seed}, devices {' '.join(devices)}, {seconds:.1f} s")
    print(f"  moves: {counts or 'none'}; {mover.suspends} suspended and resumed, "
          f"{mover.on_demand} moved on demand")
    if options.spread:
        print(f"  spread: {mover.spread_launches} launches, {mover.spread_items} work-items")
    if mover.downtimes:
        print(f"  downtime: median {statistics.median(mover.downtimes) * 1e3:.1f} ms, "
              f"most {max(mover.downtimes) * 1e3:.1f} ms")
    for reason, n in mover.reasons.items():
        print(f"  {n} times: {reason}")
    for what in wrong:
        print(f"  WRONG: {what}")
    print(f"  {len(wrong)} differences")
    return len(wrong)


def limit(lab, devices, size):
    """Have programs make do with less, so that they spill."""
    for device in devices:
        status, answer = lab.control("limit", device, "--memory", size, "--json")
        if status != DONE:
            print(f"chaos: {device} cannot be limited: {answer}", file=sys.stderr)
            return False
    return True


def main(argv):
    options = parse(argv)
    reseat = find_reseat(options.reseat)
    if not reseat:
        print("chaos: no reseat command (--reseat, $RESEAT)", file=sys.stderr)
        return SKIPPED
    with Lab(options.vendors.split(","), reseat, options.keep, program=options.program) as lab:
        devices = options.devices.split(",") if options.devices else lab.devices()
        want = (options.expect, None) if options.no_native else lab.native(
            options.program, options.native_seconds, TEST_DEVICE=options.native_device)
        if want[0] != options.expect:
            print(f"chaos: natively it ended with {want[0]}, not {options.expect}: "
                  "nothing to compare with", file=sys.stderr)
            return 1
        if options.limit and not limit(lab, devices, options.limit):
            return 1
        begin = time.monotonic()
        status, output, mover = moved(lab, options, devices)
        wrong = report(options, devices, want, (status, output), mover, time.monotonic() - begin,
                       complaint(lab))
        if wrong:
            sys.stderr.write(lab.tail("stderr", 4000))
        if options.summary:
            with open(options.summary, "w", encoding="utf-8") as file:
                json.dump({"seed": options.seed, "moves": mover.moves(),
                           "suspends": mover.suspends, "on_demand": mover.on_demand,
                           "failed": mover.counts["rolled back"], "differences": wrong}, file)
        if options.keep:
            print(f"  kept in {lab.folder}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
