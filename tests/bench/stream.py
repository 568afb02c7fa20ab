#!/usr/bin/python3
"""Streams as their published evaluation measures them: six kernels, stage after stage and pipelined.

For each kernel: what each stage costs; the rate with the seven stages one after another, and with all at
once, at constant payloads; the rate with payloads that reseat chooses itself; how busy the device is; and the
latency of one record. Published values stand beside. --exhaustive tries all combinations of some payloads of
the device's stages. On the devices of this machine, or on an emulated one whose link and cores take their
time (--emulated). Every answer is compared.
"""

import argparse
import contextlib
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path[:0] = [os.path.join(HERE, "..", "chaos"), os.path.join(HERE, "..", "stream", "kernels")]

import references  # pylint: disable=wrong-import-position
from lab import Lab, find_reseat  # pylint: disable=wrong-import-position

KERNELS = os.path.join(ROOT, "stream", "kernels")
FEW, MANY = ("aes", "kmp", "stencil"), ("fft", "nw", "viterbi")  # operations for a byte
# Published: (least, most).
SPEEDUP = {**dict.fromkeys(FEW, (5.7, 6.1)), **dict.fromkeys(MANY, (2.8, 5.0))}
SPEEDUP_MEAN = 4.9
GAIN = {**dict.fromkeys(FEW, (34, 65)), **dict.fromkeys(MANY, (0, 7))}  # % over constant payloads
EXAMPLES = 40
SETUP_US = 100  # of the emulated device
SLOWER = 4  # than this machine computes, so that it has time left for the other stages
CONNECT_SECONDS = 20


