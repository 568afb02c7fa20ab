"""
Commands that make images of a program and start it from them are killed with SIGKILL at their system calls.

checkpoint, `run --restore` and recover are killed, and while a checkpoint is made the process that has the
program's driver. Each time images are whole or absent afterwards, the command can be given again, and
the program, which goes on or is started once, ends with what it ends with natively.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time

from lab import DONE, NO_SUCH, PATIENCE, SKIPPED, check, expect, until
from recovered import HOST, Host, disk_of, recover
from restored import ARGUMENTS, start

KILLS = int(os.environ.get("KILLED_KILLS", "4"))
SEED = 1


def traced(command, *options):
    if not shutil.which("strace"):
        print("there is no strace")
        sys.exit(SKIPPED)
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


def chosen(calls):
    """One of each so many, by chance, but not of what the linker does before."""
    own = [i for i, call in enumerate(calls) if call[0] == "getrandom"][:1] or [0]
    calls, chance = calls[own[0] + 1:], random.Random(SEED)
    step = len(calls) / KILLS
    return [calls[int(step * (i + chance.random()))] for i in range(KILLS)]


def expect_whole(lab, images, when):
    if os.path.isdir(images):
        status, answer = lab.control("image", "verify", images, "--json")
        check(f"{when}: images are whole", status in (DONE, NO_SUCH), answer)


def checkpoint(program, images, *more):
    return [program.lab.reseat, "checkpoint", program.pid, "--to", images, *more]


def expect_images_again(program, images, when):
    """Nothing stands in the way of the next one."""
    expect_whole(program.lab, images, when)
    status, answer = program.control("checkpoint", "--to", images, "--keep", "2")
    check(f"{when}: a checkpoint can be made again", status == DONE, answer)
    expect_whole(program.lab, images, when)


def begin(lab, program, *options):
    return start(lab, [program, *ARGUMENTS], lab.devices()[0], lab.path("begun"), *options)


def checkpoints(lab, program):
    images, died = lab.path("images"), 0
    running = begin(lab, program)
    for more in ([], ["--lease", "30"], ["--every", "60"]):
        command = checkpoint(running, images, *more)
        for call in chosen(calls_of(lab, command)):
            died += killed_at(lab, command, call)
            expect_images_again(running, images, f"checkpoint {more} killed at call {call}")
    expect("its end", running.end(), lab.native([program, *ARGUMENTS]))
    check("some were killed", died)


def servers(lab, program):
    """What has the driver is killed while an image is made."""
    images, chance, died = lab.path("isolated"), random.Random(SEED), 0
    running = begin(lab, program, "--isolate", "--protect", "1")
    for turn in range(KILLS):
        writer = lab.start(checkpoint(running, images), subprocess.DEVNULL, subprocess.DEVNULL)
        time.sleep(chance.uniform(0, 0.15))
        for pid in lab.driver_processes():
            os.kill(pid, signal.SIGKILL)
            died += 1
        writer.wait(timeout=PATIENCE)
        expect_images_again(running, images, f"kill {turn} of the driver")
    expect("its end", running.end(), lab.native([program, *ARGUMENTS]))
    check("some were killed", died)


def restores(lab, program):
    """Each begins from the same image, and nothing of one that died is in the way of the next one."""
    images, died = lab.path("restored"), 0
    arguments = [program, *ARGUMENTS, "--log", lab.path("restores")]
    with begin(lab, program) as running:
        expect("a checkpoint", running.control("checkpoint", "--to", images)[0], DONE)
    command = [lab.reseat, "run", "--restore", images, "--", *arguments]
    for call in chosen(calls_of(lab, command)):
        died += killed_at(lab, command, call)
        expect_whole(lab, images, f"restore killed at call {call}")
    expect("the last restore", lab.native(command), lab.native([program, *ARGUMENTS]))
    check("some were killed", died)


def settle(host, name):
    """Recover it until it has ended: who died on the way may have it for a lease."""
    def ended():
        got = recover(host, name)[1]
        return [outcome for outcome, _ in got] == ["ended"]

    until(f"{name} comes to its end", ended)


def all_of(file):
    file.seek(0)
    return file.read().decode()


def recoveries(lab, program):
    disk, steps, died = disk_of(lab), 3000, 0
    native = lab.native([program, "--steps", str(steps), *ARGUMENTS])[1].decode()
    with Host(disk, program) as first, Host(disk, program) as second:
        def lose(name):
            first.lab.devices()
            first.begin(name, steps=steps)
            first.kill()
            return [second.lab.reseat, "recover", second.images(name), "--from", HOST, "--json"]

        for call in chosen(calls_of(second.lab, lose("counted"))):
            name = f"lost-{call[0]}-{call[1]}"
            command = lose(name)
            with open(lab.path("written"), "w+b") as out:
                # What it started has its output.
                died += killed_at(second.lab, command, call, out)
                said = second.recovery(name).communicate(timeout=PATIENCE)[0].decode()
                settle(second, name)
                # It has ended before what it wrote is in the file.
                until(f"{native!r} with recover killed at call {call} ({said!r})",
                      lambda out=out, said=said: native in said + all_of(out))
                said += all_of(out)
            expect_whole(second.lab, second.images(name), f"recover killed at call {call}")
            expect(f"results with recover killed at call {call} ({said})", said.count("resumable "), 1)
    check("some were killed", died)
