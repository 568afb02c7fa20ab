#!/usr/bin/python3
"""A program grows, is upgraded, displaced by a more important one, waits, and comes back."""

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time

SCRIPTS = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, SCRIPTS)
sys.path.insert(0, os.path.join(SCRIPTS, "..", "tests", "chaos"))

from lab import DONE, Lab, find_reseat  # pylint: disable=wrong-import-position

BUILD = os.path.join(SCRIPTS, "..", "build")
MIB = 1 << 20
DEVICES = (("small", 64), ("large", 160))  # MiB
BLOCK_KIB = 4096
POLL_SECONDS = 0.1
LINGER_SECONDS = 2
BAR_WIDTH = 40
STEP_SECONDS = 120  # each part of the story takes a few; a machine may be slow

# What each program does, in blocks of 4 MiB.
PROGRAMS = {
    # It is kept busy until the story is told, however slow the machine.
    "render": {"priority": 0, "device": "small",
               "env": lambda lab: {"TEST_UNTIL": lab.path("told")},
               "work": ["--from", "4", "--to", "24", "--step", "4", "--passes", "12",
                        "--pause-ms", "400"]},
    "urgent": {"priority": 10, "device": "large", "env": lambda lab: {},
               "work": ["--from", "30", "--to", "30", "--passes", "10", "--pause-ms", "300"]},
}


def command(lab, name):
    grower = os.path.join(lab.build, "tests", "programs", "grower")
    return [grower, "--block-kib", str(BLOCK_KIB), *PROGRAMS[name]["work"]]


def emulate(lab):
    """Two GPUs of our own making, over POCL: the only devices of this world."""
    config = lab.path("devices")
    with open(config, "w", encoding="ascii") as file:
        for name, mib in DEVICES:
            file.write(f"[{name}] name={name} type=gpu memory={mib}MiB\n")
    lab.env.update(OCL_ICD_VENDORS=os.path.join(lab.build, "tests", "emu"), EMU_CONFIG=config,
                   POCL_DEVICES="pthread")


class View(threading.Thread):
    """Asks reseat who is where, shows it, and keeps what changed."""

    def __init__(self, lab, names):
        super().__init__(daemon=True)
        self.lab = lab
        self.names = names  # short name of reseat's -> name in the story
        self.begin = time.monotonic()
        self.changed = threading.Condition()
        self.samples = []  # (seconds, {program: (state, device or None, MiB on it)})
        self.reasons = []  # (seconds, program, reason)
        self.over = False
        self.live = sys.stdout.isatty()
        self.lines = 0

    def sample(self):
        status, answer = self.lab.control("ps", "--json")
        if status != DONE:
            return None
        world = {}
        for app in answer["apps"]:
            device = self.names.get(app["device"]) if app["state"] != "suspended" else None
            world[app["name"]] = (app["state"], device, app["device_bytes"] / MIB)
            self.note(app["name"], app["why"])
        return world

    def note(self, name, reason):
        """Keep what the policy says, but for small grants and for waiting on."""
        last = next((r for _, who, r in reversed(self.reasons) if who == name), "")
        waits = "it waits for" in reason and "it waits for" in last
        if reason and reason != last and not waits and not re.search(r"gets [^ ]+ \w+ more$", reason):
            self.reasons.append((time.monotonic() - self.begin, name, reason))

    def frame(self, world):
        """The picture of a moment, as text."""
        lines = []
        for name, mib in DEVICES:
            here = [(who, int(held)) for who, (_, device, held) in world.items() if device == name]
            bar = "".join(who[0] * round(held * BAR_WIDTH / mib) for who, held in here)
            said = ", ".join(f"{who} {held} MiB" for who, held in here) or "nobody"
            lines.append(f"  {name:<6} {mib:>4} MiB [{bar:<{BAR_WIDTH}.{BAR_WIDTH}}] {said}")
        waiting = [f"{who} {state}" for who, (state, device, _) in world.items() if not device]
        lines.append("  nowhere         " + (", ".join(waiting) or "nobody"))
        return lines

    def show(self, world):
        if self.live:
            up = f"\x1b[{self.lines}A" if self.lines else ""
            lines = [f"{time.monotonic() - self.begin:6.1f} s", *self.frame(world)]
            print(up + "\n".join(f"\x1b[2K{line}" for line in lines), flush=True)
            self.lines = len(lines)
        elif not self.samples or self.where(world) != self.where(self.samples[-1][1]):
            print(f"{time.monotonic() - self.begin:6.1f} s", *self.frame(world), sep="\n", flush=True)

    @staticmethod
    def where(world):
        return {name: (state, device) for name, (state, device, _) in world.items()}

    def run(self):
        while not self.over:
            world = self.sample()
            if world is not None:
                self.show(world)
                with self.changed:
                    self.samples.append((time.monotonic() - self.begin, world))
                    self.changed.notify_all()
            time.sleep(POLL_SECONDS)

    def await_place(self, name, device, least_mib=0):
        """Wait until @name is on @device (None: on none); ends the demo when it never is."""
        until = time.monotonic() + STEP_SECONDS
        with self.changed:
            while True:
                world = self.samples[-1][1] if self.samples else {}
                _, where, held = world.get(name, ("", "?", 0))
                if where == device and held >= least_mib:
                    return
                if not self.changed.wait(until - time.monotonic()):
                    raise SystemExit(f"demo: {name} never came to {device}; last seen: {world}")