class Kernel:
    """A kernel, its description, and a folder with examples."""

    def __init__(self, name, folder):
        self.name, self.folder = name, os.path.join(folder, name)
        with open(os.path.join(KERNELS, name + ".stream"), encoding="utf-8") as file:
            numbers = dict(re.findall(r"^(\w+) = (\d+);", file.read(), re.MULTILINE))
        self.input, self.output = int(numbers["input"]), int(numbers["output"])
        self.items = int(numbers.get("items", 1))
        constants, records, answers = references.example(name, 1, EXAMPLES)
        os.mkdir(self.folder)
        files = {"records": records, "answers": answers, **{"constant-" + c: v for c, v in constants.items()}}
        for file_name, content in files.items():
            with open(os.path.join(self.folder, file_name), "wb") as file:
                file.write(content)

    def records(self, kib):
        return max(kib * 1024 // self.input, 1)


class Bench:
    def __init__(self, lab, build):
        self.lab, self.build = lab, build

    def client(self, kernel, *words, env=None):
        done = subprocess.run([os.path.join(self.build, "tests", "bench", "bench-stream"), kernel.name, kernel.folder,
                               *map(str, words)], env=dict(self.lab.env, **(env or {})), check=False,
                              stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise SystemExit(f"{kernel.name}: {' '.join(map(str, words))} failed")
        return json.loads(done.stdout)

    def native(self, kernel, count):
        return self.client(kernel, "native", count, os.path.join(KERNELS, kernel.name + ".cl"), kernel.items,
                           kernel.input, kernel.output)

    @contextlib.contextmanager
    def service(self, payloads=None):
        """A service whose workers have these payloads, in records; None: they choose. Its trace's path."""
        trace = self.lab.path("trace")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(trace)
        env = {"RESEAT_STREAM_TRACE": trace}
        if payloads:
            env["RESEAT_STREAM_PAYLOADS"] = ",".join(map(str, payloads))
        service = self.lab.start([self.lab.reseat, "stream", "serve", "--kernels", KERNELS], subprocess.DEVNULL,
                                 None, env)
        try:
            until = time.monotonic() + CONNECT_SECONDS
            while not os.path.exists(os.path.join(self.lab.env["XDG_RUNTIME_DIR"], "reseat", "stream.sock")):
                if service.poll() is not None or time.monotonic() > until:
                    raise SystemExit("reseat stream serve does not listen")
                time.sleep(0.02)
            yield trace
        finally:
            service.terminate()
            service.wait()


def busy_share(trace, stage="compute"):
    """Of the middle of the time that it traces: how much of it the device had that stage."""
    spans = []
    with open(trace, encoding="utf-8") as file:
        for words in map(str.split, file):
            if words[0] == stage:
                spans.append((int(words[1]), int(words[2])))
    spans.sort()
    if len(spans) < 4:
        return None
    begin, end = spans[len(spans) // 4][0], spans[-1][0]
    busy, last = 0, begin
    for start, stop in spans:
        start, stop = max(start, last), min(stop, end)
        busy += max(stop - start, 0)
        last = max(last, stop)
    return busy / (end - begin) if end > begin else None


def chosen(trace):
    """The payloads that were chosen last, in records: pack, write, compute, read, unpack."""
    with open(trace, encoding="utf-8") as file:
        lines = [line.split()[1:] for line in file if line.startswith("chosen")]
    return [int(word) for word in lines[-1]] if lines else None


def measure(bench, kernel, options):
    flight = 1 << 40
    result = {"kernel": kernel.name, "input": kernel.input, "output": kernel.output, "constant": []}
    for kib in options.payloads:
        count = kernel.records(kib)
        native = bench.native(kernel, count)
        with bench.service([count] * 5) as _:
            sequential = bench.client(kernel, "sequential", count, options.seconds)
        with bench.service([count] * 5) as trace:
            pipelined = bench.client(kernel, "pipelined", flight, options.seconds)
            busy = busy_share(trace)
        stages = {stage: native[stage] / count for stage in ("write", "compute", "read")}
        stages.update({stage: sequential[stage] for stage in ("pack", "unpack")})
        stages["hand over"] = max(sequential["seconds"] - sum(stages.values()), 0)
        result["constant"].append({
            "kib": kib, "records": count, "stages": stages, "sequential": sequential["rate"],
            "pipelined": pipelined["rate"], "speedup": pipelined["rate"] / sequential["rate"],
            "ceiling": sum(stages.values()) / max(stages.values()), "busy": busy})
    with bench.service() as trace:
        bench.client(kernel, "pipelined", flight, options.learn)  # The next stream begins with what it ends with.
        own = bench.client(kernel, "pipelined", flight, options.seconds)
        result["own"] = {"rate": own["rate"], "payloads": chosen(trace), "busy": busy_share(trace)}
    one = bench.native(kernel, 1)
    with bench.service() as _:
        latency = bench.client(kernel, "latency", options.records)
    result["latency"] = dict(latency, native=one["all"], added=latency["median"] - one["all"])
    return result


def exhaustive(bench, kernel, result, options):
    """The rates of all combinations of these payloads of write, compute and read."""
    counts, rates = [kernel.records(kib) for kib in options.tried], []
    for payloads in itertools.product(counts, repeat=3):
        with bench.service([counts[0], *payloads, counts[0]]) as _:
            rates.append((bench.client(kernel, "pipelined", 1 << 40, options.seconds)["rate"], payloads))
    # The best of so many was lucky too: it is measured again, in turns with its own choice.
    payloads, turns = max(rates)[1], []
    for _ in range(options.turns):
        turns.append([])
        for told in [counts[0], *payloads, counts[0]], result["own"]["payloads"]:
            with bench.service(told) as _:
                turns[-1].append(bench.client(kernel, "pipelined", 1 << 40, options.seconds)["rate"])
    result["exhaustive"] = {"rate": statistics.median(best for best, _ in turns), "payloads": payloads,
                            "tried": len(rates), "own": statistics.median(own / best for best, own in turns)}


def span(pair):
    return f"{pair[0]:g} to {pair[1]:g}"


def show(result):
    """One kernel's figures, in lines."""
    name, size = result["kernel"], result["input"]
    mb = lambda rate: f"{rate * size / 1e6:9.2f}"  # pylint: disable=unnecessary-lambda-assignment
    print(f"\n{name.upper()}: {size} bytes a record, {result['output']} an answer")
    print("  payload   one by one  pipelined  times  at most  device   ns a record: pack write compute read unpack"
          " and handing over")
    print("      KiB         MB/s       MB/s                    busy")
    for row in result["constant"]:
        stages = row["stages"]
        busy = f"{100 * row['busy']:5.0f} %" if row["busy"] is not None else "      -"
        print(f"  {row['kib']:7}    {mb(row['sequential'])}  {mb(row['pipelined'])}  {row['speedup']:5.2f}  "
              f"{row['ceiling']:7.2f} {busy}   " +
              " ".join(f"{1e9 * stages[s]:.0f}" for s in ("pack", "write", "compute", "read", "unpack", "hand over")))
    own, constant = result["own"], [row["pipelined"] for row in result["constant"]]
    gains = [100 * (own["rate"] / rate - 1) for rate in constant]
    times = statistics.mean(own["rate"] / row["sequential"] for row in result["constant"])
    busy = f", device busy {100 * own['busy']:.0f} %" if own["busy"] is not None else ""
    print(f"  its own choice {mb(own['rate']).strip()} MB/s{busy}, payloads of {own['payloads']} records: {times:.2f} times one by one "
          f"(published {span(SPEEDUP[name])}), {min(gains):+.0f} to {max(gains):+.0f} % over the constant ones "
          f"(published {span(GAIN[name])})")
    latency = result["latency"]
    print(f"  a record alone {1e6 * latency['median']:.0f} us (99 of 100 within {1e6 * latency['p99']:.0f}), natively "
          f"{1e6 * latency['native']:.0f}: {1e6 * latency['added']:.0f} us added")
    if "exhaustive" in result:
        best = result["exhaustive"]
        print(f"  of {best['tried']} combinations the best {mb(best['rate']).strip()} MB/s, with {best['payloads']}: "
              f"its own choice has {100 * best['own']:.0f} % of it")
    sys.stdout.flush()


def emulated(build, folder, kernel, native, options):
    """An emulated device whose kernel is --computes times as fast as its link, if this machine is fast enough."""
    link = options.link * 1e6 / max(kernel.input, kernel.output)
    records = min(link * options.computes, native["records"] / native["compute"] / SLOWER)
    config = os.path.join(folder, f"{kernel.name}.conf")
    with open(config, "w", encoding="utf-8") as file:
        file.write(f"[board]\nname=board base=1 own_memory=yes engines=yes link_mb_s={options.link} "
                   f"setup_us={SETUP_US} items_per_s={max(int(records * kernel.items), 1)}\n")
    return {"EMU_CONFIG": config, "EMU_LIBRARY": os.path.join(build, "tests", "emu", "libreseat-emu.so"),
            "POCL_DEVICES": "basic pthread"}


def run(options, build, name, folder):
    kernel = Kernel(name, folder)
    reseat = find_reseat(os.path.join(build, "agent", "reseat"))
    extra = {"POCL_DEVICES": "pthread"}
    vendor = "pocl" if not options.system else "system"
    if options.emulated:
        with Lab(["pocl"], extra_env=extra) as lab:
            native = Bench(lab, build).native(kernel, kernel.records(256))
            extra = emulated(build, folder, kernel, native, options)
        os.environ["EMU_LIBRARY"] = extra["EMU_LIBRARY"]
        vendor = "emulated"
    with Lab([vendor], reseat, extra_env=extra) as lab:
        lab.control("agent", "start")
        bench = Bench(lab, build)
        result = measure(bench, kernel, options)
        if options.exhaustive:
            exhaustive(bench, kernel, result, options)
    show(result)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="the build folder")
    parser.add_argument("--emulated", action="store_true", help="on an emulated device")
    parser.add_argument("--link", type=int, default=40, help="MB/s of the emulated device's link")
    parser.add_argument("--computes", type=float, default=1, help="its kernel, in link speeds; 0.5: the slowest stage")
    parser.add_argument("--system", action="store_true", help="on the first device that this machine has")
    parser.add_argument("--kernels", default=",".join(references.NAMES), type=lambda text: text.split(","))
    parser.add_argument("--payloads", default="512,1024,2048", help="constant ones, in KiB",
                        type=lambda text: [int(word) for word in text.split(",")])
    parser.add_argument("--exhaustive", action="store_true", help="try combinations of --tried")
    parser.add_argument("--tried", default="32,128,512,2048", help="payloads, in KiB",
                        type=lambda text: [int(word) for word in text.split(",")])
    parser.add_argument("--turns", type=int, default=7, help="comparisons of the best of them with its own choice")
    parser.add_argument("--seconds", type=float, default=2, help="for each rate")
    parser.add_argument("--learn", type=float, default=10, help="seconds in which it finds its own payloads")
    parser.add_argument("--records", type=int, default=1000, help="for the latency")
    parser.add_argument("--json", help="write the figures to this file")
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    print(f"{cores} cores; each rate over {options.seconds:g} s; \"at most\": all stages' time over the slowest one's")
    with tempfile.TemporaryDirectory(prefix="stream-bench-") as folder:
        results = [run(options, os.path.abspath(options.build), name, folder) for name in options.kernels]
    mean = statistics.mean(row["speedup"] for result in results for row in result["constant"])
    print(f"\nOn average {mean:.2f} times (published {SPEEDUP_MEAN}), on {cores} cores")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"streams": results, "cores": cores}, file)


if __name__ == "__main__":
    main()
