#!/usr/bin/python3
"""The five published systems that reseat's ideas come from: a small run of each, beside what is published.

doc/papers.md says what each paper claims, and how the figures there were measured. These runs take seconds, on emulated
devices and this machine's processors: they show the mechanisms at work, and every result is compared.
"""

import argparse
import os
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


def runs(build):
    """What each paper claims, and the command that shows it."""
    def bench(name, *words):
        return [sys.executable, os.path.join(ROOT, "tests", "bench", name + ".py"), *words]

    reseat = os.path.join(build, "agent", "reseat")
    return (
        ("Live migration for OpenCL accelerators: a long kernel that loses its device goes on from inside",
         bench("midlaunch", "--seconds", "4", "--rounds", "1")),
        ("Network-attached accelerators: a program's binary leaves its host once, however many devices need it",
         bench("many", "--build", build, "program", "--counts", "1,5", "--mb", "2", "--build-ms", "300")),
        ("Pipelined transfers: seven stages at once, with payloads of their own",
         bench("stream", "--build", build, "--emulated", "--seconds", "0.2", "--kernels", "aes")),
        ("Heterogeneous reallocation: programs need little of a device's memory",
         bench("census", "--programs", "x264")),
        ("Energy-aware placement: its scheduler and reseat's on the same inputs",
         [reseat, "simulate", "--published", "hype"]),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--output", help="not used: it draws nothing")
    options = parser.parse_args()
    env = dict(os.environ, RESEAT=os.path.join(os.path.abspath(options.build), "agent", "reseat"),
               EMU_LIBRARY=os.path.join(os.path.abspath(options.build), "tests", "emu", "libreseat-emu.so"))
    failed = []
    for claim, command in runs(os.path.abspath(options.build)):
        print(f"\n== {claim}", flush=True)
        if subprocess.run(command, env=env, stdin=subprocess.DEVNULL, check=False).returncode != 0:
            failed.append(claim)
    for claim in failed:
        print(f"FAILED: {claim}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
