#!/usr/bin/env python3
"""
A program that registered with reseat.h picks its tile again for each device it is moved to.

    aware.py PROGRAM

On emulated devices of 256, 64 and 8 work-items in a work-group, of which the last is less than it
asks for. Its output is the native one.
"""

import os
import subprocess
import sys
import time

from lab import DONE, REFUSED, VENDORS, Lab, find_reseat

PATIENCE = 60
MOVES = 12
DEVICES = """
[big]   name=big   max_work_group_size=256 compute_units=8 memory=256MiB
[small] name=small max_work_group_size=64  compute_units=2 memory=64MiB
[tiny]  name=tiny  max_work_group_size=8   compute_units=1 memory=64MiB
"""
TILES = {"big": (16, 256), "small": (8, 64)}


def fail(text):
    sys.exit(f"aware.py: {text}")


def expect(what, got, wanted):
    if got != wanted:
        fail(f"{what}: {got!r}, not {wanted!r}")


def wait_for(lab, process, ready):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        app = lab.app(process.pid)
        if app and ready(app):
            return app
        time.sleep(0.05)
    return fail(f"the program did not get so far: {process.poll()}, {lab.app(process.pid)}")


def choices(log):
    """(tile, work-group limit, device) of each choice."""
    with open(log, encoding="utf-8") as file:
        lines = [line.split() for line in file]
    return [(int(tile), int(group), name) for tile, group, name in lines]


def go(lab, pid, log, name):
    """Move it there: by then it has chosen again."""
    before = len(choices(log))
    status, answer = lab.control("move", pid, name, "--json")
    expect(f"move to {name} ({answer})", status, DONE)
    made = choices(log)[before:]
    expect(f"choices on {name}", made, [TILES[name] + (name,)])


def play(lab, process, log):
    pid = str(process.pid)
    app = wait_for(lab, process, lambda app: app.get("aware") and app["state"] == "running")
    expect("what it asks for", app["aware"]["minimum"]["work_group_size"], 16)
    wait_for(lab, process, lambda app: os.path.exists(log))
    expect("its first choice", choices(log), [TILES["big"] + ("big",)])
    go(lab, pid, log, "small")
    for dry in ([], ["--dry-run"]):
        status, answer = lab.control("move", pid, "tiny", "--json", *dry)
        expect("move to tiny", status, REFUSED)
        if "asks for 16 work-items in a work-group" not in str(answer):
            fail(f"move to tiny: {answer}")
    expect("suspend", lab.control("suspend", pid)[0], DONE)
    expect("resume", lab.control("resume", pid, "big")[0], DONE)
    end = time.monotonic() + PATIENCE
    while choices(log)[-1] != TILES["big"] + ("big",) and time.monotonic() < end:
        time.sleep(0.02)
    expect("its choice when it is resumed", choices(log)[-1], TILES["big"] + ("big",))
    for turn in range(MOVES):
        go(lab, pid, log, ("small", "big")[turn % 2])


def main():
    program = os.path.abspath(sys.argv[1])
    VENDORS["emu"] = (os.environ["EMU_LIBRARY"], {"POCL_DEVICES": "pthread"})
    with Lab(["emu"], find_reseat()) as lab:
        lab.env.update(EMU_CONFIG=lab.path("emu.conf"), POCL_CACHE_DIR=lab.path("pocl"))
        os.mkdir(lab.env["POCL_CACHE_DIR"])
        with open(lab.env["EMU_CONFIG"], "w", encoding="utf-8") as file:
            file.write(DEVICES)
        native = subprocess.run([program], env=lab.env, stdout=subprocess.PIPE, check=True,
                                timeout=PATIENCE)
        until, log = lab.path("until"), lab.path("log")
        command = [lab.reseat, "run", "--profile", "native", "--device", "big", "--", program,
                   "--log", log]
        process = lab.start(command, subprocess.PIPE, None, {"TEST_UNTIL": until})
        try:
            play(lab, process, log)
            with open(until, "w", encoding="utf-8"):
                pass
            output, _ = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
        expect("exit status", process.returncode, 0)
        expect("output", output, native.stdout)


if __name__ == "__main__":
    main()
