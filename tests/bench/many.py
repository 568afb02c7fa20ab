#!/usr/bin/python3
"""One program with many devices, each of a server with a link of its own: programming, and PTRANS.

  many.py program|ptrans [--counts N,...] [--link MB_S] [--bare] ...

Every server has one emulated device (tests/emu) and a network namespace, and so has the program's host. A switch joins
them by links of --link millions of bytes a second each way (the kernel's token buckets), whose bytes are counted. What
a device takes for a program or a number it sleeps, so that many fit on few processors. The program runs under reseat
with a virtual device on each, or with --bare through the remote driver alone. Prints JSON; scripts/plot draws it.

program: the library of binaries has the devices' program, of --mb million bytes, and the servers have nothing. By
default its size is what is published (SAF, its figure 6), as are the 12.3 s that one device then takes; the link's rate
is such that one device takes the published 17.76 s with it. --vanish N of the links break meanwhile.
"""

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "chaos"))

from lab import VENDORS, Lab, check, find_reseat  # pylint: disable=wrong-import-position

INSIDE = "MANY_INSIDE"  # the namespace of the switch and the program's host
NETWORK, HOST, PORT = "10.77.0", 254, 7460
NOBODY = 65534  # whose sessions may keep what they compiled
MB = 1000 * 1000
# By the number of devices: over PCIe, one after the other, and with SAF, in seconds.
PUBLISHED = {1: (12.3, 17.76), 2: (24.6, 17.76), 20: (246, 17.76)}
BINARY_MB, PROGRAM_MS, LINK_MB_S = 97.4, 12300, 97.4 / (17.76 - 12.3)


def shell(text):
    subprocess.run(["sh", "-ec", text], check=True, stdin=subprocess.DEVNULL)


def bucket(name, link):
    rate = round(link * MB * 8)
    return f"tc qdisc add dev {name} root tbf rate {rate}bit burst {max(rate // 800, 200000)} limit 4000000"


