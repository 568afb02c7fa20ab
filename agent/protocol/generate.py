#!/usr/bin/env python3
"""Write the packing and checked unpacking of the maps of messages.txt, for one side of them.

  generate.py TABLE SIDE HEADER SOURCE
"""

import sys

NUMBERS = {"u32": "UINT32_MAX", "bytes": "MESSAGE_BYTES_MAX", "u64": "UINT64_MAX"}
TYPES = list(NUMBERS) + ["bool", "ms", "vdev", "word", "text", "path", "device", "protection"]


class Field:
    """One key of a map, and the member that one side has it in."""

    def __init__(self, words, map_, words_of, where):
        self.key, type_, *members = words
        self.omitted, type_ = type_.endswith("?"), type_.rstrip("?")
        self.type, _, self.of = type_.partition(":")
        if self.type == "words":
            known = self.of in words_of
        else:
            known = bool(self.of) if self.type == "map" else self.type in TYPES
        if not known:
            sys.exit(f"{where}: '{type_}' is no type")
        self.words = words_of.get(self.of)
        self.of, _, self.count = self.of.partition("[")
        self.members = {side: self.key for side in map_.structs}
        for member in members:
            side, _, name = member.partition("=")
            if side not in map_.structs:
                sys.exit(f"{where}: {map_.name} has no side '{side}'")
            self.members[side] = name

    def member(self, side):
        """The member, and the one that says whether it is there; None: this side has none."""
        name, _, flag = self.members[side].partition("?")
        return (None if name == "-" else f"value->{name}"), (f"value->{flag}" if flag else None)

    def put(self, side):
        value, flag = self.member(side)
        key, type_ = f'"{self.key}"', self.type
        if type_ == "map" and self.count:
            count = f"value->{self.count.rstrip(']')}"
            return [f"frame_array(frame, {key});", f"for (size_t i = 0; i < {count}; i++) {{", "    frame_map(frame, NULL);",
                    f"    put_{self.of}(frame, &{value}[i]);", "    frame_end(frame);", "}", "frame_end(frame);"]
        if type_ == "map":
            lines = [f"frame_map(frame, {key});", f"put_{self.of}(frame, &{value});", "frame_end(frame);"]
        elif type_ in NUMBERS or type_ in ("vdev", "ms"):
            lines = [f"frame_u64(frame, {key}, {value});"]
        elif type_ == "bool":
            lines = [f"frame_bool(frame, {key}, {value});"]
        elif type_ == "words":
            lines = [f"frame_string(frame, {key}, words_{self.of}[{value}]);"]
        elif type_ in ("device", "protection"):
            lines = [f"message_put_{type_}(frame, {key}, &{value});"]
        elif type_ == "text":
            lines = [f"message_put_text(frame, {key}, {value});"]
        else:
            lines = [f"frame_string(frame, {key}, {value});"]
        condition = flag if type_ != "device" else None
        if self.omitted and type_ == "vdev":
            condition = f"{value} != UINT32_MAX"
        elif self.omitted and type_ == "protection":
            condition = f"{value}.word != PROTECTION_UNSAID"
        elif self.omitted and not condition:
            condition = value + ("[0]" if type_ in ("word", "text", "path") else "")
        return lines if not condition else [f"if ({condition}) {{"] + ["    " + line for line in lines] + ["}"]

    def take(self, side):
        value, flag = self.member(side)
        key, type_ = f'"{self.key}"', self.type
        lines = []
        if type_ == "map" and self.count:
            sys.exit(f"an array of {self.of} is not taken yet")
        if type_ == "map":
            lines = [f"take_{self.of}(field_get(map, {key}), &{value});"]
        elif type_ in NUMBERS:
            cast = "(uint32_t)" if type_ == "u32" else ""
            lines = [f"{value} = {cast}message_number(map, {key}, {NUMBERS[type_]});"]
        elif type_ == "vdev":
            lines = [f"{value} = message_vdev(map, {key});"]
        elif type_ == "ms":
            scale = " * 1000000" if value.endswith("_ns") else ""
            lines = [f"{value} = message_number(map, {key}, MESSAGE_MS_MAX){scale};"]
        elif type_ == "bool":
            lines = [f"{value} = field_bool(map, {key}, false);"]
        elif type_ == "words":
            lines = [f"{value} = message_word(map, {key}, words_{self.of}, ARRAY_SIZE(words_{self.of}));"]
        elif type_ == "device":
            got = f"message_take_device(map, {key}, &{value})"
            return [f"{flag} = {got} || {flag};" if flag else f"(void){got};"]
        elif type_ == "protection":
            lines = [f"message_take_protection(map, {key}, &{value});"]
        else:
            lines = [f"(void)field_{'string' if type_ == 'word' else type_}(map, {key}, {value}, sizeof({value}));"]
        return lines + ([f"{flag} = field_get(map, {key}) != NULL;"] if flag else [])


