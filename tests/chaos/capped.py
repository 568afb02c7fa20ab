#!/usr/bin/env python3
"""
Power caps, on emulated devices with meters: what they draw stays under each cap at every sample, and
programs print what they print natively.

    capped.py TRAIN

A cap that nothing fits under is refused with the least that would do; programs whose power does not fit
together take turns; a cap that is set while a program runs has it moved; a program that loses its device
keeps to its cap on the next one; a meter that is silent leaves the cap in force.
"""

import os
import re
import subprocess
import sys
import time

from lab import DONE, REFUSED, Lab, find_reseat
from watts import DEVICES, Watts, emulate, settle

PATIENCE = 120
LEAST = {name: busy for name, (_, busy, _) in DEVICES.items()}  # until a peak is learnt
DRAIN_SECONDS = 1.5  # for a cap that is set while launches run
GPUS = {"a": "gpu0", "b": "gpu1"}


def fail(text):
    sys.exit(f"capped.py: {text}")


def expect(what, is_so, seen=""):
    if not is_so:
        fail(f"{what}: {seen}")


def until(what, ready, seen=lambda: ""):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        got = ready()
        if got:
            return got
        time.sleep(0.05)
    return fail(f"never came about: {what}; {seen()}")


class Trainer:
    """The training program under reseat, whose output is compared with the native one."""

    def __init__(self, lab, name, steps, *options, env=None):
        self.name, self.native = name, lab.native[steps]
        self.process = lab.start([lab.reseat, "run", "--name", name, *options, "--", *lab.work(steps)],
                                 subprocess.PIPE, subprocess.DEVNULL, env)

    def runs(self):
        return self.process.poll() is None

    def ends(self):
        out = self.process.communicate(timeout=PATIENCE)[0]
        expect(f"{self.name} ended as natively", (self.process.returncode, out) == (0, self.native),
               (self.process.returncode, out))


