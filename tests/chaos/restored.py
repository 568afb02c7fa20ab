"""
A program is killed again and again, and goes on from its last image in a new process.

It is checkpointed all the time, killed with SIGKILL at random moments, and restored each time on
another emulated device. Its output is the native one, and it never begins before its last image.
"""

import os
import random
import subprocess
import time

from lab import DONE, PATIENCE, Program, check, expect, lines, until

KILLS = 4
ARGUMENTS = ["--size", "96", "--steps", "16000"]
# So that it lasts on any machine.
SLOWLY = ["--pause", "8"]


def begun(log):
    """Where each life began."""
    return [int(line) for line in lines(log)]


def images_in(lab, folder):
    status, answer = lab.control("image", "list", folder, "--json")
    return answer["images"] if status == DONE else []


def start(lab, command, device, log, *options):
    """Once it has begun."""
    had = len(begun(log))
    process = Program(lab, [*command, *SLOWLY, "--log", log], "--device", device, *options)
    until("it begins", lambda: not process.runs() or len(begun(log)) > had)
    check("it has begun", len(begun(log)) > had, process.process.returncode)
    return process


def live_and_die(lab, process, images, chance):
    """Until it has been killed, with an image of its own."""
    writer = subprocess.Popen([lab.reseat, "checkpoint", process.pid, "--to", images, "--every", "1", "--keep", "3"],
                              env=lab.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until("it has an image", lambda: not process.runs() or
              any(image["pid"] == process.process.pid for image in images_in(lab, images)))
        time.sleep(chance.uniform(0, 2.5))
        check("it runs until it is killed", process.runs(), process.process.returncode)
        process.kill()
        writer.wait(timeout=PATIENCE)
    finally:
        writer.kill()
        writer.wait()


def lives_again(lab, program):
    command = [program, *ARGUMENTS]
    native = lab.native(command)
    images, log, chance = lab.path("images"), lab.path("log"), random.Random(1)
    devices = lab.devices()
    for life in range(KILLS):
        how = ["--restore", images] if life else []
        live_and_die(lab, start(lab, command, devices[life % len(devices)], log, *how), images, chance)
    last = start(lab, command, devices[KILLS % len(devices)], log, "--restore", images)
    expect("its end", last.end(), native)
    lives = begun(log)
    print("lives began at the steps", lives)
    expect("lives", len(lives), KILLS + 1)
    check("only the first begins at 0", lives[0] == 0 and all(lives[1:]) and sorted(lives) == lives, lives)


def refuses(lab, program):
    """What cannot be gone on from is said before anything is started."""
    images = lab.path("others")
    with start(lab, [program, *ARGUMENTS], lab.devices()[0], lab.path("log")) as process:
        expect("an image", process.control("checkpoint", "--to", images)[0], DONE)
        expect("a suspend", process.control("suspend", "--to", images + "-s")[0], DONE)
    for folder, name, wanted in ((images, "true", "there is no image of true"),
                                 (images + "-s", program, "it has no progress"),
                                 (images + "-none", program, "others-none")):
        run = subprocess.run([lab.reseat, "run", "--restore", folder, "--", name], env=lab.env,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True,
                             timeout=PATIENCE)
        check(f"--restore {folder} is refused: {wanted}", run.returncode and wanted in run.stdout, run)
