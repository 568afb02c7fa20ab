#!/usr/bin/python3
"""What an operator sees of the sessions that have the drivers of isolated programs.

  isolated_sessions.py RESEAT PROGRAM

"reseat server sessions" lists the session of an isolated program while that runs, with the process
that has the driver, and no longer after its end. "reseat server kick -" does not mean it.
"""

import os
import subprocess
import sys
import time

from isolated import held
from lab import Lab, NO_SUCH

STEPS = ["--mib", "1", "--steps", "1000000", "--every", "10", "--sums", "1", "--tiles", "1"]
SECONDS = 120


def sessions(lab):
    """Those of servers of isolated programs, as "reseat server sessions" lists them."""
    answer = lab.control("server", "sessions", "--json")[1] or {}
    return [session for session in answer.get("sessions", [])
            if session["server"].split()[0] == "isolated"]


def wait(wanted, what):
    until = time.monotonic() + SECONDS
    while not (found := wanted()):
        if time.monotonic() > until:
            sys.exit(f"isolated sessions: {what}: not within {SECONDS} s")
        time.sleep(0.05)
    return found


def check(lab, program):
    found = wait(lambda: [session for session in sessions(lab) if session["busy_s"]],
                 "a session that has done something")
    if len(found) != 1:
        sys.exit(f"isolated sessions: one program has {found}")
    session = found[0]
    if session["name"] != f"unix:{os.geteuid()}":
        sys.exit(f"isolated sessions: whose session is this? {session}")
    if not held(session["pid"]) or held(program.pid):
        sys.exit(f"isolated sessions: the driver is not in the process of the session: {session}")
    table = subprocess.run([lab.reseat, "server", "sessions"], env=lab.env, check=True,
                           stdout=subprocess.PIPE, encoding="utf-8", timeout=SECONDS).stdout
    if str(session["session"]) not in table or "isolated" not in table:
        sys.exit(f"isolated sessions: it is not in the table:\n{table}")
    status = lab.control("server", "kick", "-", str(session["session"]))[0]
    if status != NO_SUCH or program.poll() is not None:
        sys.exit(f"isolated sessions: - means it too: kick ended with {status}")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    reseat, solver = map(os.path.abspath, sys.argv[1:])
    with Lab(["pocl"], reseat) as lab:
        if sessions(lab):
            sys.exit("isolated sessions: there is one before any program runs")
        program = subprocess.Popen([reseat, "run", "--isolate", "--", solver, *STEPS], env=lab.env,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            check(lab, program)
        finally:
            program.kill()
            program.wait()
        wait(lambda: not sessions(lab), "its session ends with it")
    print("the session of an isolated program is listed while it runs")


if __name__ == "__main__":
    main()
