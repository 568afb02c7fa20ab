#!/usr/bin/python3
"""Write what fuzz_messages does with each message of remote/wire/messages.txt."""

import re
import sys

SIDES = {">": "server", "<": "client"}


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        rows = [line.split("#")[0].split() for line in file]
    rows = [(row[0], row[1], re.search(r"(\w+):tail", " ".join(row))) for row in rows if row]
    lines = []
    for side, name, tail in rows:
        if side in SIDES:
            who = SIDES[side]
            lines += [f"void {who}_{name}(struct {who} *{who}, const struct msg_{name} *message)", "{",
                      "    struct pack pack;", "    pack_init(&pack);", f"    pack_{name}(&pack, message);",
                      f"    check_again({who}->body, &pack, " +
                      (f"message->{tail[1]}, message->{tail[1]}_size);" if tail else "NULL, 0);"),
                      "    pack_finish(&pack);", "}", ""]
    lines += ["static void try_record(unsigned which, struct unpack body)", "{", "    struct unpack whole = body;",
              "    struct pack pack;", "    pack_init(&pack);", "    switch (which) {"]
    for number, name in enumerate(name for side, name, _ in rows if side == "="):
        lines += [f"    case {number}: {{", f"        struct msg_{name} record;",
                  f"        if (unpack_{name}(&body, &record)) {{", f"            pack_{name}(&pack, &record);",
                  "            whole.end = body.at;", "            check_again(&whole, &pack, NULL, 0);", "        }",
                  "        break;", "    }"]
    lines += ["    default:", "        break;", "    }", "    pack_finish(&pack);", "}", ""]
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write("\n".join(lines))


if __name__ == "__main__":
    main()
