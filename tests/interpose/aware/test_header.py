#!/usr/bin/python3
"""
What is installed of reseat.h is enough to build a program, in C and C++, that runs without reseat.

    test_header.py MESON BUILD PROGRAM [LIBRARY]

With LIBRARY, libreseat.so, it also runs with that.
"""

import glob
import os
import subprocess
import sys
import tempfile

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
COMPILERS = {"gcc": ("c", "c11"), "clang": ("c", "c11"), "g++": ("c++", "c++17"),
             "clang++": ("c++", "c++17")}
TEXT = "the program does not run under reseat"
NATIVE = f"{'-1 ' * 9}-1: {TEXT}\n"
# Registered once, no agent to hear the wish, unregistered once; no image that is made or read, and no
# object and no kernel; no driver to run on.
UNDER = f"0 -5 -7 0 -6 -10 -13 -3 -3 -9: {TEXT}\n"


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}: {got!r}, not {wanted!r}")


def output(command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True,
                          env=dict(os.environ, **more)).stdout


def main():
    meson, build, program = sys.argv[1:4]
    library = sys.argv[4] if len(sys.argv) > 4 else None
    with tempfile.TemporaryDirectory(prefix="reseat-header-") as folder:
        output([meson, "install", "-C", build, "--no-rebuild", "--tags", "devel", "--destdir",
                folder])
        pc = glob.glob(os.path.join(folder, "**", "reseat.pc"), recursive=True)
        expect("reseat.pc", len(pc), 1)
        where = {"PKG_CONFIG_PATH": os.path.dirname(pc[0]), "PKG_CONFIG_SYSROOT_DIR": folder}
        flags = output(["pkg-config", "--cflags", "--libs", "reseat"], **where).split()
        for compiler, (language, standard) in COMPILERS.items():
            built = os.path.join(folder, compiler)
            output([compiler, "-x", language, f"-std={standard}", *WARNINGS, program, "-x", "none",
                    "-o", built, *flags])
            expect(f"{compiler}: natively", output([built]), NATIVE)
            if library:
                none = os.path.join(folder, "no-vendors")
                os.makedirs(none, exist_ok=True)
                expect(f"{compiler}: under reseat",
                       output([built], LD_PRELOAD=library, RESEAT_ICD_VENDORS=none), UNDER)


if __name__ == "__main__":
    main()
