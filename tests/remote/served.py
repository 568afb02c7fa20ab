#!/usr/bin/python3
"""Run a command while a device server of POCL's devices runs, which RESEAT_SERVER names.

  served.py [--cut LEAST-MOST] COMMAND...

With --cut it listens by TCP, and the network in between cuts connections after so many bytes.
"""

import os
import socket
import subprocess
import sys
import tempfile
import threading

CUTS_LEAST = 10
# Where the machine is busy a program sends less between two moves: then it is run once more.
RUNS_MOST = 8


def connect_badly(folder, server, env, how):
    """Certificates, an address, and what cuts connections to it (as bad_network is told)."""
    def authority(*arguments):
        subprocess.run(server + ["--ca", f"{folder}/ca", *arguments], check=True, stdout=subprocess.DEVNULL)
    authority("--init-ca", "--name", "gpuhost")
    authority("--issue", "laptop", "--out", f"{folder}/laptop.pem")
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        number = port.getsockname()[1]
    network = subprocess.Popen([os.environ["TEST_NETWORK"], str(number), *how],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    env.update(RESEAT_CREDENTIALS=f"{folder}/laptop.pem",
               RESEAT_SERVER=f"tcp:127.0.0.1:{network.stdout.readline().strip()}")
    return f"tcp:127.0.0.1:{number}", network


def run_cut(command, env, network):
    """Run it until the @network has cut enough connections: (the exit status, how many it cut)."""
    told = []  # a line a connection, the first of which came without a cut

    def listen():
        for line in network.stdout:
            told.append(line)
    listener = threading.Thread(target=listen)
    listener.start()
    try:
        for _ in range(RUNS_MOST):
            status = subprocess.run(command, env=env, check=False).returncode
            if status or len(told) > CUTS_LEAST:
                break
    finally:
        network.terminate()
        network.wait()
        listener.join()
    return status, len(told) - 1


def serve(folder, server, address):
    """A server of POCL's devices there, which listens."""
    env = dict(os.environ, OCL_ICD_VENDORS="/etc/OpenCL/vendors/pocl.icd",
               POCL_DEVICES="basic pthread", POCL_CACHE_DIR=os.path.join(folder, "cache"))
    process = subprocess.Popen(server + ["--ca", f"{folder}/ca", "--listen", address], env=env,
                               stdout=subprocess.PIPE)
    process.stdout.readline()
    return process


def main():
    words = sys.argv[1:]
    limits = words[1] if words[0] == "--cut" else None
    command = words[2:] if limits else words
    server, network = [os.environ["TEST_SERVE"]], None
    with tempfile.TemporaryDirectory(prefix="served-") as folder:
        address = f"unix:{folder}/s"
        env = dict(os.environ, RESEAT_SERVER=address)
        if limits:
            address, network = connect_badly(folder, server, env, ["cut", *limits.split("-")])
        with serve(folder, server, address) as process:
            try:
                if network:
                    status, cuts = run_cut(command, env, network)
                else:
                    status = subprocess.run(command, env=env, check=False).returncode
            finally:
                process.terminate()
    if network:
        print(f"  {cuts} connections were cut")
    if network and cuts < CUTS_LEAST:
        sys.exit(f"only {cuts} connections were cut")
    sys.exit(status)


if __name__ == "__main__":
    main()
