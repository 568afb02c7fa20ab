#!/usr/bin/env python3
"""
Programs that a host took with it are started again on another one: once.

    recovered.py PROGRAM

Two agents with folders of their own stand for two hosts, and one folder for the disk that both have. Of
one all is killed with SIGKILL, the agent and its program; the other recovers the program, whose output is
the native one. Several that try at once start it once; what lives, ended, or cannot be recovered stays.
"""

import glob
import json
import os
import signal
import socket
import subprocess
import sys
import time

from lab import DONE, EMULATED, NO_SUCH, REFUSED, ROLLED_BACK, Lab, find_reseat
from restored import ARGUMENTS, SLOWLY, expect, fail, wait_for

PATIENCE = 120
LEASE = "2"
HOST = socket.gethostname()


class Host:
    """An agent and what it runs."""

    def __init__(self, disk, program):
        self.disk, self.program = disk, program
        self.lab = Lab([EMULATED], find_reseat())
        self.device = self.lab.devices()[0]
        self.started = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.started:
            process.kill()
            process.wait()
            process.stdout.close()
        self.lab.__exit__()

    def images(self, name):
        return os.path.join(self.disk, name)

    def begin(self, name, *more, lease=LEASE, steps=None, run=(), kept=()):
        """
        A program that has an image, and one second later one more.

        @run, @kept  Options of reseat run, and of reseat checkpoint.
        """
        log = self.lab.path(f"{name}-{len(self.started)}.log")
        # It takes the first one that it finds.
        arguments = [*(["--steps", str(steps)] if steps else []), *ARGUMENTS, *SLOWLY, "--log", log, *more]
        process = self.lab.start([self.lab.reseat, "run", "--device", self.device, *run, "--", self.program,
                                  *arguments], subprocess.PIPE, None, {})
        self.started.append(process)
        wait_for("its beginning", lambda: os.path.exists(log) and os.path.getsize(log))
        options = ["--lease", lease] if lease else []
        for _ in range(2):
            status, answer = self.lab.control("checkpoint", str(process.pid), "--to",
                                              self.images(name), *options, *kept, "--json")
            expect(f"checkpoint ({answer})", status, DONE)
        return process

    def kill(self):
        """All of it, as a host that loses power."""
        status, answer = self.lab.control("agent", "status", "--json")
        expect("agent", status, DONE)
        for process in self.started:
            process.send_signal(signal.SIGKILL)
            process.wait()
        os.kill(answer["agent"]["pid"], signal.SIGKILL)

    def recovery(self, name, *more, host=HOST):
        return self.lab.start([self.lab.reseat, "recover", self.images(name), "--from", host, "--json",
                               *more], subprocess.PIPE, None, {})


def recover(host, name, *more):
    """(exit status, outcomes with their reasons); what was started has ended."""
    process = host.recovery(name, *more)
    output, _ = process.communicate(timeout=PATIENCE)
    return process.returncode, outcomes(output.decode())


def outcomes(output):
    """What it said, between what programs wrote."""
    answer, _ = json.JSONDecoder().raw_decode(output, output.index("{"))
    return [(one["outcome"], one["reason"]) for one in answer.get("programs", [])]


def expect_outcome(what, got, status, outcome, reason=""):
    if got[0] != status or len(got[1]) != 1 or got[1][0][0] != outcome or \
       reason not in got[1][0][1]:
        fail(f"{what}: {got}, not {status}, {outcome}, {reason!r}")


def loses_a_host(disk, program, native):
    with Host(disk, program) as first, Host(disk, program) as second:
        first.begin("host")
        expect_outcome("while it lives", recover(second, "host"), DONE, "alive", f"it runs on {HOST}")
        first.kill()
        expect_outcome("to be sure", recover(second, "host", "--dry-run"), DONE, "lost")
        several = [second.recovery("host") for _ in range(3)]
        outputs = [process.communicate(timeout=PATIENCE)[0].decode() for process in several]
        said = sorted(outcome for output in outputs for outcome, _ in outcomes(output))
        if said.count("recovered") != 1 or len(said) != 3:
            fail(f"one of three recovers it: {outputs}")
        expect("results", "".join(outputs).count("resumable "), 1)
        if native not in "".join(outputs):
            fail(f"its output: {outputs}, not {native}")
        expect_outcome("when it has ended", recover(second, "host"), DONE, "ended")


