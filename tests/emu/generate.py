#!/usr/bin/python3
"""Write the emulated driver's entry points from the typedefs of CL/cl_icd.h.

The header reaches us preprocessed, comments kept (cc -E -C): parameter names are sometimes only in
comments, and the comments of the dispatch table say since which version a function exists.

Every entry validates its handles, resolves the device that the call reaches, counts it, applies
the faults that a test armed, and calls the driver with the handles unwrapped. The sets below name
what differs; a function that the header has and the generator cannot wrap fails the build.
"""

import argparse
import re
import subprocess
import sys

KINDS = {
    "cl_platform_id": "EMU_PLATFORM", "cl_device_id": "EMU_DEVICE", "cl_context": "EMU_CONTEXT",
    "cl_command_queue": "EMU_QUEUE", "cl_mem": "EMU_MEM", "cl_sampler": "EMU_SAMPLER",
    "cl_program": "EMU_PROGRAM", "cl_kernel": "EMU_KERNEL", "cl_event": "EMU_EVENT",
}

# Entries written whole by hand (platform.c): what reaches no device, or returns no status.
RAW = set("""clGetPlatformIDs clGetPlatformInfo clGetDeviceIDs clUnloadCompiler
    clUnloadPlatformCompiler clGetExtensionFunctionAddress
    clGetExtensionFunctionAddressForPlatform clCreateContextFromType clSVMAlloc clSVMFree
    clGetGLContextInfoKHR""".split())

# The entry is generated, what it does (emu_do_NAME) is written by hand.
HAND = set("""clGetDeviceInfo clCreateContext clGetContextInfo clSetContextDestructorCallback
    clGetCommandQueueInfo clCreateBuffer clCreateBufferWithProperties clCreateImage
    clCreateImageWithProperties clCreateImage2D clCreateImage3D clCreateSubBuffer
    clGetMemObjectInfo clGetImageInfo clSetMemObjectDestructorCallback clGetSupportedImageFormats
    clGetSamplerInfo clCreateProgramWithBinary clCreateProgramWithBuiltInKernels clBuildProgram
    clCompileProgram clLinkProgram clGetProgramInfo clGetProgramBuildInfo
    clSetProgramReleaseCallback clCreateKernelsInProgram clSetKernelArg clGetKernelInfo
    clGetKernelArgInfo clGetKernelWorkGroupInfo clCloneKernel clGetEventInfo clGetEventProfilingInfo clWaitForEvents
    clSetEventCallback
    clEnqueueMapBuffer clEnqueueMapImage clEnqueueUnmapMemObject clEnqueueNDRangeKernel
    clEnqueueTask""".split())

# Not offered: the entry validates, counts, and answers CL_INVALID_OPERATION.
REFUSED = re.compile(r"GL|EGL|SVM|Pipe|NativeKernel|SubDevices|DeviceEXT|SetKernelExecInfo")

# A vanished device does not make these fail by themselves: they are the host's own bookkeeping, or
# say in their own way that the device is gone.
HOST = re.compile(r"^cl(Retain|Release)|SetUserEventStatus|GetEventInfo|WaitForEvents$"
                  r"|SetEventCallback|GetDeviceInfo|DestructorCallback")

# Handles that may be NULL.
OPTIONAL = {("clGetKernelWorkGroupInfo", "device"), ("clGetKernelSubGroupInfo", "device"),
            ("clGetKernelSubGroupInfoKHR", "in_device")}

# What a call costs before the driver sees it; the expression is a cl_int.
BEFORE = {
    "clEnqueueReadBuffer": "emu_transfer(device, EMU_LINK_OUT, cb, command_queue,"
                           " num_events_in_wait_list, event_wait_list)",
    "clEnqueueWriteBuffer": "emu_transfer(device, EMU_LINK_IN, cb, command_queue,"
                            " num_events_in_wait_list, event_wait_list)",
    "clEnqueueReadBufferRect": "emu_link_wait(device, EMU_LINK_OUT, emu_region_bytes(region, NULL))",
    "clEnqueueWriteBufferRect": "emu_link_wait(device, EMU_LINK_IN, emu_region_bytes(region, NULL))",
    "clEnqueueReadImage": "emu_link_wait(device, EMU_LINK_OUT, emu_region_bytes(region, image))",
    "clEnqueueWriteImage": "emu_link_wait(device, EMU_LINK_IN, emu_region_bytes(region, image))",
    "clCreateSampler": "emu_images_offered(device)",
    "clCreateSamplerWithProperties": "emu_images_offered(device)",
}


