#!/usr/bin/python3
"""What real programs need of a device's memory at most, and how much of each model's that is.

  census.py [--programs NAME,...] [--models FILE] [--vendors NAME,...]

Each program that is installed (scripts/setup census) runs once under reseat, one after the other; then
`reseat report --census` prints the table, as figure 1 of the paper on heterogeneous GPU reallocation draws it.
Darktable uses no device of POCL 3.1, natively neither: it leaves out CPUs, and presented as a GPU its kernels do not build there.
"""

import argparse
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "chaos")]

from lab import Lab, find_reseat  # noqa: E402

SECONDS = 600
VIDEO = ["ffmpeg", "-v", "error", "-y", "-f", "lavfi", "-i", "testsrc2=size=1920x1080:rate=25", "-frames:v", "50"]
# Argon: as many atoms as a small protein in water has.
OPENMM = """
import openmm
side, apart = 24, 0.4
system, force = openmm.System(), openmm.NonbondedForce()
force.setNonbondedMethod(openmm.NonbondedForce.CutoffPeriodic)
system.setDefaultPeriodicBoxVectors(*[[side * apart * (i == j) for i in range(3)] for j in range(3)])
for _ in range(side ** 3):
    system.addParticle(39.9)
    force.addParticle(0, 0.34, 0.98)
system.addForce(force)
context = openmm.Context(system, openmm.VerletIntegrator(0.002), openmm.Platform.getPlatformByName("OpenCL"))
context.setPositions([[apart * (i // side ** j % side) for j in range(3)] for i in range(side ** 3)])
context.getIntegrator().step(10)
"""


def programs(folder):
    """Each with its command and what makes its input."""
    video, picture = os.path.join(folder, "in.y4m"), os.path.join(folder, "in.png")
    make_video = VIDEO + ["-pix_fmt", "yuv420p", video]
    make_picture = VIDEO[:-1] + ["1", picture]

    def filtered(name):
        return VIDEO[:4] + ["-init_hw_device", "opencl=ocl:0.0", "-filter_hw_device", "ocl"] + VIDEO[4:] + [
            "-vf", f"format=yuv420p,hwupload,{name},hwdownload,format=yuv420p", "-f", "null", "-"]

    return {
        "x264": (["x264", "--opencl", "--quiet", "--no-progress", "--opencl-clbin", os.path.join(folder, "clbin"),
                  "-o", os.devnull, video], make_video),
        "ffmpeg-unsharp": (filtered("unsharp_opencl=la=1.5"), None),
        "ffmpeg-nlmeans": (filtered("nlmeans_opencl=s=2:p=3:r=5"), None),
        "hashcat": (["hashcat", "--force", "--potfile-disable", "--self-test-disable", "-m", "0", "-a", "3", "-n", "1",
                     "-u", "64", "--runtime", "5", "0" * 32, "?l?l?l?l?l?l"], None),
        "clblast-test": (["clblast_test_xgemm"], None),
        "openmm": (["/usr/bin/python3", "-c", OPENMM], None),
        "darktable": (["darktable-cli", picture, os.path.join(folder, "out.png"), "--core", "--configdir",
                       os.path.join(folder, "darktable"), "--conf", "opencl=TRUE"], make_picture),
        "clpeak": (["clpeak", "--global-bandwidth"], None),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--programs", default="")
    parser.add_argument("--models")
    parser.add_argument("--vendors", default="pocl")
    options = parser.parse_args()
    reseat = find_reseat()
    if not reseat:
        sys.exit("census: no reseat command (scripts/build, or $RESEAT)")
    with Lab(options.vendors.split(","), reseat) as lab:
        device = lab.devices()[0]
        known = programs(lab.folder)
        for name in options.programs.split(",") if options.programs else known:
            if name not in known:
                sys.exit(f"census: {name}: the programs are {', '.join(known)}")
            command, make = known[name]
            if not shutil.which(command[0]):
                print(f"{name}: not installed (scripts/setup census)", file=sys.stderr)
                continue
            if make and not os.path.exists(make[-1]):
                subprocess.run(make, check=True, stdin=subprocess.DEVNULL)
            with open(lab.path(name + ".log"), "wb") as log:
                process = lab.start(lab.run_command(name, device, "gpu") + command, log, log)
                try:
                    status = process.wait(SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    status = f"no end after {SECONDS} s"
            # Hashcat ends with 4 when its time is over.
            if status not in (0, 4):
                with open(lab.path(name + ".log"), "rb") as log:
                    print(f"{name}: {status}: {log.read()[-300:].decode(errors='replace')}", file=sys.stderr)
        command = [reseat, "report", "--census"] + (["--models", options.models] if options.models else [])
        return subprocess.run(command, env=lab.env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
