"""
Programs that a host took with it are started again on another one: once.

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
import time

from lab import DONE, EMULATED, NO_SUCH, PATIENCE, REFUSED, ROLLED_BACK, Lab, check, expect, find_reseat, until
from restored import ARGUMENTS, start

LEASE = "2"
HOST = socket.gethostname()


class Host:
    """An agent and what it runs."""

    def __init__(self, disk, program):
        self.disk, self.program = disk, program
        self.lab = Lab([EMULATED], find_reseat())
        self.device = self.lab.devices()[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.lab.__exit__()

    def images(self, name):
        return os.path.join(self.disk, name)

    def begin(self, name, *, lease=LEASE, steps=None, run=(), kept=()):
        """
        A program that has an image, and one second later one more.

        @run, @kept  Options of reseat run, and of reseat checkpoint.
        """
        # It takes the first number of steps that it finds.
        arguments = ["--steps", str(steps)] if steps else []
        process = start(self.lab, [self.program, *arguments, *ARGUMENTS], self.device, self.lab.path(name + ".log"), *run)
        options = ["--lease", lease] if lease else []
        for _ in range(2):
            status, answer = process.control("checkpoint", "--to", self.images(name), *options, *kept)
            expect(f"checkpoint ({answer})", status, DONE)
        return process

    def kill(self):
        """All of it, as a host that loses power."""
        status, answer = self.lab.control("agent", "status", "--json")
        expect("agent", status, DONE)
        for program in self.lab.programs:
            program.kill()
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
    check(f"{what}: {status}, {outcome}, {reason!r}", got[0] == status and len(got[1]) == 1 and
          got[1][0][0] == outcome and reason in got[1][0][1], got)


def disk_of(lab):
    """The folder of images that all hosts have."""
    disk = lab.path("disk")
    os.mkdir(disk, 0o700)
    return disk


def loses_a_host(lab, program):
    disk, native = disk_of(lab), lab.native([program, *ARGUMENTS])[1].decode()
    with Host(disk, program) as first, Host(disk, program) as second:
        first.begin("host")
        expect_outcome("while it lives", recover(second, "host"), DONE, "alive", f"it runs on {HOST}")
        first.kill()
        expect_outcome("to be sure", recover(second, "host", "--dry-run"), DONE, "lost")
        several = [second.recovery("host") for _ in range(3)]
        outputs = [process.communicate(timeout=PATIENCE)[0].decode() for process in several]
        said = sorted(outcome for output in outputs for outcome, _ in outcomes(output))
        check("one of three recovers it", said.count("recovered") == 1 and len(said) == 3, outputs)
        expect("results", "".join(outputs).count("resumable "), 1)
        check("its output is the native one", native in "".join(outputs), (outputs, native))
        expect_outcome("when it has ended", recover(second, "host"), DONE, "ended")


def is_fenced(lab, program):
    """A holder that somebody took for dead does nothing more."""
    disk = disk_of(lab)
    with Host(disk, program) as first, Host(disk, program) as second:
        process = first.begin("fence")
        process.process.send_signal(signal.SIGSTOP)
        got = second.recovery("fence")
        until("the new process has its lease", lambda: len(glob.glob(disk + "/fence/rights/*")) == 3)
        process.process.send_signal(signal.SIGCONT)
        got.communicate(timeout=PATIENCE)
        expect("the new one", got.returncode, DONE)
        until("the old one is fenced",
              lambda: [(app["state"], "took its right" in app["right_problem"])
                       for app in first.lab.control("ps", "--json")[1]["apps"]] == [("fenced", True)])
        expect("a move of a fenced program", process.control("move", first.device)[0], REFUSED)
        time.sleep(1)
        check("the old one does not go on", process.runs(), process.process.returncode)


def cannot(lab, program):
    disk = disk_of(lab)
    with Host(disk, program) as host:
        host.begin("unleased", lease=None)
        expect_outcome("without a lease", recover(host, "unleased"), ROLLED_BACK, "cannot", "--lease")
        host.begin("ends", steps=4000).end()
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
