#!/usr/bin/python3
"""Cut the connection with a device server at each frame of a move, on the way up and down.

  cut_moves.py [--most N] PROGRAM...

A program that reads TEST_UNTIL is moved from its own process to a device of a server, and back,
again and again. Each time the connection breaks after another record of TLS, from the first that a
move there and back has to the last, or after N of them each way, evenly. Each move has to be made,
and the program's output has to be that of a native run.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "chaos"))
from lab import DONE, Lab, Patience, TIMES, find_reseat, touch  # pylint: disable=wrong-import-position
from served import connect_badly, serve  # pylint: disable=wrong-import-position

SECONDS = 600
WAYS = ("up", "down")
MORE = 4  # records more than were seen: moves differ


class Network:
    """What is between the program and the server."""

    def __init__(self, process):
        self.process = process

    def tell(self, words):
        """(records up, records down, connections) until now."""
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()
        return tuple(int(word) for word in self.process.stdout.readline().split())


class Cuts:
    """A program that is moved, and where it is cut."""

    def __init__(self, lab, network, pid, here, there):
        self.lab, self.network, self.pid = lab, network, pid
        self.here, self.there = here, there
        self.made = self.cut = 0

    def move(self, device):
        status, answer = self.lab.control("move", str(self.pid), device, "--timeout", "120", "--json")
        if status != DONE:
            sys.exit(f"a move to {device} was not made: {status}, {answer}")
        self.made += 1

    def there_and_back(self):
        self.move(self.there)
        self.move(self.here)

    def records_of(self, words):
        """Records of a move there and back, up and down, and how often it was cut."""
        before = self.network.tell(words)
        self.there_and_back()
        return [after - had for after, had in zip(self.network.tell("-"), before)]

    def measure(self):
        """Records up and down; the second time nothing is new."""
        self.there_and_back()
        return self.records_of("-")[:2]

    def cut_each(self, way, measured, most):
        """At counts that are scaled to the last move that was not cut: a program has fewer objects at times."""
        every, latest = max(1, (measured + MORE) // most), measured
        for count in range(random.randrange(every), measured + MORE, every):
            seen = self.records_of(f"{WAYS[way]} {count * latest // measured}")
            self.cut += seen[2]
            latest = latest if seen[2] else max(1, seen[way])


def moved(lab, network, options):
    """(standard output, records, cuts, moves) of the program as it is cut."""
    devices = lab.devices()
    until = lab.path("until")
    with open(lab.path("stdout"), "w+b") as out, open(lab.path("stderr"), "w+b") as err:
        process = lab.start(lab.run_command("cut", devices[0]) + options.program, out, err,
                            {"TEST_UNTIL": until})
        try:
            while not (lab.app(process.pid) or {}).get("device"):
                if process.poll() is not None:
                    sys.exit("the program ended at once")
            cuts = Cuts(lab, network, process.pid, devices[0], devices[-1])
            records = cuts.measure()
            for way, count in enumerate(records):
                cuts.cut_each(way, count, options.most * TIMES)
            touch(until)
            status, why = Patience(process.pid, SECONDS).wait(process)
        finally:
            process.kill()
            process.wait()
        if status != 0:
            err.seek(0)
            sys.exit(f"exit status {status}, {why}: {err.read()[-500:]}")
        out.seek(0)
        return out.read(), records, cuts


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=1 << 30)
    parser.add_argument("program", nargs="+")
    options = parser.parse_args()
    server, env = [os.environ["TEST_SERVE"]], {}
    with tempfile.TemporaryDirectory(prefix="cuts-") as folder:
        address, process = connect_badly(folder, server, env, ["records"])
        with process, serve(folder, server, address) as serving:
            try:
                os.environ.update(env)
                with Lab(["pocl", "remote"], find_reseat(), program=options.program) as lab:
                    want = subprocess.run(options.program, env=dict(lab.env, TEST_DEVICE="1"),
                                          stdout=subprocess.PIPE, check=True, timeout=SECONDS).stdout
                    got, records, cuts = moved(lab, Network(process), options)
            finally:
                serving.terminate()
                process.terminate()
    print(f"  {records[0]} and {records[1]} records, {cuts.cut} connections cut in {cuts.made} moves")
    if got != want:
        sys.exit(f"output {got[-300:]!r}, natively {want[-300:]!r}")
    if cuts.cut < cuts.made // 8:
        sys.exit("hardly any connection was cut")


if __name__ == "__main__":
    main()
