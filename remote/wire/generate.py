#!/usr/bin/python3
"""Write the structs of messages.txt, their packing and checked unpacking, and both sides' dispatch."""

import re
import sys

IDS = ("device", "context", "queue", "memory", "sampler", "program", "kernel", "event", "call", "any")
GROUPS = { # Structs of their own, which several messages have.
    "command": ["queue:queue", "event:event?", "purpose:u32", "area:u32", "place:u64", "waits:event[]"],
    "peer": ["transfer:u64", "way:u32", "where:text", "ticket:bytes"],
}
PLAIN = {"u32": "uint32_t", "u64": "uint64_t", "i32": "int32_t"}
SIDES = {">": "server", "<": "client"}


class Field:
    def __init__(self, word, where):
        self.name, _, self.type = word.partition(":")
        self.many, self.optional = self.type.endswith("[]"), self.type.endswith("?")
        self.base = re.sub(r"(\[\]|\?)$", "", self.type)
        known = self.base in IDS or self.base in PLAIN or self.base in ("size3", "text", "bytes", "tail")
        if not self.name or not known:
            sys.exit(f"{where}: '{word}' is no field")
        self.id = "ID_NONE" if self.base == "any" else f"ID_{self.base.upper()}"
        self.path = self.name

    def declare(self):
        if self.base in PLAIN:
            return f"{PLAIN[self.base]} {self.name};"
        if self.base == "size3":
            return f"uint64_t {self.name}[3];"
        if self.base == "text":
            return f"const char *{self.name};"
        if self.base == "bytes":
            return f"const void *{self.name}; uint32_t {self.name}_size;"
        if self.base == "tail":
            return f"const void *{self.name}; uint64_t {self.name}_size; struct pooled *{self.name}_lies_in;"
        if self.many:
            return f"const void *{self.name}; uint32_t {self.name}_count;"
        return f"uint64_t {self.name};"

    def pack(self):
        m = f"message->{self.path}"
        if self.base == "size3":
            return f"pack_bytes(pack, {m}, sizeof({m}));"
        if self.base == "text":
            return f"pack_list(pack, {m}, strlen({m}) + 1, 1);"
        if self.base == "bytes":
            return f"pack_list(pack, {m}, {m}_size, 1);"
        if self.base == "tail":
            return None
        if self.many:
            return f"pack_list(pack, {m}, {m}_count, sizeof(uint64_t));"
        return f"pack_bytes(pack, &{m}, sizeof({m}));"

    def unpack(self):
        m = f"message.{self.path}"
        if self.base in ("u32", "i32"):
            return f"{m} = ({PLAIN[self.base]})unpack_u32(unpack);"
        if self.base == "u64":
            return f"{m} = unpack_u64(unpack);"
        if self.base == "size3":
            return f"unpack_size3(unpack, {m});"
        if self.base == "text":
            return f"{m} = unpack_text(unpack);"
        if self.base == "bytes":
            return f"{m} = unpack_list(unpack, &{m}_size);"
        if self.base == "tail":
            return f"{m} = unpack_tail(unpack, &{m}_size);"
        if self.many:
            return f"{m} = unpack_ids(unpack, {self.id}, &{m}_count);"
        return f"{m} = unpack_id(unpack, {self.id}, {str(self.optional).lower()});"


class Message:
    def __init__(self, line, where):
        self.side, self.name, *words = line.split()
        if self.side not in "><=":
            sys.exit(f"{where}: '{self.side}' is no direction")
        self.fields, self.members = [], []
        for word in words:
            fields = [Field(one, where) for one in GROUPS.get(word, [word])]
            if word in GROUPS:
                for field in fields:
                    field.path = f"{word}.{field.name}"
            self.fields += fields
            self.members.append(f"struct msg_{word} {word};" if word in GROUPS else fields[0].declare())
        tails = [f.base == "tail" for f in self.fields]
        if any(tails[:-1]):
            sys.exit(f"{where}: the tail of {self.name} is not last")
        self.tail = self.fields[-1].name if tails and tails[-1] else None

    def struct(self):
        return [f"struct msg_{self.name} {{"] + [f"    {member}" for member in self.members or ["char none;"]] + ["};"]

    def source(self):
        lines = [f"void pack_{self.name}(struct pack *pack, const struct msg_{self.name} *message)", "{"]
        lines.append("    (void)pack, (void)message;")
        lines += ["    " + f.pack() for f in self.fields if f.pack()]
        lines += ["}", "", f"bool unpack_{self.name}(struct unpack *unpack, struct msg_{self.name} *ret_message)", "{"]
        lines.append(f"    struct msg_{self.name} message = {{0}};")
        lines += ["    " + f.unpack() for f in self.fields]
        end = "" if self.side == "=" else " || unpack->at != unpack->end"
        lines += [f"    if (unpack->bad{end})", "        return false;", "    *ret_message = message;"]
        return lines + ["    return true;", "}", ""]

    def post(self):
        tail = "message->{0}, message->{0}_size, message->{0}_lies_in".format(self.tail or "")
        tail = tail if self.tail else "NULL, 0, NULL"
        return f"""int post_{self.name}(struct stream *stream, const struct msg_{self.name} *message)
{{
    struct pack pack;
    pack_init(&pack);
    pack_{self.name}(&pack, message);
    int error = pack.failed ? -ENOMEM : stream_post_pooled(stream, MSG_{self.name.upper()}, pack.bytes, pack.used, {tail});
    pack_finish(&pack);
    return error;
}}
"""


