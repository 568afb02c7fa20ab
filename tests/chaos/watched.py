"""
Hosts watch each other, and recover programs of those that fall silent: nobody asks.

As in recovered.py folders of their own stand for hosts, each with an agent, a boot id and a `reseat
recover --watch`. Of a host all is killed, or stopped, or its folder is gone for a while.
"""

import glob
import hashlib
import json
import os
import resource
import signal
import subprocess
import time

from lab import DONE, USAGE, check, expect, until
from recovered import HOST, Host, disk_of
from restored import ARGUMENTS

LEASE = 2  # of hosts and programs, in seconds
SILENT = LEASE * 2.5  # a lease has passed, for whoever looks


class Watched(Host):
    """A host on which --watch runs, perhaps with less rights than others."""

    def __init__(self, disk, program, boot, *prefix):
        super().__init__(disk, program)
        self.lab.env["RESEAT_BOOT_ID"] = self.boot = boot
        self.lab.devices()  # the agent is there before programs need it
        self.said = self.lab.path("said")
        with open(self.said, "wb") as file:  # the watch has a pipe, which may always be written
            self.writer = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=file)
        self.prefix = prefix
        self.watch = None

    def __exit__(self, problem, *_):
        if problem:
            print(f"{self.boot} said: {self.text()}", flush=True)
        if self.watch:
            self.end_watch()
        super().__exit__()
        self.writer.stdin.close()
        self.writer.wait()

    def begin_watch(self, name):
        command = [*self.prefix, self.lab.reseat, "recover", self.images(name), "--watch", "--lease",
                   str(LEASE), "--json"]
        self.watch = self.lab.start(command, self.writer.stdin, self.writer.stdin, {})

    def text(self):
        with open(self.said, encoding="utf-8", errors="replace") as file:
            return file.read()

    def answers(self):
        """What the watch said, one after the other, between what programs wrote."""
        text, found, at = self.text(), [], 0
        while (at := text.find("{\n", at)) >= 0:
            answer, at = json.JSONDecoder().raw_decode(text, at)
            found.append(answer)
        return found

    def outcomes(self):
        return [(answer["outcome"], answer["reason"]) for answer in self.answers()]

    def says(self, outcome, reason=""):
        return any(got == outcome and reason in why for got, why in self.outcomes())

    def end_watch(self):
        self.watch.kill()
        self.watch.wait()

    def lose_power(self):
        self.end_watch()
        self.kill()


def rights(disk, name):
    """The leases of the program in that folder: {generation: its text}. Those of hosts never pass on."""
    found = {}
    for path in glob.glob(f"{disk}/{name}/rights/*.*"):
        with open(path, "rb") as file:
            text = file.read().decode(errors="replace")
        if path.partition(".")[0] not in {heartbeat(disk, name, boot) for boot in "abc"}:
            found[int(path.rpartition(".")[2])] = text
    return found


def heartbeat(disk, name, boot):
    """The file of a host's lease, without its number."""
    return f"{disk}/{name}/rights/" + hashlib.sha256(boot.encode()).hexdigest()[:16]


def native_of(lab, program):
    return lab.native([program, *ARGUMENTS])[1].decode()


def survivor_is_one(lab, program):
    """Two hosts lose power at once; one of the others, which see it at different times, has each program."""
    disk, native = disk_of(lab), native_of(lab, program)
    with Watched(disk, program, "a") as a, Watched(disk, program, "b") as b, Watched(disk, program, "c") as c:
        a.begin("power")
        for host in (a, b):
            host.begin_watch("power")
        until("both heartbeats", lambda: all(os.path.exists(heartbeat(disk, "power", x) + ".0") for x in "ab"))
        time.sleep(SILENT)
        expect("while all live", sorted(rights(disk, "power")), [0])
        # Half of a heartbeat is none.
        a.lose_power()
        with open(heartbeat(disk, "power", "a") + ".0", "r+b") as file:
            file.write(b"\0" * 100)
        time.sleep(LEASE / 2)
        c.begin_watch("power")
        until("the recovery", lambda: b.says("recovered") or c.says("recovered"))
        time.sleep(SILENT)
        expect("recovered", sum(outcome == "recovered" for host in (b, c) for outcome, _ in host.outcomes()), 1)
        expect("leases", sorted(rights(disk, "power")), [0, 1, 2])
        until("its output", lambda: native in b.text() + c.text())
        until("its end", lambda: b.says("ended") and c.says("ended"))
        expect("results", (b.text() + c.text()).count("resumable "), 1)


