#!/usr/bin/python3
"""A program on 4 devices that 4 more join while it runs: time and energy by how much was done by then.

  joined.py [--at PERCENT,...] [--seconds N] [--json FILE]

Published (SAF, its Table III): 10 h on 4 FPGAs, 5 h on 8, each of which takes 22 + 46 mW, and 10 mW while it waits.
Without the network the program is started again on 8, or goes on on 4. `published` is what is printed there,
`recomputed` the same from these numbers, with the 10 mW counted once, as there, or for all four.

`measured`, at each of --at: a program that has 8 virtual devices, two on each of 4 emulated devices, of which 4 are
moved to 4 others when so much of its work is done. The devices take their time and energy however busy this machine is
(items_per_s, and meters: watts in place of milliwatts); --seconds is what the 10 h are here. Every result is compared.
"""

import argparse
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "chaos"))

from lab import DONE, EMULATED, Lab, Program, find_reseat  # pylint: disable=wrong-import-position

HOURS, JOINED_HOURS = 10, 5
BUSY_MW, WAITING_MW = 22 + 46, 10
FEW, ALL = 4, 8
# Of the paper: per cent done, then hours and kJ without the network and with it.
PUBLISHED = {0: (5, 9.79, 5, 9.79), 10: (6, 10.77, 5.5, 9.83), 20: (7, 11.75, 6, 9.86), 30: (8, 12.73, 6.5, 9.90),
             40: (9, 13.71, 7, 9.94), 50: (10, 9.79, 7.5, 9.97), 60: (10, 9.79, 8, 10.01), 70: (10, 9.79, 8.5, 10.04),
             80: (10, 9.79, 9, 10.08), 90: (10, 9.792, 9.5, 10.12), 100: (10, 9.792, 10, 9.79)}
TASKS, ITEMS = 320, 5000


def kilojoules(milliwatts, hours):
    return milliwatts * hours * 3.6e-3


def recomputed(done):
    """Hours and kJ: without the network; with it; and kJ where all four that wait are counted."""
    first = HOURS * done / 100
    again = first + JOINED_HOURS
    restarts = again < HOURS
    plain = kilojoules(BUSY_MW * FEW, first) + kilojoules(BUSY_MW * ALL, JOINED_HOURS) if restarts else \
        kilojoules(BUSY_MW * FEW, HOURS)
    hours = first + JOINED_HOURS * (1 - done / 100)
    joined = kilojoules(BUSY_MW * FEW, first) + kilojoules(BUSY_MW * ALL, hours - first)
    waits = kilojoules(WAITING_MW, first) if done < 100 else 0
    return (again if restarts else HOURS, plain, hours, joined + waits, joined + (ALL - FEW) * waits)


def microjoules(lab):
    total = 0
    for i in range(ALL):
        with open(lab.path(f"meter{i}"), encoding="ascii") as file:
            total += int(file.read().split()[0])
    return total


def measured(options, done):
    """Hours and kJ, of a run in which @done per cent were done when the others joined."""
    folder = os.environ.get("BENCH", os.path.join(HERE, "..", "..", "build", "tests", "bench"))
    rate = int(TASKS * ITEMS / FEW / options.seconds)
    with Lab((EMULATED,), find_reseat(), devices="[d0]\n") as lab:
        with open(lab.path("gpus.conf"), "w", encoding="utf-8") as file:
            for i in range(ALL):
                file.write(f"[d{i}] name=fpga-{i} base=1 own_memory=yes items_per_s={rate} meter={lab.path(f'meter{i}')} "
                           f"idle_w={WAITING_MW} busy_w={BUSY_MW}\n")
        devices = lab.devices()
        command = [os.path.join(folder, "bench-many"), "tasks", str(TASKS), str(ITEMS)]
        # Shorter pieces would each wait for their turn on a busy machine.
        with Program(lab, command, "--slice", "100", "--device", ",".join(2 * devices[:FEW])) as process:
            before, waits = 0, done < 100
            for line in process.process.stdout:
                if line == b"begins\n":
                    before = microjoules(lab)
                elif line.startswith(b"{"):
                    joules = (microjoules(lab) - before) / 1e6
                    hours = json.loads(line)["seconds"] * HOURS / options.seconds
                    return hours, joules * HOURS / options.seconds * 3.6e-3
                if waits and before and (line == b"begins\n" and done == 0 or line.strip().isdigit() and
                                         int(line) * 100 >= done * TASKS):
                    waits = False
                    for i in range(FEW, ALL):
                        status, answer = lab.control("move", f"{process.pid}:{i}", devices[i], "--json")
                        if status != DONE:
                            sys.exit(f"joined.py: virtual device {i} does not move: {answer}")
    sys.exit("joined.py: the program did not end")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--at", default="20,50,80", help="per cent done when the others join; empty: nothing is run")
    parser.add_argument("--seconds", type=float, default=40, help="that the work takes on 4 devices")
    parser.add_argument("--json", help="file for all of it")
    options = parser.parse_args()
    runs = [int(at) for at in options.at.split(",") if at]
    if not set(runs) <= set(PUBLISHED):
        parser.error(f"--at are of {','.join(map(str, PUBLISHED))}")
    print("done     without the network              with it                           measured\n"
          "         published       recomputed       published      recomputed, all 4")
    rows = []
    for done, (hours, energy, joined, joined_energy) in PUBLISHED.items():
        plain = recomputed(done)
        row = {"done_pct": done, "published": [hours, energy, joined, joined_energy],
               "recomputed": [round(value, 3) for value in plain]}
        text = (f"{done:3} %  {hours:4} h {energy:6.2f} kJ {plain[0]:5.1f} h {plain[1]:6.2f} kJ  {joined:4} h "
                f"{joined_energy:6.2f} kJ {plain[2]:5.1f} h {plain[3]:6.2f}, {plain[4]:5.2f} kJ")
        if done in runs:
            row["measured"] = [round(value, 3) for value in measured(options, done)]
            text += "  {:5.2f} h {:6.2f} kJ".format(*row["measured"])
        print(text, flush=True)
        rows.append(row)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"what": "joined", "seconds": options.seconds, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