class Servers:
    """Device servers, each with one emulated device and a link."""

    def __init__(self, build, folder, count, keys, link):
        self.build, self.folder, self.link = build, os.path.join(folder, "servers"), link
        os.mkdir(self.folder, 0o700)
        self.serve = [os.path.join(build, "remote", "reseat-serve"), "--ca", os.path.join(self.folder, "ca")]
        if os.geteuid() == 0:
            os.chown(self.folder, NOBODY, NOBODY)
            self.serve[:0] = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
        self.authority("--init-ca", "--name", "many")
        self.authority("--issue", "host", "--out", os.path.join(self.folder, "host.pem"))
        self.running, self.logs = [], []
        try:
            shell("ip link set lo up; ip link add switch type bridge; ip link set switch up;"
                  "ip link add host type veth peer name to-host; ip link set to-host master switch up;"
                  f"ip addr add {NETWORK}.{HOST}/24 dev host; ip link set host up;" + ";".join(
                      bucket(name, link) for name in ("host", "to-host")))
            for i in range(count):
                self.start(i, keys)
            for server in self.running:
                server.stdout.readline()
        except BaseException:
            self.stop()
            raise
        self.needs = {"RESEAT_CREDENTIALS": os.path.join(folder, "own.pem")}
        with open(os.path.join(self.folder, "host.pem"), "rb") as given, \
                open(os.open(self.needs["RESEAT_CREDENTIALS"], os.O_CREAT | os.O_WRONLY, 0o600), "wb") as own:
            own.write(given.read())
        self.addresses = [f"tcp:{NETWORK}.{i + 1}:{PORT}" for i in range(count)]

    def authority(self, *arguments):
        subprocess.run([*self.serve, *arguments], check=True, stdout=subprocess.DEVNULL, env=dict(os.environ, HOME=self.folder))

    def start(self, i, keys):
        config = os.path.join(self.folder, f"{i}.ini")
        with open(config, "w", encoding="utf-8") as file:
            file.write("[fpga] name=fpga own_memory=yes " + " ".join(f"{key}={value}" for key, value in keys.items()) + "\n")
        env = dict(os.environ, OCL_ICD_VENDORS=os.path.join(self.build, "tests/emu/emu.icd"), EMU_CONFIG=config,
                   POCL_DEVICES="pthread", POCL_MAX_PTHREAD_COUNT="2", HOME=self.folder,
                   POCL_CACHE_DIR=os.path.join(self.folder, "cache"))
        self.logs.append(open(os.path.join(self.folder, f"{i}.log"), "wb"))
        joined = (f"read -r _; ip link set lo up; ip addr add {NETWORK}.{i + 1}/24 dev wire; ip link set wire up;"
                  + bucket("wire", self.link) + '; exec "$@"')
        server = subprocess.Popen(["unshare", "--net", "sh", "-ec", joined, "sh", "setpriv", "--pdeathsig", "KILL",
                                   *self.serve, "--listen", f"tcp:{NETWORK}.{i + 1}:{PORT}"],
                                  env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.logs[-1])
        self.running.append(server)
        while os.readlink(f"/proc/{server.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            time.sleep(0.01)
        shell(f"ip link add to-{i} type veth peer name wire netns {server.pid}; ip link set to-{i} master switch up;"
              + bucket(f"to-{i}", self.link))
        server.stdin.write(b"\n")
        server.stdin.close()

    def carried(self):
        """[bytes from the host and to it], [the same of each server]."""
        listed = json.loads(subprocess.run(["ip", "-s", "-j", "link", "show"], check=True, stdout=subprocess.PIPE).stdout)
        ports = {one["ifname"]: one["stats64"] for one in listed}
        return [[ports[name]["rx"]["bytes"], ports[name]["tx"]["bytes"]]
                for name in ["to-host"] + [f"to-{i}" for i in range(len(self.running))]]

    def carried_since(self, before):
        """Millions of bytes from the host and to it, and the same of each server."""
        host, *servers = [[round((now - then) / MB, 2) for now, then in zip(*pairs)] for pairs in zip(self.carried(), before)]
        return {"mb_of_host": host, "mb_of_servers": servers}

    def stop(self):
        for server in self.running:
            server.terminate()
        for server, log in zip(self.running, self.logs):
            server.wait()
            server.stdout.close()
            log.close()
        # Those of servers that have ended may be gone already.
        shell(f"for link in switch host $(seq -f to-%g 0 {len(self.running)}); do ip link del $link 2>&- || true; done")


class World:
    """Servers, and programs that use them: under reseat, or through the driver alone."""

    def __init__(self, options, count, keys, cache, link=None):
        self.options = options
        self.build = os.path.abspath(options.build)
        self.temporary = tempfile.TemporaryDirectory(prefix="many-")
        os.chmod(self.temporary.name, 0o711)
        self.servers = Servers(self.build, self.temporary.name, count, keys, link or options.link)
        self.env = dict(self.servers.needs, RESEAT_SERVER=" ".join(self.servers.addresses))
        VENDORS["remote"] = (os.path.join(self.build, "remote/libreseat-remote.so"), {})
        self.lab = None if options.bare else Lab(("remote",), find_reseat(), extra_env=dict(
            self.env, RESEAT_LIBRARY_LIMIT="4096", XDG_CACHE_HOME=cache))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.lab:
            self.lab.__exit__()
        self.servers.stop()
        self.temporary.cleanup()

    def start(self, *words):
        """The program, on all devices."""
        command, env = [os.path.join(self.build, "tests/bench/bench-many"), *map(str, words)], dict(os.environ, **self.env)
        if self.lab:
            devices = self.lab.devices()
            check("reseat lists every server's device", len(devices) == len(self.servers.addresses), devices)
            command, env = [self.lab.reseat, "run", "--device", ",".join(devices), "--", *command], self.lab.env
        else:
            env["OCL_ICD_VENDORS"] = os.path.join(self.build, "remote/reseat-remote.icd")
        return subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)

    def finish(self, process):
        """What the program says in the end."""
        lines = process.communicate()[0].splitlines()
        if process.returncode:
            sys.exit(f"many.py: the program ended with {process.returncode}: {lines}")
        print(lines[-1], file=sys.stderr)
        return json.loads(lines[-1])