def natural_error(name):
    """The error that a test most likely means when it arms this call without naming one."""
    if re.match(r"clCreate(Buffer|Image|SubBuffer|Pipe|FromGL|FromEGLImage)", name):
        return "CL_MEM_OBJECT_ALLOCATION_FAILURE"
    named = {"clBuildProgram": "CL_BUILD_PROGRAM_FAILURE",
             "clCompileProgram": "CL_COMPILE_PROGRAM_FAILURE",
             "clLinkProgram": "CL_LINK_PROGRAM_FAILURE"}
    if name in named:
        return named[name]
    if re.match(r"cl(Enqueue|Flush|Finish|Wait|Release)", name):
        return "CL_OUT_OF_RESOURCES"
    return "CL_OUT_OF_HOST_MEMORY"


class Param:
    """One parameter: its declaration, name, and base type when it is, or points to, a handle."""

    def __init__(self, decl):
        self.decl = re.sub(r"\s+", " ", decl).strip()
        callback = re.search(r"\(\s*\*\s*(\w+)\s*\)", self.decl)
        self.callback = callback is not None
        named = callback or re.search(r"(\w+)\s*(\[[^\]]*\])?$", self.decl)
        if not named:
            sys.exit(f"generate.py: a parameter without a name: {decl!r}")
        self.name = named.group(1)
        base = re.match(r"(const )?(\w+) ?(\**) ?", self.decl)
        pointers = self.decl.count("*") if not self.callback else -1
        is_handle = base is not None and base.group(2) in KINDS
        self.type = base.group(2) if base else ""
        self.handle = is_handle and pointers == 0
        self.array = is_handle and pointers == 1 and base.group(1) is not None
        self.output = is_handle and pointers == 1 and base.group(1) is None


class Function:
    """One function of the dispatch table."""

    def __init__(self, name, returns, params, since):
        self.name, self.returns, self.params, self.since = name, returns, params, since
        self.has_errcode = bool(params) and params[-1].name == "errcode_ret"
        self.status = returns == "cl_int"

    def inner_params(self):
        return ["struct emu_device *device_"] + [p.decl for p in self.params]


def parse(text):
    """The functions of the dispatch table, in its order; None for those the platform lacks."""
    text = re.sub(r"/\*\s*(\w+)\s*(\[\])?\s*\*/(?=\s*[,)])", r"\1", text)
    found = {}
    for match in re.finditer(r"typedef\s+([\w\s]+?\**)\s*\(\s*\*\s*cl_api_(\w+)\s*\)\s*\(", text):
        depth, at, start, params = 1, match.end(), match.end(), []
        while depth:
            char = text[at]
            depth += {"(": 1, ")": -1}.get(char, 0)
            if (char == "," and depth == 1) or depth == 0:
                params.append(text[start:at])
                start = at + 1
            at += 1
        if params == ["void"]:
            params = []
        returns = re.sub(r"\s+", " ", match.group(1)).strip()
        found[match.group(2)] = (returns, [Param(p) for p in params])
    table = text[text.index("struct _cl_icd_dispatch {"):]
    table = table[:table.index("} cl_icd_dispatch")]
    since, functions = 100, []
    for part in re.finditer(r"/\* OpenCL (\d)\.(\d) \*/|/\* cl_\w+ \*/|cl_api_\w+\s+(\w+);", table):
        if part.group(1):
            since = int(part.group(1)) * 100 + int(part.group(2)) * 10
        elif part.group(3):
            name = part.group(3)
            functions.append(Function(name, *found[name], since) if name in found else name)
    return functions


def array_count(function, param):
    """The parameter that counts @param's elements: the one before it."""
    at = function.params.index(param)
    count = function.params[at - 1]
    if not count.name.startswith("num_"):
        sys.exit(f"generate.py: {function.name}: {param.name} has no count before it")
    return count.name


