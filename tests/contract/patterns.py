#!/usr/bin/python3
"""Fail when a pattern chooses no case: patterns.py PATTERN... -- SOURCE..."""

import fnmatch
import re
import sys

split = sys.argv.index("--")
patterns, sources = sys.argv[1:split], sys.argv[split + 1:]
cases = []
for source in sources:
    with open(source, encoding="utf-8") as file:
        cases += map("/".join, re.findall(r"^Test(?:Call)?\((\w+),\s*(\w+)", file.read(), re.MULTILINE))
unused = [pattern for pattern in patterns if not fnmatch.filter(cases, pattern)]
for pattern in unused:
    print(f"{pattern} chooses no case: has a case been renamed?")
sys.exit(1 if unused or not patterns or not cases else 0)
