#!/usr/bin/python3
"""reseat top in a terminal: what is on it, what its keys do, and what is left of it afterwards."""

import errno
import fcntl
import json
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
import unittest

import pyte

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from case import PATIENCE, RESEAT, Case, RealAgent  # pylint: disable=wrong-import-position

OTHER = 65534  # a user who runs nothing
FEW_BYTES = 64  # for any number of screens that are equal
ESCAPES = "evil\x1b[2J\x1b]0;title\x07\n\u009b31m"


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class Terminal:
    """reseat top, and the terminal that it believes to have."""

    def __init__(self, env, *arguments, columns=80, lines=24, term="linux", under=(), user=()):
        self.master, self.slave = pty.openpty()
        self.screen = pyte.Screen(columns, lines)
        self.stream = pyte.ByteStream(self.screen)
        self.written = b""
        self.resize(columns, lines)
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(
            [*under, RESEAT, *user, "top", *arguments], env=dict(env, TERM=term), start_new_session=True,
            stdin=self.slave, stdout=self.slave, stderr=self.slave,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def resize(self, columns, lines):
        self.screen.resize(lines, columns)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def pump(self, seconds=0.05):
        if select.select([self.master], [], [], seconds)[0]:
            got = os.read(self.master, 65536)
            self.written += got
            self.stream.feed(got)

    def text(self):
        return "\n".join(self.screen.display)

    def until(self, what, ready):
        end = time.monotonic() + PATIENCE
        while not ready():
            if time.monotonic() > end:
                raise AssertionError(f"never came about: {what}; the screen is\n{self.text()}")
            self.pump()

    def sees(self, text):
        self.until(text, lambda: text in self.text())

    def entry(self, name):
        """The line of a device or a program, or ""."""
        return next((line for line in self.screen.display
                     if name in line.removeprefix("> ").split()[:2]), "")

    def selects(self, name, key):
        """Press a key until the line with a name is selected."""
        def selected():
            if self.entry(name).startswith("> "):
                return True
            self.type(key)
            self.pump(0.2)
            return False
        self.until(f"{name} is selected", selected)

    def type(self, keys):
        os.write(self.master, keys.encode())

    def ended(self):
        self.until("the end", lambda: self.process.poll() is not None)
        while select.select([self.master], [], [], 0)[0]:
            self.pump()
        return self.process.returncode

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)


class TopCase(Case):
    def top(self, *arguments, **size):
        terminal = Terminal(self.env, *arguments, **size)
        self.addCleanup(terminal.close)
        return terminal