def entry(function):
    """The function in the dispatch table."""
    f = function
    out = [f"static {f.returns} CL_API_CALL entry_{f.name}({', '.join(p.decl for p in f.params)})",
           "{", "struct emu_device *device_ = NULL;", "cl_int err_ = CL_SUCCESS;"]
    if not f.status:
        out.append(f"{f.returns} ret_ = NULL;")
    handles = [p for p in f.params if p.handle]
    for p in handles:
        guard = f" && {p.name} != NULL" if (f.name, p.name) in OPTIONAL else ""
        out += [f"if (err_ == CL_SUCCESS{guard})",
                f"    err_ = emu_check({p.name}, {KINDS[p.type]});"]
    first = ([p for p in handles if p.type == "cl_command_queue"]
             or [p for p in handles if p.type == "cl_device_id" and (f.name, p.name) not in OPTIONAL]
             or handles)
    lists = [p for p in f.params if p.array and p.type in ("cl_device_id", "cl_event")]
    if first:
        out += ["if (err_ == CL_SUCCESS)", f"    device_ = emu_device_of({first[0].name});"]
    if lists and (not first or lists[0].type == "cl_device_id"):
        count = array_count(f, lists[0])
        need = "false" if first else "true"
        out += ["if (err_ == CL_SUCCESS)",
                f"    err_ = emu_device_of_list({count}, {lists[0].name}, "
                f"{KINDS[lists[0].type]}, {need}, &device_);"]
    elif not first:
        sys.exit(f"generate.py: {f.name} names no device; classify it")
    out += ["if (err_ == CL_SUCCESS) {", "struct emu_call call_;",
            f"err_ = emu_call_begin(&call_, EMU_FN_{f.name}, device_);"]
    args = ", ".join(["device_"] + [("&err_" if p.name == "errcode_ret" else p.name)
                                    for p in f.params])
    target = f"emu_do_{f.name}" if f.name in HAND else f"do_{f.name}"
    if f.name.startswith("clRelease") and not REFUSED.search(f.name):
        out.append(f"cl_int released_ = {target}({args});")
        out += ["if (err_ == CL_SUCCESS)", "    err_ = released_;"]
    elif f.status:
        out += ["if (err_ == CL_SUCCESS)", f"    err_ = {target}({args});"]
    else:
        out += ["if (err_ == CL_SUCCESS)", f"    ret_ = {target}({args});"]
    out += ["err_ = emu_call_end(&call_, err_);", "}"]
    if f.status:
        out.append("return err_;")
    else:
        out += ["if (errcode_ret != NULL)", "    *errcode_ret = err_;", "return ret_;"]
    return out + ["}", ""]


def inner(function):
    """What the entry does once counted: unwrap, call the driver, wrap."""
    f = function
    out = [f"static {f.returns} do_{f.name}({', '.join(f.inner_params())})", "{"]
    used = set()
    body = []
    fail = "return err_;" if f.status else "{ *errcode_ret = err_; return NULL; }"
    if REFUSED.search(f.name):
        body.append("return CL_INVALID_OPERATION;" if f.status
                    else "*errcode_ret = CL_INVALID_OPERATION; return NULL;")
    elif re.match(r"cl(Retain|Release)", f.name):
        verb = "retain" if "Retain" in f.name else "release"
        used.add(f.params[0].name)
        body.append(f"return emu_object_{verb}(emu_object_of({f.params[0].name}));")
    else:
        used.update(p.name for p in f.params)
        if f.name in BEFORE:
            used.add("device_")
            body.append(f"cl_int err_ = {BEFORE[f.name].replace('device', 'device_')};")
        else:
            body.append("cl_int err_ = CL_SUCCESS;")
        body += [f"if (emu_driver->{f.name} == NULL)", "    err_ = CL_INVALID_OPERATION;",
                 "if (err_ != CL_SUCCESS)", f"    {fail}"]
        args, outputs = [], []
        for p in f.params:
            if p.handle:
                args.append(f"({p.type})emu_real_of({p.name})")
            elif p.array:
                count = array_count(f, p)
                body += [f"struct emu_list {p.name}_ __attribute__((cleanup(emu_list_finish)));",
                         f"err_ = emu_list_init(&{p.name}_, {count}, {p.name}, {KINDS[p.type]});",
                         "if (err_ != CL_SUCCESS)", f"    {fail}"]
                args.append(f"(const {p.type} *)(const void *){p.name}_.real")
            elif p.output:
                if p.type != "cl_event":
                    sys.exit(f"generate.py: {f.name}: {p.name} returns handles; write it by hand")
                outputs.append(p)
                args.append(f"{p.name} != NULL ? &{p.name}_real : NULL")
            elif p.name == "errcode_ret":
                args.append("&err_")
            elif p.callback:
                sys.exit(f"generate.py: {f.name} takes a callback; write it by hand")
            else:
                args.append(p.name)
        parent = next(p.name for p in f.params if p.handle)
        for p in outputs:
            used.add("device_")
            body += [f"cl_event {p.name}_real = NULL;",
                     f"struct emu_object *{p.name}_made = NULL;",
                     f"err_ = emu_event_prepare(device_, {p.name}, {parent}, &{p.name}_made);",
                     "if (err_ != CL_SUCCESS)", f"    {fail}"]
        call = f"emu_driver->{f.name}({', '.join(args)})"
        if f.status:
            body.append(f"err_ = {call};")
        elif f.returns in KINDS:
            used.add("device_")
            body += [f"struct emu_object *made_ = emu_object_new({KINDS[f.returns]}, device_, "
                     f"emu_object_of({parent}));",
                     "if (made_ == NULL) {", "*errcode_ret = CL_OUT_OF_HOST_MEMORY;",
                     "return NULL;", "}", f"made_->real = {call};", "*errcode_ret = err_;",
                     f"return ({f.returns})emu_object_publish(made_, errcode_ret);"]
        else:
            sys.exit(f"generate.py: {f.name} returns {f.returns}; write it by hand")
        for p in outputs:
            body.append(f"emu_event_publish({p.name}_made, {p.name}_real, err_, {p.name});")
        if f.status:
            body.append("return err_;")
    for name in ["device_"] + [p.name for p in f.params]:
        if name not in used:
            out.append(f"(void){name};")
    return out + body + ["}", ""]