def program(options):
    keys = {"build_ms": options.build_ms, "binary_size": round(options.mb * MB)}
    rows, one = [], None  # seconds that one device takes
    with tempfile.TemporaryDirectory(prefix="many-library-") as cache:
        if not options.bare:  # the library gets the binary
            with World(options, 1, dict(keys, build_ms=0), cache, link=1000) as world:
                world.finish(world.start("program"))
        for count in options.counts:
            with World(options, count, keys, cache) as world:
                process = world.start("program")
                process.stdout.readline()
                before = world.servers.carried()
                if options.vanish:
                    time.sleep(options.mb / options.link * 1.5)  # while they give it to each other
                    shell(";".join(f"ip link set to-{i} down" for i in range(options.vanish)))
                row = world.finish(process)
                row.update(world.servers.carried_since(before))
            check("every device that is there computes", row["compute"] == count - options.vanish, row)
            # One is sent it again where the one that was sent it first is gone.
            most = options.mb * (2.05 if options.vanish else 1.05) + 0.1 * count
            check("the binary left the host once", options.bare or row["mb_of_host"][0] < most, row)
            if not rows and count == 1:
                one = row["seconds"]
            if one:
                row["of_one"] = round(row["seconds"] / one, 3)
            if count in PUBLISHED and (options.mb, options.build_ms) == (BINARY_MB, PROGRAM_MS):
                row["published_pcie_s"], row["published_saf_s"] = PUBLISHED[count]
            rows.append(row)
    return {"mb": options.mb, "build_ms": options.build_ms, "rows": rows}


def efficiency(rows, weak):
    """Of each row, against the one device of the same kind."""
    one = rows[0]["seconds"] / rows[0]["side"] ** 2
    for row in rows:
        ideal = one * row["side"] ** 2 / row["devices"]
        row["efficiency"] = round(ideal / row["seconds"], 4)
        row["kind"] = "weak" if weak else "strong"
    return rows


def weak_side(blocks, devices):
    """About as many blocks for each device, and as many for one as for another."""
    rows = max(r for r in range(1, devices + 1) if r * r <= devices and devices % r == 0)
    even = math.lcm(rows, devices // rows)
    return max(round((blocks * devices) ** 0.5 / even), 1) * even


def ptrans(options):
    rows = []

    def run(count, side, way):
        before = world.servers.carried()
        row = world.finish(world.start("ptrans", count, side, way))
        return dict(row, **world.servers.carried_since(before))

    with tempfile.TemporaryDirectory(prefix="many-library-") as cache, \
            World(options, max(options.counts), {"items_per_s": options.items}, cache) as world:
        for way in options.ways.split(","):
            rows += efficiency([run(n, options.side, way) for n in options.counts], False)
            rows += efficiency([run(n, weak_side(options.weak, n), way) for n in options.counts], True)
    return {"items_per_s": options.items, "rows": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("what", choices=["program", "ptrans"])
    parser.add_argument("--build", default=os.path.join(HERE, "..", "..", "build"), help="the build folder")
    parser.add_argument("--counts", default="1,2,4,5,10,20", help="of devices")
    parser.add_argument("--link", type=float, help="millions of bytes a second of each link, each way")
    parser.add_argument("--bare", action="store_true", help="without reseat")
    parser.add_argument("--mb", type=float, default=BINARY_MB, help="of a program, in millions of bytes")
    parser.add_argument("--build-ms", type=int, default=PROGRAM_MS, help="what a device takes for it")
    parser.add_argument("--vanish", type=int, default=0, help="so many links break while servers give it to each other")
    parser.add_argument("--side", type=int, default=20, help="of the matrix, in blocks, of strong scaling")
    parser.add_argument("--weak", type=int, default=20, help="blocks of each device, of weak scaling")
    parser.add_argument("--items", type=int, default=80000, help="numbers that a device adds a second")
    parser.add_argument("--ways", help="copy,host by default; with --bare direct,host")
    options = parser.parse_args()
    options.counts = [int(count) for count in options.counts.split(",")]
    options.ways = options.ways or ("direct,host" if options.bare else "copy,host")
    options.link = options.link or (LINK_MB_S if options.what == "program" else 2)
    if INSIDE not in os.environ:
        user = [] if os.geteuid() == 0 else ["--user", "--map-current-user", "--keep-caps"]
        os.execvpe("unshare", ["unshare", "--net", *user, sys.executable, *sys.argv], dict(os.environ, **{INSIDE: "1"}))
    result = program(options) if options.what == "program" else ptrans(options)
    print(json.dumps(dict(result, what=options.what, bare=options.bare, link_mb_s=round(options.link, 3))))


if __name__ == "__main__":
    main()
