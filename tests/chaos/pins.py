#!/usr/bin/env python3
"""
A program that uses what cannot be carried runs where it is, says why, and is not moved.

    pins.py [--portable|--isolated] PROGRAM WHAT REASON

Run natively and under `reseat run --profile native`, its output is the same; meanwhile `ps` says that
it is pinned and REASON, and `move` and `suspend` refuse with exit status 4 and REASON. With
--portable it is not offered, and the program is moved; nor is it with --isolated, as the driver is in
another process then.
"""

import argparse
import os
import subprocess
import sys
import time

from lab import DONE, REFUSED, Lab, find_reseat

PATIENCE = 60


def fail(text):
    sys.exit(f"pins.py: {text}")


def said(answer):
    """The reason in what a command answered in JSON."""
    answer = answer or {}
    return answer.get("reason") or (answer.get("error") or {}).get("message") or ""


def wait_for(lab, process, ready):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        app = lab.app(process.pid)
        if app and ready(app):
            return app
        time.sleep(0.05)
    return fail(f"the program did not get so far: {process.poll()}, {lab.app(process.pid)}")


def end_of(lab, process, until):
    with open(until, "w", encoding="utf-8"):
        pass
    try:
        output, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        fail("the program does not end")
    return process.returncode, output


def pinned(lab, options, here, there):
    until = lab.path("until")
    native = subprocess.run([options.program, options.what], env=dict(lab.env, TEST_DEVICE="1"),
                            stdout=subprocess.PIPE, check=False, timeout=PATIENCE)
    command = [lab.reseat, "run", "--name", "pinned", "--profile", "native", "--device", here, "--",
               options.program, options.what]
    process = lab.start(command, subprocess.PIPE, None, {"TEST_UNTIL": until})
    app = wait_for(lab, process, lambda app: app.get("pinned"))
    if options.reason not in app["pinned"]:
        fail(f"ps says {app['pinned']!r}")
    for action in (["move", str(process.pid), there], ["suspend", str(process.pid)]):
        status, answer = lab.control(*action, "--json")
        if status != REFUSED or options.reason not in said(answer):
            fail(f"{action[0]}: exit status {status}, {answer}")
    if lab.app(process.pid).get("moves"):
        fail("it was moved")
    status, output = end_of(lab, process, until)
    if (status, output) != (native.returncode, native.stdout) or b"not offered" in output:
        fail(f"exit status {status}, {output!r}; natively {native.returncode}, {native.stdout!r}")


def portable(lab, options, here, there):
    how = ["--profile", "native", "--isolate"] if options.isolated else []
    command = [lab.reseat, "run", *how, "--device", here, "--", options.program, options.what]
    process = lab.start(command, subprocess.PIPE, None)
    output, _ = process.communicate(timeout=PATIENCE)
    if process.returncode != 0 or b"not offered" not in output:
        fail(f"exit status {process.returncode}, {output!r}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--portable", action="store_true")
    parser.add_argument("--isolated", action="store_true")
    parser.add_argument("program")
    parser.add_argument("what")
    parser.add_argument("reason")
    options = parser.parse_args()
    options.program = os.path.abspath(options.program)
    reseat = find_reseat()
    with Lab(["pocl"], reseat) as lab:
        # POCL's cache does not survive two processes that link the same program.
        lab.env["POCL_CACHE_DIR"] = lab.path("pocl")
        os.mkdir(lab.env["POCL_CACHE_DIR"])
        devices = lab.devices()
        there, here = devices[:2]  # POCL's basic and pthread
        (portable if options.portable or options.isolated else pinned)(lab, options, here, there)


if __name__ == "__main__":
    main()
