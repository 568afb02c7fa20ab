#!/usr/bin/python3
"""What it costs to move a program in the middle of its launches: the eight kernels of Spector.

  spector.py [--from DEVICE] [--to DEVICE] [--seconds S] [--moves N] [--kernels NAME,NAME...]
             [--forms NAME,NAME...] [--size small|medium|large] [--slice MS] [--programs FOLDER] [--json FILE]

Each kernel is given so much work that a pass over it takes --seconds natively on the first device.
Then it runs natively; under reseat with its launches whole, and in pieces; and moved to and fro,
half a pass after a pass began; to the device itself: it is suspended, and resumed there. One table:

  native        seconds a pass, the least of several, on the first device
  whole         the same under reseat, launches whole, as a ratio to native
  pieces        the same in pieces of --slice, as a ratio to whole
  blocking      what a move between pieces made the program lose, in per cent of a pass: from the beginning
                of the pass in which it was asked for to that of the first pass on the new device, less
                as many times what the pass before that and the one behind it take, one on each device,
                which should be alike; the median of all moves, and with six and more of them between which
                values it lies with 95 % confidence (by ranks, so that no distribution is assumed)
  non-blocking  the same of moves that the old device works through (reseat move --non-blocking)
  elastic       how many times as fast in pieces on both devices (reseat run --spread)
  wait          from when a move was asked for until the program was there: with launches whole, and in
                pieces; the medians

What this reseat, or this machine, does not have is a dash. Beside it what is published of moves of the
kernel between FPGAs. Every run prints a checksum of all bytes of its results, which must be that of the
native run, whose results were checked by the host. Names of devices are reseat's; it has to be seen
natively too.
"""

