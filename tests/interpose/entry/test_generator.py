#!/usr/bin/python3
"""The generator refuses a table that does not agree with the headers, and says what is wrong."""

import os
import subprocess
import sys
import tempfile
import unittest

GENERATOR, TABLE, *COMPILER = sys.argv[1:]


class Generator(unittest.TestCase):
    def generate(self, change):
        with open(TABLE, encoding="utf-8") as file:
            lines = change(file.read().splitlines())
        with tempfile.TemporaryDirectory() as folder:
            table = os.path.join(folder, "calls.txt")
            with open(table, "w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
            outputs = []
            for option in ("header", "source", "symbols", "tried"):
                outputs += [f"--{option}", os.path.join(folder, option)]
            info = os.path.join(os.path.dirname(TABLE), "info.txt")
            command = [sys.executable, GENERATOR, "--table", table, "--info", info, *outputs, *COMPILER]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            written = os.path.exists(os.path.join(folder, "source"))
        return result.returncode, result.stderr, written

    def refuses(self, change, *words):
        code, message, written = self.generate(change)
        self.assertNotEqual(code, 0)
        self.assertFalse(written)
        for word in words:
            self.assertIn(word, message)

    def test_the_table_as_it_is_passes(self):
        code, message, written = self.generate(lambda lines: lines)
        self.assertEqual((code, message, written), (0, "", True))

    def test_a_call_of_any_header_that_the_table_lacks_is_named(self):
        # Core, an extension, one that only the dispatch table has a type for, one of a header that
        # cannot be compiled here, and the layer's.
        for name in (
            "clFinish",
            "clCreateCommandBufferKHR",
            "clCreateFromD3D10BufferKHR",
            "clCreateFromVA_APIMediaSurfaceINTEL",
            "clInitLayer",
        ):
            with self.subTest(name):
                self.refuses(lambda lines: [l for l in lines if not l.startswith(name + " ")], name, "lacks")

    def test_a_call_that_no_header_has_is_named(self):
        self.refuses(lambda lines: lines + ["clMakeCoffee refused NULL -- no cup"], "clMakeCoffee")

    def test_a_call_may_be_there_once(self):
        self.refuses(lambda lines: lines + ["clFinish written entry_queue.c"], "clFinish", "twice")

    def test_a_refusal_needs_a_reason(self):
        self.refuses(lambda lines: [l.split(" -- ")[0] if l.startswith("clCreatePipe") else l for l in lines], "clCreatePipe")

    def test_a_command_says_what_each_memory_object_is_for(self):
        def forget(lines):
            return [l.replace(" dst_buffer:buffer:write", "") if l.startswith("clEnqueueCopyBuffer ") else l for l in lines]

        self.refuses(forget, "clEnqueueCopyBuffer", "dst_buffer")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
