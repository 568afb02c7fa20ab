#!/usr/bin/python3
"""PyOpenCL's arrays: integer arithmetic on the device against numpy."""

import numpy as np
import pyopencl.array as cla

from pycommon import Work, open_device, same

_, QUEUE = open_device()
RANDOM = np.random.RandomState(1)
A, B = (RANDOM.randint(0, 1 << 30, 20000).astype(np.uint32) for _ in range(2))


def one_pass():
    """Elementwise operations, slices and a comparison."""
    a, b = cla.to_device(QUEUE, A), cla.to_device(QUEUE, B)
    c = (a + 3 * b) ^ a
    want = (A + np.uint32(3) * B) ^ A
    same("arithmetic", c.get(), want)
    d = c[100:10100]
    d += np.uint32(7)
    want[100:10100] += np.uint32(7)
    same("slice", c.get(), want)
    same("arange", cla.arange(QUEUE, 0, 5000, 5, dtype=np.int32).get(),
         np.arange(0, 5000, 5, dtype=np.int32))
    return c.get()


Work("arrays").repeat(one_pass)
