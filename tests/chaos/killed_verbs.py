#!/usr/bin/env python3
"""
Commands that make images of a program and start it from them are killed with SIGKILL at their system calls.

    killed_verbs.py [--kills N] [--seed N] [--only WHAT] PROGRAM

checkpoint, `run --restore` and recover are killed, and while a checkpoint is made the process that has the
program's driver. Each time images are whole or absent afterwards, the command can be given again, and
the program, which goes on or is started once, ends with what it ends with natively.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time

from lab import DONE, EMULATED, NO_SUCH, Lab, find_reseat
from recovered import Host, recover
from restored import ARGUMENTS, SLOWLY, expect, fail, wait_for

SKIPPED = 77  # what meson takes for a skipped test
PATIENCE = 120
LEASE = "1"


def traced(command, *options):
    return ["strace", "-qq", *options, *command]


def calls_of(lab, command):
    """The system calls that it makes by itself in a run that ends well: (name, which of that name)."""
    trace = lab.path("calls")
    run = subprocess.run(traced(command, "-o", trace), env=lab.env, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=PATIENCE)
    expect(f"{command[1]} ({run.stdout})", run.returncode, DONE)
    calls, counts = [], {}
    with open(trace, encoding="utf-8", errors="replace") as file:
        for name in (line.split("(")[0] for line in file if "(" in line):
            counts[name] = counts.get(name, 0) + 1
            calls.append((name, counts[name]))
    return calls


def killed_at(lab, command, call, out=subprocess.DEVNULL):
    """Run it until it makes that call; True: it did not live to end."""
    kill = f"inject={call[0]}:signal=KILL:when={call[1]}"
    process = lab.start(traced(command, "-o", os.devnull, "-e", kill), out, subprocess.DEVNULL)
    return process.wait(timeout=PATIENCE) != DONE


def chosen(calls, kills, seed):
    """One of each so many, by chance, but not of what the linker does before."""
    own = [i for i, call in enumerate(calls) if call[0] == "getrandom"][:1] or [0]
    calls, chance = calls[own[0] + 1:], random.Random(seed)
    step = len(calls) / kills
    return [calls[int(step * (i + chance.random()))] for i in range(kills)]


def expect_whole(lab, images, when):
    if os.path.isdir(images):
        status, answer = lab.control("image", "verify", images, "--json")
        if status not in (DONE, NO_SUCH):
            fail(f"{when}: images are damaged: {answer}")


class Program:
    """One that runs until it is told to end, and what it is to have written."""

    def __init__(self, lab, program, *options):
        self.lab, log = lab, lab.path("begun")
        if os.path.exists(log):
            os.unlink(log)
        self.process = lab.start([lab.reseat, "run", *options, "--", program, *ARGUMENTS, *SLOWLY, "--log", log],
                                 subprocess.PIPE, None)
        wait_for("its beginning", lambda: self.process.poll() is not None or
                 (os.path.exists(log) and os.path.getsize(log)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def checkpoint(self, images, *more):
        return [self.lab.reseat, "checkpoint", str(self.process.pid), "--to", images, *more]

    def expect_images_again(self, images, when):
        """Nothing stands in the way of the next one."""
        expect_whole(self.lab, images, when)
        status, answer = self.lab.control(*self.checkpoint(images, "--keep", "2", "--json")[1:])
        if status != DONE:
            fail(f"{when}: no checkpoint can be made any more: {answer}")
        expect_whole(self.lab, images, when)

    def expect_end(self, native):
        output, _ = self.process.communicate(timeout=PATIENCE)
        expect("exit status", self.process.returncode, 0)
        expect("output", output.decode(), native)


def kill_checkpoints(lab, program, native, options):
    images, died = lab.path("images"), 0
    with Program(lab, program) as running:
        for more in ([], ["--lease", "30"], ["--every", "60"]):
            command = running.checkpoint(images, *more)
            for call in chosen(calls_of(lab, command), options.kills, options.seed):
                died += killed_at(lab, command, call)
                running.expect_images_again(images, f"checkpoint {more} killed at call {call}")
        running.expect_end(native)
    return died


def kill_servers(lab, program, native, options):
    """What has the driver is killed while an image is made."""
    images, chance, died = lab.path("isolated"), random.Random(options.seed), 0
    with Program(lab, program, "--isolate", "--protect", "1") as running:
        for turn in range(options.kills):
            writer = lab.start(running.checkpoint(images), subprocess.DEVNULL, subprocess.DEVNULL)
            time.sleep(chance.uniform(0, 0.15))
            for pid in lab.driver_processes():
                os.kill(pid, signal.SIGKILL)
                died += 1
            writer.wait(timeout=PATIENCE)
            running.expect_images_again(images, f"kill {turn} of the driver")
        running.expect_end(native)
    return died


def kill_restores(lab, program, native, options):
    """Each begins from the same image, and nothing of one that died is in the way of the next one."""
    images, died = lab.path("restored"), 0
    arguments = [program, *ARGUMENTS, "--log", lab.path("restores")]
    with Program(lab, program) as running:
        expect("a checkpoint", lab.control(*running.checkpoint(images)[1:])[0], DONE)
    command = [lab.reseat, "run", "--restore", images, "--", *arguments]
    for call in chosen(calls_of(lab, command), options.kills, options.seed):
        died += killed_at(lab, command, call)
        expect_whole(lab, images, f"restore killed at call {call}")
    run = subprocess.run(command, env=lab.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         check=False, timeout=PATIENCE)
    expect("the last restore", (run.returncode, run.stdout.decode()), (0, native))
    return died


def settle(host, name):
    """Recover it until it has ended: who died on the way may have it for a lease."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        _, got = recover(host, name)
        if [outcome for outcome, _ in got] == ["ended"]:
            return
        time.sleep(0.2)
    fail(f"{name} does not come to its end: {got}")


