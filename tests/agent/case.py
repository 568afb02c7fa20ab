"""What suites in Python share: an agent and programs in folders of their own."""

import json
import os
import shutil
import subprocess
import tempfile
import time
import unittest

RESEAT = os.environ["TEST_RESEAT"]
LISTER = os.environ["TEST_LISTER"]
PATIENCE = 60 * int(os.environ.get("TEST_PATIENCE", "1"))


class Case(unittest.TestCase):
    """A runtime folder of its own, as tests/agent/harness.c makes one."""

    settings = {}  # further variables

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="reseat-agent-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        os.mkdir(f"{self.folder}/run", 0o700)
        self.env = {name: value for name, value in os.environ.items() if name != "RESEAT_CONFIG"}
        self.env.update(
            XDG_RUNTIME_DIR=f"{self.folder}/run", XDG_STATE_HOME=f"{self.folder}/state",
            XDG_CACHE_HOME=f"{self.folder}/cache", XDG_CONFIG_HOME=f"{self.folder}/config",
            RESEAT_LINKS=f"{self.folder}/links", RESEAT_LISTER=LISTER,
            RESEAT_LIBRARY=os.environ["TEST_LIBRARY"], RESEAT_SOCKET="", LC_ALL="C.UTF-8", **self.settings)

    def reseat(self, *arguments):
        return subprocess.run([RESEAT, *arguments], env=self.env, capture_output=True, text=True,
                              check=False)


class RealAgent(Case):
    """With an agent, three devices (gpu0, cpu0, cpu1) and two programs on gpu0."""

    def setUp(self):
        super().setUp()
        self.env["RESEAT_LISTER"] = f"{self.folder}/lister"
        with open(f"{self.folder}/lister", "w", encoding="ascii") as file:
            file.write(f'#!/bin/sh\necho >>{self.folder}/listed\nexec {LISTER} "$@"\n')
        os.chmod(f"{self.folder}/lister", 0o700)
        self.addCleanup(lambda: self.reseat("agent", "stop"))
        for name in ("render", "solver"):
            process = subprocess.Popen(
                [RESEAT, "run", "--name", name, "--", os.environ["TEST_PROGRAM"], "600"],
                env=dict(self.env, FAKE_MOVE="done"), stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            self.until(f"{name} runs", lambda: self.app(name).get("state") == "running")

    def until(self, what, ready):
        end = time.monotonic() + PATIENCE
        while not ready():
            self.assertLess(time.monotonic(), end, f"never came about: {what}")
            time.sleep(0.05)

    def list(self, verb, key):
        return json.loads(self.reseat(verb, "--json").stdout).get(key, [])

    def app(self, name):
        return next((app for app in self.list("ps", "apps") if app["name"] == name), {})

    def drained(self, name):
        return next(device["drained"] for device in self.list("devices", "devices")
                    if device["name"] == name)
