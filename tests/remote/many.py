#!/usr/bin/python3
"""Many clients of one device server at once, some of which are killed.

  many.py [--tcp] [--clients N] [--kill N] -- PROGRAM [ARG...]

Every client runs the program on a device of the server's, through the remote driver alone. Those
that are not killed must end well and print what the native run does; afterwards the server takes
one more, has no session left, and none of its sessions crashed.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from program import POCL, issue, take_cache

SECONDS = 400
KILL_SECONDS = 0.2  # after they began, at most
NOBODY = 65534  # an ordinary user


def is_helper(pid):
    try:
        with open(f"/proc/{pid}/comm", encoding="ascii") as file:
            return file.read() in ("reseat-reaper\n", "reseat-serve-me\n")
    except OSError:  # it has ended
        return False


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [child for child in file.read().split() if not is_helper(child)]


def await_nobody(served):
    """The server has reaped its clients' sessions."""
    until = time.monotonic() + SECONDS
    while children(served.pid):
        if time.monotonic() > until:
            sys.exit("sessions of clients that are gone go on")
        time.sleep(0.05)


def run_clients(options, clients, kill, env, folder, expected):
    running, rng = [], random.Random(options.seed)
    victims, killed = set(rng.sample(range(clients), kill)), 0
    for number in range(clients):
        with open(f"{folder}/out{number}", "wb") as out:
            running.append(subprocess.Popen(options.program, env=env, stdout=out,
                                            stdin=subprocess.DEVNULL))
        if number in victims:
            threading.Timer(rng.uniform(0, KILL_SECONDS), running[-1].kill).start()
        if options.tcp:
            time.sleep(0.1)  # a handshake has seconds, whatever else the machine does
    until = time.monotonic() + SECONDS
    try:
        for number, client in enumerate(running):
            status = client.wait(max(1, until - time.monotonic()))
            if number in victims and status == -signal.SIGKILL:
                killed += 1
                continue
            with open(f"{folder}/out{number}", "rb") as out:
                if status != 0 or out.read() != expected:
                    sys.exit(f"client {number} differs from the native run: status {status}")
    finally:
        for client in running:
            client.kill()
            client.wait()
    if kill and not killed:
        sys.exit("none was killed")
    if kill:
        print(f"{killed} of {clients} were killed")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--tcp", action="store_true")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--kill", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("program", nargs="+")
    options = parser.parse_args()
    env = {name: value for name, value in os.environ.items() if not name.startswith("RESEAT")}
    lock, cache = take_cache(options.program)
    with lock, tempfile.TemporaryDirectory(prefix="many-") as folder:
        env.update(POCL_DEVICES="basic pthread", OCL_ICD_VENDORS=POCL, TEST_DEVICE="1",
                   POCL_CACHE_DIR=cache)
        expected = subprocess.run(options.program, env=env, stdout=subprocess.PIPE, check=True,
                                  timeout=SECONDS).stdout
        server, needs, address = [os.environ["TEST_SERVE"]], {}, f"unix:{folder}/s"
        serves = dict(env, RESEAT_LOG="warn")
        if options.tcp:
            own = f"{folder}/server"
            os.mkdir(own, 0o700)
            if os.geteuid() == 0:
                # Sessions of root's server keep nothing: each of them would compile the same again.
                os.chown(own, NOBODY, NOBODY)
                os.chmod(folder, 0o711)
                server = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", *server]
                serves.update(HOME=own, POCL_CACHE_DIR=f"{own}/cache")
            server += ["--ca", f"{own}/ca"]
            needs, address = issue(own, server)
            needs["RESEAT_CREDENTIALS"] = shutil.move(needs["RESEAT_CREDENTIALS"], f"{folder}/laptop.pem")
            os.chown(f"{folder}/laptop.pem", os.geteuid(), os.getegid())
        remote = dict(env, OCL_ICD_VENDORS=os.environ["TEST_DRIVER"], RESEAT_SERVER=address,
                      RESEAT_LOG="warn", **needs)
        with open(f"{folder}/log", "w+b") as log, \
                subprocess.Popen(server + ["--listen", address], env=serves, stdout=subprocess.PIPE,
                                 stderr=log) as served:
            try:
                served.stdout.readline()
                # The first alone: of many processes that share an empty cache, POCL 3.1 fails to
                # build a program in some, natively too.
                for clients, kill in (1, 0), (options.clients, options.kill), (1, 0):
                    run_clients(options, clients, kill, remote, folder, expected)
                    await_nobody(served)
            finally:
                served.terminate()
                served.wait()
                log.seek(0)
                said = log.read().decode(errors="replace")
                sys.stderr.write(said)
    if "Sanitizer" in said or " crashed: " in said:
        sys.exit("a session did not end well")


if __name__ == "__main__":
    main()
