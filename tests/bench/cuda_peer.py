#!/usr/bin/python3
"""What NVIDIA's own driver takes for what a suspend and a resume do, on the machine at hand.

  cuda_peer.py [--mib N[,N...]] [--runs N]

For each size: a process that has so many bytes on the GPU is checkpointed and restored by the driver's own calls (as
cuda-checkpoint does), and the same bytes are copied out and in through registered host memory, which is as fast as the link
is. One line of JSON for each run, in seconds. Without a GPU of NVIDIA's it says so and fails.
"""

import argparse
import ctypes
import json
import subprocess
import sys
import time

READY = "ready"


class Cuda:
    """The few calls of the driver that are needed; each fails with its name."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)

    def call(self, name, *arguments):
        error = getattr(self.library, name)(*arguments)
        if error != 0:
            sys.exit(f"cuda_peer: {name} failed with error {error}")

    def enter(self):
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)

    def allocate(self, size):
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        self.call("cuMemsetD8_v2", pointer, ctypes.c_ubyte(1), ctypes.c_size_t(size))
        self.call("cuCtxSynchronize")
        return pointer


def hold(size):
    """Have so many bytes on the GPU until the input ends."""
    cuda = Cuda()
    cuda.enter()
    cuda.allocate(size)
    print(READY, flush=True)
    sys.stdin.read()


def timed(act):
    begin = time.monotonic()
    act()
    return time.monotonic() - begin


def checkpoint(cuda, size):
    """Seconds to suspend and to resume a process with so many bytes."""
    with subprocess.Popen([sys.executable, __file__, "--hold", str(size)], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as holder:
        if holder.stdout.readline().strip() != READY:
            sys.exit("cuda_peer: the process to be checkpointed did not start")

        def suspend():
            cuda.call("cuCheckpointProcessLock", holder.pid, None)
            cuda.call("cuCheckpointProcessCheckpoint", holder.pid, None)

        def resume():
            cuda.call("cuCheckpointProcessRestore", holder.pid, None)
            cuda.call("cuCheckpointProcessUnlock", holder.pid, None)

        taken = timed(suspend), timed(resume)
        holder.stdin.close()
    return taken


def copies(cuda, size):
    """Seconds out and in through registered memory, the better of three."""
    host = ctypes.c_void_p()
    cuda.call("cuMemAllocHost_v2", ctypes.byref(host), ctypes.c_size_t(size))
    device = cuda.allocate(size)
    out = min(timed(lambda: cuda.call("cuMemcpyDtoH_v2", host, device, ctypes.c_size_t(size)))
              for _ in range(3))
    into = min(timed(lambda: cuda.call("cuMemcpyHtoD_v2", device, host, ctypes.c_size_t(size)))
               for _ in range(3))
    cuda.call("cuMemFreeHost", host)
    cuda.call("cuMemFree_v2", device)
    return out, into


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--mib", default="1024,8192", help="sizes, comma-separated")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--hold", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.hold:
        hold(options.hold)
        return 0
    try:
        cuda = Cuda()
    except OSError as error:
        sys.exit(f"cuda_peer: no CUDA driver here: {error}")
    for mib in options.mib.split(","):
        size = int(mib) << 20
        for _ in range(options.runs):
            suspend, resume = checkpoint(cuda, size)
            cuda.enter()
            out, into = copies(cuda, size)
            print(json.dumps({"mib": int(mib), "suspend_s": round(suspend, 4),
                              "resume_s": round(resume, 4), "pinned_out_s": round(out, 4),
                              "pinned_in_s": round(into, 4)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
