#!/usr/bin/env python3
"""
A program is killed again and again, and goes on from its last image in a new process.

    restored.py [--seed N] PROGRAM

It is checkpointed all the time, killed with SIGKILL at random moments, and restored each time on
another emulated device. Its output is the native one, and it never begins before its last image.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time

from lab import DONE, EMULATED, Lab, find_reseat

PATIENCE = 120
KILLS = 4
ARGUMENTS = ["--size", "96", "--steps", "16000"]
# So that it lasts on any machine.
SLOWLY = ["--pause", "8"]


def fail(text):
    sys.exit(f"restored.py: {text}")


def expect(what, got, wanted):
    if got != wanted:
        fail(f"{what}: {got!r}, not {wanted!r}")


def wait_for(what, ready):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = ready()
        if found:
            return found
        time.sleep(0.02)
    return fail(f"{what} did not come")


class Play:
    """One program, its images and its lives."""

    def __init__(self, lab, program, random_numbers):
        self.lab, self.random = lab, random_numbers
        self.command = [program, *ARGUMENTS, *SLOWLY, "--log", lab.path("log")]
        self.images = lab.path("images")

    def begun(self):
        """Where each life began."""
        try:
            with open(self.lab.path("log"), encoding="utf-8") as file:
                return [int(line) for line in file]
        except FileNotFoundError:
            return []

    def names(self):
        return [image["name"] for image in self.list()]

    def list(self):
        status, answer = self.lab.control("image", "list", self.images, "--json")
        return answer["images"] if status == DONE else []

    def start(self, device, restore):
        options = ["--restore", self.images] if restore else []
        return self.lab.start([self.lab.reseat, "run", "--device", device, *options, "--",
                               *self.command], subprocess.PIPE, None, {})

    def live_and_die(self, device, restore):
        """Until it has been killed."""
        lives, had = len(self.begun()), len(self.names())
        program = self.start(device, restore)
        writer = None
        try:
            wait_for(f"life {lives}", lambda: program.poll() is not None or
                     len(self.begun()) > lives)
            if program.poll() is not None:
                fail(f"life {lives} ended with {program.returncode}: {program.communicate()[0]}")
            writer = subprocess.Popen(
                [self.lab.reseat, "checkpoint", str(program.pid), "--to", self.images, "--every",
                 "1", "--keep", "3"], env=self.lab.env, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL)
            wait_for("an image", lambda: program.poll() is not None or len(self.names()) > had or
                     (had >= 3 and self.list()[0]["pid"] == program.pid))
            time.sleep(self.random.uniform(0, 2.5))
            ended = program.poll() is not None
            program.send_signal(signal.SIGKILL)
            output, _ = program.communicate(timeout=PATIENCE)
            writer.wait(timeout=PATIENCE)
            return output if ended else None
        finally:
            for process in (program, writer):
                if process and process.poll() is None:
                    process.kill()
                    process.wait()


def refuses(lab, program):
    """What cannot be gone on from is said before anything is started."""
    images = lab.path("others")
    log = lab.path("others.log")
    process = lab.start([lab.reseat, "run", "--", program, *ARGUMENTS, *SLOWLY, "--log", log],
                        subprocess.PIPE, None, {})
    try:
        wait_for("its beginning", lambda: os.path.exists(log) and os.path.getsize(log))
        expect("an image", lab.control("checkpoint", str(process.pid), "--to", images)[0], DONE)
        expect("a suspend", lab.control("suspend", str(process.pid), "--to", images + "-s")[0], DONE)
    finally:
        process.kill()
        process.communicate()
    for folder, name, wanted in ((images, "true", "there is no image of true"),
                                 (images + "-s", program, "it has no progress"),
                                 (images + "-none", program, "others-none")):
        run = subprocess.run([lab.reseat, "run", "--restore", folder, "--", name], env=lab.env,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True,
                             timeout=PATIENCE)
        if run.returncode == 0 or wanted not in run.stdout:
            fail(f"--restore {folder}: {run}, not {wanted!r}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("program")
    args = parser.parse_args()
    program = os.path.abspath(args.program)
    with Lab([EMULATED], find_reseat()) as lab:
        native = subprocess.run([program, *ARGUMENTS], env=lab.env, stdout=subprocess.PIPE,
                                check=True, timeout=PATIENCE)
        play = Play(lab, program, random.Random(args.seed))
        devices = lab.devices()
        refuses(lab, program)
        output = None
        for life in range(KILLS):
            output = play.live_and_die(devices[life % len(devices)], life > 0)
            if output is not None:
                fail("it ended before it could be killed")
        last = play.start(devices[KILLS % len(devices)], True)
        try:
            output, _ = last.communicate(timeout=PATIENCE)
        finally:
            last.kill()
        expect("exit status", last.returncode, 0)
        expect("output", output, native.stdout)
        begun = play.begun()
        print("restored.py: lives began at the steps", begun)
        expect("lives", len(begun), KILLS + 1)
        if begun[0] != 0 or any(step == 0 for step in begun[1:]) or sorted(begun) != begun:
            fail(f"it began at {begun}")


if __name__ == "__main__":
    main()