def all_of(file):
    file.seek(0)
    return file.read().decode()


def kill_recoveries(disk, program, options):
    steps, died, written = 3000, 0, disk + "/written"
    with Host(disk, program) as first, Host(disk, program) as second:
        native = subprocess.run([program, "--steps", str(steps), *ARGUMENTS], env=second.lab.env,
                                stdout=subprocess.PIPE, check=True, timeout=PATIENCE).stdout.decode()

        def lose(name):
            first.lab.devices()
            first.begin(name, lease=LEASE, steps=steps)
            first.kill()
            return [second.lab.reseat, "recover", second.images(name), "--from", os.uname().nodename, "--json"]

        calls = calls_of(second.lab, lose("counted"))
        for call in chosen(calls, options.kills, options.seed):
            name = f"lost-{call[0]}-{call[1]}"
            command = lose(name)
            with open(written, "w+b") as out:
                # What it started has its output.
                died += killed_at(second.lab, command, call, out)
                process = second.recovery(name)
                said = process.communicate(timeout=PATIENCE)[0].decode()
                settle(second, name)
                # It has ended before what it wrote is in the file.
                wait_for(f"{native!r} with recover killed at call {call} ({said!r})",
                         lambda out=out, said=said: native in said + all_of(out))
                said += all_of(out)
            expect_whole(second.lab, second.images(name), f"recover killed at call {call}")
            expect(f"results with recover killed at call {call} ({said})", said.count("resumable "), 1)
    return died


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=int(os.environ.get("KILLED_KILLS", "4")))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=["checkpoint", "server", "restore", "recover"])
    parser.add_argument("program")
    options = parser.parse_args()
    if not shutil.which("strace"):
        print("killed_verbs.py: there is no strace")
        sys.exit(SKIPPED)
    program, died = os.path.abspath(options.program), {}
    with Lab([EMULATED], find_reseat()) as lab:
        native = subprocess.run([program, *ARGUMENTS], env=lab.env, stdout=subprocess.PIPE, check=True,
                                timeout=PATIENCE).stdout.decode()
        lab.devices()
        for what, kill in (("checkpoint", kill_checkpoints), ("server", kill_servers), ("restore", kill_restores)):
            if options.only in (None, what):
                died[what] = kill(lab, program, native, options)
        if options.only in (None, "recover"):
            disk = lab.path("disk")
            os.mkdir(disk, 0o700)
            died["recover"] = kill_recoveries(disk, program, options)
    print(f"killed_verbs.py: killed: {died}")
    if not all(died.values()):
        fail("some were never killed")


if __name__ == "__main__":
    main()
