"""QEMU's control socket (QMP): one command at a time, each with a deadline."""

import json
import socket
import time


class QmpError(Exception):
    """QEMU refused a command, or does not answer."""


class Qmp:
    """A connection; commands are methods of QEMU's, with `_` for `-`."""

    def __init__(self, path, seconds):
        self.socket = connect(path, seconds)
        self.lines = self.socket.makefile("rwb")
        self._read()  # who it is
        self.execute("qmp_capabilities")

    def _read(self):
        try:
            line = self.lines.readline()
        except OSError as error:
            raise QmpError(f"QEMU does not answer: {error}") from error
        if not line:
            raise QmpError("QEMU has ended")
        return json.loads(line)

    def execute(self, command, **arguments):
        request = {"execute": command}
        if arguments:
            request["arguments"] = {name.replace("_", "-"): value
                                    for name, value in arguments.items()}
        try:
            self.lines.write(json.dumps(request).encode() + b"\n")
            self.lines.flush()
        except OSError as error:
            raise QmpError(f"QEMU has ended: {error}") from error
        while True:  # events come in between
            answer = self._read()
            if "return" in answer:
                return answer["return"]
            if "error" in answer:
                raise QmpError(f"{command}: {answer['error'].get('desc')}")

    def close(self):
        self.lines.close()
        self.socket.close()


def connect(path, seconds):
    """A connection to a Unix socket that somebody is about to make."""
    until = time.monotonic() + seconds
    while True:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(seconds)
        try:
            client.connect(path)
            return client
        except (FileNotFoundError, ConnectionRefusedError) as error:
            client.close()
            if time.monotonic() > until:
                raise QmpError(f"nobody listens at {path}") from error
            time.sleep(0.02)