def is_fenced(disk, program):
    """A holder that somebody took for dead does nothing more."""
    with Host(disk, program) as first, Host(disk, program) as second:
        process = first.begin("fence")
        process.send_signal(signal.SIGSTOP)
        got = second.recovery("fence")
        wait_for("the new process", lambda: len(glob.glob(disk + "/fence/rights/*")) == 3)
        process.send_signal(signal.SIGCONT)
        got.communicate(timeout=PATIENCE)
        expect("the new one", got.returncode, DONE)
        wait_for("the old one to be fenced",
                 lambda: [(app["state"], "took its right" in app["right_problem"])
                          for app in first.lab.control("ps", "--json")[1]["apps"]] ==
                 [("fenced", True)])
        status, _ = first.lab.control("move", str(process.pid), first.device, "--json")
        expect("a move of a fenced program", status, REFUSED)
        time.sleep(1)
        if process.poll() is not None:
            fail(f"the old one went on: {process.communicate()[0]}")


def cannot(disk, program):
    with Host(disk, program) as host:
        host.begin("unleased", lease=None)
        expect_outcome("without a lease", recover(host, "unleased"), ROLLED_BACK, "cannot", "--lease")
        got = host.begin("ends", steps=4000)
        got.communicate(timeout=PATIENCE)
        expect_outcome("at its end", recover(host, "ends"), DONE, "ended")
        expect("of another host", host.recovery("ends", host="nowhere").wait(), NO_SUCH)
        host.begin("broken")
        host.kill()
        rights = glob.glob(disk + "/broken/rights/*")
        expect("rights", len(rights), 1)
        with open(rights[0], "rb") as file:
            block = file.read()
        with open(rights[0], "r+b") as file:
            file.write(b"x")
        expect_outcome("a damaged right", recover(host, "broken"), ROLLED_BACK, "cannot", "damaged")
        os.unlink(rights[0])
        os.symlink("/etc/passwd", rights[0])
        expect_outcome("a link", recover(host, "broken"), ROLLED_BACK, "cannot", "")
        os.unlink(rights[0])
        expect_outcome("no right", recover(host, "broken"), ROLLED_BACK, "cannot", "missing")
        with open(rights[0], "wb") as file:
            file.write(block)
        os.chmod(disk + "/broken", 0o755)
        expect("a folder of others", host.recovery("broken").wait(), REFUSED)
        os.chmod(disk + "/broken", 0o700)
        # Somebody took it, and died in the middle: who comes when his lease has passed has it. What he
        # starts finds the image damaged, and its end is not the program's.
        with open(rights[0][:-1] + "1", "wb") as file:
            file.write(block.replace(b"running", b"taken", 1) + b"\n\n")
        for chunk in glob.glob(disk + "/broken/chunks/*"):
            os.truncate(chunk, 5)
        expect_outcome("a damaged image", recover(host, "broken"), DONE, "recovered")
        expect("rights", len(glob.glob(disk + "/broken/rights/*")), 4)
        expect_outcome("afterwards", recover(host, "broken", "--dry-run"), DONE, "lost")


def main():
    program = os.path.abspath(sys.argv[1])
    with Lab([EMULATED], find_reseat()) as lab:
        native = subprocess.run([program, *ARGUMENTS], env=lab.env, stdout=subprocess.PIPE,
                                check=True, timeout=PATIENCE).stdout.decode()
        disk = lab.path("disk")
        os.mkdir(disk, 0o700)
        cannot(disk, program)
        is_fenced(disk, program)
        loses_a_host(disk, program, native)


if __name__ == "__main__":
    main()