def start(lab, name):
    program = PROGRAMS[name]
    device = next(short for short, story in lab.names.items() if story == program["device"])
    return subprocess.Popen(
        [lab.reseat, "run", "--name", name, "--device", device, "--priority",
         str(program["priority"]), "--on-full", "upgrade,wait,suspend", "--", *command(lab, name)],
        env=dict(lab.env, **program["env"](lab)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL)


def finish(name, process, natively):
    out = process.communicate(timeout=STEP_SECONDS)[0]
    if process.returncode != 0 or out != natively:
        raise SystemExit(f"demo: {name} ended with status {process.returncode} and {out!r}, "
                         f"natively it prints {natively!r}")


def play(lab, view, natively):
    view.start()
    render = start(lab, "render")
    view.await_place("render", "small")
    view.await_place("render", "large", 96)
    urgent = start(lab, "urgent")
    view.await_place("urgent", "large", 120)
    view.await_place("render", None)
    finish("urgent", urgent, natively["urgent"])
    view.await_place("render", "large", 96)
    time.sleep(LINGER_SECONDS)
    with open(lab.path("told"), "w", encoding="ascii"):
        pass
    finish("render", render, natively["render"])
    view.over = True
    view.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", required=True, help="folder for the picture")
    parser.add_argument("--build", default=BUILD, help="build folder")
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    with Lab([], find_reseat(os.path.join(build, "agent", "reseat"))) as lab:
        lab.build = build
        emulate(lab)
        # Each alone on the large device: natively the small one ends `render` with an error.
        alone = dict(lab.env, TEST_DEVICE=str(len(DEVICES) - 1))
        natively = {name: subprocess.run(command(lab, name), env=alone, check=True,
                                         stdout=subprocess.PIPE,
                                         stderr=subprocess.DEVNULL).stdout for name in PROGRAMS}
        status, answer = lab.control("agent", "start", "--json")
        status, answer = lab.control("devices", "--json")
        if status != DONE:
            raise SystemExit(f"demo: no devices: {answer}")
        lab.names = {device["name"]: device["device"] for device in answer["devices"]}
        view = View(lab, lab.names)
        play(lab, view, natively)
        picture = os.path.join(options.output, "policy.svg")
        data = os.path.join(options.output, "policy.json")
        with open(data, "w", encoding="utf-8") as file:
            json.dump({"devices": DEVICES, "samples": view.samples}, file)
        subprocess.run([os.path.join(SCRIPTS, "plot"), data, picture], check=True)
        print("\nwhat the policy said:")
        for seconds, name, reason in view.reasons:
            print(f"  {seconds:5.1f} s  {name}: {reason}")
        print("\nBoth programs printed what they print natively, to the last byte of their results.\n"
              f"The picture: {os.path.relpath(picture)}")


if __name__ == "__main__":
    main()