class World(Lab):
    """Both devices, the agent that reads their meters, and what so many steps print natively."""

    def __init__(self, train, *steps):
        super().__init__(["emulated"], find_reseat(), program=[train])
        self.train = train
        emulate(self)
        self.native = {count: subprocess.run(self.work(count), env=self.env, stdout=subprocess.PIPE,
                                             check=True).stdout for count in steps}
        self.devices()

    def work(self, steps):
        return [self.train, "--fixed", "--steps", str(steps), "--every", "10"]

    def refusal(self, *args):
        run = subprocess.run([self.reseat, *args], env=self.env, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        expect(f"{args} is refused", run.returncode == REFUSED, (run.returncode, run.stdout, run.stderr))
        return float(re.search(r"least that would do is ([\d.]+) W", run.stderr.decode())[1])

    def app(self, name):  # pylint: disable=arguments-renamed
        apps = self.control("ps", "--json")[1]["apps"]
        return next((app for app in apps if app["name"] == name), None)

    def cap_host(self, watts):
        settle(self, watts)
        expect("the configuration is read again", self.control("config", "reload", "--json")[0] == DONE)


def refused_below_the_least(train):
    with World(train, 60) as lab:
        expect("a program's least", lab.refusal("run", "--cap", str(LEAST["b"] - 1), "--", "true") == LEAST["b"])
        expect("exactly the least is allowed",
               subprocess.run([lab.reseat, "run", "--cap", str(LEAST["b"]), "--", "true"], env=lab.env,
                              check=False).returncode == 0)
        idle = DEVICES["a"][0]
        expect("a device's least", lab.refusal("limit", "gpu0", "--power", str(idle + 1)) == LEAST["a"])
        work = Trainer(lab, "work", 60, "--device", "gpu0")
        until("it runs", lambda: (lab.app("work") or {}).get("device") == "gpu0" and lab.app("work")["kernels"])
        least = lab.refusal("limit", "gpu0", "--power", str(idle + 1))
        expect("a device's least with a program on it", idle + 1 < least <= LEAST["a"], least)
        all_idle = sum(idle for idle, _, _ in DEVICES.values())
        settle(lab, all_idle + 1)
        status, answer = lab.control("config", "reload", "--json")
        expect("the host's least", status != DONE and "the least that would do" in str(answer), (status, answer))
        work.ends()


def programs_take_turns(train):
    """Each fits alone, both do not."""
    with World(train, 60, 80) as lab:
        cap = DEVICES["a"][1] + DEVICES["b"][0] + 1
        lab.cap_host(cap)
        watts = Watts(lab)
        programs = [Trainer(lab, "one", 80, "--device", "gpu0"),
                    Trainer(lab, "two", 60, "--device", "gpu1")]
        waited = set()
        while all(program.runs() for program in programs):
            waited |= {app["name"] for app in lab.control("ps", "--json")[1]["apps"] if app["power_waits"]}
            time.sleep(0.05)
        for program in programs:
            program.ends()
        watts.stop()
        expect("no sample is above the host's cap", not watts.above(cap), watts.above(cap))
        expect("both waited", waited == {"one", "two"}, waited)
        expect("devices drew more than idle", watts.above(DEVICES["a"][1] - 10), watts.samples()[-5:])


def an_agent_starts_with_a_cap(train):
    with World(train, 60) as lab:
        cap = DEVICES["a"][1] + DEVICES["b"][0] + 1
        lab.cap_host(cap)
        for verb in ("stop", "start"):
            expect(f"agent {verb}", lab.control("agent", verb, "--json")[0] == DONE)
        watts = Watts(lab)
        programs = [Trainer(lab, name, 60, "--device", device) for name, device in (("one", "gpu0"), ("two", "gpu1"))]
        for program in programs:
            program.ends()
        watts.stop()
        expect("no sample is above the host's cap", not watts.above(cap), watts.above(cap))


def a_cap_is_set_while_it_runs(train):
    with World(train, 250) as lab:
        watts = Watts(lab)
        work = Trainer(lab, "work", 250, "--device", "gpu0")
        until("it runs on gpu0", lambda: watts.above(60, device="a"))
        expect("the cap is set", lab.control("limit", "work", "--power", "50", "--json")[0] == DONE)
        since = watts.now() + DRAIN_SECONDS
        until("it runs on gpu1", lambda: watts.above(40, since, device="b") or not work.runs())
        expect("it runs still", work.runs())
        work.ends()
        watts.stop()
        high = watts.above(DEVICES["a"][0], since, device="a")
        expect("gpu0 draws only what it draws idle", not high, high)
        expect("gpu1 keeps to the cap", not watts.above(50, device="b"), watts.above(50, device="b"))


def a_lost_device_leaves_the_cap(train):
    with World(train, 80) as lab:
        cap = DEVICES["a"][1] + DEVICES["b"][0] + 1
        lab.cap_host(cap)
        watts = Watts(lab)
        work = Trainer(lab, "work", 80, "--device", "gpu0", "--protect",
                       env={"EMU_FAIL": "device=a;call=3000;error=vanish"})
        work.ends()
        watts.stop()
        expect("no sample is above the host's cap", not watts.above(cap), watts.above(cap))
        expect("it went on on gpu1", watts.above(40, device="b"), watts.samples()[-5:])


def a_silent_meter_leaves_the_cap(train):
    with World(train, 60) as lab:
        cap = DEVICES["a"][1] + DEVICES["b"][0] + 1
        lab.cap_host(cap)
        programs = [Trainer(lab, "one", 60, "--device", "gpu0"),
                    Trainer(lab, "two", 60, "--device", "gpu1")]
        until("both run", lambda: all((lab.app(name) or {}).get("kernels") for name in ("one", "two")))
        watts = Watts(lab)
        read = {name: path for name, path in lab.meters.items()}
        lab.meters = {name: path + ".gone" for name, path in read.items()}
        settle(lab, cap)
        lab.meters = read
        expect("the configuration is read again", lab.control("config", "reload", "--json")[0] == DONE)
        for program in programs:
            program.ends()
        watts.stop()
        expect("no sample is above the host's cap", not watts.above(cap), watts.above(cap))


def main():
    train = os.path.abspath(sys.argv[1])
    stories = [refused_below_the_least, programs_take_turns, an_agent_starts_with_a_cap, a_cap_is_set_while_it_runs,
               a_lost_device_leaves_the_cap, a_silent_meter_leaves_the_cap]
    for story in stories:
        if len(sys.argv) < 3 or story.__name__ in sys.argv[2:]:
            story(train)
            print(f"ok {story.__name__}", flush=True)


if __name__ == "__main__":
    main()
