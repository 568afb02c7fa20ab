#!/usr/bin/python3
"""Lose the device at calls that a protected program has made of its driver; compare its output.

  losses.py [options] -- PROGRAM [ARG...] [--and PROGRAM [ARG...]]...

The program runs on an emulated device as it is, then protected and undisturbed, which says how many
calls of the driver there are, then once for each call that is tried: at it the device vanishes. The
program must end as it does by itself, with the same output. Calls are tried at even distances, with
--every (or LOSSES_EVERY in the environment) all of them, with --each some of each function.

With --second the device that it is recovered on vanishes as well, at calls of that recovery and after
it: then a third one has to do. With --moves it is moved at random meanwhile, so that what vanishes
(--lose) is where it is, where it comes from or goes to, or none of these. With --images images are
made of it meanwhile, one after the other: those that are there in the end have to be good. With
--spread it is not protected, and what vanishes does a part of its launches: that is done again where
the program is. With --seats it has several virtual devices, and with
--pinned something that cannot be carried, and is not protected either: it may end with what its calls
say, but not hang or crash.
"""

import argparse
import os
import sys
import threading
import time

from lab import DONE, EMULATED, PACED, SKIPPED, Lab, Mover, Patience, TIMES, find_reseat

DEVICES = {"a": "gpu-a", "b": "gpu-b", "c": "cpu-c", "d": "gpu-d"}  # lab.GPUS, and...
# ...where a program whose memory the device works in can go when both others are lost.
THIRD = "[d] name=gpu-d base=1 own_memory=yes\n"
HOME, NEXT = "a", "b"  # where it starts, and where it is recovered


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--reseat", help="the reseat command")
    parser.add_argument("--calls", type=int, default=8, help="how many calls are tried, TEST_TIMES as many")
    parser.add_argument("--call", type=int, action="append", help="this one alone")
    parser.add_argument("--every", action="store_true", default="LOSSES_EVERY" in os.environ,
                        help="try each call")
    parser.add_argument("--at", help="only calls of this function")
    parser.add_argument("--each", type=int, help="so many calls of each function: the first, the last, between")
    parser.add_argument("--second", type=int, default=0,
                        help="for each call, at so many calls of the next device that is lost as well")
    parser.add_argument("--first", type=int, default=1, help="of all calls begin with this one")
    parser.add_argument("--lose", choices=list(DEVICES), default=HOME, help="the device that vanishes")
    parser.add_argument("--moves", action="store_true", help="move it at random")
    parser.add_argument("--images", action="store_true", help="make images of it meanwhile")
    parser.add_argument("--seats", type=int, default=1, help="so many virtual devices, unprotected")
    parser.add_argument("--pinned", action="store_true", help="it cannot leave its device")
    parser.add_argument("--no-native", action="store_true",
                        help="compare with the run that is not disturbed")
    parser.add_argument("--spread", action="store_true", help=f"share its launches with {NEXT}, unprotected")
    parser.add_argument("--protect", default="1", help="seconds between points, or bytes")
    parser.add_argument("--slice", help="milliseconds of a piece of a long launch")
    parser.add_argument("--seconds", type=float, default=120, help="of processor time, give up after")
    parser.add_argument("--keep", action="store_true", help="keep the folder with all output")
    parser.add_argument("program", nargs="+")
    return parser.parse_args(argv)


class Imager(threading.Thread):
    """Makes images of a process, one after the other, until told to stop."""

    def __init__(self, lab, pid):
        super().__init__(daemon=True)
        self.lab, self.pid, self.stop_asked = lab, pid, threading.Event()

    def run(self):
        while not self.stop_asked.is_set():
            self.lab.control("checkpoint", str(self.pid), "--to", self.lab.path("images"),
                             "--keep", "2")

    def stop(self):
        self.stop_asked.set()
        self.join()


def calls_of(trace):
    """What the program's driver was called for on each device, in order."""
    calls = {section: {} for section in DEVICES}
    if os.path.exists(trace):
        with open(trace, encoding="utf-8") as file:
            for line in file:
                number, section, function, _ = line.split()
                calls[section][int(number)] = function
    return calls


def protected(lab, options, losses):
    """(exit status or why it was killed, output, calls); @losses: (device, its call) each."""
    trace = lab.path("trace")
    if os.path.exists(trace):
        os.unlink(trace)
    # What the command itself asks of drivers is not counted.
    env = [f"EMU_TRACE={trace}", f"RESEAT_LOG=info:{lab.path('log')}"]
    if losses:
        rules = [f"device={section};call={call};error=vanish" for section, call in losses]
        env.append("EMU_FAIL=" + ",".join(rules))
    for name in ("log", "stderr"):
        with open(lab.path(name), "wb"):
            pass
    command = [lab.reseat, "run", "--device", DEVICES[HOME]]
    command += ["--spread", DEVICES[NEXT]] if options.spread else ["--protect", options.protect]
    if options.seats > 1:
        command += ["--devices", str(options.seats)]
    if options.slice:
        command += ["--slice", options.slice]
    with open(lab.path("stdout"), "w+b") as out, open(lab.path("stderr"), "wb") as err:
        process = lab.start(command + ["--", "env", *env, *options.program], out, err)
        others = []
        if options.moves:
            others.append(Mover(lab, process.pid, list(DEVICES.values()), len(losses), (0.02, 0.2)))
        if options.images:
            others.append(Imager(lab, process.pid))
        for other in others:
            other.start()
        status, why = Patience(process.pid, options.seconds).wait(process)
        for other in others:
            other.stop()
        out.seek(0)
        return why or status, out.read(), calls_of(trace)


