#!/usr/bin/python3
"""The libraries for C, Java and Python with the real service, over POCL's devices.

test_clients.py RESEAT CLASSPATH KERNELS SCRAMBLE, with the folders of the modules in PYTHONPATH
"""
import os
import random
import signal
import ssl
import subprocess
import sys
import threading
import time
import unittest

import references
import reseat_stream
from double import Double, records, xor
from lab import DONE, EMULATED, Lab
from world import CONSTANT, Authority, Flow, Jvm, Service, numbers, wait_for

RESEAT, CLASSES, KERNELS, SCRAMBLE = sys.argv[1:5]
del sys.argv[1:5]
KEY = b"0123456789abcdef"
class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = cls.enterClassContext(Lab(["pocl"], RESEAT))
        cls.devices = cls.lab.devices()
        cls.service = Service(cls.lab, kernels=[KERNELS])

    @classmethod
    def tearDownClass(cls):
        cls.service.kill()

    def jvm(self, *arguments, **properties):
        jvm = Jvm(CLASSES, self.lab.env, *arguments, **properties)
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

    def test_memory_that_cannot_be_opened(self):
        """As of a service in another container: the C library sends records through the socket instead."""
        double = Double(self.lab.path("double"), ["unshared"], capacity=256)
        self.addCleanup(double.close)
        data = records(1000)
        env = dict(self.lab.env, RESEAT_STREAM=double.address)
        with subprocess.Popen([RESEAT, "stream", "run", "xor", "--constant", "key=" + KEY.hex()], env=env,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
            client.stdin.write(data)
            client.stdin.flush()
            self.assertEqual(client.stdout.read(len(data)), xor(data, KEY))
            client.kill()  # The double never says that it has finished.
        self.assertEqual(double.opened, 1)

    def test_a_killed_client_is_freed(self):
        jvm = self.jvm("chaos", 600)
        jvm.more(self)
        self.assertIn(jvm.program, self.service.programs())
        jvm.process.kill()
        self.no_streams()

    def test_moved_while_records_are_compared(self):
        jvm = self.jvm("chaos")
        moves = 0
        for device in 4 * self.devices:
            jvm.more(self)
            moves += self.lab.control("move", jvm.program, device, "--json")[0] == DONE
        jvm.more(self)
        jvm.end(self)
        self.assertGreater(moves, 3)

    def test_killed_worker(self):
        for sockets in "false", "true":
            jvm = self.jvm("chaos", sockets=sockets)
            for _ in range(3):
                jvm.more(self)
                os.kill(self.service.worker(jvm.program), signal.SIGKILL)
            jvm.more(self)
            jvm.end(self)

    def test_killed_service(self):
        for sockets in "false", "true":
            jvm = self.jvm("chaos", sockets=sockets)
            for _ in range(2):
                jvm.more(self)
                self.service.kill()
                time.sleep(random.uniform(0, 0.5))
                self.service.start()
            jvm.more(self)
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


class Lost(unittest.TestCase):
    def test_a_device_is_lost(self):
        """Each worker's device vanishes at its 20th read; the JVM has each answer once all the same."""
        with Lab([EMULATED], RESEAT) as lab:
            lab.devices()
            # Reads are counted, not calls: how often an event is asked for is chance.
            lab.env["EMU_FAIL"] = "device=a;call=20;function=clEnqueueReadBuffer;error=vanish"
            service = Service(lab, kernels=[KERNELS])
            jvm = Jvm(CLASSES, lab.env, "chaos")
            try:
                jvm.more(self)
                first = service.worker(jvm.program)
                wait_for(lambda: service.worker(jvm.program) != first)
                for _ in range(3):
                    jvm.more(self)
            finally:
                jvm.kill()
                service.kill()


class Remote(unittest.TestCase):
    """Through TLS, with certificates of a private authority."""

    @classmethod
    def setUpClass(cls):
        cls.lab = cls.enterClassContext(Lab(["pocl"], RESEAT))
        cls.lab.devices()
        cls.authority = Authority(cls.lab)
        cls.service = Service(cls.lab, kernels=[KERNELS, SCRAMBLE], authority=cls.authority)
        cls.credentials = cls.authority.issue("laptop", "--sessions", "9")
        os.environ["RESEAT_CREDENTIALS"] = cls.credentials

    @classmethod
    def tearDownClass(cls):
        cls.service.kill()

    def jvm(self, *arguments, credentials=None, **properties):
        env = self.service.stranger(credentials or self.credentials)
        jvm = Jvm(CLASSES, env, *arguments, **properties)
        self.addCleanup(jvm.kill)
        return jvm

    def test_java(self):
        self.jvm("ways", 3000).end(self)
        self.assertIn("shared false", self.jvm("map", 20_000).end(self))
        self.assertIn("nosuch", self.jvm("refusal", kernel="nosuch", reason="REFUSED").end(self))

    def test_python(self):
        data = records(20_000)
        right = references.aes_openssl(KEY, data)
        with reseat_stream.open("aes", KEY, address=self.service.remote) as aes:
            self.assertFalse(aes.shared)
            self.assertEqual(aes.run(data), right)
            pieces = (data[at:at + 16] for at in range(0, len(data), 16))
            self.assertEqual(b"".join(aes.map(pieces)), right)
        with self.assertRaisesRegex(reseat_stream.Refused, "nosuch"):
            reseat_stream.open("nosuch", address=self.service.remote)

    def test_all_at_once_and_the_service_is_killed(self):
        """C, Java and Python; the worker and the service are killed, and each answer comes once."""
        flow = Flow(self.service, env=self.service.stranger(self.credentials))
        jvm = self.jvm("chaos")
        data = records(20_000)
        right = references.aes_openssl(KEY, data)
        with reseat_stream.open("aes", KEY, address=self.service.remote) as aes:
            for kill in False, True, False:
                flow.more(10_000)
                jvm.more(self)
                self.assertEqual(aes.run(data), right)
                if kill:
                    self.service.kill()
                    self.service.start()
                else:
                    for app in self.service.programs().values():
                        os.kill(app["pid"], signal.SIGKILL)
            self.assertEqual(aes.run(data), right)
        flow.more(10_000)
        flow.end(self)
        jvm.end(self)

    def test_who_is_not_admitted(self):
        revoked = self.authority.issue("revoked")
        self.authority.run("--revoke", "revoked")
        wrong = self.lab.path("wrong.pem")
        with open(self.credentials, encoding="ascii") as file, open(wrong, "w", encoding="ascii") as to:
            to.write(file.read().replace("reseat-server: streams", "reseat-server: other"))
        os.chmod(wrong, 0o600)
        readable = self.authority.issue("readable")
        os.chmod(readable, 0o640)
        for credentials, why in ((revoked, "revoked"), (wrong, "other|hostname mismatch"),
                                 (readable, "chmod 600|mode must be 0600"), (self.lab.path("none"), "none")):
            with self.subTest(why=why):
                said = self.jvm("refusal", reason="NO_SERVICE", reconnect=0, credentials=credentials).end(self)
                self.assertRegex(said, why)
                env = self.service.stranger(credentials)
                status, _, said = self.service.run("scramble", b"", *CONSTANT, env=env)
                self.assertEqual(status, 1)
                self.assertRegex(said, why)
                os.environ["RESEAT_CREDENTIALS"] = credentials
                self.addCleanup(os.environ.update, RESEAT_CREDENTIALS=self.credentials)
                with self.assertRaisesRegex(reseat_stream.NoService, why):
                    reseat_stream.open("aes", KEY, address=self.service.remote, reconnect=0)

    def test_a_certificate_that_is_revoked_ends_its_streams(self):
        lost = self.authority.issue("lost")
        jvm = self.jvm("failure", reason="FAILED", credentials=lost)
        os.environ["RESEAT_CREDENTIALS"] = lost
        self.addCleanup(os.environ.update, RESEAT_CREDENTIALS=self.credentials)
        with reseat_stream.open("aes", KEY, address=self.service.remote) as aes:
            aes.run(records(10))
            wait_for(lambda: sum(stream["answered"] > 0 for stream in self.service.list()["streams"]) == 2)
            self.authority.run("--revoke", "lost")
            with self.assertRaisesRegex(reseat_stream.Failed, "certificate was revoked"):
                while True:
                    aes.run(records(1000))
        self.assertIn("certificate was revoked", jvm.end(self))

    def test_another_host_s_service_names_memory_of_this_one(self):
        """The area is whole, and would do: no client opens what another host names."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version, context.num_tickets = ssl.TLSVersion.TLSv1_3, 0
        with open(self.authority.folder + "/server.pem", encoding="ascii") as file:
            text = file.read()
        own = self.lab.path("own.pem")
        with open(own, "w", encoding="ascii") as file:  # Without the authority's certificate at the end.
            file.write(text[:text.rindex("-----BEGIN CERTIFICATE-----")])
        context.load_cert_chain(own)
        context.load_verify_locations(self.authority.folder + "/server.pem")
        context.verify_mode = ssl.CERT_REQUIRED
        double = Double(None, ["named"] * 9, capacity=256, tls=context)
        self.addCleanup(double.close)
        env = dict(self.lab.env, RESEAT_CREDENTIALS=self.credentials, RESEAT_STREAM=double.address)
        jvm = Jvm(CLASSES, env, "refusal", reason="NO_SERVICE", kernel="xor")
        self.addCleanup(jvm.kill)
        self.assertIn("named memory of this machine", jvm.end(self))
        with self.assertRaisesRegex(reseat_stream.NoService, "named memory of this machine"):
            reseat_stream.open("xor", KEY, address=double.address)
        status, answers, said = self.service.run("xor", bytes(16), "--constant", "key=" + KEY.hex(), env=env)
        self.assertEqual((status, answers), (1, b""))
        self.assertIn("memory", said)
        self.assertEqual(double.opened, 3)


if __name__ == "__main__":
    unittest.main()
