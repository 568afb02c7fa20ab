#!/usr/bin/python3
"""Many device servers at once: programming, and PTRANS on 1 to N emulated devices.

Each device is emulated (tests/emu) and has a server of its own on this machine; what it takes for a
program, for each number of a block, and for each byte over its link, it sleeps, so that many fit on
few processors. With --engine there are no servers: the program runs under reseat, with a virtual device
on each, so that blocks go through its own memory. Prints JSON; scripts/plot draws it.
"""

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "chaos"))

from lab import EMULATED, Lab, find_reseat  # pylint: disable=wrong-import-position

DEVICES = [1, 2, 4, 5, 10, 20]


@contextlib.contextmanager
def servers(build, count, keys):
    """The addresses of servers, each with one emulated device."""
    with tempfile.TemporaryDirectory(prefix="many-") as folder:
        os.chmod(folder, 0o700)
        running, addresses = [], []
        try:
            for i in range(count):
                config = os.path.join(folder, f"{i}.ini")
                with open(config, "w", encoding="utf-8") as file:
                    file.write(f'[emu{i}]\nname="emulated {i}"\n' + "".join(f"{k}={v}\n" for k, v in keys.items()))
                env = dict(os.environ, OCL_ICD_VENDORS=os.path.join(build, "tests/emu/emu.icd"),
                           EMU_CONFIG=config, POCL_DEVICES="pthread", POCL_MAX_PTHREAD_COUNT="2",
                           POCL_CACHE_DIR=os.path.join(folder, "cache"))
                addresses.append(f"unix:{folder}/{i}")
                running.append(subprocess.Popen([os.path.join(build, "remote/reseat-serve"), "--listen", addresses[-1]],
                                                env=env, stdout=subprocess.PIPE))
            for server in running:
                server.stdout.readline()
            yield addresses
        finally:
            for server in running:
                server.terminate()
                server.wait()


class Served:
    """Programs that use the first of the servers."""

    def __init__(self, build, addresses):
        self.build, self.addresses = build, addresses

    def command(self, count):
        return [], dict(os.environ, RESEAT_SERVER=" ".join(self.addresses[:count]),
                        OCL_ICD_VENDORS=os.path.join(self.build, "remote/reseat-remote.icd"))


class Engine:
    """Programs under reseat that have a virtual device on each of the first emulated devices."""

    def __init__(self, lab):
        self.lab, self.devices = lab, lab.devices()

    def command(self, count):
        return [self.lab.reseat, "run", "--device", ",".join(self.devices[:count]), "--"], self.lab.env


@contextlib.contextmanager
def machine(build, options, keys):
    if options.engine:
        text = "".join(f"[d{i}] name=emulated-{i} own_memory=yes " + "".join(f"{k}={v} " for k, v in keys.items()) + "\n"
                       for i in range(options.devices))
        with Lab((EMULATED,), find_reseat(), devices=text) as lab:
            yield Engine(lab)
    else:
        with servers(build, options.devices, keys) as addresses:
            yield Served(build, addresses)


def run(build, world, count, words):
    before, env = world.command(count)
    done = subprocess.run([*before, os.path.join(build, "tests/bench/bench-many"), *map(str, words)], env=env, check=True,
                          stdout=subprocess.PIPE, text=True)
    print(done.stdout.strip(), file=sys.stderr)
    return json.loads(done.stdout)


def program(build, options):
    with machine(build, options, {"build_ms": options.build_ms}) as world:
        return run(build, world, options.devices, ["program"])


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


def ptrans(build, options):
    keys = {"items_per_s": options.items, "link_mb_s": options.link}
    counts = [n for n in DEVICES if n <= options.devices]
    rows = []
    with machine(build, options, keys) as world:
        for way in options.ways.split(","):
            words = [way, int(options.link * 1e6)]
            strong = [run(build, world, n, ["ptrans", n, options.side, *words]) for n in counts]
            rows += efficiency(strong, False)
            sides = [weak_side(options.weak, n) for n in counts]
            weak = [run(build, world, n, ["ptrans", n, side, *words]) for n, side in zip(counts, sides)]
            rows += efficiency(weak, True)
    return {"items_per_s": options.items, "link_mb_s": options.link, "rows": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["program", "ptrans"])
    parser.add_argument("--build", default="build", help="the build folder")
    parser.add_argument("--devices", type=int, default=20)
    parser.add_argument("--build-ms", type=int, default=2000)
    parser.add_argument("--side", type=int, default=20, help="of the matrix, in blocks, of strong scaling")
    parser.add_argument("--weak", type=int, default=20, help="blocks of each device, of weak scaling")
    parser.add_argument("--items", type=int, default=80000, help="numbers that a device adds a second")
    parser.add_argument("--link", type=int, default=2, help="millions of bytes a second of each link, each way")
    parser.add_argument("--ways", help="direct,host by default; with --engine host is the only one")
    parser.add_argument("--engine", action="store_true", help="under reseat, without servers")
    options = parser.parse_args()
    options.ways = options.ways or ("host" if options.engine else "direct,host")
    build = os.path.abspath(options.build)
    result = program(build, options) if options.what == "program" else ptrans(build, options)
    result.update(what=options.what, engine=options.engine)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