def header(messages):
    lines = ["#ifndef RESEAT_REMOTE_WIRE_MESSAGES_H", "#define RESEAT_REMOTE_WIRE_MESSAGES_H", ""]
    lines += ['#include "remote/wire/stream.h"', '#include "remote/wire/wire.h"', "", "enum message_type {", "    MSG_NONE,"]
    lines += [f"    MSG_{m.name.upper()}," for m in messages if m.side != "="]
    lines += ["    MSG_TYPES", "};", ""]
    for name, words in GROUPS.items():
        lines += [f"struct msg_{name} {{"] + ["    " + Field(word, "").declare() for word in words] + ["};", ""]
    for m in messages:
        lines += m.struct()
        lines.append(f"void pack_{m.name}(struct pack *pack, const struct msg_{m.name} *message);")
        lines.append(f"MUST_CHECK bool unpack_{m.name}(struct unpack *unpack, struct msg_{m.name} *ret_message);")
        if m.side != "=":
            lines.append("/** 0, -ENOMEM, or what ended the session. */")
            lines.append(f"int post_{m.name}(struct stream *stream, const struct msg_{m.name} *message);")
        lines.append("")
    for sign, side in SIDES.items():
        lines += [f"/** What the {side} does with what it is sent: the {side} has one for each. */", f"struct {side};"]
        lines += [f"void {side}_{m.name}(struct {side} *{side}, const struct msg_{m.name} *message);" for m in messages if m.side == sign]
        lines += ["/** False: no such message, or its body is not what the table says. */",
                  f"MUST_CHECK bool {side}_dispatch(struct {side} *{side}, unsigned type, struct unpack *body);", ""]
    return lines + ["/** For logs. */", "const char *message_name(unsigned type);", "", "#endif", ""]


def source(messages):
    lines = ['#include "messages.h"', "", "#include <errno.h>", ""]
    for m in messages:
        lines += m.source()
        if m.side != "=":
            lines.append(m.post())
    lines += ["const char *message_name(unsigned type)", "{", "    static const char *const names[MSG_TYPES] = {"]
    lines += [f'        [MSG_{m.name.upper()}] = "{m.name}",' for m in messages if m.side != "="]
    return lines + ["    };", '    return type < MSG_TYPES && names[type] ? names[type] : "unknown";', "}", ""]


def dispatch(messages, sign):
    side = SIDES[sign]
    lines = ['#include "messages.h"', "", f"bool {side}_dispatch(struct {side} *{side}, unsigned type, struct unpack *body)", "{", "    switch (type) {"]
    for m in messages:
        if m.side == sign:
            lines += [f"    case MSG_{m.name.upper()}: {{", f"        struct msg_{m.name} message;",
                      f"        if (!unpack_{m.name}(body, &message))", "            return false;",
                      f"        {side}_{m.name}({side}, &message);", "        return true;", "    }"]
    return lines + ["    default:", "        return false;", "    }", "}", ""]


def main():
    table, *outputs = sys.argv[1:]
    with open(table, encoding="utf-8") as file:
        rows = [(n, line.split("#")[0].strip()) for n, line in enumerate(file, 1)]
    messages = [Message(line, f"{table}:{n}") for n, line in rows if line]
    texts = [header(messages), source(messages), dispatch(messages, "<"), dispatch(messages, ">")]
    for path, lines in zip(outputs, texts):
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines))


if __name__ == "__main__":
    main()
