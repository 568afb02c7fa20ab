#!/usr/bin/python3
"""Rates of the clients for Java and Python beside that of the client for C, in one run: each in turn, several times.

The same kernel, records and service; two threads pack and unpack by hand in C and Java. Every answer is compared.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path[:0] = [os.path.join(HERE, "..", "chaos"), os.path.join(HERE, "..", "stream", "kernels"),
                os.path.join(ROOT, "stream", "python")]

import references  # pylint: disable=wrong-import-position
import reseat_stream  # pylint: disable=wrong-import-position
from lab import Lab, find_reseat  # pylint: disable=wrong-import-position

EXAMPLES = 4000
FLIGHT_BYTES = 8 << 20  # of records on their way, at most


class Example:
    def __init__(self, name, folder):
        self.name, self.folder = name, os.path.join(folder, name)
        self.constants, self.records, self.answers = references.example(name, 1, EXAMPLES)
        self.flight = str(FLIGHT_BYTES // (len(self.records) // EXAMPLES))
        os.mkdir(self.folder)
        files = {"records": self.records, "answers": self.answers,
                 **{"constant-" + c: v for c, v in self.constants.items()}}
        for file_name, content in files.items():
            with open(os.path.join(self.folder, file_name), "wb") as file:
                file.write(content)


def rate(lab, *command):
    done = subprocess.run(command, env=lab.env, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)["rate"]


def python_rate(example, address, seconds):
    """Batches of all examples."""
    with reseat_stream.open(example.name, address=address, **example.constants) as stream:
        out = bytearray(len(example.answers))
        begin, warm, count = time.monotonic(), 0, 0
        while True:
            assert stream.run(example.records, out) == example.answers
            count += EXAMPLES
            now = time.monotonic()
            if not warm and now - begin > seconds / 5:
                warm, count = now, 0
            if warm and now - warm > seconds:
                return count / (now - warm)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--vendors", default="pocl")
    parser.add_argument("--kernels", default="aes,kmp")
    parser.add_argument("--seconds", default="2")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    bench = os.path.join(build, "tests", "bench", "bench-stream")
    jar = os.path.join(build, "stream", "java", "reseat-stream.jar")
    with Lab(options.vendors.split(","), find_reseat(os.path.join(build, "agent", "reseat"))) as lab, \
            tempfile.TemporaryDirectory() as folder:
        subprocess.run(["javac", "-cp", jar, "-d", folder, os.path.join(HERE, "StreamRate.java")], check=True)
        java = ["java", "-cp", f"{jar}:{folder}", "StreamRate"]
        lab.env["RESEAT_STREAM"] = address = f"unix:{lab.path('run')}/stream.sock"
        service = subprocess.Popen([lab.reseat, "stream", "serve", "--kernels", os.path.join(ROOT, "stream", "kernels")],
                                   env=lab.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        try:
            service.stdout.readline()
            print("kernel      C records/s   Java two threads   Java map   Python batches   (of C's rate, medians)")
            for example in (Example(name, folder) for name in options.kernels.split(",")):
                rounds = []
                for _ in range(options.rounds):
                    found = [rate(lab, bench, example.name, example.folder, "pipelined", example.flight, options.seconds)]
                    for mode in "pipelined", "map":
                        found.append(rate(lab, *java, example.name, example.folder, mode, example.flight, options.seconds))
                    found.append(python_rate(example, address, float(options.seconds)))
                    rounds.append([found[0], *(other / found[0] for other in found[1:])])
                middle = [statistics.median(column) for column in zip(*rounds)]
                print(f"{example.name:<10} {middle[0]:12.0f}   {middle[1]:16.2f}   {middle[2]:8.2f}   {middle[3]:14.2f}",
                      flush=True)
        finally:
            service.terminate()
            service.wait()


if __name__ == "__main__":
    main()
