#!/usr/bin/python3
"""Lose the device at calls that a protected program has made of its driver; compare its output.

  losses.py [options] -- PROGRAM [ARG...]

The program runs on an emulated device as it is, then protected and undisturbed, which says how many
calls of the driver there are, then once for each call that is tried: at it the device vanishes. The
program must end as it does by itself, with the same output. Calls are tried at even distances, with
--every (or LOSSES_EVERY in the environment) all of them.
"""

import argparse
import os
import subprocess
import sys
import time

from lab import EMULATED, Lab, Patience, TIMES, find_reseat

SKIPPED = 77  # what meson takes for a skipped test
SECTION, DEVICE = "a", "gpu-a"  # lab.GPUS


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--reseat", help="the reseat command")
    parser.add_argument("--calls", type=int, default=8, help="how many calls are tried, TEST_TIMES as many")
    parser.add_argument("--call", type=int, action="append", help="this one alone")
    parser.add_argument("--every", action="store_true", default="LOSSES_EVERY" in os.environ,
                        help="try each call")
    parser.add_argument("--at", help="only calls of this function")
    parser.add_argument("--first", type=int, default=1, help="of all calls begin with this one")
    parser.add_argument("--protect", default="1", help="seconds between points, or bytes")
    parser.add_argument("--slice", help="milliseconds of a piece of a long launch")
    parser.add_argument("--seconds", type=float, default=120, help="of processor time, give up after")
    parser.add_argument("--keep", action="store_true", help="keep the folder with all output")
    parser.add_argument("program", nargs="+")
    return parser.parse_args(argv)


def native(lab, options):
    """(exit status, standard output) without reseat."""
    run = subprocess.run(options.program, env=dict(lab.env, TEST_DEVICE="0"),
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False,
                         timeout=options.seconds)
    return run.returncode, run.stdout


def calls_of(trace):
    """What the program's driver was called for on the device, in order."""
    calls = {}
    if os.path.exists(trace):
        with open(trace, encoding="utf-8") as file:
            for line in file:
                number, section, function, _ = line.split()
                if section == SECTION:
                    calls[int(number)] = function
    return calls


def protected(lab, options, call):
    """(exit status or why it was killed, output, calls), the device lost at @call, or never."""
    trace = lab.path("trace")
    if os.path.exists(trace):
        os.unlink(trace)
    # What the command itself asks of drivers is not counted.
    env = [f"EMU_TRACE={trace}", f"RESEAT_LOG=info:{lab.path('log')}"]
    if call:
        env.append(f"EMU_FAIL=device={SECTION};call={call};error=vanish")
    for name in ("log", "stderr"):
        with open(lab.path(name), "wb"):
            pass
    command = [lab.reseat, "run", "--device", DEVICE, "--protect", options.protect]
    if options.slice:
        command += ["--slice", options.slice]
    with open(lab.path("stdout"), "w+b") as out, open(lab.path("stderr"), "wb") as err:
        process = lab.start(command + ["--", "env", *env, *options.program], out, err)
        status, why = Patience(process.pid, options.seconds).wait(process)
        out.seek(0)
        return why or status, out.read(), calls_of(trace)


def tail(lab, name, size=3000):
    with open(lab.path(name), "rb") as file:
        return file.read()[-size:].decode(errors="replace")


def chosen(options, calls):
    """The calls to lose the device at."""
    if options.call:
        return options.call
    # It is protected from when it has its device on.
    first = min((n for n, function in calls.items() if function == "clCreateContext"), default=1)
    numbers = [n for n, function in sorted(calls.items())
               if n >= max(first, options.first) and options.at in (None, function)]
    if options.every:
        return numbers
    count = options.calls * TIMES
    step = len(numbers) / count
    return sorted({numbers[int(step * (i + 0.5))] for i in range(count)} if numbers else [])


def differs(got, want):
    if got[0] != want[0]:
        return f"it ended with {got[0]}, by itself {want[0]}"
    if got[1] != want[1]:
        return f"its output differs: {got[1][-200:]!r}, by itself {want[1][-200:]!r}"
    return None


def run(lab, options):
    want = native(lab, options)
    if want[0] != 0:
        print(f"losses: by itself it ended with {want[0]}: nothing to compare with", file=sys.stderr)
        return 1
    lab.devices()
    status, output, calls = protected(lab, options, None)
    wrong = differs((status, output), want)
    if wrong:
        print(f"  WRONG, undisturbed: {wrong}\n{tail(lab, 'stderr')}")
        return 1
    begin, lost, failed = time.monotonic(), 0, 0
    for call in chosen(options, calls):
        status, output, made = protected(lab, options, call)
        wrong = differs((status, output), want)
        # How many calls there are is not the same each time: the last ones may be missing.
        lost += max(made, default=0) >= call
        if wrong:
            failed += 1
            print(f"  WRONG, lost at call {call}, {made.get(call, 'not made')}: {wrong}\n"
                  f"{tail(lab, 'stderr', 600)}\n{tail(lab, 'log')}", flush=True)
    print(f"losses: {' '.join(options.program)}: {max(calls, default=0)} calls, lost at {lost}, "
          f"{failed} times wrong, {time.monotonic() - begin:.1f} s")
    if not lost:
        print("  WRONG: the device was never lost")
    return 1 if failed or not lost else 0


def main(argv):
    options = parse(argv)
    reseat = find_reseat(options.reseat)
    if not reseat:
        print("losses: no reseat command (--reseat, $RESEAT)", file=sys.stderr)
        return SKIPPED
    with Lab([EMULATED], reseat, options.keep, program=options.program) as lab:
        status = run(lab, options)
        if options.keep:
            print(f"  kept in {lab.folder}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
