#!/usr/bin/python3
"""Write the driver's calls and dispatch table, and what the server does with its commands, from interpose/entry/calls.txt, info.txt beside it, commands.txt here, and
the OpenCL headers.

What the library's table says of a call holds here too: who counts references, which name is another call's, what is
refused and how, what comes before a command, what a question is answered. What that table has written by hand is
written by hand here; what is not offered stands below.
"""

import importlib.util
import sys

# What the library carries for devices in its own process, and no other process can do.
NOT_OFFERED = {
    "clSVMAlloc": "NULL", "clSVMFree": "NULL", "clEnqueueSVMFree": "CL_INVALID_OPERATION",
    "clEnqueueSVMMemcpy": "CL_INVALID_OPERATION", "clEnqueueSVMMemFill": "CL_INVALID_OPERATION",
    "clEnqueueSVMMap": "CL_INVALID_OPERATION", "clEnqueueSVMUnmap": "CL_INVALID_OPERATION",
    "clEnqueueSVMMigrateMem": "CL_INVALID_OPERATION", "clSetKernelArgSVMPointer": "CL_INVALID_OPERATION",
    "clSetKernelExecInfo": "CL_INVALID_OPERATION", "clEnqueueNativeKernel": "CL_INVALID_OPERATION",
    "clCreateSubDevices": "CL_INVALID_VALUE",
}
# What the library writes by hand, and is a word here.
DERIVED = {
    "clGetPlatformIDs": "clIcdGetPlatformIDsKHR(num_entries, platforms, num_platforms)",
    "clUnloadPlatformCompiler": "platform_get(platform) ? CL_SUCCESS : CL_INVALID_PLATFORM",
    "clRetainDevice": "device_get(device) ? CL_SUCCESS : CL_INVALID_DEVICE",
    "clReleaseDevice": "device_get(device) ? CL_SUCCESS : CL_INVALID_DEVICE",
}
# A loader's, and what is found by address alone.
HERE = {"clGetExtensionFunctionAddress", "clGetExtensionFunctionAddressForPlatform"}
# Addresses that reseat's engine asks for.
OWN = {"ISOLATED_ENTRY": "isolate_open", "ISOLATED_STANDBY": "isolate_standby", "BETWEEN_NAME": "between_enqueue",
       "LEND_NAME": "lent_take", "LENT_RETURN_NAME": "lent_give",
       "SERVED_ENTRY": "plug_open", "SERVED_ENDED": "plug_ended", "SERVED_LEAVE": "clients_leave"}
INCLUDES = ("commands/command.h", "programs/program.h", "servers/servers.h")

VIEW = """static inline struct checked_memory checked_memory(const struct memory *memory)
{
    const struct memory *root = memory->parent && !memory->image ? memory->parent : memory;
    return (struct checked_memory){memory, memory->flags, memory->size, memory->origin, root, memory->image};
}
"""


