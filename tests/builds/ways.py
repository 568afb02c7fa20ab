#!/usr/bin/python3
"""The ways in which others build reseat, without a warning.

  ways.py MESON BUILD WAY

BUILD is a build folder of the tree. WAY is one of

  packages  Debian's packages, of objects that the normal build has, little compressed: they are hardened,
            libraries that programs load bring no OpenSSL, and what they install runs, also from
            elsewhere. Root tries them on a machine of their own as well (installed.sh); with TEST_TIMES
            above 1 they are built as they are for users, twice
  bare      it is configured where neither x264 nor an OpenCL loader is, and builds no test
  clang     clang compiles every file
  arm64     gcc for arm64 compiles every file of the product. Nothing is linked or run: of the
            libraries only the headers are there, those of this machine, behind the C library's of
            the other
  narrow    where addresses have 32 bits the compiler says that it cannot be
"""

import concurrent.futures
import functools
import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
PRODUCT = ("agent", "interpose", "policy", "remote", "state")
KEPT = ("-I", "-D", "-W", "-f", "-std", "-pthread")
MACHINES = re.compile(r"__(aarch64|x86_64|i386|arm\w*)__|\b(asm|__asm__|__builtin_ia32\w*)\b")
DROPPED = ("-fsanitize", "-fdiagnostics", "-fcolor", "-fno-sanitize", "-fcf-protection",
           "-D_FORTIFY_SOURCE", "-W,")
FILES_AT_ONCE = 16
CACHED = dict(os.environ, CCACHE_NOHASHDIR="1", CCACHE_DEPEND="1")  # as scripts/build has it


def fail(why):
    sys.exit(f"ways: {why}")


def run(*command, **more):
    """Its output; with all of that, the end when it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, **more)
    if done.returncode:
        fail(f"{shlex.join(command)}: status {done.returncode}\n{done.stdout}")
    return done.stdout


def check_hardening(tree):
    """Of each program and library in the tree; and which of them need the system's OpenSSL."""
    openssl = set()
    for path in glob.glob(os.path.join(tree, "**"), recursive=True):
        name = os.path.basename(path)
        if os.path.islink(path) or not os.path.isfile(path) or open(path, "rb").read(4) != b"\x7fELF":
            continue
        told = run("readelf", "-W", "--dynamic", "--segments", "--dyn-syms", path)
        for what in ("GNU_RELRO", r"\(FLAGS_1\).* NOW", "__stack_chk_fail", r"__\w+_chk@",
                     r"\(SONAME\)" if ".so" in name else r"\(FLAGS_1\).* PIE"):
            if not re.search(what, told):
                fail(f"{name} is not hardened: there is no {what}")
        if re.search(r"\(NEEDED\).*\blib(ssl|crypto)\.so", told):
            openssl.add(name)
    if openssl != {"reseat", "reseat-serve", "reseat-streamd", "reseat-watch"}:
        fail(f"these need the system's OpenSSL: {sorted(openssl)}")


def complete(usr, line):
    """What each shell offers for a @line; reseat is what is installed in @usr."""
    share = os.path.join(usr, "share")
    env = dict(os.environ, PATH=os.path.join(usr, "bin") + ":" + os.environ["PATH"])
    words = line.split(" ")
    zsh = f"""compadd() {{ while [[ $1 != -- ]]; do shift; done; shift; print -l -- $@ }}
        fpath=({share}/zsh/vendor-completions) words=({shlex.join(words[:-1])} {shlex.quote(words[-1])})
        CURRENT={len(words)} PREFIX={shlex.quote(words[-1])}; autoload -U _reseat; _reseat"""
    fish = f"source {share}/fish/vendor_completions.d/reseat.fish; complete -C {shlex.quote(line)}"
    return {shell: sorted(word.split("\t")[0] for word in run(*command, env=env).split("\n") if word)
            for shell, command in {
                "bash": ("bash", os.path.join(share, "bash-completion", "completions", "reseat.bash"), line),
                "zsh": ("zsh", "-fc", zsh), "fish": ("fish", "-N", "-c", fish)}.items()}


def packages(_, build):
    whole = int(os.environ.get("TEST_TIMES", "1")) > 1
    env = CACHED if whole else dict(
        CACHED, DEB_CFLAGS_SET="", DEB_CPPFLAGS_SET="", MESON_OPTIONS="--werror",
        DEB_BUILD_OPTIONS="noautodbgsym", DPKG_DEB_COMPRESSOR_TYPE="gzip", DPKG_DEB_COMPRESSOR_LEVEL="1")
    with tempfile.TemporaryDirectory(prefix="reseat-packages-") as tree:
        debs = os.path.join(tree, "debs")
        print(run(os.path.join(SOURCE, "scripts", "package"), debs, *["--twice"] * whole, env=env))
        for deb in glob.glob(os.path.join(debs, "*.deb")):
            run("dpkg-deb", "--extract", deb, tree)
        usr = os.path.join(tree, "usr")
        check_hardening(usr)
        for line, expected in {"reseat mo": ["move"], "reseat run --present=g": ["--present=gpu"],
                               "reseat config validate /proc/self/oom_score_": ["/proc/self/oom_score_adj"],
                               "reseat restore /proc/sel": ["/proc/self/"], "reseat version nothing": []}.items():
            for shell, offered in complete(usr, line).items():
                if offered != expected:
                    fail(f"{shell}: {line}: {offered}")
        # It starts the agent, which starts the lister, and is preloaded into a program: each was
        # found.
        print(run(os.path.join(SOURCE, "tests", "chaos", "chaos.py"), "--reseat",
                  os.path.join(usr, "bin", "reseat"), "--vendors", "pocl", "--moves", "2", "--",
                  os.path.join(build, "tests", "programs", "longmap")))
        if os.geteuid() == 0:
            shutil.copy(os.path.join(build, "tests", "programs", "busy"), debs)
            print(run(os.path.join(SOURCE, "scripts", "fresh"), "packages", debs))


