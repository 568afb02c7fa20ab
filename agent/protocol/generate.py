#!/usr/bin/python3
"""Write the packing and checked unpacking of the maps of messages.txt, for one side of them.

  generate.py TABLE SIDE HEADER SOURCE
"""

import sys

NUMBERS = {"u32": "UINT32_MAX", "bytes": "MESSAGE_BYTES_MAX", "u64": "UINT64_MAX"}
TYPES = list(NUMBERS) + ["signed", "bool", "ms", "vdev", "word", "text", "path", "device", "protection", "place"]
LISTED = ["u64", "bool", "word", "device", "place"] # of which there may be an array, beside maps


class Field:
    """One key of a map, and the member that one side has it in."""

    def __init__(self, words, map_, words_of, where):
        self.key, type_, *members = words
        self.omitted, type_ = type_.endswith("?"), type_.rstrip("?")
        type_, _, self.count = type_.rstrip("]").partition("[")
        self.type, _, self.of = type_.partition(":")
        if self.type == "words":
            known = self.of in words_of
        elif self.type == "map":
            known = bool(self.of)
        else:
            known = self.type in (LISTED if self.count else TYPES)
        if not known:
            sys.exit(f"{where}: '{words[1]}' is no type")
        self.words = words_of.get(self.of)
        self.members, self.types = {side: self.key for side in map_.structs}, {}
        for member in members:
            side, _, name = member.partition("=")
            if side not in map_.structs:
                sys.exit(f"{where}: {map_.name} has no side '{side}'")
            self.members[side], _, other = name.partition(":") # A side may have it as another type.
            if other:
                self.types[side] = other

    def member(self, side):
        """The member, and the one that says whether it is there; None: this side has none."""
        name, _, flag = self.members[side].partition("?")
        return (None if name == "-" else place(name)), (place(flag) if flag else None)

    def put_one(self, side, key, value, maps):
        type_ = self.types.get(side, self.type)
        if type_ == "map":
            call = f"{maps[self.of].called(side, 'put')}(frame, {'agent, ' if maps[self.of].told(side, maps) else ''}&{value});"
            return [call] if self.key == "-" else [f"frame_map(frame, {key});", call, "frame_end(frame);"]
        if type_ in NUMBERS or type_ in ("vdev", "ms"):
            return [f"frame_u64(frame, {key}, {value});"]
        if type_ == "bool":
            return [f"frame_bool(frame, {key}, {value});"]
        if type_ == "place":
            return [f"devices_put_place(agent, frame, {key}, {value});"]
        if type_ == "words":
            return [f"frame_string(frame, {key}, words_{self.of}[{value}]);"]
        if type_ in ("device", "protection"):
            return [f"message_put_{type_}(frame, {key}, &{value});"]
        if type_ in ("text", "signed"):
            return [f"message_put_{type_}(frame, {key}, {value});"]
        return [f"frame_string(frame, {key}, {value});"]

    def put(self, side, maps):
        value, flag = self.member(side)
        if self.count:
            lines = ["    " + line for line in self.put_one(side, "NULL", element(value), maps)]
            lines = [f'frame_array(frame, "{self.key}");', f"for (size_t i = 0; i < {place(self.count)}; i++) {{",
                     *lines, "}", "frame_end(frame);"]
        else:
            lines = self.put_one(side, f'"{self.key}"', value, maps)
        condition = flag if self.type != "device" else None
        if self.omitted and self.type == "vdev":
            condition = f"{value} != UINT32_MAX"
        elif self.omitted and self.type == "protection":
            condition = f"{value}.word != PROTECTION_UNSAID"
        elif self.omitted and not condition:
            condition = value + ("[0]" if self.type in ("word", "text", "path") else "")
        return lines if not condition else [f"if ({condition}) {{"] + ["    " + line for line in lines] + ["}"]

    def take_array(self, side, value, flag, maps):
        """Of a list the count is taken too; what other structs have it in goes by its place."""
        one, count = element(value), place(self.count)
        items = f'message_items(map, "{self.key}", &items'
        most = count if "[]" in value else f"ARRAY_SIZE({value})"
        lines = ["const msgpack_object *items;", f"size_t count = {items}, {most});"]
        if self.type == "map":
            agent = "agent, " if maps[self.of].told(side, maps) else ""
            lines += ["for (size_t i = 0; i < count; i++)", f"    take_{self.of}({agent}&items[i], &{one});"]
        elif self.type == "device" and "[]" not in value: # Without those that are no keys.
            lines += [f"{count} = 0;", "for (size_t i = 0; i < count; i++)",
                      f"    {count} += message_item_device(&items[i], &{value}[{count}]);"]
        elif self.type == "u64" and "[]" not in value: # What is no number ends the list.
            return ["{"] + ["    " + line for line in lines + [
                f"{count} = 0;", f"while ({count} < count && message_item_u64(&items[{count}], &{value}[{count}]))",
                f"    {count}++;"]] + ["}"]
        elif self.type in ("u64", "bool", "device"):
            lines += ["for (size_t i = 0; i < count; i++)",
                      f"    message_item_{self.type}(&items[i], &{one});"]
        elif self.type == "place":
            lines += ["for (size_t i = 0; i < count; i++)", f"    {one} = devices_item_place(agent, &items[i]);"]
        else:
            sys.exit(f"an array of {self.type} is not taken yet")
        if "[]" not in value and self.type != "device":
            lines.append(f"{count} = (__typeof__({count}))count;")
        lines = ["{"] + ["    " + line for line in lines] + ["}"]
        return lines + ([f'{flag} = field_get(map, "{self.key}") != NULL;'] if flag else [])

    def take(self, side, maps):
        value, flag = self.member(side)
        key, type_ = f'"{self.key}"', self.types.get(side, self.type)
        if "(" in value or (type_ == "map" and side not in maps[self.of].takers):
            return [] # Only what is put may be computed.
        if self.count:
            return self.take_array(side, value, flag, maps)
        if type_ == "map":
            map_ = "map" if self.key == "-" else f"field_get(map, {key})"
            agent = "agent, " if maps[self.of].told(side, maps) else ""
            lines = [f"take_{self.of}({agent}{map_}, &{value});"]
            if flag:
                return lines + [f"{flag} = message_is_map(map, {key});"]
        elif type_ == "place":
            what = "key" if self.type == "device" else "place"
            lines = [f"{value} = devices_take_{what}(agent, map, {key});"]
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
        elif type_ == "signed":
            lines = [f"{value} = message_signed(map, {key});"]
        elif type_ == "device":
            got = f"message_take_device(map, {key}, &{value})"
            return [f"{flag} = {got} || {flag};" if flag else f"(void){got};"]
        elif type_ == "protection":
            lines = [f"message_take_protection(map, {key}, &{value});"]
        else:
            lines = [f"(void)field_{'string' if type_ == 'word' else type_}(map, {key}, {value}, sizeof({value}));"]
        there = f"message_is_number(map, {key})" if type_ in NUMBERS else f"field_get(map, {key}) != NULL"
        return lines + ([f"{flag} = {there};"] if flag else [])


