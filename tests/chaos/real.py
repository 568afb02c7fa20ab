#!/usr/bin/python3
"""Debian's own OpenCL programs, natively and under reseat while they are moved.

  real.py [options] clinfo|clpeak|x264|avgblur|unsharp [...]

clinfo: under reseat it shows what it shows a second time, and every platform line is there.
clpeak: it completes. x264: the video decodes, all frames are there, PSNR is within
X264_PSNR_DB of the native one's and size within X264_SIZE. avgblur, unsharp: between POCL's
devices frame checksums are the native ones; across vendors PSNR against the native frames is
at least FILTER_PSNR_DB, since float rounding differs there natively too.
"""

import argparse
import os
import re
import subprocess
import sys

from lab import SKIPPED, Lab, Mover, Patience, TIMES, find_reseat

X264_PSNR_DB = 1.0
X264_SIZE = 0.10
FILTER_PSNR_DB = 40.0
SIZE = "640x360"
RATE = 25
FILTERS = {"avgblur": "avgblur_opencl=sizeX=5", "unsharp": "unsharp_opencl=la=1.5"}


class Failed(Exception):
    """A comparison that did not hold."""


def check(holds, what):
    if not holds:
        raise Failed(what)


def quietly(lab, command, **kwargs):
    run = subprocess.run(command, env=lab.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, check=False, **kwargs)
    check(run.returncode == 0, f"{command[0]} ended with {run.returncode}: "
                               f"{run.stderr[-500:].decode(errors='replace')}")
    return run.stdout


def under(lab, options, name, command, present=None, moves=None):
    """Run @command under reseat with moves; its standard output."""
    moves = options.moves if moves is None else moves
    devices = options.devices.split(",") if options.devices else lab.devices()
    with open(lab.path(name + ".out"), "wb") as out, open(lab.path(name + ".err"), "wb") as err:
        process = lab.start(lab.run_command(name, devices[0], present) + command, out, err)
        mover = Mover(lab, process.pid, devices, options.seed, (0.05, 0.3))
        if moves:
            mover.start()
        status, why = Patience(process.pid, options.seconds).wait(process)
        if moves:
            mover.stop()
    with open(lab.path(name + ".err"), "rb") as file:
        errors = file.read()
    check(status == 0, f"{name} under reseat {why or f'ended with {status}'}"
                       f"{mover.told()}; it wrote: {errors[-800:].decode(errors='replace')!r}")
    if moves:
        print(f"  {mover.moves()} moves, {mover.counts['refused']} refused, "
              f"{mover.counts['rolled back']} rolled back")
        for reason, n in mover.reasons.items():
            print(f"  {n} times: {reason}")
        check(mover.moves() >= moves, f"{mover.moves()} moves made of {moves} asked for")
    with open(lab.path(name + ".out"), "rb") as file:
        return file.read()


def clinfo(lab, options):
    native = quietly(lab, ["clinfo"]).decode(errors="replace")
    first = under(lab, options, "clinfo", ["clinfo"], moves=0).decode(errors="replace")
    second = under(lab, options, "clinfo", ["clinfo"], moves=0).decode(errors="replace")
    check(first == second, "two runs of clinfo under reseat differ")
    for field in ("Platform Name", "Device Name", "Max compute units", "Global memory size"):
        check(field in native and field in first, f"clinfo does not show {field}")
    check("ERROR" not in first.upper().replace("ERROR_CORRECTION", "").replace(
        "ERROR CORRECTION", ""), "clinfo shows an error")


def clpeak(lab, options):
    command = ["clpeak", "--kernel-latency", "--transfer-bandwidth"]
    got = under(lab, options, "clpeak", command, moves=0).decode(errors="replace")
    for field in ("Transfer bandwidth", "Kernel launch latency"):
        check(field in got, f"clpeak does not show {field}")


def source(lab, frames):
    """A generated video, uncompressed; its path."""
    path = lab.path(f"source-{frames}.y4m")
    if not os.path.exists(path):
        quietly(lab, ["ffmpeg", "-v", "error", "-f", "lavfi", "-i",
                      f"testsrc2=size={SIZE}:rate={RATE}", "-frames:v", str(frames),
                      "-pix_fmt", "yuv420p", path])
    return path


