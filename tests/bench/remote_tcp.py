#!/usr/bin/python3
"""What devices behind TCP and TLS cost on this machine, beside those of the program's own process.

  remote_tcp.py [BUILD]

Launches: 10,000 small ones with changing arguments and one clFinish, through a network with a round
trip of 1 ms, beside the same locally. Bulk: blocking writes and reads of 64 MiB, beside what a plain
stream of OpenSSL's carries between two processes, in messages of that size from memory to memory. POCL,
in turn in one run, the best of as many of each.
"""

import os
import re
import socket
import subprocess
import sys
import tempfile

ROUND_TRIP_US, LAUNCHES, TURNS, MIB, RUNS = 1000, 10000, 3, 64, 8
POCL = "/etc/OpenCL/vendors/pocl.icd"
build = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")


def start(command, env):
    """A process, and the first line that it prints."""
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().strip()


def calls(env, *arguments):
    run = subprocess.run([f"{build}/tests/bench/remote_calls", *map(str, arguments)], env=env, check=True,
                         stdout=subprocess.PIPE, text=True)
    return [float(word) for word in run.stdout.split()]


def main():
    env = dict(os.environ, POCL_DEVICES="basic pthread", TEST_DEVICE="1", OCL_ICD_VENDORS=POCL)
    with tempfile.TemporaryDirectory(prefix="remote-") as folder:
        env.update(POCL_CACHE_DIR=f"{folder}/cache")
        server = [f"{build}/remote/reseat-serve", "--ca", f"{folder}/ca"]
        for words in (["--init-ca", "--name", "gpuhost"], ["--issue", "laptop", "--out", f"{folder}/laptop.pem"]):
            subprocess.run(server + words, check=True, stdout=subprocess.DEVNULL)
        with socket.socket() as port:
            port.bind(("127.0.0.1", 0))
            near = port.getsockname()[1]
        served, _ = start(server + ["--listen", f"tcp:127.0.0.1:{near}"], env)
        network, far = start([f"{build}/tests/remote/bad_network", str(near), "delay", str(ROUND_TRIP_US // 2)], env)
        try:
            compare(env, f"{folder}/laptop.pem", near, far)
        finally:
            served.terminate()
            network.terminate()


def compare(env, credentials, near, far):
    def remote(port):
        return dict(env, OCL_ICD_VENDORS=f"{build}/remote/reseat-remote.icd", RESEAT_CREDENTIALS=credentials,
                    RESEAT_SERVER=f"tcp:127.0.0.1:{port}")
    local, away, trips = [], [], []
    for _ in range(TURNS):
        local += calls(env, "launches", LAUNCHES, TURNS)[:1]
        away += calls(remote(far), "launches", LAUNCHES, TURNS)[:1]
        trips += calls(remote(far), "trip", 20)[:1]
    trip = ROUND_TRIP_US * 1e-6
    print(f"{LAUNCHES} launches: local {min(local) * 1e3:.1f} ms, away {min(away) * 1e3:.1f} ms; without two "
          f"round trips {(min(away) - 2 * trip) / min(local):.2f} of local (goal: at most 1.2)")
    print(f"a blocking read of 4 bytes over a round trip of {trip * 1e3:.0f} ms: {min(trips) * 1e3:.2f} ms")
    speeds, plain = [], []
    for _ in range(TURNS):
        speeds.append(calls(remote(near), "bulk", MIB, RUNS))
        # As many messages of as many bytes, of which each is answered before the next.
        link = subprocess.run([f"{build}/tests/bench/link_bench", str(MIB * RUNS), "1"], check=True,
                              stdout=subprocess.PIPE, text=True)
        plain.append(float(re.search(r"fastest message ([0-9.]+)", link.stdout)[1]) * 1e9)
    for i, what in enumerate(("writes", "reads")):
        best = max(speed[i] for speed in speeds)
        print(f"{what} of {MIB} MiB: {best / 1e9:.2f} GB/s, a plain stream {max(plain) / 1e9:.2f} GB/s: "
              f"{best / max(plain):.2f} (goal: at least 0.9)")


if __name__ == "__main__":
    main()
