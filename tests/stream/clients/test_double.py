#!/usr/bin/python3
"""The libraries for Java and Python against a service that sends rubbish and ends at chosen points.

test_double.py CLASSPATH, with the module's folder in PYTHONPATH
"""
import os
import subprocess
import sys
import tempfile
import unittest

import reseat_stream
from double import Double, records, xor

CLASSES = sys.argv.pop(1)
KEY = b"0123456789abcdef"
# What a service can send in place of OPENED.
RUBBISH = ["half", "short", "version", "gigabyte", "string", "noise"]
CUTS = [40, 0, 7, 1000, 0, 1, 2, 3]
BOTH = [True, False]


class WithDouble(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="double-")
        self.addCleanup(self.folder.cleanup)
        self.count = 0

    def double(self, *arguments, **named):
        self.count += 1
        double = Double(f"{self.folder.name}/{self.count}", *arguments, **named)
        self.addCleanup(double.close)
        return double


class Java(WithDouble):
    def run_case(self, case, double, count=300, **properties):
        """What a case of Clients.java prints before "ok"."""
        done = subprocess.run(
            ["java", "-Xmx24m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dkernel=xor",
             *(f"-D{k}={v}" for k, v in properties.items()), "-cp", CLASSES, "Clients", case, str(count)],
            text=True, capture_output=True, timeout=120, env={**os.environ, "RESEAT_STREAM": f"unix:{double.path}"})
        self.assertEqual(done.stderr, "")
        self.assertEqual(done.returncode, 0)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[-1], "ok")
        return "\n".join(lines[:-1])

    def test_every_use_goes_on_when_the_service_ends(self):
        for area in BOTH:
            for capacity in 64, 3:
                with self.subTest(area=area, capacity=capacity):
                    double = self.double(CUTS, capacity=capacity, area=area)
                    self.run_case("ways", double)
                    self.assertGreater(double.opened, len(CUTS))

    def test_back_pressure(self):
        for area in BOTH:
            self.run_case("pressure", self.double(area=area))

    def test_interrupts_and_timeouts(self):
        for area in BOTH:
            self.run_case("interrupted", self.double(area=area))

    def test_wrong_records(self):
        for area in BOTH:
            self.run_case("wrong", self.double(area=area))

    def test_rubbish_in_place_of_the_stream(self):
        for life in RUBBISH:
            self.assertIn("ended the connection", self.run_case("refusal", self.double([life]), reason="NO_SERVICE"))
        self.assertEqual("there is no kernel xor: try aes",
                         self.run_case("refusal", self.double(["refuse"]), reason="REFUSED"))

    def test_rubbish_while_it_connects_again(self):
        for area in BOTH:
            double = self.double([40, *RUBBISH, 7], area=area)
            self.run_case("map", double)
            self.assertEqual(double.opened, 9)

    def test_no_area_that_can_be_used(self):
        for life in "magic", "offset", "unshared":
            self.assertIn("shared false", self.run_case("map", self.double([life])))

    def test_the_stream_fails_under_way(self):
        for life, area, why in (("total", True, "totals are wrong"), ("more", False, "rules"), ("part", False, "rules"),
                                ("fail", True, "wrote beyond"), ("fail", False, "wrote beyond")):
            said = self.run_case("failure", self.double([life], area=area), reason="FAILED")
            self.assertIn(why, said)
            if life == "fail" and area: # What was answered before comes before the failure.
                self.assertGreaterEqual(int(said.split()[0]), 40)

    def test_a_service_that_answers_nothing_is_given_up(self):
        for area in BOTH:
            double = self.double([0] * 20, area=area)
            self.assertIn("10 times", self.run_case("failure", double, reason="NO_SERVICE"))
            said = self.run_case("failure", self.double([40], area=area), reason="NO_SERVICE", reconnect=0)
            self.assertEqual(said.split()[0], "40")


