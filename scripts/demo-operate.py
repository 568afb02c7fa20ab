#!/usr/bin/python3
"""A day on one host: two users, a policy's move, a limit, a drain, a lost device; and every figure counted again."""

import argparse
import collections
import ctypes
import os
import re
import socket
import subprocess
import sys
import threading

SCRIPTS = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(SCRIPTS, "..")
sys.path.insert(0, os.path.join(ROOT, "tests", "chaos"))

from lab import (DONE, EMULATED, NO_SUCH, PATIENCE, REFUSED, ROLLED_BACK, SKIPPED,  # pylint: disable=wrong-import-position
                 Lab, Program, expect, find_reseat, free_port, lines, say, until)

SOCKET = "/run/reseat/host.sock"
# Folders of the host that are its own here, in a mount namespace, with those of the agent's that systemd makes.
FOLDERS = {"/run": "/run/reseat", "/var/lib": "/var/lib/reseat", "/var/cache": "/var/cache/reseat"}
CLONE_NEWNS = 0x20000
AGENT, ANNA, BEN = 64010, 64001, 64002
MIB = 1 << 20
DEVICES = {"small": 64, "large": 160, "spare": 96}  # MiB
LIMIT = 100  # MiB of the large one
BLOCKS, BLOCK_MIB = 24, 4  # what Anna's program grows to
SOLVED_MIB = 16
POLL_SECONDS = 0.005
CONTEXT = 0  # enum emu_kind of tests/emu/emu.h
PHASES = r"(: (plan|prepare|pause|copy|commit|resume) by )|(: grant )"
COLUMNS = "NAME,PID,DEVICE,MEMORY,GRANTED,STATE,MOVES,LOSSES"


def have_folders():
    """Why this process cannot have folders of its own, or None."""
    if os.geteuid() != 0:
        return "two users on one host: only root can play that"
    if ctypes.CDLL(None).unshare(CLONE_NEWNS):
        return "folders of its own need a mount namespace, which this machine does not allow"
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    for folder, own in FOLDERS.items():
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755", "host", folder], check=True)
        os.mkdir(own)
        os.chown(own, AGENT, AGENT)
    return None


class Driver(threading.Thread):
    """What the emulated driver itself counts, over all programs; and how often memory of some came to a device
    that had none."""

    def __init__(self, lab, library):
        super().__init__(daemon=True)
        self.arrivals, self.over = 0, threading.Event()
        os.environ["EMU_CONTROL"] = lab.env["EMU_CONTROL"] = lab.path("control")
        self.library = ctypes.CDLL(library)
        for name, kind in (("bytes", ctypes.c_uint64), ("live", ctypes.c_int64)):
            getattr(self.library, "emu_control_" + name).restype = kind
        self.library.emu_control_bytes(b"")  # makes the file
        os.chmod(lab.path("control"), 0o666)

    def count(self, what, device, *of):
        return getattr(self.library, "emu_control_" + what)(device.encode(), *of)

    def run(self):
        held = dict.fromkeys(DEVICES, False)
        while not self.over.wait(POLL_SECONDS):
            for device, had in held.items():
                held[device] = self.count("bytes", device) >= MIB  # else somebody tries the device
                self.arrivals += held[device] and not had


