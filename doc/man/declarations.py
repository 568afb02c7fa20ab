#!/usr/bin/python3
"""Put the declarations of reseat.h into its manual: declarations.py HEADER TEMPLATE > reseat.3.scd

In the template @NAME@ stands for the declaration of a structure or type. Each has to be there once, and each function in the
synopsis.
"""

import re
import sys


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        code = re.sub(r"\s*/\*.*?\*/", "", file.read(), flags=re.DOTALL)
    found = {found[1]: found[0] for found in re.finditer(r"^struct (\w+) {\n.*?^};", code, re.DOTALL | re.MULTILINE)}
    found |= {found[1]: found[0] for found in re.finditer(r"^typedef .*?\(\*(\w+)\).*?;", code, re.MULTILINE)}
    with open(sys.argv[2], encoding="utf-8") as file:
        text = file.read()
    for name, declaration in found.items():
        if text.count(f"@{name}@\n") != 1:
            sys.exit(f"{sys.argv[2]}: @{name}@ has to be there once")
        declaration = re.sub(r"\n\s*\n", "\n", declaration)
        text = text.replace(f"@{name}@\n", f"```\n{declaration}\n```\n")
    synopsis = text[text.index("# SYNOPSIS"):text.index("# DESCRIPTION")]
    for name in re.findall(r"^static inline .*?(reseat_\w+)\(", code, re.MULTILINE):
        if name != "reseat_find" and f"*{name}*(" not in synopsis:
            sys.exit(f"{sys.argv[2]}: the synopsis lacks {name}")
    left = re.search(r"^@.*@$", text, re.MULTILINE)
    if left:
        sys.exit(f"{sys.argv[2]}: there is no {left[0]}")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
