#!/usr/bin/python3
"""The page for browsers by plain HTTP: it says what commands say, to those who may know, and withstands others."""

import base64
import hashlib
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from case import PATIENCE, RESEAT, Case, RealAgent  # pylint: disable=wrong-import-position
from page import Page, free_port  # pylint: disable=wrong-import-position

VISITOR, OTHER = 64001, 64002
MARKUP = "<img-src=x-onerror=alert(1)>"


class PageAgent(RealAgent):
    def setUp(self):
        self.settings = {"RESEAT_METRICS_PORT": str(free_port())}
        super().setUp()
        self.stream = None
        self.page = Page(self.reseat("page").stdout.strip())
        self.page.learn()

    def test_page(self):
        """All with one agent, to be quick; the last one restarts it."""
        for story in (
                self.says_what_commands_say,
                self.moves_as_commands_do,
                self.the_page_runs_nothing_but_itself,
                self.requests_of_others_are_refused,
                self.only_some_things_may_be_asked,
                self.events_come_as_they_happen,
                self.long_slow_and_many_hold_nobody,
                self.many_at_once_hold_nobody,
                self.a_later_agent_knows_the_page_and_asks_anew):
            with self.subTest(story.__name__):
                story()

    def raw(self, text=b""):
        one = socket.create_connection(("127.0.0.1", int(self.page.port)), timeout=PATIENCE)
        self.addCleanup(one.close)
        one.sendall(text)
        return one

    def signed(self, request):
        """A connection on which the page's user has asked @request."""
        body = json.dumps(request).encode()
        lines = "".join(f"{name}: {value}\r\n" for name, value in self.page.headers(body).items())
        return self.raw(f"POST /agent HTTP/1.1\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def says_what_commands_say(self):
        # Without what changes by itself from one answer to the next. Of events, commands leave the type out.
        def still(entries):
            return [{key: value for key, value in entry.items() if not re.search("age|_ns$|busy|^type$", key)}
                    for entry in entries]

        for verb, request, key in (("ps", "apps", "apps"), ("devices", "devices", "devices"), ("events", "events", "events")):
            self.until(f"both say the same of {key}", lambda r=request, v=verb, k=key: still(
                self.page.ask({"type": r})[k]) == still(self.list(v, k)))
            self.assertTrue(self.page.ask({"type": request})[key])

    def moves_as_commands_do(self):
        move = {"type": "move", "app": "render", "device": "cpu1"}
        said = self.page.ask({**move, "dry_run": True})
        self.assertEqual((said["result"], said["to"]), ("done", "cpu1"))
        self.assertEqual(self.app("render")["device"], "gpu0")
        self.assertEqual(self.page.ask({**move, "detach": True})["result"], "begun")
        self.until("it moved", lambda: self.app("render")["device"] == "cpu1")
        event = next(one for one in self.list("events", "events") if one["what"] == "move" and one["state"] == "done")
        self.assertEqual((event["by"], event["by_uid"], event["app"]["name"]), ("command", os.geteuid(), "render"))
        refused = self.page.ask({**move, "device": "none"})
        command = json.loads(self.reseat("move", "render", "none", "--json").stdout)["error"]
        self.assertEqual((refused["code"], refused["message"]), (command["code"], command["message"]))

    def events_come_as_they_happen(self):
        stream = self.signed({"type": "events", "follow": True, "age_ms": 0})
        self.reseat("drain", "cpu1", "--keep")
        got = b""
        while b'"cpu1"' not in got:
            part = stream.recv(65536)
            self.assertTrue(part, got)
            got += part
        self.stream = stream

    def the_page_runs_nothing_but_itself(self):
        status, headers, body = self.page.http("GET", "/")
        self.assertEqual(status, 200)
        policy = headers["Content-Security-Policy"]
        for tag in ("script", "style"):
            (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", body.decode(), re.S)
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            self.assertIn(f"{tag}-src 'sha256-{digest}';", policy)
        for part in ("default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'", "form-action 'none'"):
            self.assertIn(part, policy)
        self.assertNotIn("unsafe", policy)
        self.assertIsNone(headers["Set-Cookie"])
        self.assertEqual(headers["Cache-Control"], "no-store")
        # Nothing is fetched, and no text becomes markup.
        self.assertEqual(re.findall(r"https?://(?!www\.w3\.org/2000/svg)", body.decode()), [])
        self.assertEqual(re.findall(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|Function\(", body.decode()), [])

    def requests_of_others_are_refused(self):
        page, body = self.page, b'{"type":"apps"}'
        self.assertEqual(page.post(body)[0], 200)
        evil = "evil.example"
        other = f"127.0.0.1:{int(page.port) ^ 1}"
        nobody = {"Authorization": page.sign(body).replace(f" {page.user}:", " 54321:")}
        for status, changes in (
                (401, {"Authorization": None}), (401, nobody),
                (401, {"Authorization": page.sign(body, secret="0" * 32)}),
                (401, {"Authorization": page.sign(b'{"type":"devices"}')}),
                (401, {"Authorization": page.sign(body, challenge="0" * 32)}),
                (401, {"Authorization": page.sign(body)[:-1]}), (401, {"Authorization": page.sign(body) + "0"}),
                (401, {"Authorization": page.sign(body)[:-1] + "\xff"}),
                (401, {"Authorization": f"Bearer {page.secret}"}),
                (401, {"Authorization": None, "Cookie": page.sign(body)}),
                # A browser that was lured to another port signs what it knows of itself.
                (401, {"Authorization": page.sign(body, host=other)}),
                (403, {"Host": evil}), (403, {"Host": other}), (403, {"Host": other, "Origin": f"http://{other}"}),
                (403, {"Host": f"{evil}:{page.port}", "Origin": f"http://{evil}:{page.port}"}),
                (403, {"Origin": None}), (403, {"Origin": "null"}), (403, {"Origin": f"http://{evil}"}),
                (403, {"Origin": f"https://{page.host}"}), (403, {"Origin": f"http://{page.host}.{evil}"}),
                (403, {"Origin": f"http://{other}"}),
                (415, {"Content-Type": "text/plain"}), (415, {"Content-Type": None}),
                (415, {"Content-Type": "application/x-www-form-urlencoded"})):
            got, headers, text = page.http("POST", "/agent", body, {
                name: value for name, value in {**page.headers(body), **changes}.items() if value is not None})
            self.assertEqual(got, status, changes)
            self.assertNotIn(b"render", text)
            self.assertIsNone(headers["Access-Control-Allow-Origin"])
        status, headers, _ = page.http("OPTIONS", "/agent", None, {"Origin": f"http://{evil}"})
        self.assertEqual((status, headers["Access-Control-Allow-Origin"]), (405, None))
        for method, path, status in (("GET", "/agent", 404), ("POST", "/", 405), ("PUT", "/agent", 405)):
            self.assertEqual(page.http(method, path, b"", page.headers(b""))[0], status, (method, path))
        self.assertEqual(page.http("GET", "/", None, {"Host": evil})[0], 403)
        # Scrapers know of no secret.
        status, _, text = page.http("GET", "/metrics")
        self.assertEqual(status, 200)
        self.assertIn(b"reseat_device_up", text)

    def only_some_things_may_be_asked(self):
        folder = f"{self.folder}/image"
        for request in ({"type": "stop"}, {"type": "reload"}, {"type": "suspend", "app": "render"}, {"type": "page"},
                        {"type": "checkpoint", "app": "render", "folder": folder}, {"type": "hello", "role": "program"},
                        {"type": "devices", "environment": ["OCL_ICD_VENDORS=/tmp"]}, {"type": "move", "folder": folder},
                        {"type": "events", "age_ms": -1}, {"type": "events", "age_ms": [1]}, {"type": ["apps"]}, {}, [], "apps",
                        b"", b"apps", b'{"type":"apps"', b"[" * 4096, b'{"type":"apps\0"}', b'{"type":"a\xff"}'):
            self.assertEqual(self.page.post(request)[0], 400, request)
        self.assertEqual(self.app("render")["state"], "running")
        self.assertFalse(os.path.exists(folder))

    def long_slow_and_many_hold_nobody(self):
        page, ask = self.page, {"type": "apps"}
        self.assertEqual(page.post(b" " * 4097)[0], 413)
        self.assertEqual(page.post(ask, Content_Length=str(1 << 40))[0], 413)
        lines = "".join(f"{name}: {value}\r\n" for name, value in page.headers(b"").items())
        for more, status in (("", b"411"), ("Transfer-Encoding: chunked\r\n", b"411"), ("Content-Length: -1\r\n", b"400")):
            one = self.raw(f"POST /agent HTTP/1.1\r\n{lines}{more}\r\n".encode())
            self.assertIn(status, one.recv(64).split(b"\r\n")[0], more)
        endless = self.raw(b"POST /agent HTTP/1.1\r\nX: ")
        self.assertRaises(OSError, lambda: [endless.sendall(b"x" * 65536) or time.sleep(0.001) for i in range(1000)])
        half = self.raw(f"POST /agent HTTP/1.1\r\n{lines}Content-Length: 4096\r\n\r\n".encode() + b'{"type":')
        for _ in range(4):  # Who asks and does not read.
            self.signed({"type": "events"})
        silent = [self.raw() for _ in range(40)]
        # The oldest give way, and who is known has room beside those that nobody knows.
        for _ in range(20):
            self.assertEqual(len(page.ask(ask)["apps"]), 2)
        self.assertEqual(self.reseat("ps").returncode, 0)
        # Also one that follows events: it ends by itself, and another one goes on.
        for one in (self.stream, half, *silent):
            while one.recv(4096):
                pass

    def many_at_once_hold_nobody(self):
        for _ in range(4):
            self.assertIn(b"200", self.signed({"type": "events", "follow": True}).recv(64))
        pid = json.loads(self.reseat("agent", "status", "--json").stdout)["agent"]["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            for _ in range(31):
                self.raw()
            known = self.signed({"type": "apps"})
        finally:
            os.kill(pid, signal.SIGCONT)
        self.assertIn(b"200", known.recv(64))

    def a_later_agent_knows_the_page_and_asks_anew(self):
        path = f"{self.folder}/run/reseat/page"
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        old = self.page.headers(b'{"type":"apps"}')
        self.assertEqual(self.reseat("agent", "stop").returncode, 0)
        self.assertEqual(self.reseat("agent", "start").returncode, 0)
        self.assertEqual(self.reseat("page").stdout.strip(), self.page.url)
        self.assertEqual(self.page.http("POST", "/agent", b'{"type":"apps"}', old)[0], 401)
        challenge = self.page.challenge
        self.page.learn()
        self.assertNotEqual(self.page.challenge, challenge)
        self.assertEqual(self.page.post({"type": "apps"})[0], 200)
        # A damaged file is as none: there is another secret then.
        with open(path, "wb") as file:
            file.write(b"\xff" * 100)
        for verb in ("stop", "start"):
            self.assertEqual(self.reseat("agent", verb).returncode, 0)
        self.assertEqual(self.page.post({"type": "apps"})[0], 401)
        self.assertNotEqual(self.reseat("page").stdout.strip(), self.page.url)


class Without(Case):
    def test_without_a_port_there_is_no_page(self):
        self.addCleanup(lambda: self.reseat("agent", "stop"))
        said = self.reseat("page")
        self.assertEqual((said.returncode, said.stdout), (4, ""))
        self.assertIn("metrics-port", said.stderr)
        # So too where another process has the port, which would be given the address.
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.reseat("agent", "stop")
            self.env["RESEAT_METRICS_PORT"] = str(taken.getsockname()[1])
            self.assertEqual(self.reseat("page").returncode, 4)


@unittest.skipIf(os.geteuid(), "only root can be other users")
class Users(Case):
    def setUp(self):
        self.settings = {"RESEAT_METRICS_PORT": str(free_port())}
        super().setUp()
        os.chmod(self.folder, 0o711)
        self.env["RESEAT_SOCKET"] = f"{self.folder}/host.sock"
        self.addCleanup(lambda: self.reseat("agent", "stop"))
        self.assertEqual(self.reseat("agent", "start").returncode, 0)
        for uid, name in ((VISITOR, "mine"), (OTHER, "theirs"), (VISITOR, MARKUP)):
            process = subprocess.Popen(
                [RESEAT, "run", "--name", name, "--", os.environ["TEST_PROGRAM"], "600"], stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, **self.of_user(uid))
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
        end = time.monotonic() + PATIENCE
        while [app["state"] for app in json.loads(self.reseat("ps", "--json").stdout)["apps"]] != ["running"] * 3:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)

    def of_user(self, uid):
        """How a process of that user is started."""
        folder = f"{self.folder}/{uid}"
        if not os.path.isdir(folder):
            os.mkdir(folder, 0o700)
            os.chown(folder, uid, uid)
        env = dict(self.env, FAKE_MOVE="done", XDG_RUNTIME_DIR=folder, XDG_CACHE_HOME=folder, XDG_STATE_HOME=folder)
        return {"user": uid, "group": uid, "extra_groups": [], "env": env}

    def page_of(self, uid):
        url = subprocess.run([RESEAT, "page"], capture_output=True, text=True, check=False,
                             **self.of_user(uid)).stdout.strip()
        page = Page(url)
        page.learn()
        return page

    def test_each_user_sees_and_moves_their_own(self):
        own, other, root = self.page_of(VISITOR), self.page_of(OTHER), self.page_of(0)
        self.assertEqual(len({own.secret, other.secret, root.secret}), 3)
        names = [sorted(app["name"] for app in page.ask({"type": "apps"})["apps"]) for page in (own, other, root)]
        self.assertEqual(names, [[MARKUP, "mine"], ["theirs"], [MARKUP, "mine", "theirs"]])
        on = {app["name"] for device in other.ask({"type": "devices"})["devices"] for app in device["apps"]}
        self.assertEqual(on, {"theirs"})
        uids = {event.get("uid", OTHER) for event in other.ask({"type": "events"})["events"]}
        self.assertEqual(uids, {OTHER})
        for page, code in ((other, "no-app"), (own, None), (root, None)):
            said = page.ask({"type": "move", "app": "mine", "device": "cpu1", "dry_run": True})
            self.assertEqual(said.get("code"), code)
        # Another's name with one's own secret is nobody.
        other.user = own.user
        self.assertEqual(other.post({"type": "apps"})[0], 401)


if __name__ == "__main__":
    unittest.main()
