#!/usr/bin/python3
"""A program goes on computing while device servers are plugged in, moved to, lost, back, and unplugged."""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time

SCRIPTS = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(SCRIPTS, "..", "build")
sys.path.insert(0, SCRIPTS)
sys.path.insert(0, os.path.join(SCRIPTS, "..", "tests", "chaos"))

from lab import DONE, Lab, find_reseat, free_port, say  # pylint: disable=wrong-import-position

# Hosts have addresses and names of their own, and each a private authority.
HOSTS = {"oak": ("127.0.0.1", "basic"), "elm": ("127.0.0.2", "pthread")}
NAME = "solver"
STEP_SECONDS = 120
SAMPLE_SECONDS = 0.2


class Host:
    """A machine with devices, as far as this one machine can be several: a server with its own keys."""

    def __init__(self, lab, build, name):
        self.lab, self.name = lab, name
        address, kind = HOSTS[name]
        self.address = f"{address}:{free_port(address)}"
        self.serve = [os.path.join(build, "remote", "reseat-serve"), "--ca", lab.path(f"ca-{name}")]
        os.chmod(lab.folder, 0o711)  # its list of drivers is for sessions, which are not root's
        self.env = dict(lab.env, POCL_DEVICES=kind)
        self.process = None
        self.authority("--init-ca", "--name", name)
        credentials = lab.path("config/reseat/servers")
        os.makedirs(credentials, mode=0o700, exist_ok=True)
        self.authority("--issue", "laptop", "--out",
                       os.path.join(credentials, f"{HOSTS[name][0]}.pem"))

    def authority(self, *words):
        subprocess.run(self.serve + list(words), check=True, stdout=subprocess.DEVNULL)

    def begin(self):
        self.process = subprocess.Popen(self.serve + ["--listen", f"tcp:{self.address}"], env=self.env,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if not self.process.stdout.readline():
            raise SystemExit(f"demo: the server of {self.name} did not start")

    def vanish(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait()


class View(threading.Thread):
    """Watches the program's output, where it is, and how the servers are."""

    def __init__(self, lab, command):
        super().__init__(daemon=True)
        self.lab, self.begin = lab, time.monotonic()
        self.process = lab.start(command, subprocess.PIPE, subprocess.PIPE,
                                 {"TEST_UNTIL": lab.path("told")})
        self.points, self.samples, self.marks = [(0.0, 0)], [], []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        self.over = False

    def now(self):
        return time.monotonic() - self.begin

    def read(self):
        """Each dot is a step; what else it says there is of no interest."""
        while text := os.read(self.process.stderr.fileno(), 4096):
            self.points.append((self.now(), self.points[-1][1] + text.count(b".")))

    def run(self):
        while not self.over:
            _, servers = self.lab.control("server", "list", "--json")
            app = self.lab.app(self.process.pid)
            if servers:
                self.samples.append((self.now(), app and app["device"], {
                    server["name"]: server["state"] for server in servers["servers"]}))
            time.sleep(SAMPLE_SECONDS)

    def mark(self, text):
        self.marks.append((self.now(), text))

    def wait_for(self, what, is_so):
        until = time.monotonic() + STEP_SECONDS
        while time.monotonic() < until:
            if self.samples and is_so(self.samples[-1]):
                return
            if self.process.poll() is not None:
                raise SystemExit(f"demo: {NAME} ended before {what}")
            time.sleep(SAMPLE_SECONDS)
        raise SystemExit(f"demo: {what} never came; last seen: {self.samples[-1:]}")

    def wait_server(self, name, state):
        self.wait_for(f"{name} {state}", lambda sample: sample[2].get(name) == state)

    def finish(self):
        """Have it end. What it printed."""
        with open(self.lab.path("told"), "w", encoding="ascii"):
            pass
        out = self.process.stdout.read()
        self.process.wait(timeout=STEP_SECONDS)
        self.reader.join()
        self.over = True
        self.join()
        return out


def visit(lab, program):
    """A second program on oak, so that somebody is there when it vanishes."""
    return lab.start(lab.run_command("visitor", "oak/cpu0") + program, subprocess.DEVNULL,
                     subprocess.DEVNULL, {"TEST_UNTIL": lab.path("told")})


def play(lab, hosts, view, program, stay):
    """The story; @stay seconds at each place, for the picture. What the program printed."""
    oak, elm = hosts["oak"], hosts["elm"]
    time.sleep(stay)
    say(f"1. The program \"{NAME}\" computes on this host's own device. Host oak is plugged in: its\n"
        "   devices are the program's as soon as they are there, though it never heard of them.")
    view.mark("oak plugged in")
    lab.must("server", "add", f"tcp:{oak.address}", "oak")
    lab.must("move", NAME, "oak/cpu0")
    time.sleep(stay)
    say("2. Host elm is plugged in too, and the program goes there, from one host to another.")
    view.mark("elm plugged in")
    lab.must("server", "add", f"tcp:{elm.address}", "elm")
    lab.must("move", NAME, "elm/cpu0")
    lab.must("devices")
    visitor = visit(lab, program)
    try:
        view.wait_for("the visitor", lambda _: (lab.app(visitor.pid) or {}).get("device") == "oak/cpu0")
        time.sleep(stay)
        say("3. Oak loses its power (kill -9). That is reported, with who was there; a move there is\n"
            "   refused at once; the program on elm does not notice.")
        view.mark("oak vanishes")
        oak.vanish()
        view.wait_server("oak", "lost")
        lab.show("server", "list")
        if lab.show("move", NAME, "oak/cpu0", "--json") == DONE:
            raise SystemExit("demo: it was moved to a device that is not there")
    finally:
        visitor.kill()
        visitor.wait()
    time.sleep(stay)
    say("4. Oak is back. Nobody has to say so: the agent looks for it, and uses it again.")
    oak.begin()
    view.wait_server("oak", "up")
    view.mark("oak is back")
    lab.must("server", "list")
    time.sleep(stay)
    say("5. Elm is to be unplugged. First everybody on it goes to where the policy finds room.")
    view.mark("elm unplugged")
    lab.must("server", "remove", "elm")
    elm.end()
    lab.must("ps")
    time.sleep(stay)
    say("6. The program is told to end, and prints its result.")
    return view.finish()


def spans(samples, value):
    """[(begin, end, value)] of what @value finds in samples that follow each other."""
    found = []
    for sample in samples:
        now = value(sample)
        if found and found[-1][2] == now:
            found[-1][1] = sample[0]
        else:
            if found:
                found[-1][1] = sample[0]
            found.append([sample[0], sample[0], now])
    return found


def data_of(view):
    return {
        "plugged": True, "program": NAME, "points": view.points, "marks": view.marks,
        "places": spans(view.samples, lambda sample: sample[1]),
        "servers": {name: spans(view.samples, lambda sample, name=name: sample[2].get(name))
                    for name in HOSTS},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", required=True, help="folder for the picture")
    parser.add_argument("--build", default=BUILD, help="build folder")
    parser.add_argument("--stay", type=float, default=4, help="seconds at each place")
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    # It steps through the same again and again; a native run, not a check on the host, has the truth.
    program = [os.path.join(build, "tests", "programs", "solver"), "--tiles", "-1", "--mib", "8",
               "--steps", "50", "--every", "0", "--pulse", "1"]
    with Lab(["pocl"], find_reseat(os.path.join(build, "agent", "reseat"))) as lab:
        lab.env["POCL_DEVICES"] = "basic"
        expected = subprocess.run(program, env=lab.env, check=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL).stdout
        hosts = {name: Host(lab, build, name) for name in HOSTS}
        for host in hosts.values():
            host.begin()
        lab.control("agent", "start")
        view = View(lab, lab.run_command(NAME, "cpu0") + program)
        try:
            view.start()
            view.wait_for("its first steps", lambda _: view.points[-1][1] > 0)
            printed = play(lab, hosts, view, program, options.stay)
        finally:
            view.process.kill()
            for host in hosts.values():
                host.end()
    if printed != expected:
        raise SystemExit(f"demo: it printed {printed[-80:]}, and natively {expected[-80:]}")
    picture, data = (os.path.join(options.output, name) for name in ("remote.svg", "remote.json"))
    with open(data, "w", encoding="utf-8") as file:
        json.dump(data_of(view), file)
    subprocess.run([os.path.join(SCRIPTS, "plot"), data, picture], check=True)
    print(f"\nIt printed what it prints natively, to the last byte: {expected.splitlines()[-1].decode()}"
          f"\nThe picture: {os.path.relpath(picture)}")


if __name__ == "__main__":
    main()
