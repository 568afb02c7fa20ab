"""What an isolated program holds of the vendors' drivers, and who has its session, seen from outside while it runs."""

import os
import re
import subprocess
import threading

from lab import NO_SUCH, PATIENCE, Program, check, expect, fail, lines, until

# Libraries of drivers and of what only they load, and the nodes of devices.
OF_DRIVERS = re.compile(
    r"pocl|libLLVM|libclang|Mesa|rusticl|Rusticl|gallium|oclgrind|nvidia|libcuda|libdrm|"
    r"/dev/(nvidia|dri|kfd|accel)")
SECONDS = 0.005


def held(pid):
    """Mappings and descriptors of a process that are a driver's, or None: it is no more."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
            found = {line.split(maxsplit=5)[5].strip() for line in file if line.count("/")}
        for number in os.listdir(f"/proc/{pid}/fd"):
            try:
                found.add(os.readlink(f"/proc/{pid}/fd/{number}"))
            except FileNotFoundError:
                pass
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return {path for path in found if OF_DRIVERS.search(path)}


class Watch(threading.Thread):
    """Looks again and again, as long as the process lives."""

    def __init__(self, pid, isolated):
        super().__init__(daemon=True)
        self.pid, self.isolated = pid, isolated
        self.over = threading.Event()
        self.looks, self.found = 0, set()

    def run(self):
        while not self.over.wait(SECONDS):
            now = held(self.pid)
            if now is None:
                return
            self.looks += 1
            self.found |= now

    def wrong(self):
        """What is, or None; once the process has ended."""
        self.over.set()
        self.join()
        if self.isolated and self.found:
            return f"it held {', '.join(sorted(self.found))}"
        if self.looks < 20:
            return f"it was looked at {self.looks} times only"
        # What finds nothing in a process that has a driver would find nothing anywhere.
        if not self.isolated and not self.found:
            return "nothing of a driver was seen in a process that has one"
        return None


# The solver's: steps are reported, which tells how far it is.
STEPS = ["--mib", "1", "--steps", "1000000", "--every", "10", "--sums", "1", "--tiles", "1"]
TIMES_PARKED = 3
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


def check_parked(what, own):
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
    check("somebody looked at it", any(line.startswith("thread reseat-move") for line in what), what)


def reached(path):
    steps = [line.split()[1] for line in lines(path) if line.startswith("step ")]
    return int(steps[-1]) if steps else 0


def has_no_driver_while_parked(lab, solver):
    """
    Nothing of a driver, a device server, an agent, or shared with another process: CRIU could save it.

    What stands in for CRIU looks at it, again and again while it computes; then it ends as natively.
    """
    out, end, criu, seen = (lab.path(name) for name in ("out", "end", "criu", "seen"))
    with open(criu, "w", encoding="utf-8") as file:
        file.write(CRIU.format(out=seen))
    os.chmod(criu, 0o700)
    own = {out, os.readlink("/proc/self/fd/2"), "/dev/null"}
    with open(out, "wb") as output:
        program = Program(lab, [solver, *STEPS, "--end", end], "--isolate", "--name", "parked", stdout=output)
    for _ in range(TIMES_PARKED):
        step = reached(out)
        until("it goes on", lambda step=step: reached(out) > step + 20)
        subprocess.run([lab.reseat, "checkpoint", "parked", "--process", "--to", lab.path("images"), "--criu", criu],
                       env=lab.env, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE)
        check_parked(lines(seen), own)
        os.unlink(seen)
    check("its driver is elsewhere", not held(program.process.pid))
    with open(end + ".new", "w", encoding="ascii") as file:
        file.write(f"{reached(out) + 500}\n")
    os.rename(end + ".new", end)
    expect("exit status", program.process.wait(PATIENCE), 0)
    last = reached(out)
    with open(lab.path("native-end"), "w", encoding="ascii") as file:
        file.write(f"{last}\n")
    with open(out, "rb") as file:
        expect("what it printed", (0, file.read()),
               lab.native([solver, *STEPS, "--end", lab.path("native-end")]))
    print(f"parked {TIMES_PARKED} times; {last} steps as natively")


def sessions(lab):
    """Those of servers of isolated programs, as "reseat server sessions" lists them."""
    answer = lab.control("server", "sessions", "--json")[1] or {}
    return [session for session in answer.get("sessions", []) if session["server"].split()[0] == "isolated"]


def is_listed(lab, solver):
    """"reseat server sessions" lists its session while it runs; "reseat server kick -" does not mean it."""
    expect("sessions before any program runs", sessions(lab), [])
    with Program(lab, [solver, *STEPS], "--isolate", stdout=subprocess.DEVNULL) as program:
        found = until("a session has done something",
                      lambda: [session for session in sessions(lab) if session["busy_s"]])
        expect("sessions of one program", len(found), 1)
        session = found[0]
        expect("whose it is", session["name"], f"unix:{os.geteuid()}")
        check("the driver is in the process of the session",
              held(session["pid"]) and not held(program.process.pid), session)
        table = subprocess.run([lab.reseat, "server", "sessions"], env=lab.env, check=True,
                               stdout=subprocess.PIPE, encoding="utf-8", timeout=PATIENCE).stdout
        check("it is in the table", str(session["session"]) in table and "isolated" in table, table)
        expect("kick -", lab.control("server", "kick", "-", str(session["session"]))[0], NO_SUCH)
        check("it runs still", program.runs())
    until("its session ends with it", lambda: not sessions(lab))