class Host:
    """The host's agent, and who uses it; what was asked of it, with what came of it."""

    def __init__(self, lab, build):
        self.root, self.build = lab, build
        lab.env["POCL_DEVICES"] = "pthread"
        self.driver = Driver(lab, os.environ["EMU_LIBRARY"])
        service = lab.of("service", AGENT)
        lab.env["POCL_CACHE_DIR"] = service.env["POCL_CACHE_DIR"]  # root is believed, and has it used by the lister
        self.anna, self.ben = lab.of("anna", ANNA), lab.of("ben", BEN)
        self.asked = collections.Counter()
        with open(lab.path("agent.log"), "w", encoding="utf-8") as log:
            self.agent = service.start([os.path.join(build, "agent", "reseatd"), "--system"], subprocess.DEVNULL, log,
                                       {"RESEAT_METRICS_PORT": str(free_port())})
        until("the agent listens", lambda: os.path.exists(SOCKET))
        expect("the devices", [device["device"] for device in self.devices().values()], list(DEVICES))
        self.short = {device["device"]: name for name, device in self.devices().items()}

    def ask(self, who, verb, *words, comes_to=DONE):
        """Have @who run a command, as they see it, and keep what comes of it."""
        expect(f"the status of {verb}", who.show(verb, *words), comes_to)
        result = {DONE: "done", REFUSED: "refused", ROLLED_BACK: "denied"}[comes_to]
        self.asked[verb, "off" if "--off" in words else "set" if verb == "limit" else result] += 1

    def devices(self):
        """What reseat devices says, by name."""
        return {device["name"]: device for device in self.root.control("devices", "--json")[1]["devices"]}

    def apps(self, who=None):
        """What reseat ps says to @who, by name."""
        return {app["name"]: app for app in (who or self.root).control("ps", "--json")[1]["apps"]}

    def events(self):
        """How often there was each (what, state)."""
        return collections.Counter((event["what"], event["state"])
                                   for event in self.root.control("events", "--json")[1]["events"])

    def metrics(self):
        """{sample: value} of what a scraper of root's is given."""
        with socket.socket(socket.AF_UNIX) as scraper:
            scraper.connect(SOCKET + ".metrics")
            scraper.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            text = b"".join(iter(lambda: scraper.recv(65536), b"")).decode()
        return {sample: float(value) for sample, value in re.findall(r"^(reseat_\S+) (\S+)\r?$", text, re.MULTILINE)}


def grower(build):
    return [os.path.join(build, "tests", "programs", "grower"), "--block-kib", str(BLOCK_MIB * 1024), "--from", "4",
            "--to", str(BLOCKS), "--step", "4", "--passes", "2", "--pause-ms", "50"]


def comes_to(program, device, *more):
    """Wait until it runs there, and nothing is done with it."""
    return program.comes_to(f"it is on {device}", lambda app: app["device"] == device and app["state"] == "running" and
                            not app.get("move") and all(holds(app) for holds in more))


def morning(host):
    """The programs of both users, and the policy's move of one of them."""
    say("1. Anna starts a program that will grow, on the small device, and Ben a protected one on the spare.\n"
        "   Each sees their own programs; the administrator sees all.")
    grown = host.root.path("grown")
    with open(grown, "w", encoding="utf-8") as file:
        render = Program(host.anna, grower(host.build), "--name", "render", "--device", host.short["small"],
                         "--on-full", "upgrade,wait,suspend", busy=True, stderr=file)
    solver = Program(host.ben, [os.path.join(host.build, "tests", "programs", "busy"), "--mib", str(SOLVED_MIB),
                                "--rest", "20"],
                     "--name", "solver", "--device", host.short["spare"], "--protect=1", busy=True)
    comes_to(solver, host.short["spare"], lambda app: app["protection"]["snapshot_age_ns"] > 0 and app["device_bytes"])
    until("render runs", lambda: render.app() and render.app()["device"])
    host.ben.must("ps", "-o", COLUMNS)
    host.root.must("ps", "-o", COLUMNS)
    expect("what Anna sees", list(host.apps(host.anna)), ["render"])
    expect("what Ben sees", list(host.apps(host.ben)), ["solver"])
    expect("Ben moves Anna's program", host.ben.show("move", render.pid, host.short["spare"]), NO_SUCH)
    say("2. Anna's program has outgrown the small device. The policy moves it to the large one.")
    until("it has grown", lambda: f"{BLOCKS} blocks" in lines(grown), lambda: (lines(grown), render.app()))
    comes_to(render, host.short["large"], lambda app: app["device_bytes"] == BLOCKS * BLOCK_MIB * MIB)
    host.anna.must("ps", "-o", COLUMNS)
    return render, solver, grown


