#!/usr/bin/python3
"""Run a program natively on POCL, and on a device server through the remote driver alone; compare.

  program.py [--expect STATUS] [--no-native] [--tcp | --no-rings] [--devices LIST]
             -- PROGRAM [ARG...]

The exit status and the standard output must be the same. Nothing of reseat's library is loaded.
--devices: POCL's, instead of "basic pthread".
"""

import argparse
import os
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "chaos"))
from lab import take_cache  # pylint: disable=wrong-import-position

POCL = "/etc/OpenCL/vendors/pocl.icd"
SECONDS = 240
NATIVE_RUNS_MOST = 5


def run(program, env):
    done = subprocess.run(program, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          check=False, timeout=SECONDS)
    return done.returncode, done.stdout


def run_natively(program, env):
    """As run(), but again where a signal ended it: POCL has races of its own when a process ends."""
    for _ in range(NATIVE_RUNS_MOST):
        done = run(program, env)
        if done[0] >= 0:
            break
    return done


def issue(folder, server):
    """Certificates for a server at a TCP port; what its client needs, and its address."""
    def authority(*arguments):
        subprocess.run(server + list(arguments), check=True, stdout=subprocess.DEVNULL)
    authority("--init-ca", "--name", "gpuhost")
    authority("--issue", "laptop", "--out", f"{folder}/laptop.pem")
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        address = f"tcp:127.0.0.1:{port.getsockname()[1]}"
    return {"RESEAT_CREDENTIALS": f"{folder}/laptop.pem"}, address


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--expect", type=int, default=0)
    parser.add_argument("--no-native", action="store_true")
    parser.add_argument("--tcp", action="store_true")
    parser.add_argument("--no-rings", action="store_true")
    parser.add_argument("--devices", default="basic pthread")
    parser.add_argument("program", nargs="+")
    options = parser.parse_args()
    env = {name: value for name, value in os.environ.items() if not name.startswith("RESEAT")}
    lock, cache = take_cache(options.program)
    with lock, tempfile.TemporaryDirectory(prefix="remote-") as folder:
        env.update(POCL_DEVICES=options.devices, OCL_ICD_VENDORS=POCL, TEST_DEVICE="1",
                   POCL_CACHE_DIR=cache)
        native = None if options.no_native else run_natively(options.program, env)
        server, needs, address = [os.environ["TEST_SERVE"]], {}, f"unix:{folder}/s"
        if options.no_rings:
            needs["RESEAT_RINGS"] = "no"
        if options.tcp:
            server += ["--ca", f"{folder}/ca"]
            needs, address = issue(folder, server)
        with open(f"{folder}/log", "w+b") as log, \
                subprocess.Popen(server + ["--listen", address], env=env, stdout=subprocess.PIPE,
                                 stderr=log) as served:
            try:
                served.stdout.readline()
                remote = run(options.program, dict(env, OCL_ICD_VENDORS=os.environ["TEST_DRIVER"],
                                                   RESEAT_SERVER=address, **needs))
            finally:
                served.terminate()
                served.wait()
                log.seek(0)
                said = log.read().decode(errors="replace")
                sys.stderr.write(said)
    if "Sanitizer" in said or " crashed: " in said:
        sys.exit("the server, or a session of its, did not end well")
    if remote[0] != options.expect:
        sys.exit(f"its status is {remote[0]}")
    if native is not None and native != remote:
        sys.exit(f"native and remote runs differ:\n{native}\n{remote}")


if __name__ == "__main__":
    main()
