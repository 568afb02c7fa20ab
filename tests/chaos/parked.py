#!/usr/bin/python3
"""What an isolated program holds while it is parked for an image of its process, seen from outside.

  parked.py RESEAT PROGRAM

Nothing of a driver, of a device server, of its agent, or shared with another process: CRIU could keep
it. What stands in for CRIU looks at it, again and again while it computes; then the program ends, and
printed what it prints natively.
"""

import os
import subprocess
import sys
import time

from isolated import held
from lab import Lab

# The solver's: steps are reported, which tells how far it is.
STEPS = ["--mib", "1", "--steps", "1000000", "--every", "10", "--sums", "1", "--tiles", "1"]
KEPT = 3
SECONDS = 120
CRIU = """#!/bin/sh
case $1 in
dump)
    for fd in /proc/$3/fd/*; do echo "open $(readlink $fd)"; done >{out}.new
    sed -n 's/^[0-9a-f-]* ...s .* / shared /p; s/^\\([0-9a-f-]* ....\\) .* \\(\\/.*\\)/map \\2/p' \\
        /proc/$3/maps >>{out}.new
    cat /proc/$3/task/*/comm | sed 's/^/thread /' >>{out}.new
    mv {out}.new {out}
    echo kept >$5/core.img ;;
esac
"""
# Threads of sessions. Others of ours wait for whoever gives them something to do.
SESSIONS = ("reseat-remote", "reseat-connect", "reseat-lookout", "reseat-beat", "reseat-send")


def fail(why):
    sys.exit(f"parked: {why}")


def lines(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []


def check(what, own):
    """Of a parked process: what it has is its program's, or ours without a session."""
    for line in what:
        kind, _, value = line.strip().partition(" ")
        if kind == "open" and value not in own and not value.startswith("/dev/"):
            fail(f"while parked it has open {value}")
        if kind == "shared":
            fail(f"while parked it shares memory: {line}")
        if kind == "map" and ("memfd" in value or value.startswith("/dev/")):
            fail(f"while parked it has mapped {value}")
        if kind == "thread" and value in SESSIONS:
            fail(f"while parked it has a thread {value}")
    if not any(line.startswith("thread reseat-move") for line in what):
        fail(f"nobody looked at it: {what}")


def wait(reached, what):
    until = time.monotonic() + SECONDS
    while not reached():
        if time.monotonic() > until:
            fail(f"{what}: not within {SECONDS} s")
        time.sleep(0.05)


def reached(path):
    steps = [line.split()[1] for line in lines(path) if line.startswith("step ")]
    return int(steps[-1]) if steps else 0


def native(lab, program, end):
    with open(lab.path("native-end"), "w", encoding="ascii") as file:
        file.write(f"{end}\n")
    return subprocess.run([program, *STEPS, "--end", lab.path("native-end")], env=lab.env,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True,
                          timeout=SECONDS).stdout


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    reseat, program = map(os.path.abspath, sys.argv[1:])
    with Lab(["pocl"], reseat) as lab:
        out, end, criu, seen = (lab.path(name) for name in ("out", "end", "criu", "seen"))
        with open(criu, "w", encoding="utf-8") as file:
            file.write(CRIU.format(out=seen))
        os.chmod(criu, 0o700)
        with open(out, "wb") as output:
            run = subprocess.Popen([reseat, "run", "--isolate", "--name", "parked", "--", program,
                                    *STEPS, "--end", end], env=lab.env, stdin=subprocess.DEVNULL,
                                   stdout=output)
        own = {out} | {os.readlink(f"/proc/self/fd/{fd}") for fd in (2,)}
        try:
            for _ in range(KEPT):
                step = reached(out)
                wait(lambda step=step: reached(out) > step + 20, "it is to go on")
                subprocess.run([reseat, "checkpoint", "parked", "--process", "--to",
                                lab.path("images"), "--criu", criu], env=lab.env, check=True,
                               stdout=subprocess.DEVNULL, timeout=SECONDS)
                check(lines(seen), own | {"/dev/null"})
                os.unlink(seen)
            if held(run.pid):
                fail("it has a driver: nothing was seen of sessions")
            step = reached(out)
            with open(end + ".new", "w", encoding="ascii") as file:
                file.write(f"{step + 500}\n")
            os.rename(end + ".new", end)
            if run.wait(SECONDS) != 0:
                fail(f"it ended with {run.returncode}")
        finally:
            run.kill()
            run.wait()
        with open(out, "rb") as file:
            printed = file.read()
        last = reached(out)
        if printed != native(lab, program, last):
            fail(f"what it printed is not what it prints natively:\n{printed[-400:]}")
    print(f"parked {KEPT} times; {last} steps as natively")


if __name__ == "__main__":
    main()