def load(path):
    spec = importlib.util.spec_from_file_location("calls", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def count(call, handles):
    parameter = call.function.parameters[0]
    kind = handles[parameter.type][0].replace("OBJECT_", "ID_")
    return "\n".join([
        call.function.head(), "{",
        f"    void *object = object_get({parameter.name}, {kind});",
        "    if (!object)", f"        return {handles[parameter.type][1]};",
        f"    handle_{'retain' if call.kind == 'retain' else 'release'}(object);",
        "    return CL_SUCCESS;", "}", ""])


def read_commands(path):
    with open(path, encoding="utf-8") as file:
        rows = [line.split("#")[0].split() for line in file]
    return {words[0]: words[1:] for words in rows if words}


class Forwarded:
    """A command that is posted as a message."""

    def __init__(self, command, words):
        self.command, self.words = command, words
        self.opening, self.sizes, self.check = command.opening(lambda name: name, "queue_takes_empty(queue)")
        self.waits = "num_events_in_wait_list, event_wait_list, event"

    def blocking(self):
        return f"{self.command.blocking} != CL_FALSE" if self.command.blocking else "false"

    def field(self, word):
        field, _, name = word.partition("=")
        name = name or field
        parameter = self.command.function.parameter(name)
        objects = [u.parameter.name for u in self.command.objects]
        if name in objects:
            return f".{field} = handle_id(use{objects.index(name)})"
        if self.command.is_vector(parameter):
            return f".{field} = {{{name}[0], {name}[1], {name}[2]}}"
        if name in self.sizes:
            return f".{field} = {name}, .{field}_size = {self.sizes[name]}"
        return f".{field} = {name}"

    def post(self, more=()):
        fields = [".command = command.head"] + [self.field(word) for word in self.words[1:]] + list(more)
        return f"    error = POST(queue->base.client, {self.words[0]}, {{{', '.join(fields)}}});"

    def run(self):
        return [f"    return transfer_run(&(struct transfer){{.queue = command_queue, .memory = use0, "
                f".type = {self.command.type}, .blocking = {self.blocking()}, .offset = offset, .size = size, "
                ".bytes = (void *)ptr, .count = num_events_in_wait_list, .waits = event_wait_list}, event);"]

    def transfer(self):
        box = self.command.box("host_")
        start, shape = "0", "use0->image, "
        if box:
            start = f"box_range({', '.join(part.removeprefix('command->') for part in box)}).begin"
            shape = ""
        pitches = [p.name for p in self.command.fields if p.name.endswith("_pitch") and "buffer" not in p.name]
        lines = [
            f"    const struct layout layout = {'layout_of_box' if box else 'image_layout'}({shape}region, {', '.join(pitches)});",
            "    struct command command;",
            f"    error = command_begin_transfer(&command, command_queue, {self.command.type}, {self.command.blocking}, {self.waits});",
            "    if (error)", "        return error;"]
        if not self.command.writes_from_host:
            return lines + [f"    command_aim(&command, (char *)ptr + {start}, &layout);", self.post(),
                            "    return command_end(&command, error);"]
        return lines + [
            "    const void *content = NULL;", "    void *owned = NULL;", "    size_t size = 0;",
            f"    error = command_fill(&command, (const char *)ptr + {start}, &layout, &content, &size, &owned);",
            "    if (error)", "        return command_end(&command, error);",
            self.post([".content = content", ".content_size = content ? size : 0"]),
            "    free(owned);", "    return command_end(&command, error);"]

    def entry(self):
        lines = self.opening + self.check
        if self.command.may_be_empty:
            lines += ["    if (size == 0)",
                      f"        return command_enqueue_nothing(command_queue, {self.command.type}, {self.blocking()}, {self.waits});"]
        if self.words == ["run"]:
            lines += self.run()
        elif self.command.blocking:
            lines += self.transfer()
        else:
            lines += ["    struct command command;",
                      f"    error = command_begin(&command, command_queue, {self.command.type}, false, false, {self.waits});",
                      "    if (error)", "        return error;", self.post(), "    return command_end(&command, error);"]
        return "\n".join(lines + ["}", ""])


class Served:
    """The server's side of such a command: it gives the message to the driver that it has."""

    def __init__(self, command, words):
        self.command, self.message = command, words[0]
        self.fields = {name or field: field for field, _, name in (word.partition("=") for word in words[1:])}
        self.memories = [self.fields[u.parameter.name] for u in command.objects]

    def argument(self, parameter):
        name = parameter.name
        field = self.fields.get(name)
        if name == self.command.blocking:
            return "CL_FALSE"
        if field in self.memories:
            return field
        if name in self.command.bytes:
            return "pattern.bytes"
        if field:
            return f"SIZES(message->{field})" if self.command.is_vector(parameter) else f"message->{field}"
        if name.endswith("_size"):
            return f"message->{self.fields[name.removesuffix('_size')]}_size"
        return {"command_queue": "giving.queue->real", "ptr": "bytes", "host_origin": "origin_of_host"}.get(name, "0")

    def entry(self):
        lines = [f"void server_{self.message}(struct server *server, const struct msg_{self.message} *message)", "{",
                 "    struct giving giving = commands_begin(server, &message->command);"]
        lines += [f"    cl_mem {name} = commands_memory(&giving, message->{name});" for name in self.memories]
        for name, use in self.command.bytes.items():
            bytes_ = f"message->{self.fields[name]}"
            lines.append(f"    union pattern pattern = commands_pattern(&giving, {bytes_}, {bytes_}_size, {use.limit});")
        if self.command.blocking:
            image = self.memories[0] if self.command.objects[0].kind == "image" else "NULL"
            content = "message->content, message->content_size, false" if self.command.writes_from_host else "NULL, 0, true"
            lines.append(f"    void *bytes = commands_stage_box(&giving, {image}, message->region, {content});")
        ready = "commands_ready" if self.command.blocking else "commands_ready_to_work"
        arguments = [self.argument(p) for p in self.command.function.parameters
                     if p.name == "command_queue" or p.name not in self.command.FIXED]
        return "\n".join(lines + [
            f"    if ({ready}(&giving))",
            f"        giving.error = giving.cl->{self.command.call.name}({', '.join(arguments)}, GIVEN(&giving));",
            "    commands_end(&giving);", "}", ""])


def main():
    generator, table, info, own, source, header, server, *compiler = sys.argv[1:]
    calls_py = load(generator)
    functions, named, members = calls_py.read_headers(compiler)
    calls = calls_py.read_table(table, functions, named)
    infos = calls_py.read_info(info, functions)
    forwarded = read_commands(own)
    counted = {"clReleaseCommandQueue", "clReleaseMemObject"}
    lines = ["#define CL_USE_DEPRECATED_OPENCL_1_0_APIS"]
    lines += [f"#include <CL/{name}>" for name in calls_py.HEADERS]
    lines += ["#include <stdlib.h>", "#include <string.h>", ""]
    lines += [f'#include "remote/driver/{name}"' for name in INCLUDES] + [
        '#include "state/opencl/checks.h"', '#include "state/opencl/derived.h"', "", VIEW]
    names, addresses, served = {}, [], []
    for call in calls.values():
        name = call.name
        if name not in members or call.kind == "absent":
            continue
        names[name] = name
        if call.kind in ("retain", "release") or name in counted:
            call.kind = call.kind if call.kind == "retain" else "release"
            lines.append(count(call, calls_py.HANDLES))
        elif call.kind == "checked":
            lines.append(calls_py.Checked(call).entry())
        elif name in infos and infos[name].only != "library":
            lines += infos[name].entry(True, "handle_count")
        elif name in forwarded:
            command, words = calls_py.Command(call), forwarded.pop(name)
            lines.append(Forwarded(command, words).entry())
            if words != ["run"]:
                served.append(Served(command, words).entry())
        elif call.kind == "derived" or name in DERIVED:
            call.expression = DERIVED.get(name, call.expression)
            lines.append(calls_py.derived_entry(call))
        elif call.kind == "alias":
            lines.append("static " + calls_py.alias_entry(call).replace(f"{name}(", f"own_{name}(", 1))
            names[name] = f"own_{name}"
        elif call.kind == "refused" or name in NOT_OFFERED:
            call.words = [NOT_OFFERED.get(name, call.words[0])]
            lines.append("static " + calls_py.refused_entry(call, "object_get", "ID_").replace(f"{name}(", f"own_{name}(", 1))
            names[name] = f"own_{name}"
        if call.kind != "refused" and not call.hidden and name not in HERE:
            addresses.append((name, names[name]))
    if forwarded:
        calls_py.fail(f"{own} has {', '.join(forwarded)}, which {table} does not have as commands")
    lines += ["static const struct {", "    const char *name;", "    void (*function)(void);", "} addresses[] = {",
              '    {"clIcdGetPlatformIDsKHR", (void (*)(void))clIcdGetPlatformIDsKHR},']
    lines += [f"    {{{name}, (void (*)(void)){function}}}," for name, function in OWN.items()]
    lines += [f'    {{"{name}", (void (*)(void)){function}}},' for name, function in addresses]
    lines += ["};", "", "void *clGetExtensionFunctionAddress(const char *func_name)", "{",
              "    void *address = NULL;",
              "    for (size_t i = 0; func_name && i < ARRAY_SIZE(addresses); i++)",
              "        if (!strcmp(addresses[i].name, func_name))",
              "            memcpy(&address, &addresses[i].function, sizeof(address));",
              "    return address;", "}", "",
              "void *clGetExtensionFunctionAddressForPlatform(cl_platform_id platform, const char *func_name)", "{",
              "    return platform ? clGetExtensionFunctionAddress(func_name) : NULL;", "}", "",
              "const cl_icd_dispatch calls_dispatch = {"]
    lines += [f"    .{name} = {function}," for name, function in names.items()]
    lines += ["};", ""]
    calls_py.write(source, lines)
    calls_py.write(server, served)
    calls_py.write(header, ["#include <CL/cl.h>", "#include <CL/cl_ext.h>", ""] + calls_py.checked_prototypes(calls))


if __name__ == "__main__":
    main()
