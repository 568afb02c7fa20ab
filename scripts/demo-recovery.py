#!/usr/bin/python3
"""A program goes on computing though the process that has its device is killed, three times."""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time

SCRIPTS = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(SCRIPTS, "..", "build")
sys.path.insert(0, SCRIPTS)
sys.path.insert(0, os.path.join(SCRIPTS, "..", "tests", "chaos"))

from lab import DONE, Lab, find_reseat  # pylint: disable=wrong-import-position

NAME = "solver"
LOSSES = 3
STEP_SECONDS = 120
SAMPLE_SECONDS = 0.05


class View(threading.Thread):
    """Watches what the program says of its steps, where it is, and when it was last copied."""

    def __init__(self, lab, command):
        super().__init__(daemon=True)
        self.lab, self.begin = lab, time.monotonic()
        self.process = lab.start(command, subprocess.PIPE, subprocess.PIPE,
                                 {"TEST_UNTIL": lab.path("told")})
        self.steps, self.samples, self.app, self.over = [(0.0, 0)], [], None, False
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def now(self):
        return time.monotonic() - self.begin

    def read(self):
        """Each dot is a step; what else it says there is of no interest."""
        while text := os.read(self.process.stderr.fileno(), 4096):
            self.steps.append((self.now(), self.steps[-1][1] + text.count(b".")))

    def run(self):
        while not self.over:
            app = self.lab.app(self.process.pid)
            if app:
                lost = any(vdev["lost"] for vdev in app["vdevs"])
                self.samples.append((self.now(), "" if lost else app["device"],
                                     app["protection"]["snapshot_age_ns"] / 1e9))
                self.app = app
            time.sleep(SAMPLE_SECONDS)

    def wait_for(self, what, is_so):
        until = time.monotonic() + STEP_SECONDS
        while time.monotonic() < until:
            if self.app and is_so(self.app):
                return
            if self.process.poll() is not None:
                raise SystemExit(f"demo: {NAME} ended before {what}")
            time.sleep(SAMPLE_SECONDS)
        raise SystemExit(f"demo: {what} never came; last seen: {self.app}")

    def finish(self):
        """Have it end. What it printed."""
        with open(self.lab.path("told"), "w", encoding="ascii"):
            pass
        out = self.process.stdout.read()
        self.process.wait(timeout=STEP_SECONDS)
        self.reader.join()
        return out

    def stop(self):
        self.over = True
        self.join()


def kill_it(lab, view, number):
    """{when, device, gone on when and where, age of the copy that it went on from}."""
    loss = {"device": view.app["device"]}
    victim = lab.driver_process()
    if not victim:
        raise SystemExit("demo: no process has the program's driver")
    loss["age"], loss["at"] = view.app["protection"]["snapshot_age_ns"] / 1e9, view.now()
    os.kill(victim, signal.SIGKILL)
    print(f"{loss['at']:6.1f} s  kill -9 {victim}: the process that has {loss['device']}'s driver",
          flush=True)
    view.wait_for(f"its recovery after loss {number}", lambda app: (
        app["protection"]["recoveries"] == number and app["state"] == "running"))
    steps = view.steps[-1][1]
    view.wait_for(f"a step after loss {number}", lambda _: view.steps[-1][1] > steps)
    loss["on"], loss["to"] = view.now(), view.app["device"]
    print(f"{loss['on']:6.1f} s  it goes on with {loss['to']}, from what was copied "
          f"{loss['age']:.1f} s before", flush=True)
    return loss


def explain(lab):
    """What an operator is told of it."""
    done = subprocess.run([lab.reseat, "explain", NAME], env=lab.env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, check=False, text=True)
    if done.returncode != DONE:
        raise SystemExit(f"demo: explain ended with status {done.returncode}")
    print(f"\n  $ reseat explain {NAME}")
    for line in done.stdout.splitlines():
        print("    " + line)


def places_of(samples):
    """[(begin, end, device)], "" while it is lost."""
    places = []
    for now, device, _ in samples:
        if places and places[-1][2] == device:
            places[-1][1] = now
        else:
            if places:
                places[-1][1] = now
            places.append([now, now, device])
    return places


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", required=True, help="folder for the picture")
    parser.add_argument("--build", default=BUILD, help="build folder")
    parser.add_argument("--stay", type=float, default=4.3, help="seconds between losses")
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    # It steps through the same again and again; a native run, not a check on the host, has the truth.
    program = [os.path.join(build, "tests", "programs", "solver"), "--tiles", "-1", "--mib", "8",
               "--steps", "50", "--every", "0", "--pulse", "1"]
    with Lab(["pocl"], find_reseat(os.path.join(build, "agent", "reseat"))) as lab:
        expected = subprocess.run(program, env=lab.env, check=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL).stdout
        lab.control("agent", "start")
        print(f"The program \"{NAME}\" runs on cpu0, isolated and protected: what it has is copied to "
              "the host\nevery second, and what it does in between is kept.\n", flush=True)
        view = View(lab, [lab.reseat, "run", "--name", NAME, "--device", "cpu0", "--isolate",
                          "--protect=1", "--"] + program)
        try:
            view.start()
            view.wait_for("its first copy", lambda app: app["protection"]["snapshot_age_ns"] > 0)
            losses = []
            for number in range(1, LOSSES + 1):
                time.sleep(options.stay)
                losses.append(kill_it(lab, view, number))
            time.sleep(options.stay)
            view.wait_for("its running on", lambda app: app["state"] == "running")
            explain(lab)
            app = view.app
            printed = view.finish()
            view.stop()
        finally:
            view.process.kill()
    if app["protection"]["differences"] or app["losses"] != LOSSES:
        raise SystemExit(f"demo: it lost {app['losses']} devices, and "
                         f"{app['protection']['differences']} reads differ")
    if printed != expected:
        raise SystemExit(f"demo: it printed {printed[-80:]}, and natively {expected[-80:]}")
    picture, data = (os.path.join(options.output, name) for name in ("recovery.svg", "recovery.json"))
    with open(data, "w", encoding="utf-8") as file:
        json.dump({"recovered": True, "program": NAME, "steps": view.steps, "losses": losses,
                   "places": places_of(view.samples),
                   "ages": [(now, age) for now, _, age in view.samples]}, file)
    subprocess.run([os.path.join(SCRIPTS, "plot"), data, picture], check=True)
    print(f"\nIt printed what it prints natively, to the last byte: {expected.splitlines()[-1].decode()}"
          f"\nThe picture: {os.path.relpath(picture)}")


if __name__ == "__main__":
    main()
