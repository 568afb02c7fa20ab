#!/usr/bin/python3
"""Write a dispatch table that stands in for a driver's from the typedefs of CL/cl_icd.h.

  generate_calls.py lost|locked OUTPUT COMPILER...

lost: of a driver whose device is lost. No function of it reaches a driver. Releases and retains
succeed, and so do arguments of kernels, which a driver keeps on the host; a wait says that a
command ended in error; all else fails with CL_OUT_OF_RESOURCES.
locked: each function is the driver's own, called between locked_enter() and locked_leave().
"""

import re
import subprocess
import sys

SUCCEED = re.compile(r"cl(Retain|Release)|clSetKernel(Arg|ExecInfo)")
# What a driver that answers is still told: what is no longer needed there.
STILL_CALLED = re.compile(r"cl(Retain|Release)|clSetMemObjectDestructorCallback")


def split(text):
    """Parameters, at the commas outside of parentheses."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += {"(": 1, ")": -1}.get(c, 0)
        if c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return parts + [text[start:]]


def named(parameter, index):
    """The parameter, without its own name where the header gives it one only in some places."""
    parameter = re.sub(r"\s+", " ", parameter).strip()
    if "(" in parameter:  # a pointer to a function
        return re.sub(r"\(\s*(CL_CALLBACK\s*)?\*\s*\w*\s*\)", f"(*p{index})", parameter, count=1)
    array = "*" if parameter.endswith("]") else ""
    parameter = re.sub(r"\s*\[\w*\]$", "", parameter)
    words = re.findall(r"\w+|\*", parameter)
    types = {"const", "unsigned", "int", "void", "char", "size_t", "intptr_t", "float", "double"}
    last = words[-1]
    is_type = last == "*" or last in types or (
        len([w for w in words if w not in ("const", "*")]) == 1)
    if not is_type:
        parameter = parameter[: parameter.rindex(last)].strip()
    return f"{parameter} {array}p{index}"


def value(name, returns):
    if returns != "cl_int":
        return "" if returns == "void" else "return NULL;"
    if SUCCEED.match(name):
        return "return CL_SUCCESS;"
    if name == "clWaitForEvents":
        return "return CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;"
    return "return CL_OUT_OF_RESOURCES;"


def calls(compiler):
    """(what it returns, its name, its parameters' types, its member of the table), for each call."""
    text = subprocess.run(compiler + ["-E", "-P", "-x", "c", "-"], input="#include <CL/cl_icd.h>\n",
                          capture_output=True, text=True, check=True).stdout
    text = re.sub(r"__attribute__\s*\(\(.*?\)\)", "", text)
    table = text[text.index("struct _cl_icd_dispatch {"):]
    members = dict(re.findall(r"cl_api_(\w+)\s+(\w+);", table[: table.index("} cl_icd_dispatch")]))
    for match in re.finditer(r"typedef\s+([\w\s]+?\**)\s*\(\s*\*\s*cl_api_(\w+)\s*\)\s*\((.*?)\)\s*;",
                             text, re.S):
        returns, name = " ".join(match.group(1).split()), match.group(2)
        if name in members:
            parameters = [] if match.group(3).strip() == "void" else split(match.group(3))
            yield returns, name, parameters, members[name]


def head(parameters):
    return ", ".join(named(p, i) for i, p in enumerate(parameters)) or "void"


def write_lost(file, found):
    rows = []
    for returns, name, parameters, member in found:
        unused = [f"(void)p{i};" for i in range(len(parameters))]
        # What is made says by its last parameter why it is not.
        if returns not in ("cl_int", "void") and parameters and re.search(
                r"cl_int\s*\*\s*(errcode_ret)?$", parameters[-1].strip()):
            unused[-1] = f"if (p{len(parameters) - 1}) *p{len(parameters) - 1} = CL_OUT_OF_RESOURCES;"
        file.write(f"static {returns} lost_{name}({head(parameters)}) {{ {' '.join(unused)} "
                   f"{value(name, returns)} }}\n")
        rows.append(f"    .{member} = lost_{name},\n")
    file.write("\nconst cl_icd_dispatch driver_lost = {\n" + "".join(rows) + "};\n\n")
    file.write("void driver_lost_answers(const cl_icd_dispatch *driver, cl_icd_dispatch *ret_table)\n"
               "{\n    *ret_table = driver_lost;\n")
    for _, name, _, member in sorted(found, key=lambda call: call[1]):
        if STILL_CALLED.match(name):
            file.write(f"    ret_table->{member} = driver->{member};\n")
    file.write("}\n")


def write_locked(file, found):
    rows = []
    file.write("static const cl_icd_dispatch *own;\n\n")
    for returns, name, parameters, member in found:
        arguments = ", ".join(f"p{i}" for i in range(len(parameters)))
        keep, give = ("", "") if returns == "void" else (f"{returns} answer = ", " return answer;")
        file.write(f"static {returns} locked_{name}({head(parameters)}) {{ locked_enter(); "
                   f"{keep}own->{member}({arguments}); locked_leave();{give} }}\n")
        rows.append(f"    if (driver->{member})\n        ret_table->{member} = locked_{name};\n")
    file.write("\nvoid locked_fill(const cl_icd_dispatch *driver, cl_icd_dispatch *ret_table)\n"
               "{\n    own = driver;\n" + "".join(rows) + "}\n")


def main():
    kind, output, compiler = sys.argv[1], sys.argv[2], sys.argv[3:]
    found = list(calls(compiler))
    with open(output, "w", encoding="utf-8") as file:
        header = "lost_calls" if kind == "lost" else "locked"
        file.write(f"/* Generated by generate_calls.py. */\n#include \"state/driver/{header}.h\"\n\n")
        (write_lost if kind == "lost" else write_locked)(file, found)


main()
