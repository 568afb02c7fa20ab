"""What the PyOpenCL scripts share: repeat while asked to, print one checksum."""

import os
import zlib


class Work:
    """Passes over the same work: each must give the checksum of the first."""

    def __init__(self, name):
        self.name = name
        self.first = None

    def repeat(self, one_pass):
        """Call @one_pass, which returns an integer array or bytes, until it is enough."""
        while True:
            result = one_pass()
            crc = zlib.crc32(result if isinstance(result, bytes) else result.tobytes())
            if self.first is not None and crc != self.first:
                raise SystemExit(f"{self.name}: a later pass gave another checksum")
            self.first = crc
            until = os.environ.get("TEST_UNTIL")
            if not until or os.path.exists(until):
                break
        print(f"{self.name} checksum {self.first:08x}")


def same(what, got, want):
    """End the program unless the arrays agree."""
    if (got != want).any():
        raise SystemExit(f"{what}: {int((got != want).sum())} of {got.size} values differ")


def open_device():
    """A context and a queue on the device that TEST_DEVICE names."""
    import pyopencl as cl  # pylint: disable=import-outside-toplevel
    devices = [d for p in cl.get_platforms() for d in p.get_devices()]
    context = cl.Context([devices[int(os.environ.get("TEST_DEVICE", "0"))]])
    return context, cl.CommandQueue(context)
