#!/usr/bin/python3
"""Chaos for as long as you like: every program of the selection in turn, until enough moves are made.

  marathon.py [options]

Each run is one of chaos.py with a seed of its own (--seed, and one more each time), so that
`chaos.py --seed N ...` replays it: what is wrong is printed with the whole command. The selection
is what CI runs, from the file that the build makes (build/tests/chaos/selection.txt): a line for each
program, its name, arguments of chaos.py, "--", and the program with its own. A program that is not
there by that path is looked for in --programs.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(HERE, "..", "..", "build")


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--moves", type=int, default=10000, help="moves to make in all, at least")
    parser.add_argument("--each", type=int, default=100, help="moves to make in each run, at least")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--seed", type=int, default=1, help="of the first run")
    parser.add_argument("--interval", default="50-500", help="milliseconds between moves")
    parser.add_argument("--vendors", help="instead of the selection's")
    parser.add_argument("--devices", help="instead of all")
    parser.add_argument("--only", default="", help="comma-separated names of the selection")
    parser.add_argument("--selection", default=os.path.join(BUILD, "tests", "chaos",
                                                            "selection.txt"))
    parser.add_argument("--programs", default=os.path.join(BUILD, "tests", "programs"))
    parser.add_argument("--chaos", default=os.path.join(HERE, "chaos.py"))
    parser.add_argument("--reseat")
    return parser.parse_args(argv)


def selection(options):
    """[(name, arguments of chaos.py, the program and its arguments)]"""
    only = [name for name in options.only.split(",") if name]
    chosen = []
    with open(options.selection, encoding="utf-8") as file:
        for line in file:
            name, _, rest = line.strip().partition("\t")
            words = shlex.split(rest)
            if not words or (only and name not in only):
                continue
            at = words.index("--")
            program = words[at + 1:]
            if not os.path.exists(program[0]):
                program[0] = os.path.join(options.programs, os.path.basename(program[0]))
            chosen.append((name, words[:at], program))
    return chosen


def command(options, arguments, program, seed, summary):
    made = [sys.executable, options.chaos, *arguments, "--moves", str(options.each), "--interval",
            options.interval, "--seed", str(seed), "--summary", summary]
    for word, value in (("--vendors", options.vendors), ("--devices", options.devices),
                        ("--reseat", options.reseat)):
        if value:
            made += [word, value]
    return [*made, "--", *program]


class Tally:
    """What was seen of one program."""

    def __init__(self):
        self.runs = self.moves = self.suspends = self.failed = self.differences = 0
        self.seeds = []

    def add(self, seed, status, summary):
        self.runs += 1
        self.seeds.append(seed)
        self.moves += summary.get("moves", 0)
        self.suspends += summary.get("suspends", 0)
        self.failed += summary.get("failed", 0)
        self.differences += summary.get("differences", 1 if status else 0)


def run(options, arguments, program, seed):
    with tempfile.NamedTemporaryFile(prefix="reseat-chaos-", suffix=".json") as file:
        words = command(options, arguments, program, seed, file.name)
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
        try:
            summary = json.load(file)
        except ValueError:
            summary = {}
    return seed, done.returncode, summary, shlex.join(words), done.stdout


def main(argv):
    options = parse(argv)
    chosen = selection(options)
    if not chosen:
        print("marathon: nothing is selected", file=sys.stderr)
        return 2
    tallies = {name: Tally() for name, _, _ in chosen}
    seed, wrong = options.seed, 0
    while sum(tally.moves for tally in tallies.values()) < options.moves and not wrong:
        with ThreadPoolExecutor(options.jobs) as pool:
            runs = {}
            for name, arguments, program in chosen:
                runs[pool.submit(run, options, arguments, program, seed)] = name
                seed += 1
            for future in as_completed(runs):
                name = runs[future]
                used, status, summary, words, output = future.result()
                tallies[name].add(used, status, summary)
                print(f"{name}, seed {used}: {summary.get('moves', 0)} moves, "
                      f"{'same' if status == 0 else 'WRONG'}", flush=True)
                if status != 0:
                    wrong += 1
                    print(output.decode(errors="replace"))
                    print(f"again: {words}", flush=True)
    print(f"{'program':24} {'runs':>5} {'seeds':>11} {'moves':>6} {'suspended':>9} "
          f"{'rolled back':>11} {'differences':>11}")
    for name, tally in tallies.items():
        seeds = f"{min(tally.seeds)}-{max(tally.seeds)}" if tally.seeds else ""
        print(f"{name:24} {tally.runs:5} {seeds:>11} {tally.moves:6} {tally.suspends:9} "
              f"{tally.failed:11} {tally.differences:11}")
    print(f"{sum(t.moves for t in tallies.values())} moves, "
          f"{sum(t.differences for t in tallies.values())} differences")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
