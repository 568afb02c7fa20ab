#!/usr/bin/python3
"""What isolation costs: the same program natively, isolated, and both under reseat, in turn.

  isolate.py --bench BENCH-ISOLATE --serve RESEAT-SERVE --driver LIBRESEAT-REMOTE.SO
             [--reseat RESEAT --device NAME] [--program NAME COMMAND]... [--index N] [--rounds N]
             [--json FILE]

Ratios are of the medians of all rounds: isolated to native, and under reseat isolated to not isolated
and to native. Of a whole program, told by its command, the time from start to end is taken. $OCL_ICD_VENDORS
says where the drivers are; --index is the device among all of them, as TEST_DEVICE counts.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    for name in ("bench", "serve", "driver"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("reseat", "device", "json"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--program", nargs=2, action="append", default=[])
    parser.add_argument("--index", default="0")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", default="64")
    return parser.parse_args()


def measure(command, env):
    """What the program prints, and how long it took."""
    begin = time.monotonic()
    run = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         check=True, timeout=600)
    took = time.monotonic() - begin
    return run.stdout, took


def figures(text):
    return {name: float(value) for name, value in map(str.split, text.decode().splitlines())}


def ways(options, folder, address):
    """Each way to run a program: its name, the words in front of it, and its environment."""
    env = {name: value for name, value in os.environ.items() if name != "RESEAT_SERVER"}
    env["TEST_DEVICE"] = options.index
    icd = os.path.join(folder, "remote.icd")
    with open(icd, "w", encoding="utf-8") as file:
        file.write(os.path.abspath(options.driver) + "\n")
    found = [("native", [], env),
             ("isolated", [], dict(env, OCL_ICD_VENDORS=icd, RESEAT_SERVER=address))]
    if options.reseat:
        under = dict(env, TEST_DEVICE="0", RESEAT_SERVE=os.path.abspath(options.serve),
                     RESEAT_REMOTE=os.path.abspath(options.driver))
        run = [options.reseat, "run", "--device", options.device]
        found += [("reseat", run + ["--no-isolate", "--"], under),
                  ("reseat isolated", run + ["--isolate", "--"], under)]
    return found


def collect(options, folder, address):
    """All figures of all ways: {way: {name: [value...]}}."""
    got = {}
    for _ in range(options.rounds):
        for way, words, env in ways(options, folder, address):
            text, _ = measure(words + [os.path.abspath(options.bench), "--mib", options.mib], env)
            values = figures(text)
            for name, command in options.program:
                _, values[f"{name}_s"] = measure(words + shlex.split(command), env)
            for name, value in values.items():
                got.setdefault(way, {}).setdefault(name, []).append(value)
    return {way: {name: statistics.median(values) for name, values in of.items()}
            for way, of in got.items()}


def show(got):
    pairs = [("isolated", "native")]
    if "reseat" in got:
        pairs += [("reseat isolated", "reseat"), ("reseat isolated", "native")]
    for one, other in pairs:
        print(f"{'':22}{other:>16}{one:>16}{'ratio':>8}{'more':>12}")
        for name in got[other]:
            a, b = got[one][name], got[other][name]
            more = f"{a - b:+.2f} us" if name.endswith("_us") else ""
            print(f"{name:22}{b:16.3f}{a:16.3f}{a / b:8.3f}{more:>12}")


def main():
    options = parse()
    with tempfile.TemporaryDirectory(prefix="isolate-") as folder:
        address = f"unix:{folder}/s"
        with subprocess.Popen([options.serve, "--listen", address], stdout=subprocess.PIPE) as server:
            try:
                server.stdout.readline()
                got = collect(options, folder, address)
            finally:
                server.terminate()
    show(got)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(got, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
