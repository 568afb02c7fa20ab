#!/usr/bin/python3
"""A program that was moved before it used OpenCL, to a device that is there no more, starts where it was.

  early.py PROGRAM [ARG...]
"""

import subprocess
import sys
import time

from lab import DONE, EMULATED, POLL_SECONDS, Lab, find_reseat

HOME, GONE = "gpu-a", "gpu-b"
WAIT = 'read -r line; exec "$@"'  # until it is moved


def main(program):
    with Lab([EMULATED], find_reseat(), program=program) as lab:
        lab.devices()
        trace = lab.path("trace")
        command = lab.run_command("early", HOME) + ["sh", "-c", WAIT, "sh", "env", f"EMU_TRACE={trace}",
                                                    "EMU_FAIL=device=b;call=1;error=vanish", *program]
        with subprocess.Popen(command, env=lab.env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as run:
            while not lab.app(run.pid) and run.poll() is None:
                time.sleep(POLL_SECONDS)
            status, answer = lab.control("move", str(run.pid), GONE, "--json")
            run.communicate(b"\n")
        with open(trace, encoding="utf-8") as file:
            used = {line.split()[1] for line in file if line.split()[2] == "clCreateContext"}
    if status != DONE or not answer["starting"]:
        sys.exit(f"it was not moved before it began: {status}, {answer}")
    if run.returncode != 0:
        sys.exit(f"it ended with {run.returncode}")
    if used != {"a"}:
        sys.exit(f"it ran on {used}")


if __name__ == "__main__":
    main(sys.argv[1:])
