#!/usr/bin/python3
"""A host's device server is shut down, as for an update, and started again; a program of its device goes on elsewhere.

  update.py [--mib N] [--rounds N]

The server "oak", in a process of its own, has a device where a solver with --mib of state computes. The phases are those
of Table III of the published migration (which updates the static logic of an FPGA's node), each with the median of
--rounds:

  to the other device    reseat drain oak: the program is moved to this host's device
  shutdown               until the server's process has ended
  start                  until the agent lists the new server's device
  back                   reseat drain --off and reseat move

and in all. "pause" is the longest time between two steps of the solver, less that between most of them. After each pass
the solver checks some cells against those that it computes on the host, and ends with an error where one differs. A
server has no logic to configure: what takes the published node half a minute, its boot, is here the start of a process.
"""

import argparse
import os
import statistics
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "chaos"))

from lab import DONE, Lab, Program, expect, find_reseat, touch, until  # pylint: disable=wrong-import-position

BUILD = os.path.join(HERE, "..", "..", "build")
DEVICE = "oak/cpu0"
# Milliseconds of Table III.
PUBLISHED = {"to the other device": 852, "shutdown": 600, "start": 29420 + 104 + 2010, "back": 278, "in all": 33264,
             "pause": 0}


def address(lab):
    return f"unix:{lab.path('run')}/oak"


class Server:
    """Its device is POCL's basic one."""

    def __init__(self, lab, build):
        self.command = [os.path.join(build, "remote", "reseat-serve"), "--listen", address(lab)]
        self.env, self.process = dict(lab.env, POCL_DEVICES="basic"), None
        self.begin()

    def begin(self):
        self.process = subprocess.Popen(self.command, env=self.env, stdout=subprocess.PIPE)
        if not self.process.stdout.readline():
            sys.exit("update.py: the server did not start")

    def end(self):
        self.process.terminate()
        self.process.wait()


def must(lab, *words):
    status, answer = lab.control(*words, "--json")
    expect(f"reseat {' '.join(words)} ({answer})", status, DONE)
    return answer


def is_up(lab):
    _, servers = lab.control("server", "list", "--json")
    return [server["state"] for server in servers["servers"]] == ["up"] and DEVICE in lab.devices()


class Steps(threading.Thread):
    """When each step of the solver ended, by the dots that it prints."""

    def __init__(self, stream):
        super().__init__(daemon=True)
        self.stream, self.ended = stream, []
        self.start()

    def run(self):
        while text := os.read(self.stream.fileno(), 4096):
            self.ended += [time.monotonic()] * text.count(b".")

    def longest(self, begin):
        """Milliseconds between two steps, since @begin, less those between most."""
        ended = [at for at in self.ended if at >= begin]
        gaps = [1000 * (late - early) for early, late in zip(ended, ended[1:])]
        return max(gaps) - statistics.median(gaps)


def play(lab, server, program, steps):
    """Milliseconds of each phase."""
    begin = time.monotonic()
    times = [begin]
    must(lab, "drain", DEVICE)
    times.append(time.monotonic())
    server.end()
    times.append(time.monotonic())
    server.begin()
    until("the server is listed", lambda: is_up(lab))
    times.append(time.monotonic())
    must(lab, "drain", DEVICE, "--off")
    program.moves(DEVICE)
    times.append(time.monotonic())
    until("it computes", lambda: steps.ended and steps.ended[-1] > times[-1])
    took = [1000 * (late - early) for early, late in zip(times, times[1:])]
    return took + [sum(took), steps.longest(begin)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--build", default=BUILD)
    options = parser.parse_args()
    solver = [os.path.join(options.build, "tests", "programs", "solver"), "--mib", str(options.mib), "--every", "0",
              "--pulse", "1", "--tiles", "4"]
    with Lab(["pocl"], find_reseat(), extra_env={"POCL_DEVICES": "pthread"}) as lab:
        server = Server(lab, options.build)
        must(lab, "server", "add", address(lab), "oak")
        until("the server is listed", lambda: is_up(lab))
        with Program(lab, solver, "--device", DEVICE, busy=True, stderr=subprocess.PIPE) as program:
            steps = Steps(program.process.stderr)
            until("it computes", lambda: len(steps.ended) > 10)
            rounds = [play(lab, server, program, steps) for _ in range(options.rounds)]
            touch(program.until)
            expect("it ends well", program.process.wait(), 0)
        server.end()
    print(f"{options.mib} MiB, medians of {options.rounds}, in ms")
    print(f"{'':24}{'reseat':>10}{'published':>12}")
    for name, published, took in zip(PUBLISHED, PUBLISHED.values(), zip(*rounds)):
        print(f"{name:24}{statistics.median(took):10.0f}{published:12}")


if __name__ == "__main__":
    main()