def some(numbers, count):
    """@count of them at even distances, with the first and, of two or more, the last."""
    if count >= len(numbers):
        return numbers
    step = (len(numbers) - 1) / max(count - 1, 1)
    return [numbers[round(step * i)] for i in range(count)]


def chosen(options, calls):
    """The calls to lose the device at."""
    if options.call:
        return options.call
    numbers = [n for n, function in sorted(calls.items())
               if n >= options.first and options.at in (None, function)]
    if options.every:
        return numbers
    if options.each:
        functions = sorted({calls[n] for n in numbers})
        return sorted(n for function in functions
                      for n in some([n for n in numbers if calls[n] == function], options.each))
    count = options.calls * TIMES
    step = len(numbers) / count
    return sorted({numbers[int(step * (i + 0.5))] for i in range(count)} if numbers else [])


def chosen_second(options, calls):
    """Calls of the device that it was recovered on, from when it was on: more of the first ones."""
    first = min((n for n, function in calls.items() if function == "clCreateContext"), default=0)
    length = max(calls, default=0) - first
    count = options.second if first else 0
    return sorted({first + int(length * (i / count) ** 3) for i in range(count)})


def differs(got, want, may_fail=False):
    if may_fail and isinstance(got[0], int) and got[0] > 0:
        return None  # its calls told it
    if got[0] != want[0]:
        return f"it ended with {got[0]}, by itself {want[0]}"
    if got[1] != want[1]:
        return f"its output differs: {got[1][-200:]!r}, by itself {want[1][-200:]!r}"
    return None


class Trials:
    """Runs with losses, each compared with the run without."""

    def __init__(self, lab, options, want):
        self.lab, self.options, self.want = lab, options, want
        self.lost = self.lost_twice = self.failed = 0

    def once(self, losses):
        """Its calls."""
        status, output, made = protected(self.lab, self.options, losses)
        wrong = differs((status, output), self.want,
                        may_fail=self.options.seats > 1 or self.options.pinned)
        # How many calls there are is not the same each time: the last ones may be missing.
        came = sum(max(made[section], default=0) >= call for section, call in losses)
        self.lost += came > 0
        self.lost_twice += came > 1
        if wrong:
            self.failed += 1
            at = ", ".join(f"{section} {call} {made[section].get(call, 'not made')}"
                           for section, call in losses)
            print(f"  WRONG, lost at call {at}: {wrong}\n"
                  f"{self.lab.tail('stderr', 600)}\n{self.lab.tail('log', 3000)}", flush=True)
        return made

    def expect_images(self):
        status, answer = self.lab.control("image", "verify", self.lab.path("images"), "--json")
        if status != DONE or not answer["images"]:
            self.failed += 1
            print(f"  WRONG, its images: {status} {answer}", flush=True)

    def at(self, call):
        made = self.once([(self.options.lose, call)])
        reached = max(made[self.options.lose], default=0)
        if reached < call and not self.options.moves:  # a busy machine makes more points, and fewer
            made = self.once([(self.options.lose, reached * 3 // 4)])
        for second in chosen_second(self.options, made[NEXT]):
            self.once([(self.options.lose, call), (NEXT, second)])


def run(lab, options):
    want = None if options.no_native else lab.native(options.program, options.seconds, TEST_DEVICE="0")
    lab.devices()
    status, output, calls = protected(lab, options, [])
    want = want or (status, output)
    if want[0] != 0:
        print(f"losses: undisturbed it ended with {want[0]}: nothing to compare with", file=sys.stderr)
        return 1
    wrong = differs((status, output), want)
    if wrong:
        print(f"  WRONG, undisturbed: {wrong}\n{lab.tail('stderr', 3000)}")
        return 1
    begin, trials = time.monotonic(), Trials(lab, options, want)
    for call in chosen(options, calls[options.lose]):
        trials.at(call)
    if options.images:
        trials.expect_images()
    print(f"losses: {' '.join(options.program)}: {max(calls[options.lose], default=0)} calls, "
          f"lost at {trials.lost}, twice at {trials.lost_twice}, {trials.failed} times wrong, "
          f"{time.monotonic() - begin:.1f} s")
    # Where it is moved to, and when, is not the same each time.
    if (not trials.lost and not options.moves) or (options.second and not trials.lost_twice):
        print("  WRONG: the device was never lost")
        return 1
    return 1 if trials.failed else 0


def programs_of(words):
    """Each with its arguments."""
    programs = [[]]
    for word in words:
        if word == "--and":
            programs.append([])
        else:
            programs[-1].append(word)
    return programs


def main(argv):
    options = parse(argv)
    reseat = find_reseat(options.reseat)
    if not reseat:
        print("losses: no reseat command (--reseat, $RESEAT)", file=sys.stderr)
        return SKIPPED
    programs, status = programs_of(options.program), 0
    with Lab([PACED if options.spread else EMULATED], reseat, options.keep, program=programs[0]) as lab:
        with open(lab.env["EMU_CONFIG"], "a", encoding="utf-8") as file:
            file.write(THIRD)
        for options.program in programs:
            status = run(lab, options) or status
        if options.keep:
            print(f"  kept in {lab.folder}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