def living_host_keeps_its_dead(lab, program):
    """What is killed on a host that lives is started nowhere, not even when the host is gone later."""
    disk = disk_of(lab)
    with Watched(disk, program, "a") as a, Watched(disk, program, "b") as b:
        process = a.begin("dead")
        a.begin_watch("dead")
        b.begin_watch("dead")
        until("heartbeats", lambda: os.path.exists(heartbeat(disk, "dead", "a") + ".0"))
        process.kill()
        until("its end", lambda: b.says("ended", "its host did not"))
        a.lose_power()
        time.sleep(SILENT)
        expect("leases", sorted(rights(disk, "dead")), [0, 1])
        expect("started", b.says("recovered"), False)


def without_heartbeats(lab, program):
    """A host without a watch is never taken for silent; one that cannot write takes no other for it."""
    disk = disk_of(lab)
    with Watched(disk, program, "a") as a, Watched(disk, program, "b") as b, \
         Watched(disk, program, "c", "prlimit", "--fsize=511") as c:
        a.begin("quiet")
        b.begin_watch("quiet")
        a.kill()
        until("the reason", lambda: b.says("lost", f"recover --from {HOST}"))
        b.end_watch()
        a.begin_watch("quiet")  # as of a host that sent some before
        until("heartbeats", lambda: os.path.exists(heartbeat(disk, "quiet", "a") + ".0"))
        a.end_watch()
        c.begin_watch("quiet")
        until("the problem", lambda: "File too large" in c.text())
        time.sleep(SILENT * 2)
        expect("leases", sorted(rights(disk, "quiet")), [0])


def folder_is_gone(lab, program):
    """Nobody can write for longer than all leases last: afterwards all is as it was."""
    disk, native = disk_of(lab), native_of(lab, program)
    with Watched(disk, program, "a") as a, Watched(disk, program, "b") as b:
        process = a.begin("gone")
        a.begin_watch("gone")
        b.begin_watch("gone")
        until("heartbeats", lambda: all(os.path.exists(heartbeat(disk, "gone", x) + ".0") for x in "ab"))
        os.rename(disk + "/gone", disk + "/away")
        time.sleep(SILENT)
        os.rename(disk + "/away", disk + "/gone")
        until("the folder", lambda: b.says("alive"))
        writers = [process.process.pid, a.watch.pid, b.watch.pid]
        for pid in writers:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (511, resource.RLIM_INFINITY))
        time.sleep(SILENT)
        # Who can write again before the others cannot know since when they are silent.
        for pid in reversed(writers):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
            time.sleep(LEASE / 2 if pid == b.watch.pid else 0)
        expect("its output", process.end()[1].decode(), native)
        expect("leases", sorted(rights(disk, "gone")), [0])
        until("what is said", lambda: b.says("ended", "by itself"))
        check("it is said of the folder", "nothing is recovered until" in b.text(), b.text())


