"""Programs that register with reseat.h choose anew for each device that they are moved to."""

import os
import re
import shutil
import subprocess

from lab import DONE, PATIENCE, Program, check, expect, lines, until

MOVES = 12
DEVICES = """
[big]   name=big   base=1 max_work_group_size=256 compute_units=8 memory=256MiB
[small] name=small base=1 max_work_group_size=64  compute_units=2 memory=64MiB
[tiny]  name=tiny  base=1 max_work_group_size=8   compute_units=1 memory=64MiB
"""
TILES = {"big": (16, 256), "small": (8, 64)}


def choices(log):
    """(tile, work-group limit, device) of each choice."""
    return [(int(tile), int(group), name) for tile, group, name in map(str.split, lines(log))]


def go(program, log, name):
    """Move it there: by then it has chosen again."""
    before = len(choices(log))
    program.moves(name)
    expect(f"choices on {name}", choices(log)[before:], [TILES[name] + (name,)])


def chooses_for_each_device(lab, tiled):
    """It picks its tile again; the last device has less than it asks for. Its output is the native one."""
    lab.use_new_cache()
    native, log = lab.native([tiled]), lab.path("log")
    program = Program(lab, [tiled, "--log", log], "--profile", "native", "--device", "big", busy=True)
    app = program.comes_to("is known", lambda app: app.get("aware") and app["state"] == "running")
    expect("what it asks for", app["aware"]["minimum"]["work_group_size"], 16)
    program.comes_to("has chosen", lambda app: os.path.exists(log))
    expect("its first choice", choices(log), [TILES["big"] + ("big",)])
    go(program, log, "small")
    for dry in ([], ["--dry-run"]):
        program.is_refused("asks for 16 work-items in a work-group", "move", "tiny", *dry)
    expect("suspend", program.control("suspend")[0], DONE)
    expect("resume", program.control("resume", "big")[0], DONE)
    until("it chooses when it is resumed", lambda: choices(log)[-1] == TILES["big"] + ("big",), lambda: choices(log))
    for turn in range(MOVES):
        go(program, log, ("small", "big")[turn % 2])
    expect("its end", program.end(), native)


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
        check("it is found in the header", known in names, known)
    prose = page.split("# EXAMPLE")[0].replace("\\_", "_")
    missing = sorted(name for name in names
                     if not re.search(rf"(?<!\w)(_{name}_|\*{name}\*|struct {name})(?!\w)", prose))
    check("reseat(3) names all", not missing, missing)


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
        check(command, result.returncode == 0, result.stderr)
    return programs


def declarations_of(page):
    """What the page declares, as a reader sees it: its functions, and its structures and types."""
    synopsis = page.split("# SYNOPSIS")[1].split("*cc ")[0]
    plain = re.sub(r"\\(.)|(?<![a-z])[*_](?=[a-z])|(?<=[a-z])[*_](?![a-z])", r"\1", synopsis)
    functions = re.findall(r"^(\w.*\));", plain, re.MULTILINE)
    blocks = page.split("# EXAMPLE")[0].split("```")[1::2]
    return functions, [block.strip() for block in blocks if re.match(r"\n(struct|typedef) ", block)]


def compile_declarations(page, folder, compilers):
    """They are those of the header: its functions are declared again, and structures are compared with copies."""
    functions, types = declarations_of(page)
    expect("functions", len(functions), 9)
    lines_of = ["#include <assert.h>", "#include <CL/cl.h>", "#include <reseat.h>"]
    lines_of += [function + ";" for function in functions]
    for declaration in types:
        lines_of.append(re.sub(r"\breseat_", "page_", declaration))
        if name := re.match(r"struct reseat_(\w+)", declaration):
            same = f'static_assert({{0}}(struct page_{name[1]}{{1}}) == {{0}}(struct reseat_{name[1]}{{1}}), "{{1}}");'
            lines_of.append(same.format("sizeof", ""))
            lines_of += [same.format("offsetof", ", " + field) for field in names_of(declaration)
                         if field != f"reseat_{name[1]}"]
    lines_of.append("static page_api_fn find; int use(void) { return find == 0; }")
    with open(os.path.join(folder, "declarations.c"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines_of) + "\n")
    for compiler, standard in zip(compilers, ("c11", "c++17")):
        language = "c++" if "+" in standard else "c"
        command = f"{compiler} -x {language} -std={standard} -Wall -Wextra -Werror -Wno-missing-declarations -Iinclude " \
                  "-DCL_TARGET_OPENCL_VERSION=120 -fsyntax-only declarations.c"
        result = subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True, check=False)
        check(command, result.returncode == 0, result.stderr)


def step(process):
    process.stdin.write(b"\n")
    process.stdin.flush()
    return process.stdout.readline().decode().strip()


def play(lab, example):
    native = subprocess.run([example], input=b"\n\n", env=lab.env, stdout=subprocess.PIPE, check=True, timeout=PATIENCE)
    expect("natively", native.stdout.decode().splitlines()[-1], "4096 of 4096 are right")
    program = Program(lab, [example], "--profile", "native", "--device", "big", stderr=subprocess.PIPE,
                      stdin=subprocess.PIPE)
    expect("at first", step(program.process), "step 1 in groups of 256 on big")
    for turn, name in enumerate(("small", "big", "small"), start=2):
        program.moves(name)
        expect(f"on {name}", step(program.process), f"step {turn} in groups of {TILES[name][1]} on {name}")
    status, answer = lab.control("notify", program.pid, "power", "--value", "70000", "--text", "70 W")
    expect(f"notify ({answer})", status, DONE)
    while (line := program.process.stderr.readline()) != b"notice 3: 70 W\n":
        check("it is told of its power", line)
    expect("its end", program.end(), (0, b"4096 of 4096 are right\n"))


def page_is_enough(lab, page, header, pkgconfig, *compilers):
    """
    What reseat(3) says is enough to write a program that registers, and it is true of its example.

    Every name of the header is on the page. Its example compiles as the page says, as C11 and as C++17 without
    a warning, with the flags of the reseat.pc in the folder @pkgconfig, as if that were installed.
    """
    lab.use_new_cache()
    with open(page, encoding="utf-8") as file:
        text = file.read()
    with open(header, encoding="utf-8") as file:
        check_names(text, file.read())
    compilers = compilers or ("cc", "c++")
    examples = compile_all(text, lab.path("stage"), header, pkgconfig, compilers)
    compile_declarations(text, lab.path("stage"), compilers)
    for example in examples:
        play(lab, example)
