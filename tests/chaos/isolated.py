"""What an isolated program holds of the vendors' drivers, seen from outside while it runs."""

import os
import re
import threading

# Libraries of drivers and of what only they load, and the nodes of devices.
OF_DRIVERS = re.compile(
    r"pocl|libLLVM|libclang|Mesa|rusticl|Rusticl|gallium|oclgrind|nvidia|libcuda|libdrm|"
    r"/dev/(nvidia|dri|kfd|accel)")
SECONDS = 0.005


def held(pid):
    """Mappings and descriptors of a process that are a driver's, or None: it is no more."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
            found = {line.split(maxsplit=5)[5].strip() for line in file if line.count("/")}
        for number in os.listdir(f"/proc/{pid}/fd"):
            try:
                found.add(os.readlink(f"/proc/{pid}/fd/{number}"))
            except FileNotFoundError:
                pass
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return {path for path in found if OF_DRIVERS.search(path)}


class Watch(threading.Thread):
    """Looks again and again, as long as the process lives."""

    def __init__(self, pid, isolated):
        super().__init__(daemon=True)
        self.pid, self.isolated = pid, isolated
        self.over = threading.Event()
        self.looks, self.found = 0, set()

    def run(self):
        while not self.over.wait(SECONDS):
            now = held(self.pid)
            if now is None:
                return
            self.looks += 1
            self.found |= now

    def wrong(self):
        """What is, or None; once the process has ended."""
        self.over.set()
        self.join()
        if self.isolated and self.found:
            return f"it held {', '.join(sorted(self.found))}"
        if self.looks < 20:
            return f"it was looked at {self.looks} times only"
        # What finds nothing in a process that has a driver would find nothing anywhere.
        if not self.isolated and not self.found:
            return "nothing of a driver was seen in a process that has one"
        return None