def bare(meson, _):
    """What pkg-config finds is this machine's, less what only tests need."""
    where = run("pkg-config", "--variable=pc_path", "pkg-config").strip().split(":")
    with tempfile.TemporaryDirectory(prefix="reseat-bare-") as folder:
        known = os.path.join(folder, "known")
        os.mkdir(known)
        for path in filter(os.path.isdir, where):
            for name in os.listdir(path):
                link = os.path.join(known, name)
                if not name.startswith(("x264", "OpenCL", "ocl")) and not os.path.exists(link):
                    os.symlink(os.path.join(path, name), link)
        env = dict(os.environ, PKG_CONFIG_LIBDIR=known)
        built = os.path.join(folder, "built")
        for how in ("-Dtests=auto",), ("-Dtests=disabled", "--reconfigure"):
            run(meson, "setup", "--werror", *how, built, SOURCE, env=env)
            with open(os.path.join(built, "meson-info", "intro-targets.json"), encoding="utf-8") as file:
                targets = json.load(file)
            if not targets or any("/tests/" in target["defined_in"] for target in targets):
                fail(f"{how[0]} builds tests")
        refused = subprocess.run([meson, "setup", "-Dtests=enabled", "--reconfigure", built, SOURCE], env=env,
                                 stdout=subprocess.PIPE, text=True, check=False)
        if refused.returncode == 0 or "x264" not in refused.stdout:
            fail(f"-Dtests=enabled without x264: {refused.stdout}")


def commands(build, folders):
    """{(file, flags)}: how each file of the folders is compiled, less what is of one compiler."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        for entry in json.load(file):
            path = os.path.normpath(os.path.join(build, entry["file"]))
            inside = os.path.relpath(path, build if path.startswith(build + os.sep) else SOURCE)
            if inside.split(os.sep)[0] in folders:
                words = shlex.split(entry["command"])
                yield path, tuple(word for word in words if word.startswith(KEPT) and not
                                  word.startswith(DROPPED) and not word.endswith(".p"))


def compile_all(build, batches):
    """Compile for nobody: each of the @batches is a command and the files that it is given."""
    def one(batch):
        command, paths = batch
        done = subprocess.run([*command, *paths], cwd=build, text=True, stderr=subprocess.PIPE, check=False)
        return f"{' '.join(paths)}:\n{done.stderr}" if done.returncode else None

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = [text for text in pool.map(one, batches) if text]
    files = sum(len(paths) for _, paths in batches)
    print(f"{files} files")
    if wrong or not files:
        fail(f"{len(wrong)} of {len(batches)} commands fail\n" + "\n".join(wrong))


def compiler_proper(flags, path, build):
    """What clang executes to generate code of @path with the @flags, and to keep none; without the path."""
    told = subprocess.run(["clang", "-###", "-c", "-o", "-", "-Wno-unknown-warning-option", "-Werror", *flags, path],
                          cwd=build, text=True, stderr=subprocess.PIPE, check=True).stderr
    words = next(shlex.split(line) for line in told.splitlines() if '"-cc1"' in line)
    words[words.index("-emit-obj")] = "-emit-codegen-only"
    if words.pop() != path:
        fail(f"clang compiles more than {path}:\n{told}")
    return words


def clang(_, build):
    # It takes longer to begin than to compile most files. Only what its driver executes takes several, of
    # which a pragma about warnings would hold for the later ones as well.
    alike = {}
    for path, flags in sorted(set(commands(build, (*PRODUCT, "tests")))):
        with open(path, encoding="utf-8") as file:
            alone = path if "#pragma" in file.read() else None
        alike.setdefault((flags, alone), []).append(path)
    compile_all(build, [(compiler_proper(flags, paths[0], build), paths[first:first + FILES_AT_ONCE])
                        for (flags, _), paths in alike.items() for first in range(0, len(paths), FILES_AT_ONCE)])


@functools.cache
def included(path):
    """The headers of the product that it includes, and whether it has code of one kind of machine itself."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    headers = {os.path.join(SOURCE, name) for name in re.findall(r'^#include "(.+)"', text, re.M)}
    return {header for header in headers if os.path.exists(header)}, bool(MACHINES.search(text))


def is_of_machines(path):
    """Whether it, or a header of the product that it includes, may have code of one kind of machine."""
    seen, left = set(), {path}
    while left:
        headers, of_machines = included(left.pop())
        if of_machines:
            return True
        left |= headers - seen
        seen |= headers
    return False


def arm64(_, build):
    # What is used without a value the optimised build finds, but for what is of another machine alone.
    compile_all(build, [(("aarch64-linux-gnu-gcc", "-S", *(("-O1",) if is_of_machines(path) else ()), "-idirafter",
                          "/usr/include", "-idirafter", "/usr/include/x86_64-linux-gnu", "-Werror", *flags, "-o",
                          os.devnull), [path])
                        for path, flags in sorted(set(commands(build, PRODUCT)))])


def narrow(*_):
    done = subprocess.run(["gcc", "-m32", "-fsyntax-only", "-x", "c",
                           os.path.join(SOURCE, "state", "base", "compiler.h")],
                          stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode == 0 or "64 bits" not in done.stderr:
        fail(f"32 bits are not refused: {done.stderr}")


WAYS = {way.__name__: way for way in (packages, bare, clang, arm64, narrow)}

if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[3] not in WAYS:
        sys.exit(__doc__)
    WAYS[sys.argv[3]](sys.argv[1], os.path.realpath(sys.argv[2]))