import argparse
import json
import math
import os
import re
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
# How a program may be run and moved: what is needed of reseat's help, options of `reseat run` and of
# `reseat move`, and whether it takes two devices.
FORMS = {
    "whole": {"run": ["--slice", "0"]},
    "pieces": {"needs": ("run", "--slice"), "run": ["--slice", "{slice}"]},
    "non-blocking": {"needs": ("move", "--non-blocking"), "run": ["--slice", "{slice}"],
                     "move": ["--non-blocking"], "apart": True},
    "elastic": {"needs": ("run", "--spread"), "run": ["--slice", "{slice}", "--spread"],
                "apart": True, "stays": True},
}
# What moves of the kernels of Spector between FPGAs lose, in per cent: A. Vaishnav, K. D. Pham, D. Koch: Live
# Migration for OpenCL FPGA Accelerators, FPT 2018 (doi 10.1109/FPT.2018.00017), which has these forms. Its text
# has figures of three kernels (its figures 8 and 9 are pictures), between or below which the others are.
PUBLISHED = {"blocking_percent": [0.064, 14], "non_blocking_most_percent": 0.96,
             "blocking": {"bfs": [0.064, "the least"], "fir": [14, "the most"],
                          "normals": [13, "with fir"]},
             "non-blocking": {"fir": [0.96, "the most"]}}


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--from", dest="source", help="a device of reseat's (the first)")
    parser.add_argument("--to", dest="target",
                        help="another (another of its kind; without one it leaves and comes back)")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long a pass shall take")
    parser.add_argument("--moves", type=int, default=4, help="of each kernel and form")
    parser.add_argument("--kernels", default=",".join(KERNELS))
    parser.add_argument("--forms", default=",".join(FORMS), help="how it is run and moved")
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
        self.help = {verb: subprocess.run([self.reseat, verb, "--help"], stdout=subprocess.PIPE,
                                          check=True, text=True).stdout
                     for verb in ("run", "move")}
        self.native = {}

    def ask(self, *args):
        run = subprocess.run([self.reseat, *args, "--json"], stdout=subprocess.PIPE, check=False,
                             text=True)
        if run.returncode:
            sys.exit(f"spector.py: reseat {' '.join(args)} failed ({run.returncode}): {run.stdout}")
        return json.loads(run.stdout)

    def forms(self, apart):
        """{name: form} of those that there are; options that take the other device are given it."""
        forms = {}
        for name, form in FORMS.items():
            verb, option = form.get("needs", ("run", "--slice"))
            found = re.search(rf"^ *{option}\b *(\S*)", self.help[verb], re.MULTILINE)
            if not found or (form.get("apart") and not apart) or name not in self.options.forms.split(","):
                continue
            argument = ["{other}"] if form.get("stays") and "DEVICE" in found[1] else []
            forms[name] = dict(form, run=form["run"] + argument)
        return forms

    def start(self, kernel, work, repeat, devices=None, form=None, extra=(), env=None):
        """Natively where no device is named; (the process, its times)."""
        self.count += 1
        times = os.path.join(self.folder, f"times-{self.count}")
        command = [self.program, "--kernel", kernel, "--size", self.options.size, "--work",
                   str(work), "--repeat", str(repeat), "--times", times, *extra]
        if devices:
            run = [self.reseat, "run", "--name", NAME, "--device", devices[0]]
            how = [part.format(slice=self.options.slice, other=devices[1]) for part in form["run"]]
            command = [*run, *how, "--", *command]
        env = dict(os.environ, **(self.native if env is None and not devices else env or {}))
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
        return process, Times(times)

    def finish(self, process, must=True):
        output, _ = process.communicate()
        if process.returncode and must:
            sys.exit(f"spector.py: {' '.join(process.args)} failed ({process.returncode})")
        return [line for line in output.splitlines() if " checksum " in line]

    def run(self, *args, **keys):
        """(checksum, seconds of each pass but the first)"""
        process, times = self.start(*args, **keys)
        said = self.finish(process)
        return said, [end - begin for begin, end in times.passes()[WARM:]]

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

    def move(self, here, there, how):
        """What reseat says of it."""
        if here != there:
            return self.ask("move", NAME, there, "--timeout", "300", *how)
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

    def moved(self, kernel, work, devices, form):
        """(checksum, [what became of each move])"""
        until = os.path.join(self.folder, f"until-{self.count}")
        process, times = self.start(kernel, work, 1, devices, form, env={"TEST_UNTIL": until})
        moves, known = [], WARM
        for turn in range(self.options.moves):
            before = self.next_begin(process, times, known)
            first = self.next_begin(process, times, known + 1)
            time.sleep(max(0, first + (first - before) / 2 - time.monotonic()))
            asked = time.monotonic()
            answer = self.move(devices[turn % 2], devices[(turn + 1) % 2], form.get("move", []))
            there = time.monotonic()
            known = len(times.begins())
            passes = known - times.begins().index(first)
            after = self.next_begin(process, times, known)
            behind = self.next_begin(process, times, known + 1)
            step = (first - before + behind - after) / 2
            moves.append({"wait": there - asked, "asked_after": asked - first,
                          "passes": passes, "step": step,
                          "lost": after - first - passes * step,
                          "downtime": answer["downtime_ns"] / 1e9, "bytes": answer["bytes"]})
        with open(until, "w", encoding="utf-8"):
            pass
        return self.finish(process), moves

    def measure_form(self, kernel, work, devices, form):
        """(checksums, figures)"""
        said, still = self.run(kernel, work, WARM + LEAST_PASSES, devices=devices, form=form)
        sums, figures = [said], {"still": min(still)}
        if form.get("stays"):
            return sums, figures
        said, moves = self.moved(kernel, work, devices, form)
        sums.append(said)
        figures.update(
            moves=moves,
            overhead=statistics.median(move["lost"] for move in moves) / statistics.median(still),
            between=[value / statistics.median(still) for value in interval(move["lost"] for move in moves)],
            wait=statistics.median(move["wait"] for move in moves),
            downtime=statistics.median(move["downtime"] for move in moves))
        return sums, figures

    def measure(self, kernel, devices):
        work = self.work_for(kernel)
        want, native = self.run(kernel, work, WARM + LEAST_PASSES, extra=("--check",))
        row = {"kernel": kernel, "work": work, "native": min(native), "forms": {}, "same": True}
        for name, form in self.forms(devices[0] != devices[1]).items():
            sums, figures = self.measure_form(kernel, work, devices, form)
            row["same"] = row["same"] and all(said == want for said in sums)
            row["forms"][name] = figures
        return row