def place(name):
    """A member of the struct, or what a function makes of it."""
    return name if "(" in name else f"value->{name}" if name else "*value"


def element(value):
    """One of an array's, or of what a function gives for each."""
    if value.endswith(")"):
        return f"{value[:-1]},i)"
    return value.replace("[]", "[i]") if "[]" in value else f"{value}[i]"


class Map:
    def __init__(self, words, where):
        self.name, way, *structs = words
        self.structs, self.headers, self.fields = {}, {}, []
        self.shared = any(one.startswith("common=") for one in structs)
        self.senders, self.takers = (part.split(",") for part in way.split(">"))
        for one in structs:
            side, _, rest = one.partition("=")
            self.structs[side], _, self.headers[side] = rest.partition("@")
        if set(self.senders + self.takers) - {"client"} != set(self.structs):
            sys.exit(f"{where}: not every side of {self.name} has a struct")

    def told(self, side, maps):
        """The agent's functions need more than the struct."""
        if side != "agent":
            return False
        texts = [text for field in self.fields for text in [*field.members.values(), field.count]]
        return any("agent," in text for text in texts) or any(
            "place" in (field.type, *field.types.values()) or field.type == "map" and maps[field.of].told(side, maps) for field in self.fields)

    def relay(self, maps):
        """The agent passes the map on to a client, without what does not belong there."""
        keys = [field.key for field in self.fields if field.type != "map"]
        body = ["static const char *const keys[] = {" + ", ".join(f'"{key}"' for key in keys) + "};"]
        body += ["frame_forward(frame, map, keys, ARRAY_SIZE(keys));"]
        for field in self.fields:
            if field.type == "map" and field.key == "-":
                body.append(f"relay_{field.of}(frame, map);")
            elif field.type == "map":
                body += ["const msgpack_object *items;",
                         f'size_t count = message_items(map, "{field.key}", &items, PROTOCOL_VDEVS_MAX);',
                         f'frame_array(frame, "{field.key}");', "for (size_t i = 0; i < count; i++) {",
                         "    frame_map(frame, NULL);", f"    relay_{field.of}(frame, &items[i]);",
                         "    frame_end(frame);", "}", "frame_end(frame);"]
        return ([f"void relay_{self.name}(struct frame *frame, const msgpack_object *map)"],
                ["{"] + ["    " + line for line in body] + ["}", ""])

    def blank(self):
        """As of a program that has nothing to say."""
        puts = {"text": 'frame_string(frame, {}, "");', "word": 'frame_string(frame, {}, "");',
                "bool": "frame_bool(frame, {}, false);"}
        body = [puts.get(field.type, "frame_u64(frame, {}, 0);").format(f'"{field.key}"') for field in self.fields]
        return [f"void blank_{self.name}(struct frame *frame)"], ["{"] + ["    " + line for line in body] + ["}", ""]

    def called(self, side, verb):
        """Of functions that several sides have, only one has no side before its name."""
        other = self.shared and side != "common" or verb == "put" and side in self.senders[1:]
        return f"{side}_{verb}_{self.name}" if other else f"{verb}_{self.name}"

    def function(self, side, puts, maps):
        struct = self.structs[side]
        agent = f"{'const ' if puts else ''}struct agent *agent, " if self.told(side, maps) else ""
        if puts:
            lines = [f"void {self.called(side, 'put')}(struct frame *frame, {agent}const struct {struct} *value)"]
        else:
            lines = [f"void {self.called(side, 'take')}({agent}const msgpack_object *map, struct {struct} *value)"]
        body = [line for field in self.fields if field.member(side)[0]
                for line in (field.put(side, maps) if puts else field.take(side, maps))]
        used = ["(void)agent;"] if agent and not any("agent" in line for line in body) else []
        return lines, ["{"] + ["    " + line for line in used + body] + ["}", ""]


