#!/usr/bin/python3
"""Write wrong_calls.c: a function for each call of interpose/entry/calls.txt, which makes it with arguments that
wrong.c picks."""

import importlib.util
import re
import sys

# What has no arguments worth a try, or ends something for all that comes after.
LEFT_OUT = {
    "clGetExtensionFunctionAddress", "clGetExtensionFunctionAddressForPlatform", "clIcdGetPlatformIDsKHR",
    "clGetPlatformInfo", "clGetDeviceInfo", "clGetDeviceIDs", "clGetPlatformIDs", "clGetLayerInfo",
    "clInitLayer", "clUnloadCompiler", "clUnloadPlatformCompiler", "clEnqueueNativeKernel", "clGetHostTimer",
    "clGetDeviceAndHostTimer", "clEnqueueWaitForEvents", "clSetProgramSpecializationConstant", "clRetainDevice",
    "clReleaseDevice", "clReleaseMemObject", "clReleaseCommandQueue", "clCreateSubDevices",
    "clSetContextDestructorCallback", "clSetMemObjectDestructorCallback", "clSetProgramReleaseCallback",
}


def load(path):
    spec = importlib.util.spec_from_file_location("calls", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def picker(parameter):
    """The function of wrong.h that picks a value of this type."""
    if parameter.pointer_to_function:
        return "callback"
    words = parameter.type.replace("*", " ptr").split()
    return "_".join(words)


def call_function(call, handles):
    function = call.function
    lines = [f"static void try_{call.name}(struct wrong *w)", "{"]
    for p in function.parameters:
        kind = picker(p)
        declared = f"void *{p.name}" if p.pointer_to_function else p.declare()
        lines.append(f'    {declared} = wrong_{kind}(w, "{p.name}");')
    made = f"{call.name}({', '.join(p.name for p in function.parameters)})"
    if function.returns_error:
        lines.append(f"    wrong_returned(w, {made});")
    else:
        lines.append(f"    {function.result} made = {made};")
        lines.append('    wrong_made(w, made);')
        release = {"cl_command_queue": "clReleaseCommandQueue", "cl_mem": "clReleaseMemObject"}.get(
            function.result, "clRelease" + function.result.removeprefix("cl_").capitalize())
        if function.result in handles:
            lines += ["    if (made)", f"        {release}(made);"]
        elif "command_queue" in [p.name for p in function.parameters]:
            memory = next(p.name for p in function.parameters if p.type == "cl_mem")
            lines += ["    if (made)",
                      f"        clEnqueueUnmapMemObject(command_queue, {memory}, made, 0, NULL, NULL);"]
    return "\n".join(lines + ["}", ""])


def main():
    generator, table, output, *compiler = sys.argv[1:]
    calls_py = load(generator)
    functions, named, _ = calls_py.read_headers(compiler)
    calls = [call for call in calls_py.read_table(table, functions, named).values()
             if call.kind not in ("absent", "refused", "retain", "release", "alias")
             and call.name not in LEFT_OUT and not re.search("SVM|ExecInfo", call.name)]
    lines = ['#include "tests/contract/wrong.h"', ""] + [call_function(call, calls_py.HANDLES) for call in calls]
    lines += ["const struct wrong_call wrong_calls[] = {"]
    lines += [f'    {{"{call.name}", try_{call.name}}},' for call in calls]
    lines += ["};", f"const unsigned wrong_call_count = {len(calls)};", ""]
    calls_py.write(output, lines)


if __name__ == "__main__":
    main()
