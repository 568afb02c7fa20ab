#!/usr/bin/python3
"""What it costs to move a program in the middle of its launches: the eight kernels of Spector.

  spector.py [--from DEVICE] [--to DEVICE] [--seconds S] [--moves N] [--kernels NAME,NAME...]
             [--size small|medium|large] [--slice MS] [--programs FOLDER] [--json FILE]

Each kernel is given so much work that a pass over it takes --seconds natively on the first device.
Then it runs natively, under reseat, and under reseat moved to and fro: half a pass after each pass
began, a move is asked for; to the device itself: it is suspended, and resumed there. The forms of that
are those that this reseat has: "whole" waits for a launch to end, "sliced" moves between its pieces,
and so on.

  native, reseat    seconds a pass, the least of several, on the first device
  steady            under reseat against natively, and, but for "whole", against "whole"
  overhead          what a move made the program lose, in per cent of a pass: from the beginning of the
                    pass in which it was asked for to that of the first pass on the new device, less
                    what as many passes take without a move, as the mean of both devices, which
                    should be alike; the median of all moves
  wait              from when the move was asked for until the program was there; the median

Every run prints a checksum of all bytes of its results, which must be that of the native run, whose
results were checked by the host. Names of devices are reseat's; it has to be seen natively too.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
KERNELS = ("fir", "dct", "sobel", "normals", "spmv", "matmul", "histogram", "bfs")
MOST_WORK = 2**31 - 1
MOST_DEVICES = 16
WARM, LEAST_PASSES = 1, 4  # the first pass compiles; then so many without a move
POLL_SECONDS = 0.001
NAME = "spector"
# Of the forms of a move: what `reseat run --help` has to know for it, and the options.
FORMS = (
    ("whole", None, []),
    ("sliced", "--slice", ["--slice", "{slice}"]),
    ("non-blocking", "--non-blocking", ["--slice", "{slice}", "--non-blocking"]),
    ("elastic", "--spread", ["--slice", "{slice}", "--spread"]),
)
# As issue 14 gives them, of moves of the kernels of Spector between FPGAs, in per cent: of single kernels
# nothing is said in what is public of A. Vaishnav, K. D. Pham, D. Koch: Live Migration for OpenCL FPGA
# Accelerators, FPT 2018 (doi 10.1109/FPT.2018.00017), which has these forms.
PUBLISHED = {"blocking_percent": [0.06, 14], "non_blocking_most_percent": 0.96,
             "steady_best_percent": 0.96}


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--from", dest="source", help="a device of reseat's (the first)")
    parser.add_argument("--to", dest="target", 
                        help="another (another of its kind; without one it leaves and comes back)")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long a pass shall take")
    parser.add_argument("--moves", type=int, default=4, help="of each kernel and form")
    parser.add_argument("--kernels", default=",".join(KERNELS))
    parser.add_argument("--size", default="medium", choices=("small", "medium", "large"))
    parser.add_argument("--slice", default="10", help="milliseconds of a piece")
    parser.add_argument("--programs", help="the folder of spector")
    parser.add_argument("--json", help="file for all of it, for scripts/plot")
    return parser.parse_args(argv)


def find(name, folders):
    for folder in folders:
        path = folder and os.path.join(folder, name)
        if path and os.access(path, os.X_OK):
            return path
    sys.exit(f"spector.py: no {name} in {', '.join(folder for folder in folders if folder)}")


class Times:
    """What spector writes of its passes while it runs."""

    def __init__(self, path):
        self.path = path

    def lines(self):
        try:
            with open(self.path, encoding="utf-8") as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return []

    def device(self):
        return (self.lines() or [""])[0]

    def passes(self):
        """[(begin, end)] of those that have ended."""
        fields = [line.split() for line in self.lines()[1:]]
        return [(float(field[1]), float(field[2])) for field in fields if len(field) == 3]

    def begins(self):
        """When each pass began that has, the one that is under way among them."""
        fields = [line.split() for line in self.lines()[1:]]
        return [float(field[1]) for field in fields if len(field) > 1]


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder, self.count = options, folder, 0
        build = os.path.join(HERE, "..", "..", "build")
        self.reseat = os.environ.get("RESEAT") or find(
            "reseat", (os.path.join(HERE, "bin"), os.path.join(build, "agent")))
        self.program = find(NAME, (options.programs, os.environ.get("PROGRAMS"),
                                   os.path.join(HERE, "bin"), os.path.join(build, "tests/programs")))
        self.help = subprocess.run([self.reseat, "run", "--help"], stdout=subprocess.PIPE,
                                   check=True, text=True).stdout
        self.native = {}

    def ask(self, *args):
        run = subprocess.run([self.reseat, *args, "--json"], stdout=subprocess.PIPE, check=False,
                             text=True)
        if run.returncode:
            sys.exit(f"spector.py: reseat {' '.join(args)} failed ({run.returncode}): {run.stdout}")
        return json.loads(run.stdout)

    def has(self, option):
        return option is None or option in self.help

    def start(self, kernel, work, repeat, device=None, form=(), extra=(), env=None):
        """Natively where no device is named; (the process, its times)."""
        self.count += 1
        times = os.path.join(self.folder, f"times-{self.count}")
        command = [self.program, "--kernel", kernel, "--size", self.options.size, "--work",
                   str(work), "--repeat", str(repeat), "--times", times, *extra]
        if device:
            run = [self.reseat, "run", "--name", NAME, "--device", device]
            command = [*run, *(part.format(slice=self.options.slice) for part in form), "--",
                       *command]
        env = dict(os.environ, **(self.native if env is None and not device else env or {}))
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
        return process, Times(times)

    def finish(self, process, must=True):
        output, _ = process.communicate()
        if process.returncode and must:
            sys.exit(f"spector.py: {' '.join(process.args)} failed ({process.returncode})")
        return [line for line in output.splitlines() if " checksum " in line]

    def run(self, *args, **keys):
        """(checksum, seconds of each pass but the first, from each of their beginnings to the next)"""
        process, times = self.start(*args, **keys)
        said = self.finish(process)
        begins = times.begins()[WARM:]
        return (said, [end - begin for begin, end in times.passes()[WARM:]],
                [late - early for early, late in zip(begins, begins[1:])])

    def choose_devices(self):
        """Both, as reseat shows them; and the native run is put on the first."""
        self.ask("agent", "start")
        devices = {device["name"]: device for device in self.ask("devices")["devices"]}
        names, options = list(devices), self.options
        source = options.source or names[0]
        for name in (source, options.target or source):
            if name not in devices:
                sys.exit(f"spector.py: no {name}, only {', '.join(names)}")
        alike = [name for name in names
                 if name != source and devices[name]["device"] == devices[source]["device"]]
        target = options.target or (alike + [source])[0]
        for index in range(MOST_DEVICES):
            env = {"TEST_DEVICE": str(index)}
            process, times = self.start("fir", 1, 1, env=env)
            self.finish(process, must=False)
            if process.returncode:
                break
            if times.device() == devices[source]["device"]:
                self.native = env
                return devices[source], devices[target]
        sys.exit(f"spector.py: natively there is no {devices[source]['device']}")

    def work_for(self, kernel):
        """So many rounds that a pass takes as long as wanted: they are found by measuring."""
        work = 1
        while True:
            took = min(self.run(kernel, work, WARM + 1)[1])
            ratio = self.options.seconds / max(took, 1e-6)
            if ratio < 1.25 or work == MOST_WORK:
                return work
            # What is short is mostly what a launch costs by itself: not too far at once.
            work = min(MOST_WORK, max(work + 1, int(work * min(ratio, 16))))

    def move(self, here, there):
        """What reseat says of it."""
        if here != there:
            return self.ask("move", NAME, there, "--timeout", "300")
        left = self.ask("suspend", NAME, "--timeout", "300")
        back = self.ask("resume", NAME, there, "--timeout", "300")
        return {field: left[field] + back[field] for field in ("downtime_ns", "bytes")}

    def next_begin(self, process, times, known):
        """When the pass began that follows so many."""
        while len(times.begins()) <= known and process.poll() is None:
            time.sleep(POLL_SECONDS)
        if process.poll() is not None:
            sys.exit(f"spector.py: {' '.join(process.args)} ended before its moves")
        return times.begins()[known]

    def moved(self, kernel, work, devices, still, form):
        """(checksum, [what became of each move]); @still: seconds of a pass, and to the next."""
        until = os.path.join(self.folder, f"until-{self.count}")
        process, times = self.start(kernel, work, 1, devices[0], form, env={"TEST_UNTIL": until})
        moves, known = [], WARM
        for turn in range(self.options.moves):
            first = self.next_begin(process, times, known)
            time.sleep(max(0, first + still[0] / 2 - time.monotonic()))
            asked = time.monotonic()
            answer = self.move(devices[turn % 2], devices[(turn + 1) % 2])
            there = time.monotonic()
            passes = len(times.begins()) - known
            after = self.next_begin(process, times, known + passes)
            moves.append({"wait": there - asked, "asked_after": asked - first, "passes": passes,
                          "lost": after - first - passes * still[1],
                          "downtime": answer["downtime_ns"] / 1e9, "bytes": answer["bytes"]})
            known += passes + 1
        with open(until, "w", encoding="utf-8"):
            pass
        return self.finish(process), moves

    def measure(self, kernel, devices):
        work = self.work_for(kernel)
        repeat = WARM + LEAST_PASSES
        want, native, _ = self.run(kernel, work, repeat, extra=("--check",))
        row = {"kernel": kernel, "work": work, "native": min(native), "forms": {}, "same": True}
        for form, option, args in FORMS:
            if not self.has(option):
                continue
            if form == "whole" and self.has("--slice"):
                args = ["--slice", "0"]
            said, here, to_next = self.run(kernel, work, repeat, device=devices[0], form=args)
            said2, there, to_next2 = self.run(kernel, work, repeat, device=devices[1], form=args)
            still = statistics.mean(map(statistics.median, (here, there)))
            said3, moves = self.moved(kernel, work, devices,
                                      (still, statistics.mean(map(statistics.median,
                                                                  (to_next, to_next2)))), args)
            row["same"] = row["same"] and want == said == said2 == said3
            row["forms"][form] = {
                "still": min(here), "still_target": min(there), "moves": moves,
                "overhead": statistics.median(move["lost"] for move in moves) / still,
                "wait": statistics.median(move["wait"] for move in moves),
                "downtime": statistics.median(move["downtime"] for move in moves),
            }
        whole = row["forms"]["whole"]
        for name, form in row["forms"].items():
            form["steady"] = form["still"] / (row["native"] if name == "whole" else whole["still"])
        return row


def show(row, first):
    forms = row["forms"]
    if first:
        print(f"{'':10} {'':>9} {'native':>8}" + "".join(
            f" | {name:>12}: {'steady':>6} {'overhead':>9} {'wait':>8} {'down':>8}" for name in forms))
    print(f"{row['kernel']:10} {row['work']:>9} {row['native']:>7.3f}s" + "".join(
        f" | {form['still']:>12.3f}s {form['steady']:>6.3f} {100 * form['overhead']:>8.2f}%"
        f" {1000 * form['wait']:>6.0f}ms {1000 * form['downtime']:>6.1f}ms"
        for form in forms.values()) + ("" if row["same"] else "  OTHER BYTES"), flush=True)


def main(argv):
    options = parse(argv)
    with tempfile.TemporaryDirectory(prefix="spector-") as folder:
        bench = Bench(options, folder)
        source, target = bench.choose_devices()
        print(f"from {source['name']} ({source['device']}) to {target['name']} ({target['device']}), "
              f"{options.size}, about {options.seconds:g} s a pass")
        rows = []
        for kernel in options.kernels.split(","):
            rows.append(bench.measure(kernel, (source["name"], target["name"])))
            show(rows[-1], len(rows) == 1)
    low, high = PUBLISHED["blocking_percent"]
    print(f"published, between FPGAs: blocking {low:g} to {high:g} %, non-blocking at most "
          f"{PUBLISHED['non_blocking_most_percent']:g} %, steady "
          f"{PUBLISHED['steady_best_percent']:g} % at best")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"spector": rows, "published": PUBLISHED, "cores": os.cpu_count(), "size": options.size, "seconds": options.seconds,
                       "slice_ms": options.slice, "from": source["device"],
                       "to": target["device"]}, file, indent=1)
    return 0 if all(row["same"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
