#!/usr/bin/env python3
"""
What reseat(3) says is enough to write a program that registers, and it is true of its example.

    aware_page.py PAGE HEADER PKGCONFIG [CC CXX]

Every name of HEADER is on PAGE. Its example compiles as the page says, as C11 and as C++17 without
a warning, with the flags of the reseat.pc in the folder PKGCONFIG, as if that were installed; it
runs natively; and under reseat it chooses again for each device that it is moved to.
"""

import os
import re
import shutil
import subprocess
import sys

from lab import DONE, VENDORS, Lab, find_reseat

PATIENCE = 60
DEVICES = """
[big]   name=big   max_work_group_size=256 compute_units=8 memory=256MiB
[small] name=small max_work_group_size=64  compute_units=2 memory=64MiB
"""
GROUPS = {"big": 256, "small": 64}


def fail(text):
    sys.exit(f"aware_page.py: {text}")


def expect(what, got, wanted):
    if got != wanted:
        fail(f"{what}: {got!r}, not {wanted!r}")


def names_of(header):
    """What the header declares: constants, types and what they hold, and functions."""
    code = re.sub(r"/\*.*?\*/", " ", header, flags=re.DOTALL)
    names = set(re.findall(r"^#define (RESEAT_\w+)[ \t]+\S", code, re.MULTILINE))
    for body in re.findall(r"\benum\s*{(.*?)}", code, re.DOTALL):
        names.update(re.findall(r"(\w+)\s*=", body))
    for tag, body in re.findall(r"\bstruct (reseat_\w+)\s*{(.*?)\n};", code, re.DOTALL):
        names.add(tag)
        names.update(re.findall(r"\(\*(\w+)\)", body))
        body = re.sub(r"\w+ \(\*\w+\)\(.*?\)", "", body, flags=re.DOTALL)
        names.update(name for line in body.split(";") for name in
                     re.findall(r"(\w+)(?:\[\d+\])?\s*(?:,|$)", line.strip()))
    names.update(re.findall(r"\b(reseat_\w+)\(", code))
    names.update(re.findall(r"\(\*(reseat_\w+)\)\(", code))
    return names


def check_names(page, header):
    names = names_of(header)
    for known in ("RESEAT_API_MINOR", "RESEAT_IL", "RESEAT_QUOTA", "reseat_program", "clean_up_ms",
                  "resume_ms", "work_group_size", "deadline_ns", "reseat_current", "notify",
                  "reseat_api_fn"):
        if known not in names:
            fail(f"{known} was not found in the header")
    prose = page.split("# EXAMPLE")[0].replace("\\_", "_")
    missing = sorted(name for name in names
                     if not re.search(rf"(?<!\w)(_{name}_|\*{name}\*|struct {name})(?!\w)", prose))
    if missing:
        fail(f"reseat(3) says nothing of {', '.join(missing)}")


def example_of(page):
    """As a reader sees it: a backslash of the page's source makes the next character plain."""
    return re.sub(r"\\(.)", r"\1", page.split("# EXAMPLE")[1].split("```")[1].lstrip("\n"))


def commands_of(page):
    """What the page says compiles it."""
    after = page.split("# EXAMPLE")[1].split("```")[2]
    return [line.strip().removesuffix("++") for line in after.splitlines() if "-std=" in line]


def compile_all(page, folder, header, pkgconfig, compilers):
    os.makedirs(os.path.join(folder, "include"))
    shutil.copy(header, os.path.join(folder, "include", "reseat.h"))
    with open(os.path.join(folder, "example.c"), "w", encoding="utf-8") as file:
        file.write(example_of(page))
    # Where it is installed, and not on the compiler's own path.
    real = shutil.which("pkg-config")
    with open(os.path.join(folder, "pkg-config"), "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nexec {real} --define-variable=prefix={folder} "$@"\n')
    os.chmod(file.name, 0o755)
    env = dict(os.environ, PATH=folder + ":" + os.environ["PATH"], PKG_CONFIG_PATH=pkgconfig)
    commands = commands_of(page)
    expect("standards", [re.search(r"-std=(\S+)", command)[1] for command in commands],
           ["c11", "c++17"])
    programs = []
    for command, compiler in zip(commands, compilers):
        programs.append(os.path.join(folder, f"example-{len(programs)}"))
        words = re.sub(r"^\S+", compiler, command)
        result = subprocess.run(["sh", "-c", f"{words} -Wall -Wextra -Werror -o {programs[-1]}"],
                                cwd=folder, env=env, capture_output=True, text=True, check=False)
        if result.returncode:
            fail(f"\"{command}\": {result.stderr}")
    return programs


def step(process):
    process.stdin.write(b"\n")
    process.stdin.flush()
    return process.stdout.readline().decode().strip()


def run_natively(lab, program):
    result = subprocess.run([program], input=b"\n\n", env=lab.env, stdout=subprocess.PIPE,
                            check=True, timeout=PATIENCE)
    expect("natively", result.stdout.decode().splitlines()[-1], "4096 of 4096 are right")


def play(lab, program):
    command = [lab.reseat, "run", "--profile", "native", "--device", "big", "--", program]
    process = subprocess.Popen(command, env=lab.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    try:
        expect("at first", step(process), "step 1 in groups of 256 on big")
        for turn, name in enumerate(("small", "big", "small"), start=2):
            status, answer = lab.control("move", str(process.pid), name, "--json")
            expect(f"move to {name} ({answer})", status, DONE)
            expect(f"on {name}", step(process),
                   f"step {turn} in groups of {GROUPS[name]} on {name}")
        status, answer = lab.control("notify", str(process.pid), "power", "--value", "70000",
                                     "--text", "70 W")
        expect(f"notify ({answer})", status, DONE)
        while (line := process.stderr.readline()) != b"notice 3: 70 W\n":
            if not line:
                fail("it was not told of its power")
        output, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    expect("output", output.decode().strip(), "4096 of 4096 are right")
    expect("exit status", process.returncode, 0)


def main():
    page_path, header, pkgconfig = (os.path.abspath(path) for path in sys.argv[1:4])
    compilers = sys.argv[4:] or ["cc", "c++"]
    with open(page_path, encoding="utf-8") as file:
        page = file.read()
    with open(header, encoding="utf-8") as file:
        check_names(page, file.read())
    VENDORS["emu"] = (os.environ["EMU_LIBRARY"], {"POCL_DEVICES": "pthread"})
    with Lab(["emu"], find_reseat()) as lab:
        lab.env.update(EMU_CONFIG=lab.path("emu.conf"), POCL_CACHE_DIR=lab.path("pocl"))
        os.mkdir(lab.env["POCL_CACHE_DIR"])
        with open(lab.env["EMU_CONFIG"], "w", encoding="utf-8") as file:
            file.write(DEVICES)
        for program in compile_all(page, lab.path("stage"), header, pkgconfig, compilers):
            run_natively(lab, program)
            play(lab, program)


if __name__ == "__main__":
    main()
