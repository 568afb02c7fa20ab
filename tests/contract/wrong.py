#!/usr/bin/python3
"""Make random wrong calls natively, under reseat and under reseat with isolated drivers; compare what they answer.

  wrong.py [--vendor NAME] [--first N] [--count N] [--only NAME] PROGRAM

PROGRAM is tests/contract/wrong.c's. Calls in which the driver itself crashes or hangs are not made again. Where
several arguments are wrong any of their errors is right; a call that fails here alone, or alone succeeds, is not.
For a long run: --first with another number each time, and a --count as large as the time allows.
"""

import argparse
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "chaos"))
from lab import Lab, find_reseat  # pylint: disable=wrong-import-position

SKIPPED = 77  # what meson takes for a skipped test
SECONDS = 3600

# Where another answer is right: the vendor ("": any; "isolated": of isolated drivers beside the engine), the call, what
# is in its line before, what ours answers, and why. A call with nothing odd that fails here alone is never right.
KNOWN = [
    ("", "clGet(Context|CommandQueue|MemObject|Sampler|Program|Kernel|Event)Info",
     "param_name=0x(1080|1092|1105|1150|1160|1192|11d2) .*-> 0", "^0", "drivers' own references count natively"),
    ("", "clGetProgramInfo", "param_name=0x1165 .*-> 0", "^0", "binaries are reseat's own"),
    ("", "clCreateContextFromType", "-> NULL", "^made", "all types may be 32 bits, and no platform named"),
    ("", "clEnqueue.*", r"list\[\d\]=#4.*-> 0|num_events_in_wait_list=0 (?!event_wait_list=NULL).*-> 0", "^-57",
     "drivers take wrong wait lists"),
    ("pocl", "clCreateProgramWithIL", "-> NULL error0 -30", "^NULL error0 -59", "it has no IL"),
    ("pocl", "clCreateSamplerWithProperties", "=NULL.*-> NULL", "^made", "a list may be left out"),
    ("pocl", "clCreateSampler.*", "-> made", "^NULL( error0 -30)? finish", "it takes any values"),
    ("pocl", "clEnqueueMap(Buffer|Image)", "map_flags.*-> made", "^NULL error0 -30", "it takes any flags"),
    ("pocl", "clCreateImage.*", "-> NULL error0 -(59|30|61|39|38|37)", "^NULL error0 -(40|65|39|10|30|37)",
     "its errors for extents, pitches and formats"),
    ("pocl", "clCreateImage.*", "-> made", "^NULL( error0 -(40|65|37|30))? finish",
     "it takes pitches and pointers without host memory"),
    ("pocl", "clGetProgramBuildInfo", "param_name=0x1183.*-> -44", "^0", "it has no log where nothing was said"),
    ("pocl", "clGetProgramInfo", "-> -30 size0", "^-30", "it tells the size beside the error"),
    ("pocl", "clGetProgramInfo", "program=#3.*-> -44", "^0", "it does not answer for programs that are not built"),
    ("pocl", "clCreateKernelsInProgram", "kernels=NULL.*-> -30", "^0", "a list may be left out"),
    ("pocl", "clEnqueue(Read|Write)Image", "-> 0", "^-30", "it takes any pitches, and regions of nothing"),
    ("pocl", "clEnqueue(Read|Write|Fill|Copy).*", "-> (0|-34)", "^-38", "it takes images for buffers"),
    ("pocl", "clEnqueueUnmapMemObject", "-> (0|-59)", "^-30", "it takes pointers that are not mapped"),
    ("pocl", "clEnqueueCopy.*", "-> 0", "^-30", "it takes any region, offset and pitch"),
    ("pocl", "clEnqueueCopyBuffer", " size=0 .*-> -30", "^0", "no bytes are no error since 2.1"),
    ("pocl", "clEnqueueMapImage", "image=#5.*-> made", "^made", "it tells no pitch of an image of a buffer"),
    ("pocl", "clGetEventProfilingInfo", "-> 0", "^-30", "it takes any name"),
    ("", "clEnqueue.*", r"list\[\d\]=#2.*-> 0", "^-34", "drivers take events of other contexts"),
    ("isolated", "clEnqueueCopyImage", "-> -38", "^0 event status -38",
     "POCL copies no image of a buffer, as the server says later"),
    ("pocl", "clEnqueue(Read|Write)BufferRect", "-> 0", "^-30", "it takes any pitches of the host's memory"),
    ("pocl", "clEnqueueNDRangeKernel", r"offset=\{0xf.*-> 0", "^-56", "it takes any offset"),
    ("pocl", "clGetSupportedImageFormats", r"flags=0x\w{3,} .*-> 0", "^-30", "it takes any flags"),
    ("pocl", "clLinkProgram", "context=#1 .*-> made", "^NULL( error0 -44)? finish",
     "it takes programs of other contexts"),
    ("pocl", "clGetImageInfo", "-> 0", "^-38", "it takes buffers for images"),
    ("", "clSetKernelArg", "-> 0", "^-(38|41|50|51)", "drivers take objects of any kind, and values of any size"),
    ("pocl", "clCreateCommandQueue.*", "-> made", "^NULL( error0 -(30|35))? finish", "it takes any properties"),
    ("pocl", "clCreateContextFromType", "-> made error0 -1 ", "^NULL error0 -1 ", "it makes a context of no devices"),
    ("pocl", "clCreateContext.*", "-> (made|NULL error0 -32)", "^NULL( error0 -64)? finish",
     "it takes any properties"),
    ("pocl", "clCreate(Sub)?Buffer.*", "-> made", "^NULL( error0 -30)? finish", "it takes any flags"),
    ("", "clCreate(Sub)?Buffer.*", "-> NULL error0 -(37|13)", "^NULL error0 -30", "two errors of one argument"),
    ("pocl", "clCreateProgramWithBuiltInKernels", "names='' .*-> made", "^NULL( error0 -30)? finish",
     "it takes the names of none"),
    ("", "clCreateKernel(sInProgram)?", "program=#[123].*-> (0|NULL error0 -46)", "^(-45|NULL error0 -45)",
     "drivers find no kernels in a program that is not built"),
    ("pocl", "clCompileProgram", "num_input_headers=0 .*-> 0", "^-30", "it takes names of no headers"),
    ("pocl", "clCreateProgramWithBinary", "-> NULL( error0 -(30|33))? ", "^NULL( error0 -(30|42))? ",
     "it tells no status of a binary that is missing"),
    ("pocl", "clEnqueue.*", "=#1.*status 3", "event status -14 ",
     "its commands do not end after an event that failed"),
    ("pocl", "clEnqueueNDRangeKernel", "local_work_size=NULL.*-> -54", "^0",
     "the kernel's own size is taken since 2.0"),
    ("rusticl", "clCreateImage.*", "-> NULL error0 -(30|37|38|39|40|59|61|65)", "^NULL error0 -(10|30|37|39|40|65)",
     "its errors for extents, pitches and formats"),
    ("rusticl", "clCreateCommandQueue.*", "-> NULL error0 -(30|35|64)", "^NULL error0 -(30|35)",
     "two errors of one argument"),
    ("rusticl", "clEnqueue(Read|Write|Fill)(Image|BufferRect)", "-> 0", "^-(30|38)",
     "it takes any region and pitch, and images for buffers"),
    ("rusticl", "clEnqueue(Read|Write)(Image|BufferRect)", "blocking_\\w+=0x1 .*-> 0 event status -6",
     "^-14 event status -6", "a blocking call does not say that its command failed: for a pitch that one row does not use"),
    ("isolated", "clEnqueue(Read|Write)Image", "blocking_\\w+=0x1 .*-> -14 event status -6", "^0 event status 0",
     "rusticl fails for a pitch that one row does not use, and is not given it"),
    ("rusticl", "clEnqueueCopy.*", "-> -34", "^-38", "two errors of an image for a buffer"),
    ("rusticl", "clLinkProgram", "context=#1 .*-> made", "^NULL( error0 -44)? finish",
     "it takes programs of other contexts"),
    ("rusticl", "clGetProgramInfo", "param_name=0x116[78] .*-> 0", "^-45",
     "it has no kernels where nothing was built"),
    ("rusticl", "clEnqueueMarker", "event=NULL.*-> 0", "^-30", "it takes no event"),
    ("rusticl", "clEnqueueMapImage", "-> made", "size1 0|^NULL( error0 -30)? ",
     "it tells no slice pitch, and takes any region"),
    ("rusticl", "clEnqueue(Map|Read|Write).*", r"blocking_\w+=0x2 .*-> (NULL error0 )?-30", "^(0|made)",
     "any number but 0 stands for true"),
    ("rusticl", "clGetSupportedImageFormats", "-> 0", "^0", "it writes more than it was given room for"),
    ("rusticl", "clGetSupportedImageFormats", "-> -30", "^0", "it has no such flags"),
    ("rusticl", "clGetEventProfilingInfo", "-> -7", "^-30", "two errors of one call"),
    ("rusticl", "clGetContextInfo", "0x1082 .*-> 0", "^0", "no list is none"),
    ("rusticl", "clCreateSubBuffer", "-> NULL error0 -30", "^NULL error0 -38", "two errors of an image for a buffer"),
    ("rusticl", "clCreateSubBuffer", "-> made", "^NULL( error0 -(13|38))? finish",
     "it takes any origin, and images for buffers"),
    ("rusticl", "clEnqueueCopy.*", "-> 0", "^-(30|38)", "it takes any offsets and pitches, and images for buffers"),
    ("rusticl", "clCreateProgramWithIL", "-> NULL error0 -30", "^NULL error0 -59", "it has no IL here"),
    ("rusticl", "clCreateSampler.*", "-> made", "^NULL( error0 -30)? finish", "it takes any values"),
    ("rusticl", "clGetImageInfo", "-> 0", "^-38", "it takes buffers for images"),
    ("rusticl", "clCompileProgram", "options='-.*-> -15", "^-66", "it finds options wrong when it compiles"),
    ("rusticl", "clEnqueueTask", "-> -57", "^-54", "two errors of one call"),
]


