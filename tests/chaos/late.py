#!/usr/bin/python3
"""A program ends while a callback of a build runs on: no driver is called after its handlers of exit().

  late.py EXITING
"""

import sys

from lab import EMULATED, Lab, find_reseat

STATUS = 8


def main(program):
    with Lab([EMULATED], find_reseat()) as lab:
        trace = lab.path("trace")
        with open(lab.path("stdout"), "wb") as out:
            command = lab.run_command("late", lab.devices()[0]) + [program, "late", str(STATUS)]
            status = lab.start(command, out, None, {"EMU_TRACE": trace, "TEST_LAST": trace}).wait()
        with open(trace, encoding="utf-8") as file:
            lines = file.read().splitlines()
    if status != STATUS:
        sys.exit(f"it ended with {status}")
    if "last" not in lines:
        sys.exit("its handler did not run")
    late = lines[lines.index("last") + 1:]
    if late:
        sys.exit(f"calls of a driver after its handlers: {late}")
    print(f"{len(lines) - 1} calls of drivers, none after their handlers")


if __name__ == "__main__":
    main(sys.argv[1])