def fails_again_and_again(lab, program):
    """
    Starts that fail are further and further apart, whoever makes them, and say why; a survivor that dies
    in the middle of one gives way to the next; and what comes back is fenced.
    """
    disk, native = disk_of(lab), native_of(lab, program)
    with Watched(disk, program, "a") as a, Watched(disk, program, "b") as b, Watched(disk, program, "c") as c:
        place = a.lab.path("resumable")
        os.symlink(os.path.abspath(program), place)
        a.program = place
        old = a.begin("fails")
        a.begin_watch("fails")
        until("heartbeats", lambda: os.path.exists(heartbeat(disk, "fails", "a") + ".0"))
        # It does not lose power, it only stands still: so it comes back.
        a.watch.send_signal(signal.SIGSTOP)
        old.process.send_signal(signal.SIGSTOP)
        script(place, "exit 3")
        b.begin_watch("fails")
        until("two failures", lambda: "status 3" in rights(disk, "fails").get(2, ""))
        first = time.monotonic()
        status, answer = c.lab.control("recover", c.images("fails"), "--dry-run", "--json")
        expect("who asks", [(one["outcome"], "status 3" in one["reason"]) for one in answer["programs"]],
               [("cannot", True)] if status else [("lost", True)])
        until("the third", lambda: "status 3" in rights(disk, "fails").get(3, ""))
        check("the third start comes later", time.monotonic() - first >= LEASE * 3)
        started = a.lab.path("started")
        script(place, f"echo $$ >{started}.new; mv {started}.new {started}; exec sleep 1000")
        until("the fourth", lambda: os.path.exists(started))
        b.end_watch()
        with open(started, encoding="ascii") as file:
            os.kill(int(file.read()), signal.SIGKILL)
        os.unlink(place)
        os.symlink(os.path.abspath(program), place)
        c.begin_watch("fails")
        until("the recovery", lambda: c.says("recovered"))
        old.process.send_signal(signal.SIGCONT)
        a.watch.send_signal(signal.SIGCONT)
        until("the old one to be fenced",
                 lambda: [app["state"] for app in a.lab.control("ps", "--json")[1]["apps"]] == ["fenced"])
        until("its output", lambda: native in c.text())
        check("the old one does not go on", old.runs(), old.process.returncode)


def important_first(lab, program):
    """What has no room waits, and says so; the most important one is first; all is as it was asked for."""
    disk = disk_of(lab)
    with Watched(disk, program, "a") as a, Watched(disk, program, "b") as b:
        a.begin("order")
        a.begin("order", run=["--priority", "5", "--name", "urgent", "--slice", "7"],
                kept=["--every", "60", "--keep", "2"])
        a.begin_watch("order")
        until("heartbeats", lambda: os.path.exists(heartbeat(disk, "order", "a") + ".0"))
        for device in b.lab.devices():
            expect("a limit", b.lab.control("limit", device, "--memory", "4KiB")[0], DONE)
        b.begin_watch("order")
        a.lose_power()
        until("both to wait", lambda: sum(outcome == "waits" for outcome, _ in b.outcomes()) >= 2)
        expect("started", b.says("recovered"), False)
        for device in b.lab.devices():
            expect("no limit", b.lab.control("limit", device, "--off")[0], DONE)
        until("both", lambda: sum(outcome == "recovered" for outcome, _ in b.outcomes()) == 2)
        first = next(said["program"] for said in b.answers() if said["outcome"] == "recovered")
        expect("the first", first, "urgent")
        apps = {app["name"]: app for app in b.lab.control("ps", "--json")[1]["apps"]}
        expect("its priority", apps["urgent"]["priority"], "5")
        expect("its pieces", apps["urgent"]["slice_ns"], 7000000)
        images = apps["urgent"]["checkpoints"]
        expect("its images", (images["every_ms"], images["keep"], images["folder"]),
               (60000, 2, os.path.realpath(b.images("order"))))
        expect("the other one's images", apps["resumable"]["checkpoints"]["every_ms"], 0)


def script(path, line):
    os.unlink(path)
    with open(path, "w", encoding="ascii") as file:
        file.write(f"#!/bin/sh\n{line}\n")
    os.chmod(path, 0o755)


def refuses(lab, _program):
    expect("--watch with --dry-run", lab.control("recover", disk_of(lab), "--watch", "--dry-run")[0], USAGE)
