#!/usr/bin/python3
"""Kill the process of a protected program's driver again and again; compare the program's output.

  killed.py [options] -- PROGRAM [ARG...]

The program runs natively, then isolated and protected, while what has its driver is killed with SIGKILL at
random moments: in launches, builds, points, recoveries and moves, which are asked for at random as well. It must
end as it does natively, with the same output, after --kills (or KILLED_KILLS in the environment) at least,
each of them a loss that it outlived but for those of the last moments. A program that reads TEST_UNTIL
(those of tests/programs do) is kept busy until then.
"""

import argparse
import os
import random
import signal
import sys
import threading
import time

from lab import DONE, OUTCOMES, SKIPPED, Lab, Patience, TIMES, VENDORS, find_reseat, touch

POLL_SECONDS = 0.02
ALONE_SECONDS = 60  # with nobody to kill: the program has not gone on
AGAIN_SECONDS = 60  # until it was recovered, and has a second process of the driver
SPARES = 0.25  # of the kills are of that one


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--reseat", help="the reseat command")
    parser.add_argument("--vendors", default="pocl", help=f"of {','.join(VENDORS)}")
    parser.add_argument("--kills", type=int, default=10, help="at least, unless KILLED_KILLS says another number")
    parser.add_argument("--interval", default="50-1000", help="milliseconds between kills, LEAST-MOST")
    parser.add_argument("--moves", type=int, default=3, help="each Nth time a move is asked for before (0: never)")
    parser.add_argument("--protect", default="1", help="seconds between points")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--native-device", default="1", help="TEST_DEVICE of the native run")
    parser.add_argument("--seconds", type=float, default=300, help="of processor time, give up after")
    parser.add_argument("--keep", action="store_true", help="keep the folder with all output")
    parser.add_argument("program", nargs="+")
    options = parser.parse_args(argv)
    options.kills = int(os.environ.get("KILLED_KILLS", options.kills * TIMES))
    return options


class Killer(threading.Thread):
    """Kills what has the program's driver, until told to stop or it ends."""

    def __init__(self, lab, pid, devices, options):
        super().__init__(daemon=True)
        self.lab, self.pid, self.devices, self.every = lab, pid, devices, options.moves
        self.low, self.high = (int(part) / 1000 for part in options.interval.split("-"))
        self.random = random.Random(options.seed)
        self.over = threading.Event()
        self.kills, self.moves, self.recoveries = 0, {}, 0
        self.alone = False

    def stop(self):
        self.over.set()
        self.join()

    def move(self):
        """Asked for, not waited for: who is killed may be in the middle of it."""
        target = self.random.choice(self.devices)
        how = self.random.choice(([], ["--on-demand"], ["--non-blocking"]))
        status, _ = self.lab.control("move", str(self.pid), target, "--timeout", "20", *how, "--json")
        outcome = OUTCOMES.get(status, str(status))
        self.moves[outcome] = self.moves.get(outcome, 0) + 1

    def note(self):
        app = self.lab.app(self.pid)
        protection = (app or {}).get("protection") or {}
        self.recoveries = max(self.recoveries, protection.get("recoveries", 0))
        return app

    def kill(self):
        """One of those that there are, once there is one; False: there is none for long."""
        end = time.monotonic() + ALONE_SECONDS
        while not self.over.is_set():
            found = self.lab.driver_processes()
            if found:
                try:
                    os.kill(found[-1] if self.random.random() < SPARES else found[0], signal.SIGKILL)
                    self.kills += 1
                except ProcessLookupError:
                    pass
                return True
            if time.monotonic() > end:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def run(self):
        while not self.over.is_set() and not (self.note() or {}).get("contexts"):
            time.sleep(POLL_SECONDS)
        turn = 0
        while not self.over.wait(self.random.uniform(self.low, self.high)):
            turn += 1
            mover = None
            if self.every and turn % self.every == 0:
                mover = threading.Thread(target=self.move, daemon=True)
                mover.start()
                self.over.wait(self.random.uniform(0, 0.3))
            if not self.kill():
                self.alone = True
                return
            if mover:
                mover.join()
            self.note()


def is_ready_again(lab, process, killer):
    """It was recovered, and the next loss is to find its driver open, of a program that goes on."""
    end = time.monotonic() + AGAIN_SECONDS
    while process.poll() is None:
        killer.note()
        if killer.recoveries and len(lab.driver_processes()) > 1:
            return True
        if time.monotonic() > end:
            return False
        time.sleep(POLL_SECONDS)
    return True


def killed(lab, options):
    """(exit status, or why it was killed; standard output; killer)"""
    until, devices = lab.path("until"), lab.devices()
    command = [lab.reseat, "run", "--isolate", "--protect", options.protect, "--device", devices[0], "--",
               *options.program]
    with open(lab.path("stdout"), "w+b") as out, open(lab.path("stderr"), "wb") as err:
        process = lab.start(command, out, err, {"TEST_UNTIL": until,
                                                "RESEAT_LOG": f"info:{lab.path('log')}"})
        killer = Killer(lab, process.pid, devices, options)
        patience, why = Patience(process.pid, options.seconds), None
        killer.start()
        while process.poll() is None and not why:
            if killer.kills >= options.kills and not os.path.exists(until):
                killer.stop()
                why = None if is_ready_again(lab, process, killer) else "was not ready for another loss"
                touch(until)
            time.sleep(POLL_SECONDS)
            why = why or ("went on nowhere" if killer.alone else patience.is_out())
        status = process.poll()
        if status is None:
            process.kill()
            process.wait()
        killer.stop()
        out.seek(0)
        return why or status, out.read(), killer


def run(lab, options):
    want = lab.native(options.program, options.seconds, TEST_DEVICE=options.native_device)
    if want[0] != 0:
        print(f"killed: natively it ended with {want[0]}: nothing to compare with", file=sys.stderr)
        return 1
    begin = time.monotonic()
    status, output, killer = killed(lab, options)
    wrong = []
    if status != want[0]:
        wrong.append(f"it ended with {status}, natively {want[0]}")
    if output != want[1]:
        wrong.append(f"its output differs: {output[-300:]!r}, natively {want[1][-300:]!r}")
    if killer.kills < options.kills:
        wrong.append(f"{killer.kills} kills of the {options.kills} asked for")
    if not killer.recoveries:
        wrong.append("it was never recovered")
    moves = ", ".join(f"{count} {outcome}" for outcome, count in sorted(killer.moves.items()))
    print(f"killed: {' '.join(options.program)}: seed {options.seed}, {killer.kills} kills, "
          f"{killer.recoveries} recoveries or more, moves: {moves or 'none'}, "
          f"{time.monotonic() - begin:.1f} s")
    for what in wrong:
        print(f"  WRONG: {what}")
    if wrong:
        print("\n".join(lab.tail(*of) for of in (("stderr", 2000), ("log", 6000), ("run/reseat/agent.log", 3000))))
    return 1 if wrong else 0


def main(argv):
    options = parse(argv)
    reseat = find_reseat(options.reseat)
    if not reseat:
        print("killed: no reseat command (--reseat, $RESEAT)", file=sys.stderr)
        return SKIPPED
    with Lab(options.vendors.split(","), reseat, options.keep, program=options.program) as lab:
        status = run(lab, options)
        if options.keep:
            print(f"  kept in {lab.folder}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
