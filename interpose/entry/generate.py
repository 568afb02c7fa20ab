#!/usr/bin/python3
"""Generate the entry points that calls.txt describes, from the OpenCL headers of this system.

Fails when a header has a function that the table lacks, or the table one that no header has.
"""

import argparse
import glob
import os
import re
import subprocess
import sys

HEADERS = ["cl.h", "cl_ext.h", "cl_gl.h", "cl_egl.h", "cl_icd.h", "cl_layer.h"]
PREPARE = "#define CL_USE_DEPRECATED_OPENCL_1_0_APIS\n" + "".join(
    f"#include <CL/{name}>\n" for name in HEADERS
)
KINDS = ("written", "checked", "info", "retain", "release", "command", "alias", "derived", "refused", "absent")

# Handle type -> our object's type (None: no such object exists), error, test sample.
HANDLES = {
    "cl_platform_id": ("OBJECT_PLATFORM", "CL_INVALID_PLATFORM", "platform"),
    "cl_device_id": ("OBJECT_DEVICE", "CL_INVALID_DEVICE", "device"),
    "cl_context": ("OBJECT_CONTEXT", "CL_INVALID_CONTEXT", "context"),
    "cl_command_queue": ("OBJECT_QUEUE", "CL_INVALID_COMMAND_QUEUE", "queue"),
    "cl_mem": ("OBJECT_MEMORY", "CL_INVALID_MEM_OBJECT", "buffer"),
    "cl_sampler": ("OBJECT_SAMPLER", "CL_INVALID_SAMPLER", "sampler"),
    "cl_program": ("OBJECT_PROGRAM", "CL_INVALID_PROGRAM", "program"),
    "cl_kernel": ("OBJECT_KERNEL", "CL_INVALID_KERNEL", "kernel"),
    "cl_event": ("OBJECT_EVENT", "CL_INVALID_EVENT", "event"),
    "cl_command_buffer_khr": (None, "CL_INVALID_COMMAND_BUFFER_KHR", None),
    "cl_mutable_command_khr": (None, "CL_INVALID_MUTABLE_COMMAND_KHR", None),
    "cl_semaphore_khr": (None, "CL_INVALID_SEMAPHORE_KHR", None),
    "cl_accelerator_intel": (None, "CL_INVALID_ACCELERATOR_INTEL", None),
}


def fail(*lines):
    for line in lines:
        print(f"generate.py: {line}", file=sys.stderr)
    sys.exit(1)


class Parameter:
    def __init__(self, text):
        text = " ".join(text.split())
        self.text = text
        self.pointer_to_function = False
        callback = re.search(r"\(\s*\*\s*(\w+)\s*\)\s*\(", text)
        if callback:
            self.name = callback.group(1)
            self.type = text
            self.pointer_to_function = True
            return
        match = re.fullmatch(r"(.*?[\s*])(\w+)((?:\[\w*\])?)", text)
        if not match:
            fail(f"cannot parse the parameter '{text}'")
        self.type = re.sub(r"\s*\*\s*", " *", match.group(1)).strip()
        self.name = match.group(2)
        if match.group(3):
            self.type += " *"

    @property
    def is_pointer(self):
        return self.pointer_to_function or self.type.endswith("*")

    @property
    def is_list(self):
        """A list of handles that the program passes."""
        return re.fullmatch(r"const (\w+) \*", self.type) and self.pointed in HANDLES

    @property
    def pointed(self):
        return self.type.replace("const ", "").replace("*", "").strip()

    def declare(self, name=None):
        if self.pointer_to_function:
            return self.text
        return f"{self.type}{'' if self.type.endswith('*') else ' '}{name or self.name}"


class Function:
    def __init__(self, result, name, parameters):
        self.result = re.sub(r"\s*\*\s*", " *", result).strip()
        self.name = name
        texts = split_commas(parameters)
        self.parameters = [] if texts == ["void"] else [Parameter(t) for t in texts]

    @property
    def returns_error(self):
        return self.result == "cl_int"

    def parameter(self, name):
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        fail(f"{self.name} has no parameter '{name}'")

    @property
    def errcode(self):
        for parameter in self.parameters:
            if parameter.type == "cl_int *" and parameter.name.startswith("err"):
                return parameter.name
        return None

    def head(self):
        parameters = ", ".join(p.declare() for p in self.parameters) or "void"
        space = "" if self.result.endswith("*") else " "
        return f"{self.result}{space}{self.name}({parameters})"