class RealTop(TopCase, RealAgent):
    def listed(self):
        """How often drivers were started to list their devices."""
        with open(f"{self.folder}/listed", encoding="ascii") as file:
            return len(file.readlines())

    def test_shows_what_ps_and_devices_say(self):
        top = self.top()
        top.sees("solver")
        top.sees("3 devices, 2 programs")
        shown = [(app["name"], (app["id"], str(app["pid"]), app["device"], app["state"]))
                 for app in self.list("ps", "apps")]
        shown += [(device["name"], (device["kind"], device["state"], str(device["compute_units"])))
                  for device in self.list("devices", "devices")]
        self.assertEqual(len(shown), 5)
        # What is read of a terminal at once may end within a screen.
        for name, words in shown:
            top.until(f"{name}: {words}", lambda name=name, words=words: set(words) <= set(top.entry(name).split()))

    def test_keys_move_suspend_resume_and_drain(self):
        top = self.top()
        top.sees("solver")
        top.type("\t")
        top.selects("cpu1", "j")
        top.type("\t")
        top.selects("render", "k")

        asked = self.reseat("move", "render", "cpu1", "--dry-run")
        self.assertEqual(asked.returncode, 0)
        for answer, device in (("n", "gpu0"), ("y", "cpu1")):
            top.type("m")
            top.sees("Move to device: cpu1_")
            top.type("\r")
            top.sees("y/n: Move render to cpu1?")
            self.assertIn(asked.stdout.strip()[:79], top.text())
            self.assertEqual(self.app("render")["device"], "gpu0")
            # Any other key is no answer.
            top.type("x\rmY")
            top.pump(0.5)
            self.assertIn("y/n: Move render to cpu1?", top.text())
            top.type(answer)
            if answer == "n":
                top.sees("nothing was done")
            self.until(device, lambda: self.app("render")["device"] == device)
        top.until("it is on cpu1", lambda: "cpu1" in top.entry("render").split())
        self.assertEqual(self.app("solver")["device"], "gpu0")

        for key, what, state in (("s", "Suspend", "suspended"), ("r", "Resume", "running")):
            before = self.app("render")["state"]
            for answer in "ny":
                top.type(key)
                top.sees(f"y/n: {what} render?")
                self.assertEqual(self.app("render")["state"], before)
                top.type(answer)
                if answer == "n":
                    top.sees("nothing was done")
            self.until(state, lambda: self.app("render")["state"] == state)
            top.until(state, lambda: state in top.entry("render"))

        top.type("\t")
        top.selects("gpu0", "k")
        asked = self.reseat("drain", "gpu0", "--dry-run").stdout
        self.assertIn("solver", asked)
        for answer in "ny":
            top.type("d")
            top.sees("y/n: Drain gpu0?")
            for line in asked.splitlines():
                self.assertIn(line[:79], top.text())
            self.assertFalse(self.drained("gpu0"))
            top.type(answer)
            if answer == "n":
                top.sees("nothing was done")
                self.assertFalse(self.drained("gpu0"))
        self.until("drained", lambda: self.drained("gpu0"))
        self.until("left", lambda: self.app("solver")["device"] != "gpu0")
        top.until("drained", lambda: "drained" in top.entry("gpu0"))
        top.type("d")
        top.sees("y/n: Let programs use gpu0 again?")
        self.assertTrue(self.drained("gpu0"))
        top.type("y")
        self.until("not drained", lambda: not self.drained("gpu0"))

    def test_drivers_are_not_started_for_every_screen(self):
        top = self.top("--watch", "0.1")
        top.sees("solver")
        listed = self.listed()
        self.assertGreater(listed, 0)
        time.sleep(3)
        self.assertEqual(self.listed(), listed)

    def test_refusal_is_shown(self):
        top = self.top()
        top.sees("solver")
        top.type("m")
        top.sees("Move to device: gpu0_")
        top.type("\b\b\b\bnone\r")
        said = self.reseat("move", "solver", "none", "--dry-run").stderr.strip()
        top.sees(said[:60])
        self.assertNotIn("y/n:", top.text())

    def test_filters_sorts_and_shows_a_tree(self):
        top = self.top("--sort", "-name")
        top.sees("render")
        top.until("the last name is first", lambda: [
            word for line in top.screen.display for word in line.split()
            if word in ("render", "solver")] == ["solver", "render"])
        top.type("R")
        top.until("the first name is first", lambda: [
            word for line in top.screen.display for word in line.split()
            if word in ("render", "solver")] == ["render", "solver"])
        top.type("/ende\r")
        top.sees("only *ende*")
        top.until("no solver", lambda: not top.entry("solver"))
        top.type("/\r")
        top.sees("solver")
        top.type("u")
        top.sees("└─")
        self.assertTrue(any(line[2:].strip() == "root" or line.split()[-1:] == ["root"]
                            for line in top.screen.display), top.text())
        # A user is nothing that can be suspended.
        top.type("gs")
        top.sees("no program is selected")

    def test_agent_is_killed_and_restarted(self):
        top = self.top()
        top.sees("solver")
        pid = json.loads(self.reseat("agent", "status", "--json").stdout)["agent"]["pid"]
        os.kill(pid, signal.SIGKILL)
        top.sees("no agent runs")
        self.assertTrue(top.entry("solver"))
        self.assertEqual(self.reseat("agent", "start").returncode, 0)
        top.sees("3 devices, 2 programs")
        top.until("it runs", lambda: "running" in top.entry("solver"))


def packed(value):
    """Of msgpack what an answer needs."""
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return b"\xcf" + struct.pack(">Q", value)
    if isinstance(value, str):
        text = value.encode()
        return b"\xda" + struct.pack(">H", len(text)) + text
    items = value if isinstance(value, list) else [x for pair in value.items() for x in pair]
    return (b"\xdd" if items is value else b"\xdf") + struct.pack(">I", len(value)) + b"".join(map(packed, items))


