#!/usr/bin/python3
"""x264 encodes a generated video under reseat while it is moved from device to device."""

import argparse
import ctypes
import json
import os
import re
import subprocess
import sys
import threading
import time

import numpy

SCRIPTS = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, SCRIPTS)
sys.path.insert(0, os.path.join(SCRIPTS, "..", "tests", "chaos"))

from lab import DONE, REFUSED, ROLLED_BACK, VENDORS, Lab, find_reseat  # pylint: disable=wrong-import-position

WIDTH, HEIGHT, RATE = 640, 360, 25
SQUARES, SIDE = 12, 48
NAME = "demo"
LEAST_MOVES = 2
LOOKAHEAD_FRAMES = 60  # the last frames need no OpenCL any more: they say nothing of a device
SETTLE_SECONDS = 1.0  # after a move, before its "after" is measured


def installed(vendor):
    """Whether this vendor's driver can be loaded here."""
    try:
        ctypes.CDLL(VENDORS[vendor][0])
        return True
    except OSError:
        return False


class Encoder(threading.Thread):
    """x264 under reseat; collects (seconds, frames done) from its progress."""

    def __init__(self, lab, command, frames, log):
        super().__init__(daemon=True)
        self.begin = time.monotonic()
        self.points = [(0.0, 0)]
        self.log = log
        self.pattern = re.compile(rb"(\d+)/%d frames" % frames)
        self.process = subprocess.Popen(command, env=lab.env, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def now(self):
        return time.monotonic() - self.begin

    def run(self):
        with open(self.log, "wb") as log:
            while True:
                text = os.read(self.process.stderr.fileno(), 4096)
                if not text:
                    break
                log.write(text)
                found = self.pattern.findall(text)
                if found:
                    self.points.append((self.now(), int(found[-1])))
        self.process.wait()

    def frames_at(self, when):
        """Frames done at a time, between the points that x264 reported."""
        last = self.points[0]
        for point in self.points:
            if point[0] >= when:
                span = point[0] - last[0]
                part = (when - last[0]) / span if span else 1
                return last[1] + part * (point[1] - last[1])
            last = point
        return last[1]

    def speed(self, begin, end):
        """Frames per second between two times."""
        if end <= begin:
            return 0.0
        return (self.frames_at(end) - self.frames_at(begin)) / (end - begin)

    def leave_out_after(self, frames):
        """Forget what was reported after so many frames were done."""
        self.points = [point for point in self.points if point[1] <= frames]

    def wait_frames(self, frames):
        """Wait until it has done so many; False when it ended first."""
        while self.is_alive() and self.points[-1][1] < frames:
            time.sleep(0.05)
        return self.is_alive()


def make_video(path, frames):
    """Squares on ways of their own, over noise that scrolls: what moves is work for an encoder."""
    rng = numpy.random.default_rng(1)
    noise = numpy.kron(rng.integers(40, 200, (HEIGHT // 4, WIDTH // 4), dtype=numpy.uint8),
                       numpy.ones((4, 4), dtype=numpy.uint8))
    colour = numpy.kron(rng.integers(90, 166, (HEIGHT // 20, WIDTH // 20), dtype=numpy.uint8),
                        numpy.ones((10, 10), dtype=numpy.uint8))
    begins, steps = rng.random((SQUARES, 2)), rng.uniform(-9, 9, (SQUARES, 2))
    room = numpy.array([HEIGHT - SIDE, WIDTH - SIDE])
    with open(path, "wb") as file:
        file.write(b"YUV4MPEG2 W%d H%d F%d:1 Ip A1:1 C420jpeg\n" % (WIDTH, HEIGHT, RATE))
        for frame in range(frames):
            luma = numpy.roll(noise, (frame, 2 * frame), (0, 1))
            for place, (begin, step) in enumerate(zip(begins * room, steps)):
                top, left = ((begin + step * frame) % room).astype(int)
                luma[top:top + SIDE, left:left + SIDE] = 16 + 18 * place
            file.write(b"FRAME\n" + luma.tobytes() + numpy.roll(colour, frame, 1).tobytes() +
                       numpy.roll(colour, frame, 0).tobytes())


def count_frames(path):
    """Frames that decode without an error, in the decoder that x264 reads with."""
    run = subprocess.run(["x264", "--demuxer", "lavf", "--preset", "ultrafast", "-o", os.devnull, path],
                         check=True, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if "[h264 @" in run.stderr:
        raise SystemExit(f"demo: {path} does not decode:\n{run.stderr}")
    return int(re.search(r"^encoded (\d+) frames", run.stderr, re.MULTILINE)[1])


def route(devices):
    """Through all devices and back to the first, once."""
    return devices + devices[-2::-1] if len(devices) > 2 else devices + devices[:1]


def move_all(lab, encoder, stops, frames):
    """Move at even steps of the work; [(begin, end, from, to, answer)] of the moves made."""
    moves, source = [], stops[0]
    for index, target in enumerate(stops[1:]):
        if not encoder.wait_frames((frames - LOOKAHEAD_FRAMES) * (index + 1) // len(stops)):
            raise SystemExit("demo: x264 ended before its last move: see x264.log")
        if target == source:
            continue
        begin = encoder.now()
        status, answer = lab.control("move", NAME, target, "--timeout", "120", "--json")
        if status in (REFUSED, ROLLED_BACK):
            print(f"  not moved to {target}: {answer['reason']}", flush=True)
            continue
        if status != DONE:
            raise SystemExit(f"demo: the move to {target} ended with status {status}: {answer}")
        moves.append((begin, encoder.now(), source, target, answer))
        print(f"  moved from {source} to {target}", flush=True)
        source = target
    if len(moves) < LEAST_MOVES:
        raise SystemExit(f"demo: {len(moves)} moves were made")
    return moves


def table(encoder, moves):
    """Print what each move cost and what it did to the speed."""
    starts = [move[0] for move in moves[1:]] + [encoder.points[-1][0]]
    previous = encoder.points[1][0]  # after the kernels were built
    print(f"\n{'move':<18} {'total':>9} {'downtime':>9} {'MiB':>8}"
          f" {'fps before':>11} {'during':>7} {'after':>7}")
    for (begin, end, source, target, answer), following in zip(moves, starts):
        after = min(end + SETTLE_SECONDS, following)
        print(f"{source + ' -> ' + target:<18} {answer['total_ns'] / 1e9:>7.2f} s"
              f" {answer['downtime_ns'] / 1e6:>6.1f} ms {answer['bytes'] / (1 << 20):>8.1f}"
              f" {encoder.speed(previous, begin):>11.1f} {encoder.speed(begin, end):>7.1f}"
              f" {encoder.speed(after, following):>7.1f}")
        previous = after


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", required=True, help="folder for video, log and picture")
    parser.add_argument("--frames", type=int, default=900)
    options = parser.parse_args()
    raw, video = (os.path.join(options.output, name) for name in ("source.y4m", "demo.264"))
    picture = os.path.join(options.output, "demo.svg")
    reseat = find_reseat()
    if not reseat:
        raise SystemExit("demo: no reseat command: run scripts/build")
    vendors = [vendor for vendor in ("pocl", "rusticl") if installed(vendor)]
    make_video(raw, options.frames)
    with Lab(vendors, reseat) as lab:
        devices = lab.devices()
        print("devices: " + ", ".join(devices), flush=True)
        stops = route(devices)
        command = lab.run_command(NAME, stops[0], "gpu") + [
            "x264", "--opencl", "--opencl-clbin", os.path.join(options.output, "x264.clbin"),
            "-o", video, raw]
        encoder = Encoder(lab, command, options.frames, os.path.join(options.output, "x264.log"))
        encoder.start()
        try:
            moves = move_all(lab, encoder, stops, options.frames)
            encoder.join()
        finally:
            if encoder.process.poll() is None:
                encoder.process.kill()
    os.unlink(raw)
    encoder.leave_out_after(options.frames - LOOKAHEAD_FRAMES)
    if encoder.process.returncode:
        raise SystemExit(f"demo: x264 ended with {encoder.process.returncode}: see x264.log")
    table(encoder, moves)
    data = os.path.join(options.output, "demo.json")
    with open(data, "w", encoding="utf-8") as file:
        json.dump({"points": encoder.points,
                   "moves": [(*m[:4], m[4]["downtime_ns"] / 1e6) for m in moves]}, file)
    subprocess.run([os.path.join(SCRIPTS, "plot"), data, picture], check=True)
    frames = count_frames(video)
    print(f"\n{video}: {frames} of {options.frames} frames decode")
    print(f"{picture}: frames per second over time")
    return 0 if frames == options.frames else 1


if __name__ == "__main__":
    sys.exit(main())
