#!/usr/bin/python3
"""Streams of C, Java and Python at once, whose devices are changed at random while every answer is compared.

soak.py [--seconds N] [--seed N] RESEAT CLASSPATH AES SCRAMBLE: the folders of the two kernels. The C and the Java
client share memory with their workers; the Python client comes through TLS, so its driver is in another process. Their
streams are moved, suspended and resumed; now and then a worker, a driver's process or the service is killed. POCL's and
emulated devices. Ends with what was done, and fails when an answer was wrong, missing or doubled.
"""
import argparse
import collections
import os
import random
import signal
import threading
import time
import unittest

import references
import reseat_stream
from lab import EMULATED, Lab
from world import Authority, Flow, Jvm, Service, wait_for

KEY = b"0123456789abcdef"
MOVES = 4  # at least, however busy the machine is


class PythonFlow(threading.Thread):
    """Batches of random sizes through the Python library, each compared."""

    def __init__(self, address, seed):
        super().__init__(daemon=True)
        self.address, self.random = address, random.Random(seed)
        self.over, self.answered, self.program, self.problem = False, 0, None, None

    def run(self):
        try:
            with reseat_stream.open("aes", KEY, address=self.address) as aes:
                while not self.over:
                    self.program = aes.program
                    data = self.random.randbytes(16 * self.random.randint(1, 20_000))
                    if aes.run(data) != references.aes_openssl(KEY, data):
                        raise AssertionError(f"wrong answers after {self.answered}")
                    self.answered += len(data) // 16
        except Exception as problem:  # pylint: disable=broad-except
            self.problem = problem


class Soak:
    """Changes one thing after the other until the time is over."""

    def __init__(self, lab, service, seed):
        self.lab, self.service, self.random = lab, service, random.Random(seed)
        self.devices = lab.devices()
        self.counts = collections.Counter()

    def move(self, app):
        status, _ = self.lab.control("move", app["name"], self.random.choice(self.devices), "--json")
        self.counts["moves" if status == 0 else "moves refused or undone"] += 1

    def suspend(self, app):
        status, _ = self.lab.control("suspend", app["name"], "--json")
        self.counts["suspends"] += status == 0
        time.sleep(self.random.uniform(0, 0.3))
        self.lab.control("resume", app["name"], self.random.choice(self.devices), "--json")

    def kill_worker(self, app):
        self.kill(app["pid"], "workers killed")

    def kill_driver(self, _):
        if drivers := self.lab.driver_processes():
            self.kill(self.random.choice(drivers), "drivers killed")

    def kill_service(self, _):
        self.service.kill()
        time.sleep(self.random.uniform(0, 1))
        self.service.start()
        self.counts["services killed"] += 1

    def kill(self, pid, what):
        try:
            os.kill(pid, signal.SIGKILL)
            self.counts[what] += 1
        except ProcessLookupError:
            pass

    def run(self, seconds, alive):
        deeds = [self.move] * 40 + [self.suspend] * 3 + [self.kill_worker] * 2 + [self.kill_driver] * 2
        deeds.append(self.kill_service)
        begun = time.monotonic()
        while alive():
            passed = time.monotonic() - begun
            if passed > 10 * seconds or (passed > seconds and self.counts["moves"] >= MOVES):
                break
            if apps := [app for app in self.service.programs().values() if app.get("device")]:
                self.random.choice(deeds)(self.random.choice(apps))
            time.sleep(self.random.uniform(0.05, 0.8))
        for app in self.service.programs().values():  # What was suspended is resumed.
            self.lab.control("resume", app["name"], self.devices[0], "--json")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20 * int(os.environ.get("TEST_TIMES", "1")))
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    for word in "reseat", "classpath", "aes", "scramble":
        parser.add_argument(word)
    options = parser.parse_args()
    print("seed", options.seed, flush=True)
    test = unittest.TestCase()
    with Lab(["pocl", EMULATED], options.reseat) as lab:
        authority = Authority(lab)
        service = Service(lab, kernels=[options.aes, options.scramble], authority=authority)
        soak = Soak(lab, service, options.seed)
        os.environ["RESEAT_CREDENTIALS"] = authority.issue("python")
        c = Flow(service)
        java = Jvm(options.classpath, lab.env, "chaos")
        python = PythonFlow(service.remote, options.seed)
        python.start()
        try:
            wait_for(lambda: c.answered and java.done and python.answered)
            soak.run(options.seconds, lambda: python.is_alive() and c.process.poll() is None)
            python.over = True
            java.end(test)
            c.end(test)
            python.join()
        finally:
            print(f"{c.answered} records of C, {java.done} of Java, {python.answered} of Python; "
                  f"{c.wrong} batches of C wrong; "
                  + ", ".join(f"{count} {what}" for what, count in sorted(soak.counts.items())), flush=True)
            java.kill()
            service.kill()
        test.assertIsNone(python.problem)
        test.assertGreaterEqual(soak.counts["moves"], MOVES)


if __name__ == "__main__":
    main()