class Map:
    def __init__(self, words, where):
        self.name, way, *structs = words
        self.structs, self.headers, self.fields = {}, {}, []
        self.shared = any(one.startswith("common=") for one in structs)
        self.senders, self.takers = (part.split(",") for part in way.split(">"))
        for one in structs:
            side, _, rest = one.partition("=")
            self.structs[side], _, self.headers[side] = rest.partition("@")
        if set(self.senders + self.takers) != set(self.structs):
            sys.exit(f"{where}: not every side of {self.name} has a struct")

    def function(self, side, puts):
        struct = self.structs[side]
        own = f"{side}_" if self.shared and side != "common" else "" # the library links both
        if puts:
            lines = [f"void {own}put_{self.name}(struct frame *frame, const struct {struct} *value)"]
        else:
            lines = [f"void {own}take_{self.name}(const msgpack_object *map, struct {struct} *value)"]
        body = [line for field in self.fields if field.member(side)[0]
                for line in (field.put(side) if puts else field.take(side))]
        return lines, ["{"] + ["    " + line for line in body] + ["}", ""]


def read(path):
    maps, words_of = [], {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            text, where = line.split("#")[0], f"{path}:{number}"
            words = text.split()
            if not words:
                continue
            if text[0] == " ":
                maps[-1].fields.append(Field(words, maps[-1], words_of, where))
            elif words[0] == "words":
                words_of[words[1]] = [word.strip('"') for word in words[2:]]
            elif words[0] == "map":
                maps.append(Map(words[1:], where))
            else:
                sys.exit(f"{where}: '{words[0]}' is neither words nor a map")
    return maps, words_of


def main():
    table, side, header, source = sys.argv[1:]
    maps, words_of = read(table)
    maps = [m for m in maps if side in m.structs]
    guard = f"RESEAT_AGENT_PROTOCOL_{side.upper()}_MESSAGES_H"
    declared, defined = [], []
    for m in maps:
        for puts, sides in ((True, m.senders), (False, m.takers)):
            if side in sides:
                first, body = m.function(side, puts)
                declared += [first[0] + ";"]
                defined += first + body
    used = {f.of for m in maps for f in m.fields if f.words and f.member(side)[0]}
    arrays = [f"static const char *const words_{name}[] = {{{', '.join(chr(34) + w + chr(34) for w in words_of[name])}}};"
              for name in sorted(used)]
    includes = [f'#include "{path}"' for path in sorted({m.headers[side] for m in maps})]
    texts = [[f"#ifndef {guard}", f"#define {guard}", "", '#include "agent/protocol/message.h"'] + includes +
             ["", "/* Of messages.txt: into an open map, and from one. */"] + declared + ["", "#endif", ""],
             [f'#include "agent/protocol/{side}_messages.h"', ""] + arrays + [""] + defined]
    for path, lines in zip((header, source), texts):
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines))


if __name__ == "__main__":
    main()
