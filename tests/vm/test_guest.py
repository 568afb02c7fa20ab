#!/usr/bin/python3
"""What the guest is made of, without a guest: its archive, its libraries, its modules, QMP."""

import json
import os
import socket
import stat
import subprocess
import tempfile
import threading
import unittest

from debian import Kernel, PackageError
from guest import Guest, GuestError
from initramfs import Image, ImageError
from qmp import Qmp, QmpError


class Folder(unittest.TestCase):
    """With a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="vm-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, content, mode=0o644):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
        os.chmod(path, mode)
        return path


class Archive(Folder):
    """cpio is the independent reader."""

    def unpack(self, image):
        archive, target = self.path("archive"), self.path("unpacked")
        image.write(archive)
        os.mkdir(target)
        with open(archive, "rb") as file:
            done = subprocess.run(["cpio", "-idm", "--quiet", "--no-absolute-filenames"], cwd=target,
                                  stdin=file, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        with open(archive, "rb") as file:
            names = subprocess.run(["cpio", "-t", "--quiet"], stdin=file, stdout=subprocess.PIPE,
                                   text=True, check=True).stdout.split()
        return target, names

    def test_files_of_any_length_links_and_modes_come_out_as_they_went_in(self):
        image = Image()
        contents = {size: os.urandom(size) for size in (0, 1, 2, 3, 4, 5, 4095, 70001)}
        for size, content in contents.items():
            image.add_file(self.write(f"in/{size}", content), f"/data/deep/{size}", 0o640)
        image.add_file(self.write("in/tool", b"#!/bin/sh\n", 0o777), "/bin/tool")
        image.add_link("/bin/other", "tool")
        image.add_text("/etc/name", "guest\n")
        image.add_folder("/root", 0o700)
        target, names = self.unpack(image)
        for size, content in contents.items():
            path = os.path.join(target, "data", "deep", str(size))
            with open(path, "rb") as file:
                self.assertEqual(file.read(), content)
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o640)
        self.assertEqual(os.readlink(os.path.join(target, "usr", "bin", "other")), "tool")
        self.assertEqual(os.readlink(os.path.join(target, "bin")), "usr/bin")
        self.assertEqual(stat.S_IMODE(os.stat(os.path.join(target, "root")).st_mode), 0o700)
        # Nobody but root may write to what root runs.
        tool = os.path.join(target, "usr", "bin", "tool")
        self.assertEqual(stat.S_IMODE(os.stat(tool).st_mode), 0o755)
        self.assertEqual(len(names), len(set(names)))
        # The kernel makes no folder that the archive does not have, before what is in it.
        for place, name in enumerate(names):
            parent = os.path.dirname(name)
            self.assertTrue(not parent or parent in names[:place], name)

    def test_the_same_content_gives_the_same_bytes(self):
        archives = []
        for name in ("one", "two"):
            image = Image()
            for text in ("b", "a") if name == "one" else ("a", "b"):
                image.add_text("/etc/" + text, text)
            image.write(self.path(name))
            with open(self.path(name), "rb") as file:
                archives.append(file.read())
        self.assertEqual(*archives)

    def test_a_place_outside_is_refused(self):
        for place in ("/etc/../../x", "..", "/", ""):
            with self.assertRaises(ImageError, msg=place):
                Image().add_text(place, "")

    def test_what_is_no_file_is_named(self):
        for path in (self.path("missing"), self.folder):
            with self.assertRaisesRegex(ImageError, path):
                Image().add_file(path)


class Libraries(Folder):
    """A program and a library that is nowhere but in a folder of ours."""

    def setUp(self):
        super().setUp()
        self.write("lib.c", b"int answer(void) { return 42; }\n")
        self.write("main.c", b"int answer(void);\nint main(void) { return answer(); }\n")
        os.makedirs(self.path("tree", "usr", "lib"))
        self.library = self.path("tree", "usr", "lib", "libvmtest.so")
        self.program = self.path("program")
        # Linked by its name alone, as an installed program is.
        subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libvmtest.so", "-o", self.library,
                        self.path("lib.c")], check=True)
        subprocess.run(["cc", "-o", self.program, self.path("main.c"), self.library], check=True)

    def test_one_that_is_missing_is_named_with_who_needs_it(self):
        image = Image()
        image.add_file(self.program, "/bin/program")
        with self.assertRaisesRegex(ImageError, "program needs libvmtest.so"):
            image.write(self.path("archive"))

    def test_those_of_the_machine_and_of_trees_are_found(self):
        image = Image()
        image.add_file(self.program, "/bin/program")
        image.add_tree(self.path("tree"))
        image.write(self.path("archive"))
        self.assertIn("usr/lib/libvmtest.so", image.entries)
        self.assertTrue(any(place.endswith("/libc.so.6") for place in image.entries))
        self.assertTrue(any("/ld-linux" in place for place in image.entries))
        self.assertEqual(sum(place.endswith("libvmtest.so") for place in image.entries), 1)

    def test_a_folder_that_is_left_out_stays_out(self):
        image = Image()
        self.write("tree/usr/share/doc/text", b"")
        image.add_tree(self.path("tree"), leave_out=["usr/share"])
        self.assertFalse([place for place in image.entries if "share" in place])


class Modules(Folder):
    """In the order in which they can be loaded."""

    def kernel(self, needed):
        kernel = Kernel.__new__(Kernel)  # without Debian's
        kernel.version = "test"
        kernel.modules = {name: self.write(f"{name}.ko",
                                           b"\x7fELF\0license=GPL\0depends=" + needs + b"\0name=x\0")
                          for name, needs in needed.items()}
        return kernel

    def order(self, kernel, *names):
        return [os.path.basename(path)[:-3] for path in kernel.with_needed(names)]

    def test_what_one_needs_comes_before_it_and_once(self):
        kernel = self.kernel({"net_card": b"failover,bus", "failover": b"", "bus": b"ring",
                              "ring": b"", "disk": b"bus", "other": b""})
        self.assertEqual(self.order(kernel, "net-card", "disk"),
                         ["failover", "ring", "bus", "net_card", "disk"])

    def test_one_that_is_missing_is_named_with_who_needs_it(self):
        with self.assertRaisesRegex(PackageError, "no module ring for bus for disk"):
            self.order(self.kernel({"disk": b"bus", "bus": b"ring"}), "disk")


class Control(Folder):
    """A QEMU that says what the test says."""

    def serve(self, *answers):
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(self.path("qmp"))
        listener.listen()

        def speak():
            peer, _ = listener.accept()
            with peer, peer.makefile("rb") as lines:
                peer.sendall(b'{"QMP": {}}\n')
                for answer in (b'{"return": {}}\n', *answers):
                    self.asked.append(json.loads(lines.readline()))
                    peer.sendall(answer)
        self.asked = []
        thread = threading.Thread(target=speak)
        thread.start()
        self.addCleanup(thread.join)
        qmp = Qmp(self.path("qmp"), 10)
        self.addCleanup(qmp.close)
        return qmp

    def test_an_answer_is_found_among_events(self):
        qmp = self.serve(b'{"event": "STOP"}\n{"event": "RESUME"}\n{"return": {"status": "x"}}\n')
        self.assertEqual(qmp.execute("query-migrate", max_bandwidth=3), {"status": "x"})
        self.assertEqual(self.asked[1], {"execute": "query-migrate",
                                         "arguments": {"max-bandwidth": 3}})

    def test_a_refusal_says_why(self):
        qmp = self.serve(b'{"error": {"class": "GenericError", "desc": "no such device"}}\n')
        with self.assertRaisesRegex(QmpError, "migrate: no such device"):
            qmp.execute("migrate")

    def test_an_end_in_the_middle_is_an_error(self):
        qmp = self.serve(b"")
        with self.assertRaisesRegex(QmpError, "has ended"):
            qmp.execute("migrate")


class Missing(Folder):
    """Clear words where something is not here."""

    def test_qemu(self):
        before = os.environ["PATH"]
        self.addCleanup(os.environ.__setitem__, "PATH", before)
        os.environ["PATH"] = self.folder
        with self.assertRaisesRegex(GuestError, "install qemu-system-x86"):
            Guest(self.folder, "image", None)
        self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    unittest.main()