def noon(host, render, solver):
    """A limit, and a drain."""
    say(f"3. Programs may have {LIMIT} MiB of the large device from now on: the policy has Anna's\n"
        "   program keep to that. Ben's does not fit beside it, and nobody but an operator drains a device.")
    host.ask(host.root, "limit", host.short["large"], "--memory", f"{LIMIT}MiB")
    comes_to(render, host.short["large"], lambda app: app["granted_bytes"] <= LIMIT * MIB)
    host.ask(host.ben, "move", "solver", host.short["large"], comes_to=REFUSED)
    host.ask(host.ben, "drain", host.short["small"], comes_to=ROLLED_BACK)
    say("4. The spare device is to be serviced. What would happen is asked first; then it is drained.")
    host.root.must("drain", host.short["spare"], "--dry-run")
    host.ask(host.root, "drain", host.short["spare"])
    comes_to(solver, host.short["small"])
    expect("who is on the spare one", host.devices()[host.short["spare"]]["apps"], [])
    host.ask(host.root, "drain", host.short["spare"], "--off")


def afternoon(host, solver):
    """A lost device."""
    say("5. The small device falls off its bus. Ben's program was protected: it goes on elsewhere.")
    host.driver.library.emu_control_vanish(b"small")
    comes_to(solver, host.short["spare"], lambda app: app["protection"]["recoveries"] == 1)
    host.driver.library.emu_control_restore(b"small")
    until("the device is back", lambda: host.short["small"] in host.devices())
    host.root.must("ps", "-o", COLUMNS)
    host.root.must("devices", "-o", "NAME,DEVICE,MEMORY,IN-USE,GRANTED,LIMIT,STATE,BY")


def processes_of(uid):
    """Those of a user that have the library, by what the kernel says of their memory."""
    found = 0
    for pid in (name for name in os.listdir("/proc") if name.isdigit()):
        try:
            with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps:
                found += os.stat(f"/proc/{pid}").st_uid == uid and "libreseat.so" in maps.read()
        except OSError:  # it has ended
            pass
    return found


def figures(host, grown):
    """[(what, what reseat says in each place, what was counted otherwise)]."""
    devices, apps, metrics, events = host.devices(), host.apps(), host.metrics(), host.events()

    def metric(name, **labels):
        """The sum of the samples with these labels."""
        return sum(value for sample, value in metrics.items() if sample.partition("{")[0] == "reseat_" + name and
                   all(f'{label}="{wanted}"' in sample for label, wanted in labels.items()))

    rows = []
    for long, name in host.short.items():
        device = devices[name]
        rows.append((f"{name}: memory of it that programs may have",
                     (device["capacity_bytes"], metric("device_memory_capacity_bytes", device=name)),
                     (LIMIT if long == "large" else DEVICES[long]) * MIB))
        if long == "small":  # a driver does not say what a device held when it was lost
            rows.append((f"{name}: programs and memory after its loss",
                         (len(device["apps"]) + device["held_bytes"], metric("device_programs", device=name)), 0))
            continue
        rows.append((f"{name}: memory that is held (the driver's count)",
                     (device["held_bytes"], metric("device_memory_held_bytes", device=name),
                      sum(app["device_bytes"] for app in apps.values() if app["device"] == name)),
                     host.driver.count("bytes", long)))
        rows.append((f"{name}: programs (contexts in the driver)",
                     (len(device["apps"]), metric("device_programs", device=name)),
                     host.driver.count("live", long, CONTEXT)))
    blocks = int(lines(grown)[-1].split()[0])
    for user, uid, held in (("Anna", ANNA, blocks * BLOCK_MIB * MIB), ("Ben", BEN, SOLVED_MIB * MIB)):
        rows.append((f"{user}: programs (processes with the library)",
                     (metric("user_programs", user=uid), sum(app["uid"] == uid for app in apps.values())),
                     processes_of(uid)))
        rows.append((f"{user}: memory (what the program allocated)", (metric("user_memory_held_bytes", user=uid),), held))
    # No two were on one device one after the other without a moment between.
    rows.append(("moves and resumes (memory came to a device, in the driver)",
                 (sum(metric("operations_total", operation=verb, result="done") for verb in ("move", "resume")),
                  events["move", "done"] + events["resume", "done"],
                  metric("move_downtime_seconds_count") - events["suspend", "done"]),
                 host.driver.arrivals - len(apps)))
    for (verb, result), count in host.asked.items():
        rows.append((f"{verb} by commands: {result} (as they were asked)",
                     (metric("operations_total", operation=verb, result=result, by="command"), events[verb, result] -
                      metric("operations_total", operation=verb, result=result, by="policy")), count))
    rows.append(("programs that lost their device, and recovered (one device vanished)",
                 (metric("program_events_total", event="lost-device"), metric("program_events_total", event="recovered"),
                  sum(app["losses"] for app in apps.values()), events["program", "recovered"]), 1))
    return rows