class Double(TopCase):
    """With a double of an agent, which says that there are 64 devices and 1,000 programs."""

    def setUp(self):
        super().setUp()
        self.asked = 0
        self.silent = False
        self.welcome = {"type": "welcome", "version": 2}
        self.apps = [{"id": f"a{i}", "name": f"program-{i:03}", "pid": 1000 + i, "uid": i % 3,
                      "state": "running", "device": f"gpu{i % 64}", "device_bytes": i << 20,
                      "vdevs": [{"device": f"gpu{i % 64}", "suspended": False}]}
                     for i in reversed(range(1000))]
        self.devices = [{"name": f"gpu{i}", "kind": "gpu", "device": "A device", "state": "up",
                         "memory_bytes": 1 << 34, "compute_units": 64,
                         "apps": [{"name": "program", "pid": 1}]} for i in range(64)]
        self.env["RESEAT_SOCKET"] = f"{self.folder}/run/agent.sock"
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(self.env["RESEAT_SOCKET"])
        self.socket.listen()
        self.addCleanup(self.socket.close)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                self.serve_one(self.socket.accept()[0])
            except ConnectionError:
                pass
            except OSError:
                return

    def serve_one(self, client):
        with client, client.makefile("rb") as file:
            while head := file.read(4):
                answer = self.answer(file.read(struct.unpack("<I", head)[0]))
                while self.silent:
                    time.sleep(0.05)
                client.sendall(struct.pack("<I", len(answer)) + answer)

    def answer(self, frame):
        if b"\xa5hello" in frame:
            return packed(self.welcome)
        if b"\xa4type\xa7devices" in frame:
            return packed({"type": "devices", "devices": self.devices})
        self.asked += 1
        return packed({"type": "apps", "apps": self.apps})

    def refreshed(self, top, times):
        until = self.asked + times
        top.until("answers", lambda: self.asked >= until)

    def test_an_unchanged_screen_is_not_written_again(self):
        top = self.top("--watch", "0.1")
        top.sees("64 devices, 1000 programs")
        top.sees("program-000")
        self.refreshed(top, 2)
        before = len(top.written)
        self.refreshed(top, 5)
        self.assertLessEqual(len(top.written) - before, FEW_BYTES, top.written[before:][:200])
        # One program changes: not the whole screen.
        self.apps[-1]["state"] = "suspended"
        top.until("it is suspended", lambda: "suspended" in top.entry("program-000"))
        self.assertLessEqual(len(top.written) - before, 4 * FEW_BYTES)

    def test_every_program_and_device_can_be_reached(self):
        top = self.top("--watch", "0.5")
        top.sees("program-000")
        top.type("G")
        top.until("the last", lambda: top.entry("program-999").startswith("> "))
        top.type("\tG")
        top.until("the last", lambda: top.entry("gpu63").startswith("> "))

    def test_the_screen_may_be_small_large_and_change(self):
        top = self.top("--watch", "0.5")
        top.sees("program-000")
        top.type("jjj")
        for columns, lines in ((40, 10), (200, 60), (20, 4), (1, 1), (80, 24)):
            top.resize(columns, lines)
            self.refreshed(top, 3)
            if columns >= 40:
                top.until("the selected program", lambda: top.entry("program-003").startswith("> "))
                top.sees("64 devices")
                top.sees(" gpu0 ")
                rows = sum(" program-" in line for line in top.screen.display)
                self.assertGreaterEqual(rows, lines // 2 - 2, top.text())
        self.assertIsNone(top.process.poll())

    def test_names_cannot_write_to_the_terminal(self):
        self.apps = [dict(self.apps[-1], name=ESCAPES, state=ESCAPES)]
        self.devices = [dict(self.devices[0], name=ESCAPES, device=ESCAPES)]
        top = self.top("--watch", "0.2", columns=200)
        top.sees("> a0 evil?[2J?]0;title? ??31m")
        top.type("s")
        top.sees("y/n: Suspend evil?[2J")
        top.type("nm\r")
        self.refreshed(top, 2)
        for part in (b"\x1b[2J\x1b]", b"\x1b]0;", b"\xc2\x9b"):
            self.assertNotIn(part, top.written)

    def test_a_silent_agent_keeps_no_key_from_working(self):
        top = self.top("--watch", "0.2")
        top.sees("program-000")
        self.silent = True
        top.sees("the agent does not answer")
        top.type("?")
        top.sees("quit")
        top.type("xq")
        self.assertEqual(top.ended(), 0)
        self.silent = False

    def test_an_agent_that_is_silent_from_the_begin_keeps_no_key_from_working(self):
        self.silent = True
        top = self.top("--watch", "0.2")
        top.until("it draws before it is answered", lambda: b"0 devices, 0 programs" in top.written)
        top.sees("the agent does not answer")
        top.type("?")
        top.sees("quit")
        top.type("x")
        # It goes on with the same connection.
        self.silent = False
        top.sees("64 devices, 1000 programs")
        top.type("q")
        self.assertEqual(top.ended(), 0)

    def test_an_agent_that_takes_no_connection_keeps_no_key_from_working(self):
        self.silent = True
        self.socket.listen(0)
        fill = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) for _ in range(4)]
        for one in fill:
            self.addCleanup(one.close)
            if one.connect_ex(self.env["RESEAT_SOCKET"]) == errno.EAGAIN:
                break
        else:
            self.fail("it accepts all of them")
        top = self.top("--watch", "0.2")
        top.sees("the agent does not answer")
        top.type("?")
        top.sees("quit")
        top.type("xq")
        self.assertEqual(top.ended(), 0)
        self.silent = False

    @unittest.skipIf(os.geteuid(), "only root may ask another user's agent")
    def test_root_watches_another_user_and_acts_there(self):
        os.seteuid(OTHER)  # who listens is who is at the other end
        self.socket.listen()
        os.seteuid(0)
        top = self.top("--watch", "0.2")
        top.sees("is owned by another user; refused")
        top.type("q")
        self.assertEqual(top.ended(), 0)
        os.chown(f"{self.folder}/run", OTHER, OTHER)
        top = self.top("--watch", "0.2", user=("--user", str(OTHER)))
        top.sees("program-000")
        top.type("s")
        top.sees("y/n: Suspend program-000?")
        self.silent = True  # so that the command does not end before it is seen
        top.type("y")
        children = f"/proc/{top.process.pid}/task/{top.process.pid}/children"
        # Before it is executed, its words are those of top.
        top.until("the command runs", lambda: any(
            read(f"/proc/{child}/cmdline").split("\0")[1:4] == ["--user", str(OTHER), "suspend"]
            for child in read(children).split()))
        self.silent = False
        top.type("q")
        self.assertEqual(top.ended(), 0)

    def test_an_agent_of_another_release_says_so(self):
        self.welcome = {"type": "error", "code": "protocol", "message": "it speaks another version"}
        top = self.top("--watch", "0.2")
        top.sees("it speaks another version")
        self.welcome = {"type": "welcome", "version": 2}
        top.sees("64 devices, 1000 programs")

    def test_the_terminal_is_as_before_however_it_ends(self):
        for how in ("q", signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            for term in ("linux", "xterm", "tmux") if how == "q" else ("linux",):
                top = self.top("--watch", "0.2", term=term)
                self.refreshed(top, 2)
                self.assertNotEqual(termios.tcgetattr(top.slave), top.before)
                if how == "q":
                    top.type("q")
                else:
                    top.process.send_signal(how)
                self.assertEqual(top.ended(), 0 if how == "q" else -how)
                self.assertEqual(termios.tcgetattr(top.slave), top.before, how)
                if term != "linux":
                    self.assertIn(b"\x1b[?1049l", top.written)

    def test_it_can_be_stopped_and_go_on(self):
        script = ('set -m; "$@"; touch "$FOLDER/stopped"; until [ -e "$FOLDER/go" ]; do sleep 0.05; '
                  'done; fg >"$FOLDER/fg"; exit $?')
        self.env["FOLDER"] = self.folder
        top = self.top("--watch", "0.2", under=["bash", "-c", script, "bash"])
        top.sees("program-000")
        during = termios.tcgetattr(top.slave)
        self.assertNotEqual(during, top.before)
        top.type("\x1a")
        top.until("it stops", lambda: os.path.exists(f"{self.folder}/stopped"))
        self.assertEqual(termios.tcgetattr(top.slave), top.before)
        top.pump()
        top.screen.reset()
        with open(f"{self.folder}/go", "w", encoding="ascii"):
            top.sees("program-000")
        self.assertEqual(termios.tcgetattr(top.slave), during)
        top.type("q")
        self.assertEqual(top.ended(), 0)
        self.assertEqual(termios.tcgetattr(top.slave), top.before)

    def test_without_a_terminal_it_says_so(self):
        done = self.reseat("top")
        self.assertEqual(done.returncode, 2)
        self.assertIn("this is not a terminal", done.stderr)
        for term in ("dumb", "no-such-terminal"):
            top = self.top(term=term)
            self.assertEqual(top.ended(), 2)
            self.assertIn(f'"{term}"', top.text())
            self.assertEqual(termios.tcgetattr(top.slave), top.before)
        self.assertIn("there is no column", self.reseat("top", "-o", "nothing").stderr)


if __name__ == "__main__":
    unittest.main()
