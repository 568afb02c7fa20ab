#!/usr/bin/python3
"""The libraries for Java and Python with the real service, over POCL's devices.

test_clients.py RESEAT CLASSPATH KERNELS, with the folders of the modules in PYTHONPATH
"""
import os
import random
import signal
import subprocess
import sys
import threading
import time
import unittest

import references
import reseat_stream
from double import records
from lab import Lab

RESEAT, CLASSES, KERNELS = sys.argv[1:4]
del sys.argv[1:4]
KEY = b"0123456789abcdef"
SECONDS = 120


def wait_for(what, seconds=SECONDS):
    end = time.monotonic() + seconds
    while not (found := what()):
        if time.monotonic() > end:
            raise AssertionError("it did not come to that")
        time.sleep(0.02)
    return found


class Service:
    """`reseat stream serve` in a world of its own."""

    def __init__(self, lab):
        self.lab, self.process = lab, None
        self.address = f"unix:{lab.folder}/run/stream.sock"
        lab.env["RESEAT_STREAM"] = self.address

    def start(self):
        self.process = subprocess.Popen([RESEAT, "stream", "serve", "--kernels", KERNELS], env=self.lab.env,
                                        stdin=subprocess.DEVNULL)
        wait_for(lambda: os.path.exists(self.address[5:]))

    def kill(self):
        self.process.kill()
        self.process.wait()

    def programs(self):
        """Streams' workers, by name: pid and device."""
        _, answer = self.lab.control("ps", "--json")
        return {app["name"]: app for app in (answer or {}).get("apps", []) if app["name"].startswith("stream-")}


class Jvm:
    """A case of Clients.java under way."""

    def __init__(self, lab, case, count=1000, **properties):
        self.process = subprocess.Popen(
            ["java", "-Xmx32m", "-XX:+UseSerialGC", *(f"-D{k}={v}" for k, v in properties.items()), "-cp", CLASSES,
             "Clients", case, str(count)], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=lab.env)
        self.lines, self.done, self.program = [], 0, None
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            if line.startswith("done "):
                self.done = int(line.split()[1])
            else:
                self.lines.append(line.rstrip("\n"))
                if line.startswith("program "):
                    self.program = line.split()[1]

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()
        self.process.stderr.close()

    def end(self, test):
        """Wait until it has ended well."""
        try:
            self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGQUIT) # Its threads' stacks.
            time.sleep(1)
            self.process.kill()
        self.reader.join()
        test.assertEqual(self.process.stderr.read(), "")
        test.assertEqual(self.process.wait(), 0, self.lines)
        test.assertEqual(self.lines[-1], "ok")
        return "\n".join(self.lines[:-1])


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = cls.enterClassContext(Lab(["pocl"], RESEAT))
        cls.devices = cls.lab.devices()
        cls.service = Service(cls.lab)
        cls.service.start()

    @classmethod
    def tearDownClass(cls):
        cls.service.kill()

    def jvm(self, *arguments, **properties):
        jvm = Jvm(self.lab, *arguments, **properties)
        self.addCleanup(jvm.kill)
        return jvm

    def no_streams(self):
        wait_for(lambda: not self.service.programs())

    def test_every_use(self):
        for sockets in "false", "true":
            self.jvm("ways", 3000, sockets=sockets).end(self)

    def test_in_order_with_a_small_heap(self):
        self.assertIn("shared true", self.jvm("map", 40_000).end(self))
        self.assertIn("shared false", self.jvm("map", 20_000, sockets="true").end(self))

    def test_back_pressure_interrupts_and_wrong_records(self):
        for case in "pressure", "interrupted", "wrong":
            self.jvm(case).end(self)

    def test_a_kernel_of_the_program(self):
        said = self.jvm("own").end(self)
        self.assertIn("nothing", said)
        self.no_streams()

    def test_refusals_say_what_to_do(self):
        self.assertIn("nosuch", self.jvm("refusal", kernel="nosuch", reason="REFUSED").end(self))
        self.assertIn("constant", self.jvm("refusal", kernel="kmp", reason="REFUSED").end(self))

    def test_a_killed_client_is_freed(self):
        jvm = self.jvm("chaos", 600)
        wait_for(lambda: jvm.done)
        self.assertIn(jvm.program, self.service.programs())
        jvm.process.kill()
        self.no_streams()

    def test_moved_while_records_are_compared(self):
        jvm = self.jvm("chaos", 8)
        wait_for(lambda: jvm.done)
        moves = 0
        while jvm.process.poll() is None:
            status, _ = self.lab.control("move", jvm.program, self.devices[moves % len(self.devices)], "--json")
            moves += status == 0
            time.sleep(0.1)
        jvm.end(self)
        self.assertGreater(moves, 3)

    def kill_workers(self, jvm, kills):
        killed = set()
        while len(killed) < kills and jvm.process.poll() is None:
            for app in self.service.programs().values():
                if app["pid"] not in killed and app.get("device"):
                    killed.add(app["pid"])
                    os.kill(app["pid"], signal.SIGKILL)
            time.sleep(0.3)
        return len(killed)

    def test_killed_worker(self):
        for sockets in "false", "true":
            jvm = self.jvm("chaos", 8, sockets=sockets)
            wait_for(lambda: jvm.done)
            self.assertGreaterEqual(self.kill_workers(jvm, 3), 2)
            jvm.end(self)

    def test_killed_service(self):
        for sockets in "false", "true":
            jvm = self.jvm("chaos", 10, sockets=sockets)
            for _ in range(2):
                done = jvm.done
                wait_for(lambda: jvm.done > done)
                self.service.kill()
                time.sleep(random.uniform(0, 0.5))
                self.service.start()
            jvm.end(self)
        self.no_streams()

    def test_python(self):
        data = records(20_000)
        right = references.aes_openssl(KEY, data)
        for shared in True, False:
            with reseat_stream.open("aes", KEY, address=self.service.address, shared_memory=shared) as aes:
                self.assertEqual(aes.shared, shared)
                self.assertEqual(aes.run(data), right)
                pieces = (data[at:at + 16] for at in range(0, len(data), 16))
                self.assertEqual(b"".join(aes.map(pieces)), right)
                os.kill(self.service.programs()[aes.program]["pid"], signal.SIGKILL)
                self.assertEqual(aes.run(data), right)
                self.service.kill()
                restart = threading.Timer(0.2, self.service.start)
                restart.start()
                self.assertEqual(aes.run(data), right)
                restart.join()
        with self.assertRaisesRegex(reseat_stream.Refused, "key"):
            reseat_stream.open("aes", address=self.service.address)
        with reseat_stream.open("aes", key=KEY, address=self.service.address) as aes:
            self.assertEqual(aes.run(data[:160]), right[:160])
        self.no_streams()


if __name__ == "__main__":
    unittest.main()