def frames_of(lab, path):
    out = quietly(lab, ["ffmpeg", "-v", "error", "-i", path, "-f", "framemd5", "-"])
    return sum(1 for line in out.splitlines() if line and not line.startswith(b"#"))


def psnr(lab, one, two):
    run = subprocess.run(["ffmpeg", "-v", "info", "-i", one, "-i", two, "-lavfi", "psnr",
                          "-f", "null", "-"], env=lab.env, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    found = re.search(rb"PSNR.*average:(\S+)", run.stderr)
    check(found is not None, "ffmpeg measured no PSNR")
    return float(found.group(1))


def x264(lab, options):
    raw = source(lab, options.frames)
    native, moved = lab.path("native.264"), lab.path("moved.264")
    command = ["x264", "--opencl", "--quiet", "--no-progress", "--bitrate", "1000",
               "--opencl-clbin"]
    quietly(lab, [*command, lab.path("native.clbin"), "-o", native, raw])
    under(lab, options, "x264", [*command, lab.path("moved.clbin"), "-o", moved, raw], "gpu")
    check(frames_of(lab, moved) == options.frames, "frames are missing")
    quality = psnr(lab, moved, raw) - psnr(lab, native, raw)
    size = os.path.getsize(moved) / os.path.getsize(native) - 1
    print(f"  PSNR {quality:+.2f} dB, size {size:+.1%} against native")
    check(abs(quality) <= X264_PSNR_DB, f"PSNR differs by {quality:.2f} dB")
    check(abs(size) <= X264_SIZE, f"size differs by {size:.1%}")


def opencl_filter(lab, options, name):
    def command(*output):
        return ["ffmpeg", "-v", "error", "-y", "-init_hw_device", "opencl=ocl:0.0",
                "-filter_hw_device", "ocl", "-f", "lavfi", "-i",
                f"testsrc2=size={SIZE}:rate={RATE}", "-frames:v", str(options.frames),
                "-vf", f"format=yuv420p,hwupload,{FILTERS[name]},hwdownload,format=yuv420p",
                *output]
    if options.vendors == "pocl":
        native = quietly(lab, command("-f", "framemd5", "-"))
        got = under(lab, options, name, command("-f", "framemd5", "-"))
        check(got == native, "frame checksums differ")
        return
    native, moved = lab.path(name + "-native.y4m"), lab.path(name + "-moved.y4m")
    quietly(lab, command(native))
    under(lab, options, name, command(moved))
    check(frames_of(lab, moved) == options.frames, "frames are missing")
    quality = psnr(lab, moved, native)
    print(f"  PSNR {quality:.1f} dB against native")
    check(quality >= FILTER_PSNR_DB, f"PSNR {quality:.1f} dB is below {FILTER_PSNR_DB}")


TESTS = {"clinfo": clinfo, "clpeak": clpeak, "x264": x264,
         "avgblur": lambda lab, options: opencl_filter(lab, options, "avgblur"),
         "unsharp": lambda lab, options: opencl_filter(lab, options, "unsharp")}


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--reseat")
    parser.add_argument("--vendors", default="pocl", help="pocl, or pocl,rusticl")
    parser.add_argument("--devices", default="")
    parser.add_argument("--moves", type=int, default=5, help="moves to be made at least")
    parser.add_argument("--frames", type=int, default=200 * TIMES)
    parser.add_argument("--seconds", type=float, default=300, help="of processor time, give up after")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("test", nargs="+", choices=sorted(TESTS))
    options = parser.parse_args(argv)
    reseat = find_reseat(options.reseat)
    if not reseat:
        print("real: no reseat command (--reseat, $RESEAT)", file=sys.stderr)
        return SKIPPED
    failed = 0
    with Lab(options.vendors.split(","), reseat, options.keep, program=options.test) as lab:
        for test in options.test:
            print(f"{test}:")
            try:
                TESTS[test](lab, options)
                print("  same")
            except Failed as failure:
                failed += 1
                print(f"  WRONG: {failure}")
        if options.keep:
            print(f"kept in {lab.folder}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