class Python(WithDouble):
    def open(self, double, *arguments, **named):
        stream = reseat_stream.open("xor", *arguments or [KEY], address=f"unix:{double.path}", **named)
        self.addCleanup(stream.close)
        return stream

    def compare(self, stream, count):
        data = records(count)
        right = xor(data, KEY)
        self.assertEqual(stream.run(data), right)
        out = memoryview(bytearray(len(right) + 5))
        self.assertIs(stream.run(memoryview(data), out), out)
        self.assertEqual(out[:len(right)], right)
        pieces = [data[at:at + 16] for at in range(0, len(data), 16)]
        self.assertEqual(b"".join(stream.map(pieces)), right)
        left = stream.map(pieces)
        self.assertEqual(next(left), right[:16])
        self.assertEqual(stream.run(data), right)
        with self.assertRaises(RuntimeError):
            next(left)

    def test_every_use_goes_on_when_the_service_ends(self):
        for area in BOTH:
            for capacity in 64, 3:
                with self.subTest(area=area, capacity=capacity):
                    double = self.double(CUTS, capacity=capacity, area=area)
                    stream = self.open(double)
                    self.assertEqual(stream.shared, area)
                    self.compare(stream, 300)
                    self.assertGreater(double.opened, len(CUTS))

    def test_numpy(self):
        import numpy
        stream = self.open(self.double(), key=numpy.frombuffer(KEY, numpy.uint32))
        data = numpy.arange(4000, dtype=numpy.float64)
        out = stream.run(data, numpy.empty_like(data))
        self.assertEqual(out.tobytes(), xor(data.tobytes(), KEY))

    def test_wrong_records(self):
        stream = self.open(self.double())
        with self.assertRaises(ValueError):
            stream.run(bytes(17))
        with self.assertRaises(ValueError):
            stream.run(bytes(16), bytearray(15))
        answers = stream.map([records(1), bytes(15)])
        self.assertRaisesRegex(ValueError, "have 16", list, answers)
        self.compare(stream, 50)

    def test_rubbish_in_place_of_the_stream(self):
        for life in RUBBISH:
            with self.assertRaisesRegex(reseat_stream.NoService, "ended the connection"):
                self.open(self.double([life]))
        with self.assertRaisesRegex(reseat_stream.Refused, "^there is no kernel xor: try aes$"):
            self.open(self.double(["refuse"]))
        with self.assertRaisesRegex(reseat_stream.NoService, "start `reseat stream serve`"):
            reseat_stream.open("xor", address="unix:/nowhere")

    def test_no_area_that_can_be_used(self):
        for life in "magic", "offset", "unshared":
            stream = self.open(self.double([life]))
            self.assertFalse(stream.shared)
            self.compare(stream, 50)

    def test_rubbish_while_it_connects_again(self):
        for area in BOTH:
            double = self.double([40, *RUBBISH, 7], area=area)
            self.compare(self.open(double), 100)
            self.assertEqual(double.opened, 9)

    def test_the_stream_fails_under_way(self):
        for life, area, why in (("total", True, "totals are wrong"), ("more", False, "rules"), ("part", False, "rules"),
                                ("fail", True, "wrote beyond"), ("fail", False, "wrote beyond")):
            stream = self.open(self.double([life], area=area))
            data, came = records(1000), b""
            with self.assertRaisesRegex(reseat_stream.Failed, why):
                for answer in stream.map(data[at:at + 16] for at in range(0, len(data), 16)):
                    came += answer
            self.assertEqual(came, xor(data[:len(came)], KEY))
            if life == "fail" and area: # What was answered before comes before the failure.
                self.assertGreaterEqual(len(came), 40 * 16)

    def test_a_service_that_answers_nothing_is_given_up(self):
        for area in BOTH:
            with self.assertRaises(reseat_stream.NoService):
                self.open(self.double([0] * 20, area=area)).run(records(100))
            with self.assertRaises(reseat_stream.NoService):
                self.open(self.double([40], area=area), reconnect=0).run(records(100))

    def test_timeout(self):
        for area in BOTH:
            with self.assertRaisesRegex(reseat_stream.TimedOut, "100 records are on their way"):
                self.open(self.double(["stall"], capacity=100, area=area), timeout=2).run(records(300))


if __name__ == "__main__":
    unittest.main()
