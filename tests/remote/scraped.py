#!/usr/bin/python3
"""What a device server says over HTTP, against what its clients do, and scrapers that are no good.

  scraped.py BUSY
"""

import contextlib
import os
import re
import socket
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "tests", "chaos"))
from lab import check, expect, fail, free_port, touch, until  # pylint: disable=wrong-import-position

MIB = 16
OPEN = "Accept: application/openmetrics-text\r\n"
AT_PORT = 12  # connections at the port, of which each has ten seconds


def cmdline(pid):
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read()


class Server:
    """A device server of one of POCL's devices; @run is its user's runtime folder."""

    def __init__(self, folder, name, run, *options):
        self.address, self.log = f"unix:{folder}/{name}", f"{folder}/{name}.log"
        self.env = dict(os.environ, XDG_RUNTIME_DIR=run, POCL_DEVICES="basic", POCL_CACHE_DIR=f"{folder}/cache")
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [os.environ["TEST_SERVE"], "--listen", self.address, *options], stdout=subprocess.PIPE, stderr=log,
                env=dict(self.env, OCL_ICD_VENDORS="/etc/OpenCL/vendors/pocl.icd"))
        expect("it starts", self.process.stdout.readline(), b"reseat-serve: ready\n")

    def said(self):
        with open(self.log, encoding="utf-8") as log:
            return log.read()

    def starts(self, program, end):
        return subprocess.Popen([program, "--mib", str(MIB), "--rest", "20"], stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL,
                                env=dict(self.env, OCL_ICD_VENDORS=os.environ["TEST_DRIVER"],
                                         RESEAT_SERVER=self.address, TEST_UNTIL=end))

    def children(self):
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as file:
            return [int(pid) for pid in file.read().split()]

    def sessions(self):
        """The processes of its clients."""
        return [pid for pid in self.children() if b"--session" in cmdline(pid)]

    def stop(self):
        self.process.kill()
        self.process.communicate()


def connect(where):
    one = socket.socket(socket.AF_UNIX if isinstance(where, str) else socket.AF_INET)
    one.settimeout(60)
    one.connect(where)
    return one


def ask(where, what="GET /metrics", headers=""):
    """(the status, the body)"""
    with connect(where) as one:
        one.sendall(f"{what} HTTP/1.0\r\n{headers}\r\n".encode())
        text = b"".join(iter(lambda: one.recv(65536), b"")).decode()
    return int(text.split()[1]), text.partition("\r\n\r\n")[2]


def figures(where):
    status, text = ask(where)
    expect("a scrape", status, 200)
    return {sample: float(value) for sample, value in re.findall(r"^(reseat_\S+) (\S+)$", text, re.MULTILINE)}


def says(where, **wanted):
    """Wait until it says so."""
    def differing():
        got = figures(where)
        return {name: got.get("reseat_server_" + name) for name, value in wanted.items()
                if got.get("reseat_server_" + name) != value}
    until(f"the metrics say {wanted}", lambda: not differing(), differing)


def is_valid(folder, where):
    for name, headers in (("open", OPEN), ("text", "")):
        with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
            file.write(ask(where, headers=headers)[1])
    subprocess.run([f"{ROOT}/tests/agent/metrics.py", f"{folder}/open", f"{folder}/text", ROOT], check=True)


def counts(server, program, folder, where):
    device = 'device_memory_granted_bytes{device="cpu0"}'
    says(where, sessions=0, sessions_begun_total=0, **{device: 0})
    check("the device has memory", figures(where)['reseat_server_device_memory_capacity_bytes{device="cpu0"}'] >= MIB << 20)
    end = f"{folder}/until"
    client = server.starts(program, end)
    expect("it computes", client.stdout.readline(), b"ready\n")
    says(where, sessions=1, sessions_begun_total=1, connections=0, **{'device_sessions{device="cpu0"}': 1})
    granted = figures(where)["reseat_server_" + device]
    check("it has what it allocated", granted >= MIB << 20, granted)
    other = server.starts(program, end)
    check("there is room for one", other.wait(timeout=60) != 0)
    other.stdout.close()
    check("that is counted", figures(where)["reseat_server_refused_total"] >= 1)
    touch(end)
    expect("it ends well", (client.wait(timeout=120), client.stdout.read()), (0, b"every word is right\n"))
    says(where, sessions=0, **{device: 0})
    os.unlink(end)
    client = server.starts(program, end)
    expect("another computes", client.stdout.readline(), b"ready\n")
    os.kill(server.sessions()[0], 9)
    says(where, sessions=0, sessions_begun_total=2, **{'sessions_ended_total{reason="crashed"}': 1})
    client.kill()
    client.communicate()


def listens(where):
    try:
        connect(where).close()
    except (ConnectionRefusedError, FileNotFoundError):
        return False
    return True


def comes_back(server, where):
    [helper] = [pid for pid in server.children() if b"reseat-serve-metrics" in cmdline(pid)]
    os.kill(helper, 9)
    until("its end is noticed", lambda: helper not in server.children())
    until("another one serves metrics", lambda: listens(where))
    says(where, sessions=0)


def refuses(where, port):
    expect("another path", ask(where, "GET /")[0], 404)
    expect("another method", ask(where, "DELETE /metrics")[0], 405)
    expect("another site's name", ask(port, headers="Host: evil.example\r\n")[0], 403)
    expect("its own name", ask(port, headers=f"Host: localhost:{port[1]}\r\n")[0], 200)
    with contextlib.ExitStack() as slow:
        for _ in range(AT_PORT):
            slow.enter_context(connect(port)).sendall(b"GET /metr")
        says(where, sessions=0)  # the socket has room
        with connect(port) as late:
            expect("one too many", late.recv(1), b"")
        says(where, scrapers_dropped_total=AT_PORT + 1)


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="scraped-") as folder:
        run = f"{folder}/run"
        os.mkdir(run, 0o700)
        os.chmod(folder, 0o700)
        port, where = ("127.0.0.1", free_port()), f"{run}/reseat/server.metrics"
        server = Server(folder, "s", run, "--clients", "1", "--metrics-port", str(port[1]))
        try:
            until("it listens", lambda: os.path.exists(where))
            is_valid(folder, where)
            counts(server, program, folder, where)
            refuses(where, port)
            comes_back(server, where)
            second = Server(folder, "t", run)
            until("it says who has the place", lambda: "name another path by --metrics" in second.said())
            second.stop()
            third = Server(folder, "u", run, "--metrics", f"{folder}/third")
            until("it listens where it was told", lambda: os.path.exists(f"{folder}/third"))
            says(f"{folder}/third", sessions=0)
            third.stop()
        finally:
            server.stop()

        until("what served the metrics of a killed server ends", lambda: not listens(port))
        check("nobody complains", "no metrics" not in server.said(), server.said())


if __name__ == "__main__":
    main() if len(sys.argv) == 2 else fail("scraped.py BUSY")
