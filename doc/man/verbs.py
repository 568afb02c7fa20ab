#!/usr/bin/python3
"""Put what reseat says of its verbs into its manual: verbs.py RESEAT TEMPLATE > reseat.1.scd

In the template @synopsis@ stands for the usage of all verbs, @VERB@ for what one does, and
@VERB options@ for its options and what --json prints. Each has to be there once; "@VERB, no options@" leaves them out.
"""

import json
import re
import subprocess
import sys

# More options than these are not listed in the synopsis.
SYNOPSIS_OPTIONS = 12


def escape(text):
    return re.sub(r"([\\*_])", r"\\\1", text)


def argument(text):
    """APP[:N] DEVICE|none: names of things underlined, words of their own in bold."""
    return re.sub(r"[A-Za-z][A-Za-z/-]*", lambda word: ("_%s_" if word[0].isupper() else "*%s*") % word[0], text)


def option(row):
    value = row["argument"] and " " + argument(row["argument"])
    return f"*--{row['name']}*{value}"


def prose(text, names):
    """A text of a row, with options, other manuals and what this verb calls its arguments marked."""
    text = escape(text)
    text = re.sub(r"(?<![\w-])--[a-z][a-z-]*", r"*\g<0>*", text)
    text = re.sub(r"\b(reseat[.a-z]*)\((\d)\)", r"*\1*(\2)", text)
    for name in sorted(names, key=len, reverse=True):
        text = re.sub(rf"(?<![\w*_-]){name}(?![\w-])", rf"_{name}_", text)
    return text


def names_of(verb):
    texts = [verb["arguments"], *(row["argument"] for row in verb["options"])]
    return {name for text in texts for name in re.findall(r"\b[A-Z]{3,}\b", text)}


def usage(verb):
    parts = [f"*reseat {verb['name']}*"]
    options = [option(row) if row["required"] else f"[{option(row)}]" for row in verb["options"]]
    if len(options) > SYNOPSIS_OPTIONS:
        options = ["[_OPTION_...]"]
    if verb["json"]:
        options.append("[*--json*]")
    arguments = [argument(verb["arguments"])] if verb["arguments"] else []
    stops = "ARG..." in verb["arguments"]
    return " ".join(parts + (options + arguments if stops else arguments + options))


def description(verb):
    names = names_of(verb)
    paragraphs = [verb["summary"] + " " + verb["text"].split("\n")[0], *verb["text"].split("\n")[1:]]
    return f"*{verb['name']}*\n" + "\n\n".join("\t" + prose(text.strip(), names) for text in paragraphs)


def option_list(verb):
    names = names_of(verb)
    rows = [f"\t{option(row)}\n\t\t{prose(row['help'], names)}" for row in verb["options"]]
    if verb["json"] and verb["members"]:
        members = ", ".join(f"_{escape(name)}_" for name in verb["members"])
        rows.append(f"\t*--json*\n\t\tPrint one JSON object (JSON, below) with {members}.")
    return "\n".join(rows)


def main():
    verbs = json.loads(subprocess.run([sys.argv[1], "help", "--json"], check=True, capture_output=True).stdout)["verbs"]
    parts = {"synopsis": "++\n".join(map(usage, verbs))}
    for verb in verbs:
        parts[verb["name"]] = description(verb)
        if verb["options"]:
            parts[verb["name"] + " options"] = option_list(verb)
    with open(sys.argv[2], encoding="utf-8") as file:
        template = file.read()
    for left_out in re.findall(r"^@(.*), no options@$", template, re.M):
        del parts[left_out + " options"]
        template = template.replace(f"@{left_out}, no options@", f"@{left_out}@")
    for name, text in parts.items():
        if template.count(f"@{name}@\n") != 1:
            sys.exit(f"{sys.argv[2]}: @{name}@ has to be there once")
        template = template.replace(f"@{name}@\n", text + "\n")
    left = re.search(r"^@.*@$", template, re.M)
    if left:
        sys.exit(f"{sys.argv[2]}: there is no {left[0]}")
    sys.stdout.write(template)


if __name__ == "__main__":
    main()
