#!/usr/bin/python3
"""scripts/arrows says which arrows run where they must not, in trees made up for it.

  arrows.py COMPILER...
"""

import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ARROWS = os.path.join(os.path.dirname(os.path.dirname(HERE)), "scripts", "arrows")
ORDER = ["low", "middle", "high/one", "high/two"]
ONLY = {"user": "high", "of": "low", "folders": []}


def uses(*names):
    """A file that calls each of @names."""
    return "".join(f"void {name}(void);\n" for name in names), "".join(f"{name}();" for name in names)


def source(name, *called, include=""):
    """A file that defines @name, which calls @called."""
    declared, calls = uses(*called)
    return f"{include}void {name}(void);\n{declared}void {name}(void) {{ {calls} }}\n"


def circle(folder, count):
    """As many files of @folder, each of which calls the next, the last the first."""
    return {f"{folder}/c{i}.c": source(f"c{i}", f"c{(i + 1) % count}") for i in range(count)}


GOOD = {"low/a.c": source("a"), "middle/b.c": source("b", "a"), "high/one/c.c": source("c", "b")}
UP = {"low/a.c": source("a", "b"), "middle/b.c": source("b")}
INCLUDED = {"low/a.c": source("a", include='#include "middle/b.h"\n'), "middle/b.h": ""}
AROUND = {"low/a.c": source("a", "b"), "middle/b.c": source("b", "a")}
PAST = {"low/a.c": source("a"), "high/one/c.c": source("c", "a")}
SHARED = UP | {"high/one/c.c": source("c", "a")}
CASES = [
    # what, files, what the table has beside the order, what is said of it; "": nothing is wrong
    ("each uses what stands before it", GOOD, {}, ""),
    ("a symbol runs up", UP, {}, "low/a.c -> middle/b.c: b: runs up"),
    ("a header runs up", INCLUDED, {}, "low/a.c -> middle/b.h: b.h: runs up"),
    ("folders in a circle", AROUND, {}, "low/a.c -> middle/b.c: b: runs up"),
    ("a shared symbol", SHARED, {"shared": ["b"]}, ""),
    ("past what it may use", PAST, {"only": [ONLY]}, "high uses of low only"),
    ("past it, as it may", PAST, {"only": [ONLY | {"folders": ["low"]}]}, ""),
    ("past it, as a part of it may",
     PAST, {"only": [ONLY, {"user": "high/one", "of": "low", "folders": ["low"]}]}, ""),
    ("past what a part of it may use, as all may",
     PAST, {"only": [ONLY | {"folders": ["low"]}, {"user": "high/one", "of": "low", "folders": []}]},
     "high/one uses of low only"),
    ("a small circle", circle("low", 7), {}, ""),
    ("a large circle", circle("low", 8), {}, "low: 8 files use each other in a circle"),
]


def write(root, path, text):
    path = os.path.join(root, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def judge(root, compiler, files, more):
    """What scripts/arrows says of a tree of @files, and its status."""
    commands = []
    os.mkdir(os.path.join(root, "build"))
    for path, text in files.items():
        write(root, path, text)
    for number, path in enumerate(files):
        if path.endswith(".c"):
            output = f"{number}.o"
            subprocess.run([*compiler, "-I", root, "-c", os.path.join(root, path), "-o",
                            os.path.join(root, "build", output)], check=True)
            commands.append({"directory": os.path.join(root, "build"), "file": f"../{path}",
                             "output": output})
    write(root, "build/compile_commands.json", json.dumps(commands))
    table = "".join(f"{key} = {json.dumps(value)}\n" for key, value in
                    ({"order": ORDER} | more).items() if isinstance(value, list) and key != "only")
    for rule in more.get("only", []):
        table += "[[only]]\n" + "".join(f"{key} = {json.dumps(rule[key])}\n" for key in rule)
    done = subprocess.run([ARROWS, "--table", write(root, "table.toml", table),
                           os.path.join(root, "build")], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def main():
    bad = 0
    for what, files, more, expected in CASES:
        with tempfile.TemporaryDirectory() as root:
            status, said = judge(os.path.realpath(root), sys.argv[1:], files, more)
        if (status != 0) != bool(expected) or expected not in said or (not expected and said):
            print(f"{what}: status {status}, said {said!r}, not {expected!r}")
            bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
