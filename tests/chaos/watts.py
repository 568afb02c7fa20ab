"""Emulated devices with energy meters, and what they draw over time."""

import os
import threading
import time

# Name of the section, watts idle and busy, work-items a second.
DEVICES = {"a": (10, 110, 5_000_000), "b": (5, 45, 2_500_000)}
WINDOW_SECONDS = 0.1
POLL_SECONDS = 0.02


def emulate(lab):
    """Have @lab show the devices, with meters, and its agent read them."""
    config = lab.path("devices")
    settings = os.path.join(lab.env["XDG_CONFIG_HOME"], "reseat")
    os.makedirs(settings, exist_ok=True)
    lab.settings = os.path.join(settings, "reseat.conf")
    lab.meters = {name: lab.path(f"{name}.uj") for name in DEVICES}
    with open(config, "w", encoding="ascii") as file:
        for name, (idle, busy, items) in DEVICES.items():
            file.write(f"[{name}] name=gpu-{name} base=0 own_memory=yes items_per_s={items} "
                       f"meter={lab.meters[name]} idle_w={idle} busy_w={busy}\n")
    lab.env.update(EMU_CONFIG=config, POCL_DEVICES="pthread", EMU_CONTROL=lab.path("control"))
    settle(lab)


def settle(lab, cap_w=0):
    """Write the configuration, with a cap of the host or none."""
    with open(lab.settings, "w", encoding="ascii") as file:
        entries = ",\n".join(
            f'  {{ model = "gpu-{name}"; meter = "file:{lab.meters[name]}"; idle-watts = {idle}; '
            f"busy-watts = {busy}; }}" for name, (idle, busy, _) in DEVICES.items())
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
    """What each device draws: the mean over each window, by the meters' own clock."""

    def __init__(self, lab):
        super().__init__(daemon=True)
        self.lab, self.stop_asked = lab, threading.Event()
        self.begin = time.monotonic()
        self.samples = []  # (seconds, {device: watts})
        self.start()

    def run(self):
        before = totals(self.lab.meters)
        while not self.stop_asked.wait(POLL_SECONDS):
            now = totals(self.lab.meters)
            due = all(name in before and now[name][1] - before[name][1] >= WINDOW_SECONDS * 1e9
                      for name in now)
            if not now or not due:
                before = {**now, **before}
                continue
            self.samples.append((time.monotonic() - self.begin, {
                name: (now[name][0] - before[name][0]) * 1e3 / (now[name][1] - before[name][1])
                for name in now}))
            before = now

    def now(self):
        return time.monotonic() - self.begin

    def stop(self):
        self.stop_asked.set()
        self.join()

    def above(self, cap_w, since=0, until=float("inf"), device=None):
        """The samples that exceed a cap of a device, or of all together; the first window is left out, which
        may have begun before @since."""
        drawn = [(when, watts[device] if device else sum(watts.values())) for when, watts in self.samples
                 if since + 2 * WINDOW_SECONDS <= when <= until and (not device or device in watts)]
        return [(round(when, 2), round(watts, 1)) for when, watts in drawn if watts > cap_w * 1.001]
