"""
Power caps, on emulated devices with meters: what they draw stays under each cap at every sample, and
programs print what they print natively.

A cap that nothing fits under is refused with the least that would do; programs whose power does not fit
together take turns; a cap that is set while a program runs has it moved; a program that loses its device
keeps to its cap on the next one; a meter that is silent leaves the cap in force.
"""

import re
import subprocess
import time

from lab import DONE, REFUSED, Program, check, expect, until
from watts import DEVICES, Watts, emulate, settle

LEAST = {name: busy for name, (_, busy, _) in DEVICES.items()}  # until a peak is learnt
DRAIN_SECONDS = 1.5  # for a cap that is set while launches run
ONE_CAP = DEVICES["a"][1] + DEVICES["b"][0] + 1  # one device may be busy


class World:
    """Both devices, the agent that reads their meters, and what so many steps print natively."""

    def __init__(self, lab, train, cap, *steps):
        self.lab, self.train = lab, train
        emulate(lab)
        self.native = {count: lab.native(self.work(count)) for count in steps}
        lab.devices()
        if cap:
            self.cap_host(cap)

    def work(self, steps):
        return [self.train, "--fixed", "--steps", str(steps), "--every", "10"]

    def trains(self, name, steps, device, *options, env=None):
        return Program(self.lab, self.work(steps), "--name", name, "--device", device, *options,
                       stderr=subprocess.DEVNULL, env=env)

    def ends(self, program, steps):
        expect("its end", program.end(), self.native[steps])

    def refusal(self, *args):
        run = subprocess.run([self.lab.reseat, *args], env=self.lab.env, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        check(f"{args} is refused", run.returncode == REFUSED, (run.returncode, run.stdout, run.stderr))
        return float(re.search(r"least that would do is ([\d.]+) W", run.stderr.decode())[1])

    def reload(self):
        return self.lab.control("config", "reload", "--json")

    def cap_host(self, watts):
        settle(self.lab, watts)
        expect("the configuration is read again", self.reload()[0], DONE)


def stays_under(watts, cap, since=0, device=None):
    watts.stop()
    expect(f"samples above {cap} W", watts.above(cap, since, device), [])


def refused_below_the_least(lab, train):
    world = World(lab, train, 0, 60)
    expect("a program's least", world.refusal("run", "--cap", str(LEAST["b"] - 1), "--", "true"), LEAST["b"])
    expect("exactly the least is allowed",
           subprocess.run([lab.reseat, "run", "--cap", str(LEAST["b"]), "--", "true"], env=lab.env,
                          check=False).returncode, 0)
    idle = DEVICES["a"][0]
    expect("a device's least", world.refusal("limit", "gpu0", "--power", str(idle + 1)), LEAST["a"])
    work = world.trains("work", 60, "gpu0")
    work.comes_to("runs", lambda app: app.get("device") == "gpu0" and app["kernels"])
    least = world.refusal("limit", "gpu0", "--power", str(idle + 1))
    check("a device's least with a program on it", idle + 1 < least <= LEAST["a"], least)
    settle(lab, sum(idle for idle, _, _ in DEVICES.values()) + 1)
    status, answer = world.reload()
    check("the host's least", status != DONE and "the least that would do" in str(answer), (status, answer))
    world.ends(work, 60)


def programs_take_turns(lab, train):
    """Each fits alone, both do not."""
    world = World(lab, train, ONE_CAP, 60, 80)
    watts = Watts(lab)
    one, two = world.trains("one", 80, "gpu0"), world.trains("two", 60, "gpu1")
    waited = set()
    while one.runs() and two.runs():
        waited |= {app["name"] for app in lab.control("ps", "--json")[1]["apps"] if app["power_waits"]}
        time.sleep(0.05)
    world.ends(one, 80)
    world.ends(two, 60)
    stays_under(watts, ONE_CAP)
    expect("who waited", waited, {"one", "two"})
    check("devices drew more than idle", watts.above(DEVICES["a"][1] - 10), watts.samples()[-5:])


def an_agent_starts_with_a_cap(lab, train):
    world = World(lab, train, ONE_CAP, 60)
    for verb in ("stop", "start"):
        expect(f"agent {verb}", lab.control("agent", verb, "--json")[0], DONE)
    watts = Watts(lab)
    for program in [world.trains("one", 60, "gpu0"), world.trains("two", 60, "gpu1")]:
        world.ends(program, 60)
    stays_under(watts, ONE_CAP)


def a_cap_is_set_while_it_runs(lab, train):
    world = World(lab, train, 0, 250)
    watts = Watts(lab)
    work = world.trains("work", 250, "gpu0")
    until("it runs on gpu0", lambda: watts.above(60, device="a"))
    expect("the cap is set", lab.control("limit", "work", "--power", "50", "--json")[0], DONE)
    since = watts.now() + DRAIN_SECONDS
    until("it runs on gpu1", lambda: watts.above(40, since, device="b") or not work.runs())
    check("it runs still", work.runs())
    world.ends(work, 250)
    stays_under(watts, DEVICES["a"][0], since, device="a")
    stays_under(watts, 50, device="b")


def a_lost_device_leaves_the_cap(lab, train):
    world = World(lab, train, ONE_CAP, 80)
    watts = Watts(lab)
    world.ends(world.trains("work", 80, "gpu0", "--protect", env={"EMU_FAIL": "device=a;call=3000;error=vanish"}), 80)
    stays_under(watts, ONE_CAP)
    check("it went on on gpu1", watts.above(40, device="b"), watts.samples()[-5:])


def a_silent_meter_leaves_the_cap(lab, train):
    world = World(lab, train, ONE_CAP, 60)
    programs = [world.trains("one", 60, "gpu0"), world.trains("two", 60, "gpu1")]
    for program in programs:
        program.comes_to("runs", lambda app: app.get("kernels"))
    watts = Watts(lab)
    read = dict(lab.meters)
    lab.meters = {name: path + ".gone" for name, path in read.items()}
    settle(lab, ONE_CAP)
    lab.meters = read
    expect("the configuration is read again", world.reload()[0], DONE)
    for program in programs:
        world.ends(program, 60)
    stays_under(watts, ONE_CAP)