def is_counted(host, grown):
    """Compare every figure, once all have come to the agent."""
    def wrong():
        return [row for row in figures(host, grown) if any(said != row[2] for said in row[1])]

    until("what reseat says is what was counted", lambda: not wrong(), wrong)
    print(f"\n  {'what':<72} {'counted':>11}  said in")
    for what, said, counted in figures(host, grown):
        print(f"  {what:<72} {counted:>11}  {len(said)} places")


def page_is_drawn(host, path):
    import browsed  # pylint: disable=import-outside-toplevel

    with browsed.Browser(host.root) as browser:
        browser.driver.get(host.root.control("page", "--json")[1]["url"])
        browser.sees("#state", "live")
        browser.sees("#programs", "render")
        browsed.says(host.root, browser)
        browser.sees("#events", "recovered")
        browser.driver.save_screenshot(path)


def play(host, options):
    natively = host.root.native(grower(host.build), TEST_DEVICE="1")  # alone on the large one
    expect("its end natively", natively[0], 0)
    host.driver.start()
    render, solver, grown = morning(host)
    noon(host, render, solver)
    afternoon(host, solver)
    say("6. Evening: every figure of ps, devices, events and metrics is compared with another count.")
    is_counted(host, grown)
    if not options.no_page:
        path = os.path.join(options.output, "operate.png")
        page_is_drawn(host, path)
        print(f"\n  The page says what ps and devices say: {os.path.relpath(path)}")
    expect("the end of Anna's program, and what it prints", render.end(), natively)
    expect("the end of Ben's", solver.end(), (0, b"ready\nevery word is right\n"))
    until("the agent knows", lambda: host.events()["program", "ended"] == 2, host.events)
    say("7. Both programs ended well, with the results that they have natively. What happened, without phases:")
    host.root.must("events", without=PHASES)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", required=True, help="folder for the picture")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="build folder")
    parser.add_argument("--no-page", action="store_true", help="without a browser")
    options = parser.parse_args()
    options.output, build = os.path.abspath(options.output), os.path.abspath(options.build)
    why = have_folders()
    if why:
        print(f"demo: {why}", file=sys.stderr)
        return SKIPPED
    os.environ.setdefault("EMU_LIBRARY", os.path.join(build, "tests", "emu", "libreseat-emu.so"))
    devices = "".join(f"[{name}] name={name} memory={mib}MiB own_memory=yes\n" for name, mib in DEVICES.items())
    with Lab([EMULATED], find_reseat(os.path.join(build, "agent", "reseat")), devices=devices) as lab:
        host = Host(lab, build)
        try:
            play(host, options)
        finally:
            host.driver.over.set()
            host.agent.terminate()
            host.agent.wait(timeout=PATIENCE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