def interval(values):
    """Between which of them the median lies with 95 % confidence; none where there are too few."""
    values = sorted(values)
    count, below, rank = len(values), 0, 0
    while 2 * (below + math.comb(count, rank)) <= 0.05 * 2 ** count:
        below += math.comb(count, rank)
        rank += 1
    return [values[rank - 1], values[count - rank]] if rank else []


def ratio_of(row, form, base):
    return row["forms"][form]["still"] / base if form in row["forms"] else None


def lost_by(row, form):
    if form not in row["forms"]:
        return None
    figures = row["forms"][form]
    between = [f"{100 * value:.2f}" for value in figures["between"]]
    return f"{100 * figures['overhead']:.2f} %" + (f" ({' to '.join(between)})" if between else "")


def wait_of(row, form):
    return 1000 * row["forms"][form]["wait"] if form in row["forms"] else None


def whole_of(row):
    """Seconds a pass with launches whole, or where that was not asked for natively."""
    return row["forms"].get("whole", {"still": row["native"]})["still"]


def speed_up(row):
    ratio = ratio_of(row, "elastic", row["forms"].get("pieces", {"still": whole_of(row)})["still"])
    return ratio and 1 / ratio


def published(row, which):
    """Of this kernel; where nothing is said of it, what holds for all."""
    low, high = PUBLISHED["blocking_percent"]
    of_all = (f"{low:g} to {high:g} %" if which == "blocking"
              else f"≤ {PUBLISHED['non_blocking_most_percent']:g} %")
    of_it = PUBLISHED[which].get(row["kernel"])
    return f"{of_it[0]:g} % ({of_it[1]})" if of_it else of_all


# Of the table: a heading, and what a row has there: a text, or a number and how to print it.
COLUMNS = (
    ("kernel", lambda row: row["kernel"], "{}"),
    ("native", lambda row: row["native"], "{:.3f} s"),
    ("whole", lambda row: ratio_of(row, "whole", row["native"]), "{:.3f}"),
    ("in pieces", lambda row: ratio_of(row, "pieces", whole_of(row)), "{:.3f}"),
    ("blocking", lambda row: lost_by(row, "pieces"), "{}"),
    ("published", lambda row: published(row, "blocking"), "{}"),
    ("non-blocking", lambda row: lost_by(row, "non-blocking"), "{}"),
    ("published", lambda row: published(row, "non-blocking"), "{}"),
    ("elastic", speed_up, "{:.2f} times"),
    ("wait, whole", lambda row: wait_of(row, "whole"), "{:.0f} ms"),
    ("wait, in pieces", lambda row: wait_of(row, "pieces"), "{:.0f} ms"),
)
WIDTHS = (9, 8, 6, 9, 22, 19, 22, 17, 10, 11, 15)


def line(cells):
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS)) + " |"


def show_head():
    print(line([heading for heading, _, _ in COLUMNS]))
    print("|" + "|".join("-" * (width + 2) for width in WIDTHS) + "|", flush=True)


def show(row):
    cells = []
    for _, of, how in COLUMNS:
        value = of(row)
        cells.append("–" if value is None else how.format(value))
    print(line(cells) + ("" if row["same"] else " OTHER BYTES"), flush=True)


def keep(options, rows, source, target):
    """All so far: whoever runs it may have less time than it takes."""
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"spector": rows, "published": PUBLISHED, "cores": os.cpu_count(),
                       "size": options.size, "seconds": options.seconds,
                       "slice_ms": options.slice, "from": source["device"],
                       "to": target["device"]}, file, indent=1)


def main(argv):
    options = parse(argv)
    with tempfile.TemporaryDirectory(prefix="spector-") as folder:
        bench = Bench(options, folder)
        source, target = bench.choose_devices()
        print(f"from {source['name']} ({source['device']}) to {target['name']} ({target['device']}), "
              f"{options.size}, about {options.seconds:g} s a pass")
        show_head()
        rows = []
        for kernel in options.kernels.split(","):
            rows.append(bench.measure(kernel, (source["name"], target["name"])))
            show(rows[-1])
            keep(options, rows, source, target)
    return 0 if all(row["same"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