def write(path, lines):
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--names", required=True)
    args.add_argument("--header", required=True)
    args.add_argument("--entries", required=True)
    args.add_argument("--slots", required=True)
    args.add_argument("compiler", nargs="+")
    args = args.parse_args()
    text = subprocess.run(args.compiler + ["-E", "-C", "-P", "-DCL_TARGET_OPENCL_VERSION=300",
                                           "-include", "CL/cl_icd.h", "-x", "c", "/dev/null"],
                          check=True, capture_output=True, text=True).stdout
    table = parse(text)
    functions = [f for f in table if isinstance(f, Function)]
    known = {f.name for f in functions}
    stale = (RAW | HAND | set(BEFORE)) - known
    if stale:
        sys.exit(f"generate.py: not in CL/cl_icd.h: {', '.join(sorted(stale))}")

    write(args.names, ["/* Generated by generate.py. */"]
          + [f"[{i}] = \"{f.name}\"," for i, f in enumerate(functions)])
    write(args.slots, [f"{{\"{f.name}\", offsetof(cl_icd_dispatch, {f.name})}},"
                       for f in functions])
    header = ["/* Generated by generate.py. */", "#ifndef EMU_ENTRIES_H", "#define EMU_ENTRIES_H",
              "#include \"tests/emu/call.h\"", "enum emu_function {"]
    header += [f"EMU_FN_{f.name}," for f in functions] + ["EMU_FUNCTIONS", "};"]
    for f in functions:
        if f.name in HAND:
            header.append(f"{f.returns} emu_do_{f.name}({', '.join(f.inner_params())});")
        if f.name in RAW:
            decl = ", ".join(p.decl for p in f.params) or "void"
            header.append(f"{f.returns} CL_API_CALL emu_raw_{f.name}({decl});")
    write(args.header, header + ["#endif"])

    entries = ["/* Generated by generate.py. */", "#include \"emu_entries.h\"",
               "#include \"tests/emu/object.h\"", ""]
    for f in functions:
        if f.name not in RAW:
            entries += (inner(f) if f.name not in HAND else []) + entry(f)
    entries.append("const struct emu_function_info emu_functions[EMU_FUNCTIONS] = {")
    for f in functions:
        host = "true" if HOST.search(f.name) else "false"
        lost = ("CL_DEVICE_NOT_AVAILABLE" if f.name.startswith("clCreate")
                else "CL_OUT_OF_RESOURCES")
        entries.append(f"[EMU_FN_{f.name}] = {{\"{f.name}\", {natural_error(f.name)}, {lost}, "
                       f"{f.since}, {host}}},")
    entries += ["};", "", "const cl_icd_dispatch emu_dispatch = {"]
    for f in functions:
        prefix = "emu_raw_" if f.name in RAW else "entry_"
        entries.append(f".{f.name} = {prefix}{f.name},")
    write(args.entries, entries + ["};"])


if __name__ == "__main__":
    main()
