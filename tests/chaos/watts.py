"""Emulated devices with energy meters, and what they draw over time."""

import bisect
import os
import threading
import time

# Name of the section, watts idle and busy, work-items a second.
DEVICES = {"a": (10, 110, 5_000_000), "b": (5, 45, 2_500_000)}
WINDOW_SECONDS = 0.2
POLL_SECONDS = 0.01


def emulate(lab, devices=None):
    """Have @lab show the devices, with meters, and its agent read them."""
    devices = devices or DEVICES
    config = lab.path("devices")
    settings = os.path.join(lab.env["XDG_CONFIG_HOME"], "reseat")
    os.makedirs(settings, exist_ok=True)
    lab.settings = os.path.join(settings, "reseat.conf")
    lab.meters = {name: lab.path(f"{name}.uj") for name in devices}
    with open(config, "w", encoding="ascii") as file:
        for name, (idle, busy, items) in devices.items():
            file.write(f"[{name}] name=gpu-{name} base=0 own_memory=yes items_per_s={items} "
                       f"meter={lab.meters[name]} idle_w={idle} busy_w={busy}\n")
    lab.env.update(EMU_CONFIG=config, POCL_DEVICES="pthread", EMU_CONTROL=lab.path("control"))
    settle(lab, devices=devices)


def settle(lab, cap_w=0, devices=None):
    """Write the configuration, with a cap of the host or none."""
    with open(lab.settings, "w", encoding="ascii") as file:
        entries = ",\n".join(
            f'  {{ model = "gpu-{name}"; meter = "file:{lab.meters[name]}"; idle-watts = {idle}; '
            f"busy-watts = {busy}; }}" for name, (idle, busy, _) in (devices or DEVICES).items())
        file.write(f"policy = {{ power-cap = {cap_w}; }};\ndevices = (\n{entries}\n);\n")


def totals(meters):
    """{device: (microjoules, nanosecond)} of each meter that there is."""
    found = {}
    for name, path in meters.items():
        try:
            with open(path, encoding="ascii") as file:
                found[name] = tuple(int(word) for word in file.read().split())
        except (OSError, ValueError):
            pass
    return {name: total for name, total in found.items() if len(total) == 2}


class Watts(threading.Thread):
    """What each device draws, by the meters' own clock."""

    def __init__(self, lab):
        super().__init__(daemon=True)
        self.lab, self.stop_asked = lab, threading.Event()
        self.begin = time.monotonic()
        self.points = {name: [] for name in lab.meters}  # (seconds, joules) of each meter
        self.start()

    def run(self):
        while not self.stop_asked.wait(POLL_SECONDS):
            for name, (microjoules, at_ns) in totals(self.lab.meters).items():
                point = (at_ns / 1e9 - self.begin, microjoules / 1e6)
                if not self.points[name] or self.points[name][-1][0] < point[0]:
                    self.points[name].append(point)

    def now(self):
        return time.monotonic() - self.begin

    def stop(self):
        self.stop_asked.set()
        self.join()

    def drawn(self, device, begin, end):
        """Watts over that time: what whole intervals between two readings took. What only began or ended in
        it counts as idle, so that this is never more than was drawn."""
        idle = DEVICES[device][0]
        points = self.points[device]
        first, last = bisect.bisect_left(points, (begin,)), bisect.bisect_right(points, (end, float("inf"))) - 1
        if last <= first:
            return idle
        above = points[last][1] - points[first][1] - idle * (points[last][0] - points[first][0])
        return idle + above / (end - begin)

    def samples(self, since=0, until=None, step=WINDOW_SECONDS):
        """[(seconds, {device: watts})]: over a window that ends then."""
        last = max((points[-1][0] for points in self.points.values() if points), default=0)
        until = min(until or last, last)
        found, when = [], since + WINDOW_SECONDS
        while when <= until:
            found.append((when, {name: self.drawn(name, when - WINDOW_SECONDS, when) for name in self.points}))
            when += step
        return found

    def above(self, cap_w, since=0, device=None):
        """The samples that exceed a cap of a device, or of all together."""
        drawn = [(when, watts[device] if device else sum(watts.values()))
                 for when, watts in self.samples(since, step=WINDOW_SECONDS / 4)]
        return [(round(when, 2), round(watts, 1)) for when, watts in drawn if watts > cap_w * 1.001]