def read(path):
    maps, words_of = {}, {}
    last = None
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            text, where = line.split("#")[0], f"{path}:{number}"
            words = text.split()
            if not words:
                continue
            if text[0] == " ":
                last.fields.append(Field(words, last, words_of, where))
            elif words[0] == "words":
                words_of[words[1]] = [word.strip('"') for word in words[2:]]
            elif words[0] == "map":
                last = maps[words[1]] = Map(words[1:], where)
            else:
                sys.exit(f"{where}: '{words[0]}' is neither words nor a map")
    return maps, words_of


def main():
    table, side, header, source = sys.argv[1:]
    maps, words_of = read(table)
    own = [m for m in maps.values() if side in m.structs]
    guard = f"RESEAT_AGENT_PROTOCOL_{side.upper()}_MESSAGES_H"
    declared, defined = [], []
    for m in own:
        for puts, sides in ((True, m.senders), (False, m.takers)):
            if side in sides:
                first, body = m.function(side, puts, maps)
                declared += [first[0] + ";"]
                defined += first + body
    for m in maps.values():
        if side == "agent" and "agent" not in m.structs and m.takers == ["client"]:
            for first, body in [m.relay(maps)] + ([] if any(f.type == "map" for f in m.fields) else [m.blank()]):
                declared += [first[0] + ";"]
                defined += first + body
    used = {f.of for m in own for f in m.fields if f.words and f.member(side)[0] and side not in f.types}
    arrays = [f"static const char *const words_{name}[] = {{{', '.join(chr(34) + w + chr(34) for w in words_of[name])}}};"
              for name in sorted(used)]
    includes = [f'#include "{path}"' for path in sorted({m.headers[side] for m in own})]
    texts = [[f"#ifndef {guard}", f"#define {guard}", "", '#include "agent/protocol/message.h"'] + includes +
             ["", "/* Of messages.txt: into an open map, and from one. */"] + declared + ["", "#endif", ""],
             [f'#include "{header}"', ""] + arrays + [""] + defined]
    for path, lines in zip((header, source), texts):
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines))


if __name__ == "__main__":
    main()