def split_commas(text):
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += c in "(["
        depth -= c in ")]"
        if c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    parts.append(text[start:].strip())
    return parts


def read_headers(compiler):
    """All functions that the headers declare, those only named, and the dispatch's members."""
    command = compiler + ["-E", "-DCL_TARGET_OPENCL_VERSION=300", "-x", "c", "-"]
    result = subprocess.run(command, input=PREPARE, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        fail("the OpenCL headers cannot be preprocessed:", result.stderr)
    folders = {
        os.path.dirname(path)
        for path in re.findall(r'^# \d+ "([^"]*)"', result.stdout, re.M)
        if os.path.basename(os.path.dirname(path)) == "CL"
    }
    text = re.sub(r"^#.*$", "", result.stdout, flags=re.M)
    text = re.sub(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)", "", text)

    functions = {}
    nested = r"[^()]*(?:\([^()]*\)[^()]*)*"
    for match in re.finditer(rf"extern\s+([\w\s*]+?)\b(cl[A-Z]\w*)\s*\(({nested})\)\s*;", text):
        result_type, name, parameters = match.groups()
        functions[name] = Function(result_type, name, parameters)

    dispatch = re.search(r"typedef struct _cl_icd_dispatch\s*\{(.*?)\}\s*cl_icd_dispatch\s*;", text, re.S)
    if not dispatch or not functions:
        fail("the OpenCL headers do not look like any known version")
    members = re.findall(r"\bcl_api_\w+\s+(\w+)\s*;", dispatch.group(1))

    named = set(functions) | set(members)
    for folder in folders:
        for path in glob.glob(os.path.join(folder, "*.h")):
            with open(path, encoding="utf-8", errors="replace") as file:
                header = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
            named.update(re.findall(r"CL_API_CALL\s+(cl[A-Z]\w*)\s*\(", header))
    return functions, named, members


class Call:
    def __init__(self, line, where):
        line, _, self.why = (part.strip() for part in line.partition(" -- "))
        words = line.split()
        if len(words) < 2 or words[1] not in KINDS:
            fail(f"{where}: '{line}' is none of {', '.join(KINDS)}")
        self.name, self.kind, rest = words[0], words[1], words[2:]
        self.expression = ""
        if self.kind == "derived":
            options = [w for w in rest if re.match(r"(optional|bad)=|hidden$", w)]
            self.expression, rest = " ".join(w for w in rest if w not in options), options
        self.hidden = "hidden" in rest
        self.optional = {w.split("=")[1] for w in rest if w.startswith("optional=")}
        self.bad = dict(w.split("=")[1].split(":") for w in rest if w.startswith("bad="))
        self.words = [w for w in rest if w != "hidden" and "=" not in w]
        needs = {"written": 1, "alias": 1, "refused": 1}.get(self.kind, 0)
        if self.kind not in ("checked", "command") and len(self.words) != needs:
            fail(f"{where}: {self.name}: {needs} word(s) expected after '{self.kind}'")
        if self.kind in ("refused", "absent") and not self.why:
            fail(f"{where}: {self.name}: a reason is missing (-- why)")
        self.function = None


def read_table(path, functions, named):
    calls = {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            line = line.split("#")[0].strip()
            if not line:
                continue
            call = Call(line, f"{path}:{number}")
            if call.name in calls:
                fail(f"{path}:{number}: {call.name} is there twice")
            calls[call.name] = call
            call.function = functions.get(call.name)
            if call.kind != "absent" and call.name in named and not call.function:
                fail(f"{path}:{number}: the headers give {call.name} no prototype here")
    lacking = sorted(named - set(calls))
    unknown = sorted(set(calls) - named)
    if lacking:
        fail(*(f"{path} lacks {name}, which the OpenCL headers have" for name in lacking))
    if unknown:
        fail(*(f"{path} has {name}, which no OpenCL header has" for name in unknown))
    return calls


def snake(name):
    name = re.sub(r"^cl(Enqueue)?", "", name)
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


# Commands


class Use:
    """What a command's row says of one parameter."""

    def __init__(self, call, word):
        parts = word.split(":")
        self.parameter = call.function.parameter(parts[0])
        self.kind = parts[1]
        if self.kind in ("buffer", "image") and len(parts) == 3:
            self.writes = parts[2] == "write"
        elif self.kind == "bytes" and len(parts) == 4:
            self.size, self.limit = parts[2], int(parts[3])
        else:
            fail(f"{call.name}: cannot understand '{word}'")


class Command:
    FIXED = ("command_queue", "num_events_in_wait_list", "event_wait_list", "event")

    def __init__(self, call):
        self.call = call
        self.function = call.function
        self.name = snake(call.name)
        self.type = call.words[0]
        uses = [Use(call, word) for word in call.words[1:]]
        self.objects = [u for u in uses if u.kind != "bytes"]
        self.bytes = {u.parameter.name: u for u in uses if u.kind == "bytes"}
        known = {u.parameter.name for u in self.objects}
        self.blocking = None
        self.fields = []
        for parameter in self.function.parameters:
            if parameter.type == "cl_bool":
                self.blocking = parameter.name
            elif parameter.name not in self.FIXED and parameter.name not in known:
                if parameter.pointed == "cl_mem":
                    fail(f"{call.name}: the table says nothing of '{parameter.name}'")
                self.fields.append(parameter)
        self.reads_to_host = self.objects and not any(u.writes for u in self.objects)
        self.writes_from_host = any(u.writes for u in self.objects) and any(
            p.name == "ptr" for p in self.fields
        )
        self.gives_run = self.reads_to_host and {"ptr", "size"} <= {p.name for p in self.fields}
        self.may_be_empty = self.objects and any(p.name == "size" for p in self.fields)

    def is_vector(self, parameter):
        return parameter.type == "const size_t *"

    def structure(self):
        lines = [f"struct {self.name} {{", "    struct command base;"]
        for p in self.fields:
            if self.is_vector(p):
                lines.append(f"    size_t {p.name}[3];")
            elif p.name in self.bytes:
                lines.append(f"    unsigned char {p.name}[{self.bytes[p.name].limit}];")
            else:
                lines.append(f"    {p.declare()};")
        lines += ["};"]
        if not self.objects:
            fields = ", ".join(p.declare() for p in self.fields if p.name not in self.bytes)
            lines.append(f"cl_int check_{self.name}({fields});")
        return lines + [""]

    def named(self, names, prefix=""):
        """The parameters of these names that the call has; None for each that it has not."""
        own = {p.name for p in self.fields}
        return [f"{prefix}{n}" if n in own else None for n in names]

    def box(self, start):
        """Origin, region and pitches of the box that begins with a prefix; None: it has none."""
        names = self.named(
            [f"{start}origin", "region", f"{start}row_pitch", f"{start}slice_pitch"], "command->"
        )
        return names if names[0] and names[2] else None

    def range_of(self, use):
        """Which bytes of an object the command names: a box counts as the run from its first byte to its last."""
        start = re.match(r"(src_|dst_)?", use.parameter.name).group(0)
        origin, region, offset = self.named([f"{start}origin", "region", f"{start}offset"], "command->")
        image = next((i for i, u in enumerate(self.objects) if u.kind == "image"), None)
        if use.kind == "image":
            return f"image_range(base->uses[{self.objects.index(use)}]->image, {origin}, {region})"
        box = self.box(start) or self.box("buffer_")
        if box:
            return f"box_range({', '.join(box)})"
        if image is not None:
            return f"image_packed_range(base->uses[{image}]->image, {region}, {offset})"
        return f"(struct range){{{offset}, {offset} + command->size}}"

    def ranger(self):
        """Which bytes of each object: for replicas that are kept by ranges. What was checked before fits."""
        ranges = [self.range_of(use) for use in self.objects]
        choice = ranges[0] if len(ranges) == 1 else f"use == 0 ? {ranges[0]} : {ranges[1]}"
        return f"""static void {self.name}_range(const struct command *base, unsigned use, struct range *range)
{{
    const struct {self.name} *command = (const struct {self.name} *)base;
    (void)use;
    *range = {choice};
}}
"""

    def host_range(self):
        """Which bytes of the program's memory are read, counted from the pointer that it gave."""
        box = self.box("host_")
        if box:
            return f"box_range({', '.join(box)})"
        if self.objects[0].kind == "image":
            region, row, slice_pitch = self.named(["region", "input_row_pitch", "input_slice_pitch"], "command->")
            return f"image_host_range(base->uses[0]->image, {region}, {row}, {slice_pitch})"
        return "(struct range){0, command->size}"

    def issue(self):
        arguments = []
        objects = {u.parameter.name: i for i, u in enumerate(self.objects)}
        fixed = dict(zip(self.FIXED, ("queue", "waits", "wait_list", "ret_event")))
        for p in self.function.parameters:
            if p.name in fixed:
                arguments.append(fixed[p.name])
            elif p.name in objects:
                arguments.append(f"base->uses[{objects[p.name]}]->real[residence_index]")
            elif p.name == self.blocking:
                arguments.append("CL_FALSE")
            else:
                arguments.append(f"command->{p.name}")
        return f"""static cl_int {self.name}_issue(struct command *base, struct residence *residence, uint8_t residence_index,
    cl_command_queue queue, cl_uint waits, const cl_event *wait_list, cl_event *ret_event)
{{
    const struct {self.name} *command = (const struct {self.name} *)base;
    (void)residence_index;
    if (UNLIKELY(!residence->cl->{self.call.name}))
        return CL_INVALID_OPERATION;
    return residence->cl->{self.call.name}({", ".join(arguments)});
}}

static const struct command_ops {self.name}_ops = {{
    .type = {self.type},
    .size = sizeof(struct {self.name}),
    .issue = {self.name}_issue,
    .range = {f"{self.name}_range" if self.objects else "NULL"},
    .output = {f"{self.name}_output" if self.gives_run else "NULL"},
    .record = {f"{self.name}_record" if self.writes_from_host else "NULL"},
    .reads_to_host = {str(bool(self.reads_to_host)).lower()},
}};
"""

    def output(self):
        return f"""static void **{self.name}_output(struct command *base, size_t *ret_size)
{{
    struct {self.name} *command = (struct {self.name} *)base;
    *ret_size = command->size;
    return &command->ptr;
}}
"""

    def record(self):
        return f"""static int {self.name}_record(const struct command *base, struct command **ret_command,
    char **ret_bytes, size_t *ret_size)
{{
    const struct {self.name} *command = (const struct {self.name} *)base;
    const struct range range = {self.host_range()};
    struct {self.name} *copy = malloc(sizeof(*copy));
    char *bytes = malloc(range.end - range.begin + 1);
    if (!copy || !bytes) {{
        free(copy);
        free(bytes);
        return -ENOMEM;
    }}
    memcpy(copy, base, sizeof(*copy));
    memcpy(bytes, (const char *)copy->ptr + range.begin, range.end - range.begin);
    /* What lies before is not looked at. */
    copy->ptr = (const void *)((uintptr_t)bytes - range.begin);
    command_hold_uses(&copy->base);
    *ret_command = &copy->base;
    *ret_bytes = bytes;
    *ret_size = range.end - range.begin;
    return 0;
}}
"""

    def opening(self, value, empty_allowed):
        """What comes before a command: handles, and what is asked of the parameters. @value is where a field is."""
        queue = self.function.parameters[0].name
        lines = [
            self.function.head(),
            "{",
            f"    struct queue *queue = queue_get({queue});",
            "    if (UNLIKELY(!queue))",
            "        return CL_INVALID_COMMAND_QUEUE;",
        ]
        for i, use in enumerate(self.objects):
            other = "!=" if use.kind == "buffer" else "=="
            lines += [
                f"    struct memory *use{i} = memory_get({use.parameter.name});",
                f"    if (UNLIKELY(!use{i} || use{i}->type {other} CL_MEM_OBJECT_BUFFER))",
                "        return CL_INVALID_MEM_OBJECT;",
            ]
        different = " || ".join(f"use{i}->context != queue->context" for i in range(len(self.objects)))
        if different:
            lines += [f"    if (UNLIKELY({different}))", "        return CL_INVALID_CONTEXT;"]
        copies = [p.name for p in self.fields if self.is_vector(p) or p.name in self.bytes]
        if copies:
            wrong = " || ".join(f"!{name}" for name in copies)
            lines += [f"    if (UNLIKELY({wrong}))", "        return CL_INVALID_VALUE;"]
        parameters = {p.name for p in self.function.parameters}
        sizes = {}
        for name, use in self.bytes.items():
            sizes[name] = use.size if use.size in parameters else f"{use.size}(use0->image)"
            if use.size in parameters:
                lines += [f"    if (UNLIKELY({use.size} > {use.limit}))", "        return CL_INVALID_VALUE;"]
        views = {u.parameter.name: f"checked_memory(use{i})" for i, u in enumerate(self.objects)}
        arguments = [
            views.get(p.name) or value(p.name)
            for p in self.function.parameters
            if p.name not in self.FIXED and p.name not in self.bytes and p.name != self.blocking
        ]
        if self.objects and "size" in parameters and not self.bytes:
            arguments.append(empty_allowed)
        check = [
            f"    cl_int error = check_{self.name}({', '.join(arguments)});",
            "    if (UNLIKELY(error != CL_SUCCESS))",
            "        return error;",
        ]
        return lines, sizes, check

    def entry(self):
        lines, sizes, check = self.opening(lambda name: f"command.{name}", "the_limits.empty_commands")
        writes = sum(1 << i for i, use in enumerate(self.objects) if use.writes)
        uses = ", ".join(f"use{i}" for i in range(len(self.objects))) or "NULL"
        lines += [
            f"    struct {self.name} command;",
            "    command.base = (struct command){"
            f".ops = &{self.name}_ops, .queue = queue, .uses = {{{uses}}}, "
            f".use_count = {len(self.objects)}, .writes = {writes}}};",
        ]
        for p in self.fields:
            if self.is_vector(p):
                lines.append(f"    memcpy(command.{p.name}, {p.name}, sizeof(command.{p.name}));")
            elif p.name in self.bytes:
                lines.append(f"    memcpy(command.{p.name}, {p.name}, {sizes[p.name]});")
            else:
                lines.append(f"    command.{p.name} = {p.name};")
        blocking = f"{self.blocking} != CL_FALSE" if self.blocking else "false"
        run = f"{blocking}, num_events_in_wait_list, event_wait_list, event);"
        lines += check
        if self.may_be_empty:
            lines += ["    if (UNLIKELY(size == 0))", f"        return sync_empty(queue, {self.type}, {run}"]
        lines += [f"    return command_run(&command.base, {run}", "}", ""]
        return lines


# Answers


def struct_of(handle):
    return {"cl_command_queue": "queue", "cl_mem": "memory", "cl_platform_id": "platform"}.get(
        handle, handle.removeprefix("cl_"))


class Info:
    """A clGet*Info call of info.txt."""

    def __init__(self, name, function, only):
        self.name, self.function, self.only = name, function, only
        self.checks, self.rows = [], []

    def row(self, line, where):
        name, _, rest = line.partition(" ")
        if name == "check":
            self.checks.append(rest.strip())
            return
        answers = [part.strip() for part in rest.split(" ; ")]
        if not re.fullmatch(r"CL_\w+", name) or len(answers) > 2:
            fail(f"{where}: '{line}' is no answer")
        self.rows.append((name, answers[0], answers[-1]))

    def entry(self, remote, references):
        parameter = self.function.parameters[0]
        struct = struct_of(parameter.type)
        lines = [
            self.function.head(),
            "{",
            f"    const struct info_request request = {{{', '.join(p.name for p in self.function.parameters[-3:])}}};",
            f"    struct {struct} *o = {struct}_get({parameter.name});",
            "    if (!o)",
            f"        return {HANDLES[parameter.type][1]};",
        ]
        for check in self.checks:
            lines += ["    {", f"        cl_int error = {check};", "        if (error != CL_SUCCESS)",
                      "            return error;", "    }"]
        lines.append("    switch (param_name) {")
        for name, *answers in self.rows:
            kind, _, what = answers[remote].partition(" ")
            lines += [f"    case {name}:", f"        return {self.answer(kind, what, references)};"]
        lines += ["    default:", "        return CL_INVALID_VALUE;", "    }", "}", ""]
        return [line.replace("$2", self.function.parameters[1].name) for line in lines]

    def answer(self, kind, what, references):
        if kind == "references":
            return f"info_uint(&request, {references}(o))"
        if kind == "uint":
            return f"info_uint(&request, (cl_uint)({what}))"
        if kind in ("size", "ulong", "text", "object", "pointer"):
            return f"info_{kind}(&request, {what})"
        if kind == "list":
            pointer, _, count = what.rpartition(", ")
            return f"info_bytes(&request, {pointer}, ({count}) * sizeof(({pointer})[0]))"
        if kind == "bytes":
            return f"info_bytes(&request, &{what}, sizeof({what}))"
        if kind in ("answer", "error"):
            return what
        return fail(f"{self.name}: '{kind}' is no kind of answer")


def read_info(path, functions):
    infos = {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            words = line.split("#")[0].split()
            if not words:
                continue
            where = f"{path}:{number}"
            if line[0] != " ":
                if words[0] not in functions or words[0] in infos:
                    fail(f"{where}: '{line.strip()}' is no call, or is there twice")
                info = infos[words[0]] = Info(words[0], functions[words[0]], (words[1:] or [None])[0])
            else:
                info.row(" ".join(words), where)
    return infos


# Entry points


class Checked:
    """A call whose handles are checked before a function of ours is called with their objects."""

    def __init__(self, call):
        self.function, self.name = call.function, call.words[0]
        self.uses = dict(word.split(":") for word in call.words[1:])
        first = self.function.parameters[0]
        self.object = struct_of(first.type)
        self.made = struct_of(self.function.result) if self.function.result in HANDLES else None
        if first.type not in HANDLES or not (self.function.returns_error or self.function.errcode):
            fail(f"{call.name}: its first parameter is no handle, or it returns no error")

    def prototype(self):
        parameters = []
        for i, p in enumerate(self.function.parameters):
            if i == 0 or p.name in self.uses:
                parameters.append(f"struct {struct_of(p.type)} *{struct_of(p.type)}")
            elif p.name == self.function.errcode:
                parameters.append(f"struct {self.made} **ret_{self.made}" if self.made else "void **ret_pointer")
            else:
                parameters.append(p.declare())
        return f"cl_int {self.name}({', '.join(parameters)});"

    def leave(self, error):
        errcode = self.function.errcode
        return f"        return created(NULL, {error}, {errcode});" if errcode else f"        return {error};"

    def entry(self):
        first = self.function.parameters[0]
        lines = [self.function.head(), "{", f"    struct {self.object} *object = {self.object}_get({first.name});",
                 "    if (UNLIKELY(!object))", self.leave(HANDLES[first.type][1])]
        for name, kind in self.uses.items():
            wrong = {"buffer": f" || {name}_used->image", "image": f" || !{name}_used->image"}.get(kind, "")
            lines += [f"    struct memory *{name}_used = memory_get({name});",
                      f"    if (UNLIKELY(!{name}_used{wrong}))", self.leave("CL_INVALID_MEM_OBJECT"),
                      f"    if (UNLIKELY({name}_used->context != object->context))", self.leave("CL_INVALID_CONTEXT")]
        arguments = ["object"] + [
            f"{p.name}_used" if p.name in self.uses else "&made" if p.name == self.function.errcode else p.name
            for p in self.function.parameters[1:]]
        made = f"{self.name}({', '.join(arguments)})"
        if self.function.returns_error:
            return "\n".join(lines + [f"    return {made};", "}", ""])
        kind = f"struct {self.made}" if self.made else "void"
        return "\n".join(lines + [f"    {kind} *made = NULL;", f"    cl_int error = {made};",
                                  f"    return created(made, error, {self.function.errcode});", "}", ""])


def checked_prototypes(calls):
    checked = [Checked(call) for call in calls.values() if call.kind == "checked"]
    structs = {c.object for c in checked} | {c.made for c in checked if c.made} | {"memory"}
    return [f"struct {name};" for name in sorted(structs)] + [""] + [c.prototype() for c in checked] + [""]


def count_entry(call):
    parameter = call.function.parameters[0]
    object_type, error, _ = HANDLES[parameter.type]
    head = f"""{call.function.head()}
{{
    void *object = object_get({parameter.name}, {object_type});
"""
    if call.kind == "release":
        return head + f"    return LIKELY(object && object_release(object)) ? CL_SUCCESS : {error};\n}}\n"
    return head + f"""    if (UNLIKELY(!object))
        return {error};
    object_retain(object);
    return CL_SUCCESS;
}}
"""


def alias_entry(call):
    arguments = ", ".join(p.name for p in call.function.parameters)
    return f"{call.function.head()}\n{{\n    return {call.words[0]}({arguments});\n}}\n"


def derived_entry(call):
    """Another call with other arguments; parameters that it leaves out are not used."""
    lines = [call.function.head(), "{"]
    lines += [f"    (void){p.name};" for p in call.function.parameters
              if not re.search(rf"\b{p.name}\b", call.expression)]
    return "\n".join(lines + [f"    return {call.expression};", "}", ""])


def refused_entry(call, get="object_get", kind="OBJECT_"):
    function = call.function
    lines = [function.head(), "{"]
    used = set()

    def leave(error, indent):
        if function.returns_error:
            return [f"{indent}return {error};"]
        if function.result == "void":
            return [f"{indent}return;"]
        if function.errcode:
            used.add(function.errcode)
            return [f"{indent}return created(NULL, {error}, {function.errcode});"]
        return [f"{indent}return NULL;"]

    for p in function.parameters:
        if function.result == "void" or p.type not in HANDLES:
            continue
        object_type, error, _ = HANDLES[p.type]
        if not object_type or error == call.words[0]:
            break
        used.add(p.name)
        given = f"{p.name} && " if p.name in call.optional else ""
        lines.append(f"    if ({given}!{get}({p.name}, {object_type.replace('OBJECT_', kind)}))")
        lines += leave(error, "        ")
    last = leave(call.words[0], "    ")
    lines += [f"    (void){p.name};" for p in function.parameters if p.name not in used]
    if function.result != "void":
        lines += last
    return "\n".join(lines + ["}", ""])


def dispatch_table(members, calls):
    lines = ["const cl_icd_dispatch calls_dispatch = {"]
    for name in members:
        if calls[name].kind != "absent":
            lines.append(f"    .{name} = {name},")
    return lines + ["};", ""]


def address_table(calls):
    offered = [
        c.name for c in calls.values() if c.kind not in ("absent", "refused") and not c.hidden
    ]
    lines = ["const struct call_address calls_addresses[] = {"]
    lines += [f'    {{"{name}", (void (*)(void)){name}}},' for name in sorted(offered)]
    return lines + ["};", f"const size_t calls_address_count = {len(offered)};", ""]


def generated_header(calls, commands):
    lines = [
        "#ifndef RESEAT_INTERPOSE_CALLS_GENERATED_H",
        "#define RESEAT_INTERPOSE_CALLS_GENERATED_H",
        "",
        '#include "interpose/entry/calls.h"',
        '#include "state/command/command.h"',
        "",
    ]
    lines += checked_prototypes(calls)
    for command in commands:
        lines += command.structure()
    empty = ", ".join(f"X({command.type})" for command in commands if command.may_be_empty)
    return lines + [f"#define CALLS_MAY_BE_EMPTY(X) {empty}", "", "#endif", ""]


def generated_source(calls, members, commands, infos):
    lines = [
        '#include "calls_generated.h"',
        "",
        "#include <errno.h>",
        "#include <stdlib.h>",
        "#include <string.h>",
        "",
        '#include "interpose/entry/entry.h"',
        '#include "state/program/kernel.h"',
        '#include "state/program/sampler.h"',
        '#include "state/opencl/checks.h"',
        '#include "state/opencl/derived.h"',
        "",
        "static inline struct checked_memory checked_memory(const struct memory *memory)",
        "{",
        "    return (struct checked_memory){memory, memory->flags, memory->size, memory->origin, memory->root, memory->image};",
        "}",
        "",
    ]
    for command in commands:
        if command.objects:
            lines.append(command.ranger())
        if command.writes_from_host:
            lines.append(command.record())
        if command.gives_run:
            lines.append(command.output())
        lines.append(command.issue())
        lines += command.entry()
    for call in calls.values():
        if call.kind == "info":
            lines += infos[call.name].entry(False, "object_refs")
        elif call.kind in ("retain", "release"):
            lines.append(count_entry(call))
        elif call.kind == "checked":
            lines.append(("HOT " if call.name == "clSetKernelArg" else "") + Checked(call).entry())
        elif call.kind == "alias":
            lines.append(alias_entry(call))
        elif call.kind == "derived":
            lines.append(derived_entry(call))
        elif call.kind == "refused":
            lines.append(refused_entry(call))
    return lines + dispatch_table(members, calls) + address_table(calls)


def version_script(calls):
    # And what policy/reseat.h looks for, and the end of the process.
    lines = ["{", "global:", "    reseat_api;", "    exit;", "    pthread_cancel;"]
    lines += [f"    {c.name};" for c in calls.values() if c.kind != "absent"]
    return lines + ["local:", "    *;", "};", ""]


# What tests try


def tried_value(parameter):
    if parameter.type in HANDLES:
        sample = HANDLES[parameter.type][2]
        if sample == "buffer" and "image" in parameter.name:
            sample = "image"
        return f"good->{sample}" if sample else "NULL"
    if parameter.pointer_to_function:
        return "NULL"
    if parameter.type == "cl_int *" and parameter.name.startswith("err"):
        return "&error"
    if parameter.is_list:
        return "NULL"
    if parameter.is_pointer:
        return "good->scratch"
    return "0"


def tried_thunk(call, tried, number):
    """A C function that makes the call with one bad handle and everything else good."""
    arguments = []
    parameters = call.function.parameters
    body = ["    cl_int error = CL_SUCCESS;"]
    for i, p in enumerate(parameters):
        if p is tried and p.is_list:
            body.append(f"    {p.pointed} list[1] = {{bad}};")
            arguments.append("list")
        elif p is tried:
            arguments.append("bad")
        elif tried and tried.is_list and i + 1 < len(parameters) and parameters[i + 1] is tried:
            arguments.append("1")
        else:
            arguments.append(tried_value(p) if tried else ("&error" if tried_value(p) == "&error" else "0"))
    made = f"{call.name}({', '.join(arguments)})"
    if call.function.returns_error:
        body.append(f"    error = {made};")
    elif call.function.result == "void":
        body += [f"    {made};", "    error = TRIED_NOTHING;"]
    elif call.function.errcode:
        body += [f"    if ({made})", "        error = CL_SUCCESS;"]
    else:
        body += [f"    if (!{made})", "        error = TRIED_NOTHING;"]
    head = f"static cl_int try_{number}(const struct samples *good, void *bad)"
    return "\n".join([head, "{", "    (void)good, (void)bad;"] + body + ["    return error;", "}", ""])


def tried_source(calls):
    thunks, rows = [], []
    for call in calls.values():
        if call.kind == "absent":
            continue
        function = call.function
        lists = [
            p
            for i, p in enumerate(function.parameters)
            if p.is_list and i > 0 and function.parameters[i - 1].type == "cl_uint"
        ]
        refused = call.kind == "refused"
        for tried in [p for p in function.parameters if p.type in HANDLES] + lists + [None]:
            thunks.append(tried_thunk(call, tried, len(thunks)))
            expected, optional = "TRIED_ANY", False
            if tried:
                optional = tried.name in call.optional
                if not tried.is_list:
                    expected = HANDLES[tried.type][1]
                elif tried.name == "event_wait_list" and call.kind == "command":
                    expected = "TRIED_ANY"
            if tried and refused and (tried.is_list or not HANDLES[tried.type][0]):
                expected = "TRIED_ANY"
            if tried and refused and function.parameters[0].type in HANDLES:
                if not HANDLES[function.parameters[0].type][0]:
                    expected = HANDLES[function.parameters[0].type][1]
            if tried and tried.name in call.bad:
                expected = {"any": "TRIED_ANY", "none": "TRIED_NOTHING"}.get(
                    call.bad[tried.name], call.bad[tried.name]
                )
            if not function.returns_error and not function.errcode:
                expected = "TRIED_NOTHING"
            object_type = HANDLES[tried.pointed][0] if tried else None
            rows.append(
                f'    {{"{call.name}", "{tried.name if tried else ""}", {object_type or "OBJECT_NONE"}, '
                f"{expected}, {'true' if optional else 'false'}, try_{len(thunks) - 1}}},"
            )
    lines = ['#include "tests/contract/tried.h"', ""] + thunks
    lines += ["const struct tried tried_calls[] = {"] + rows + ["};"]
    return lines + [f"const size_t tried_call_count = {len(rows)};", ""]


def write(path, lines):
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", required=True)
    parser.add_argument("--info", required=True)
    parser.add_argument("--header", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--symbols", required=True)
    parser.add_argument("--tried", required=True)
    parser.add_argument("compiler", nargs="+")
    options = parser.parse_args()

    functions, named, members = read_headers(options.compiler)
    calls = read_table(options.table, functions, named)
    commands = [Command(call) for call in calls.values() if call.kind == "command"]
    write(options.header, generated_header(calls, commands))
    infos = read_info(options.info, functions)
    for call in calls.values():
        if (call.kind == "info") != (call.name in infos and infos[call.name].only != "remote"):
            fail(f"{call.name} is in one of {options.table} and {options.info} alone")
    write(options.source, generated_source(calls, members, commands, infos))
    write(options.symbols, version_script(calls))
    write(options.tried, tried_source(calls))


if __name__ == "__main__":
    main()