def parse(text):
    """(number, odd arguments, call, arguments, answers) of each line; None for one in which the call crashed."""
    calls = {}
    for line in text.splitlines():
        number, rest = line.split(" ", 1)
        if rest.startswith("crashed"):
            calls[int(number)] = None
            continue
        odd, call, rest = (rest + " ").split(" ", 2)
        arguments, _, answers = rest.rpartition("-> ")
        calls[int(number)] = (int(odd), call, arguments, answers.strip())
    return calls


def error_of(answers):
    """The first error of an answer; 0 where the call succeeded."""
    errors = [int(word) for word in re.findall(r"(?:^|error0 |status |finish )(-\d+)", answers)]
    if answers.startswith("NULL") and not errors:
        return "NULL"
    return errors[0] if errors else 0


def known(vendor, call, native, ours):
    if native[0] == 0 and not error_of(native[3]) and error_of(ours[3]):
        return False
    for of, name, theirs, mine, _ in KNOWN:
        if (of == vendor or (not of and vendor != "isolated")) and re.fullmatch(name, call) and re.search(
                theirs, native[2] + "-> " + native[3]) and re.search(mine, ours[3]):
            return True
    return False


def differs(vendor, native, ours):
    if ours is None:
        return True
    odd, _, _, answers = native
    if answers == ours[3] or known(vendor, native[1], native, ours):
        return False
    return not (odd > 1 and error_of(answers) and error_of(ours[3]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--vendor", default="pocl")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--only", help="part of the names of calls")
    parser.add_argument("--keep", help="folder for what was printed")
    parser.add_argument("program")
    options = parser.parse_args()
    reseat = find_reseat()
    if not reseat:
        return SKIPPED
    wrong = 0
    with Lab([options.vendor], reseat, program=[options.program]) as lab:
        skipped = lab.path("skipped")
        only = [options.only] if options.only else []
        program = [options.program, str(options.first), str(options.count)]

        def run(name, *command):
            with open(lab.path("stderr"), "wb") as log:
                done = subprocess.run([*command, *program, skipped, *only], env=lab.env, stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=log, check=False, timeout=SECONDS)
            if options.keep:
                with open(os.path.join(options.keep, name), "wb") as file:
                    file.write(done.stdout)
            if done.returncode:
                with open(lab.path("stderr"), errors="replace", encoding="utf-8") as file:
                    sys.exit(f"{name}: status {done.returncode}: {file.read()[-2000:]}")
            return parse(done.stdout.decode())

        native = run("native")
        with open(skipped, "w", encoding="utf-8") as file:
            file.writelines(f"{number}\n" for number, call in native.items() if call is None)
        device = lab.devices()[0]
        engine = None
        for name, more in {"engine": [], "isolated": ["--isolate"]}.items():
            command = lab.run_command("wrong", device)
            command[-1:-1] = more
            ours = run(name, *command)
            for number, call in native.items():
                got = ours.get(number)
                as_engine = engine and got == engine.get(number)
                wanted = engine.get(number) if engine else call
                if call and not as_engine and (not wanted or differs(name if engine else options.vendor, wanted, got)):
                    wrong += 1
                    print(f"{number} {call[1]} {call[2]}\n  native {call[3]}")
                    if engine and engine.get(number):
                        print(f"  engine {engine[number][3]}")
                    print(f"  {name} {got[3] if got else 'crashed'}")
            engine = ours
        made = sum(call is not None for call in native.values())
        crashed = len(native) - made
        print(f"{made} calls made three times, {crashed} that crash natively left out: {wrong} differences")
        if len(native) != options.count or crashed > options.count / 10:
            sys.exit("too few calls were compared")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
