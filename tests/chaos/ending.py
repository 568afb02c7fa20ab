#!/usr/bin/python3
"""End a program again and again while it is being moved, in each way that programs end.

  ending.py [options] -- PROGRAM

PROGRAM is tests/programs/ending. Its output and exit status must be those of a native run, however
far the move is that its end comes upon. Moves follow one another at once.
"""

import argparse
import os
import random
import subprocess
import sys
import threading
import time

from lab import Lab, VENDORS, find_reseat, DONE

WAYS = ["return", "exit", "thread", "callback", "leave"]
STATUS = "7"


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--reseat")
    parser.add_argument("--vendors", default="pocl", help=f"of {','.join(VENDORS)}")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--most", type=int, default=800, help="milliseconds until it ends, at most")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--seconds", type=float, default=60, help="a run may take")
    parser.add_argument("program")
    return parser.parse_args(argv)


def move_on(lab, pid, devices, counts, stop):
    """Move the process to and fro until it is gone."""
    at = 0
    while os.path.getsize(lab.path("stdout")) == 0 and not stop.is_set():
        time.sleep(0.01)
    while not stop.is_set():
        at += 1
        verb = ["suspend", str(pid)] if at % 7 == 6 else ["move", str(pid), devices[at % len(devices)]]
        if at % 7 == 0:
            verb = ["resume", str(pid), devices[0]]
        status, _ = lab.control(*verb, "--json")
        counts[status == DONE] += 1


def run(lab, options, devices, way, ms, counts):
    """(exit status, output) of one run that is moved until it ends; None when it did not end."""
    args = [options.program, way, "--ms", str(ms), "--status", STATUS]
    with open(lab.path("stdout"), "wb") as out, open(lab.path("stderr"), "wb") as err:
        process = lab.start(lab.run_command("ending", devices[0]) + args, out, err)
        stop = threading.Event()
        mover = threading.Thread(target=move_on, args=(lab, process.pid, devices, counts, stop))
        mover.start()
        try:
            status = process.wait(timeout=options.seconds)
        except subprocess.TimeoutExpired:
            status = None
            process.kill()
            process.wait()
        stop.set()
        mover.join()
    with open(lab.path("stdout"), "rb") as file:
        return status, file.read()


def main(argv):
    options = parse(argv)
    reseat = find_reseat(options.reseat)
    if not reseat:
        return 77
    choose = random.Random(options.seed)
    wrong, counts = 0, {True: 0, False: 0}
    with Lab(options.vendors.split(","), reseat) as lab:
        devices = lab.devices()
        want = {}
        for way in WAYS:
            native = subprocess.run([options.program, way, "--ms", "20", "--status", STATUS],
                                    env=dict(lab.env, TEST_DEVICE="1"), stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE, check=False, timeout=60)
            want[way] = (native.returncode, native.stdout)
        for i in range(options.runs):
            way, ms = WAYS[i % len(WAYS)], choose.randrange(options.most)
            got = run(lab, options, devices, way, ms, counts)
            if got != want[way]:
                wrong += 1
                print(f"WRONG: {way} after {ms} ms: {got}, natively {want[way]}")
                with open(lab.path("stderr"), "rb") as file:
                    print(file.read()[-2000:].decode(errors="replace"))
    print(f"ending: seed {options.seed}, {options.runs} runs, {counts[True]} moves, "
          f"{counts[False]} that the end came before, {wrong} differences")
    return 1 if wrong or counts[True] == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
