#!/usr/bin/python3
"""A Java program encrypts as a stream while its device is changed, and while worker and service are killed."""

import argparse
import glob
import json
import os
import signal
import subprocess
import sys
import threading
import time

SCRIPTS = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(SCRIPTS, "..")
sys.path[:0] = [SCRIPTS, os.path.join(ROOT, "tests", "chaos")]

from lab import DONE, Lab, find_reseat  # pylint: disable=wrong-import-position

STEP_SECONDS = 60
SAMPLE_SECONDS = 0.05
ZOOM_PAYLOADS = 12  # that compute, in the picture of stages


class Service:
    def __init__(self, lab, trace):
        self.lab, self.trace, self.process = lab, trace, None
        self.start()

    def start(self):
        self.process = self.lab.start([self.lab.reseat, "stream", "serve", "--kernels",
                                       os.path.join(ROOT, "stream", "kernels")], subprocess.DEVNULL, None,
                                      {"RESEAT_STREAM_TRACE": self.trace})

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Program(threading.Thread):
    """The Java program: (seconds, blocks) as it says; and where its stream is, as reseat ps says."""

    def __init__(self, lab, classes, spans):
        super().__init__(daemon=True)
        self.lab, self.begin = lab, time.monotonic()
        source = os.path.join(ROOT, "stream", "java", "examples", "Encrypt.java")
        self.process = subprocess.Popen(["java", "-cp", classes, source, spans], env=lab.env,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.points, self.places, self.name, self.verdict, self.over = [], [], None, None, False
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        self.start()

    def now(self):
        return time.monotonic() - self.begin

    def read(self):
        for line in self.process.stdout:
            words = line.split()
            if words[0] == "program":
                self.name = words[1]
            elif words[0] == "blocks":
                self.points.append((int(words[1]) / 1e9 - self.begin, int(words[2])))
            else:
                self.verdict = line.strip()

    def apps(self):
        _, answer = self.lab.control("ps", "--json")
        return [app for app in (answer or {}).get("apps", []) if app["name"].startswith("stream-aes")]

    def app(self):
        """What reseat ps says of its stream; waits until it is there."""
        until = time.monotonic() + STEP_SECONDS
        while time.monotonic() < until and self.process.poll() is None:
            apps = self.apps()
            if apps and apps[0]["state"] == "running":
                return apps[0]
            time.sleep(SAMPLE_SECONDS)
        raise SystemExit("demo: there is no stream among the programs of reseat ps")

    def run(self):
        while not self.over:
            apps, now = self.apps(), self.now()
            device = apps[0]["device"] if apps else ""
            if self.places and self.places[-1][2] == device:
                self.places[-1][1] = now
            else:
                self.places.append([now, now, device])
            time.sleep(SAMPLE_SECONDS)

    def wait_for_more(self, why):
        """Until more blocks have come back."""
        blocks, until = self.points[-1][1] if self.points else 0, time.monotonic() + STEP_SECONDS
        while not self.points or self.points[-1][1] <= blocks:
            if self.process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"demo: no block was encrypted after {why}")
            time.sleep(SAMPLE_SECONDS)

    def finish(self):
        self.process.stdin.close()
        status = self.process.wait(timeout=STEP_SECONDS)
        self.reader.join()
        self.over = True
        self.join()
        if status or not self.verdict:
            raise SystemExit(f"demo: the program ended with status {status}")


def disturb(lab, service, program, stay):
    """Move, kill the worker, move back, kill the service. [(seconds, what happened)]"""
    marks = []

    def step(text, change):
        time.sleep(stay)
        marks.append((program.now(), text))
        print(f"{marks[-1][0]:6.1f} s  {text}", flush=True)
        change()
        program.wait_for_more(text)

    def move():
        app = program.app()
        target = next(device for device in lab.devices() if device != app["device"])
        status, answer = lab.control("move", app["name"], target, "--json")
        if status != DONE:
            raise SystemExit(f"demo: the move to {target} ended with status {status}: {answer}")

    def kill_worker():
        os.kill(program.app()["pid"], signal.SIGKILL)

    def kill_service():
        service.kill()
        service.start()

    program.wait_for_more("it began")
    step("reseat move", move)
    step("kill -9 of the process with the device", kill_worker)
    step("reseat move", move)
    step("kill -9 of the service, which is started again", kill_service)
    time.sleep(stay)
    return marks


def stages_of(files, begin):
    """{stage: [(begin, end)]} in seconds, of what the program and the worker wrote."""
    stages = {stage: [] for stage in ("pack", "write", "compute", "read", "unpack")}
    for path in files:
        with open(path, encoding="utf-8") as file:
            for words in map(str.split, file):
                if words[0] in stages and len(words) >= 5:
                    stages[words[0]].append((int(words[1]) / 1e9 - begin, int(words[2]) / 1e9 - begin))
    return stages


def window(stages, at):
    """Some payloads of each stage around @at; what is drawn large."""
    near = [span for span in stages["compute"] if span[0] >= at][:ZOOM_PAYLOADS]
    if not near:
        return {}
    begin, end = near[0][0], near[-1][1]
    return {stage: [(b - begin, e - begin) for b, e in spans if e > begin and b < end]
            for stage, spans in stages.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", required=True, help="folder for the picture")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="build folder")
    parser.add_argument("--stay", type=float, default=3, help="seconds between what happens")
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    jars = glob.glob(os.path.join(build, "stream", "java", "*.jar"))
    if not jars:
        raise SystemExit("demo: the Java library is not built: scripts/build")
    with Lab(["pocl"], find_reseat(os.path.join(build, "agent", "reseat"))) as lab:
        lab.control("agent", "start")
        trace, spans = lab.path("trace"), lab.path("spans")
        service = Service(lab, trace)
        program = Program(lab, jars[0], spans)
        try:
            program.wait_for_more("it was started")
            print(f"A Java program encrypts blocks and compares each with its own cipher. In reseat ps its "
                  f"stream is {program.name}.\n", flush=True)
            marks = disturb(lab, service, program, options.stay)
            program.finish()
        finally:
            program.process.kill()
            service.stop()
        stages = stages_of((trace, spans), program.begin)
    picture, data = (os.path.join(options.output, name) for name in ("stream.svg", "stream.json"))
    with open(data, "w", encoding="utf-8") as file:
        json.dump({"stream": program.name, "points": program.points, "places": program.places, "marks": marks,
                   "window": window(stages, marks[0][0] - options.stay / 2)}, file)
    subprocess.run([os.path.join(SCRIPTS, "plot"), data, picture], check=True)
    print(f"\n{program.verdict[0].upper()}{program.verdict[1:]}.\nThe picture: {os.path.relpath(picture)}")


if __name__ == "__main__":
    main()
