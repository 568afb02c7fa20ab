#!/usr/bin/env python3
"""Write the driver's dispatch table from interpose/entry/calls.txt and the OpenCL headers.

What the library's table says of a call holds here too: who counts references, which name is another
call's, what is refused and how. What that table has written by hand or as a command is written by
hand here; what is not offered stands below.
"""

import importlib.util
import sys

# What the library carries for devices in its own process, and no other process can do.
NOT_OFFERED = {
    "clSVMAlloc": "NULL", "clSVMFree": "NULL", "clEnqueueSVMFree": "CL_INVALID_OPERATION",
    "clEnqueueSVMMemcpy": "CL_INVALID_OPERATION", "clEnqueueSVMMemFill": "CL_INVALID_OPERATION",
    "clEnqueueSVMMap": "CL_INVALID_OPERATION", "clEnqueueSVMUnmap": "CL_INVALID_OPERATION",
    "clEnqueueSVMMigrateMem": "CL_INVALID_OPERATION", "clSetKernelArgSVMPointer": "CL_INVALID_OPERATION",
}
# A loader's, and what is found by address alone.
HERE = {"clGetExtensionFunctionAddress", "clGetExtensionFunctionAddressForPlatform"}
BY_HAND = {"clSetDefaultDeviceCommandQueue"}


def load(path):
    spec = importlib.util.spec_from_file_location("calls", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def refuse(call, error):
    function = call.function
    lines = [f"static {function.head()}", "{"]
    lines += [f"    (void){p.name};" for p in function.parameters]
    if function.returns_error:
        lines.append(f"    return {error};")
    elif function.errcode:
        lines += [f"    if ({function.errcode})", f"        *{function.errcode} = {error};", "    return NULL;"]
    elif function.result != "void":
        lines.append("    return NULL;")
    return "\n".join(lines + ["}", ""])


def count(call, handles):
    parameter = call.function.parameters[0]
    kind = handles[parameter.type][0].replace("OBJECT_", "ID_")
    return "\n".join([
        f"static {call.function.head()}", "{",
        f"    void *object = handle_get({parameter.name}, {kind});",
        "    if (!object)", f"        return {handles[parameter.type][1]};",
        f"    handle_{'retain' if call.kind == 'retain' else 'release'}(object);",
        "    return CL_SUCCESS;", "}", ""])


def main():
    generator, table, output, *compiler = sys.argv[1:]
    calls_py = load(generator)
    functions, named, members = calls_py.read_headers(compiler)
    calls = calls_py.read_table(table, functions, named)
    counted = {"clReleaseCommandQueue", "clReleaseMemObject"}
    lines = ["#define CL_USE_DEPRECATED_OPENCL_1_0_APIS"]
    lines += [f"#include <CL/{name}>" for name in calls_py.HEADERS]
    lines += ["#include <string.h>", "", '#include "remote/driver/commands/between.h"', '#include "remote/driver/objects/objects.h"', '#include "remote/driver/servers/isolate.h"', '#include "remote/driver/servers/plug.h"', ""]
    names, addresses = {}, []
    for call in calls.values():
        name = call.name
        if name not in members or call.kind == "absent":
            continue
        names[name] = name
        if call.kind in ("retain", "release") or name in counted:
            call.kind = call.kind if call.kind == "retain" else "release"
            lines.append(count(call, calls_py.HANDLES).replace(name, f"own_{name}"))
            names[name] = f"own_{name}"
        elif call.kind == "alias":
            other = call.words[0]
            arguments = ", ".join(p.name for p in call.function.parameters)
            lines.append(f"static {call.function.head()}\n{{\n    return {other}({arguments});\n}}\n".replace(f"{name}(", f"own_{name}(", 1))
            names[name] = f"own_{name}"
        elif (call.kind == "refused" and name not in BY_HAND) or name in NOT_OFFERED:
            error = NOT_OFFERED.get(name, call.words[0])
            lines.append(refuse(call, error).replace(f"{name}(", f"own_{name}(", 1))
            names[name] = f"own_{name}"
        if call.kind != "refused" and not call.hidden and name not in HERE:
            addresses.append((name, names[name]))
    lines += ["static const struct {", "    const char *name;", "    void (*function)(void);", "} addresses[] = {",
              '    {"clIcdGetPlatformIDsKHR", (void (*)(void))clIcdGetPlatformIDsKHR},',
              "    {ISOLATED_ENTRY, (void (*)(void))isolate_open},",
              "    {ISOLATED_STANDBY, (void (*)(void))isolate_standby},",
               '    {BETWEEN_NAME, (void (*)(void))between_enqueue},',
              "    {SERVED_ENTRY, (void (*)(void))plug_open},",
              "    {SERVED_ENDED, (void (*)(void))plug_ended},",
              "    {SERVED_LEAVE, (void (*)(void))plug_leave},"]
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
    with open(output, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))


if __name__ == "__main__":
    main()
