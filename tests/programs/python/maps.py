#!/usr/bin/python3
"""PyOpenCL's maps: a buffer written and read through mapped numpy arrays."""

import numpy as np
import pyopencl as cl

from pycommon import Work, open_device, same

CONTEXT, QUEUE = open_device()
COUNT = 10000
PROGRAM = cl.Program(CONTEXT, """
__kernel void scale(__global int *a) { a[get_global_id(0)] = a[get_global_id(0)] * 3 + 1; }
""").build()


def one_pass():
    """Fill through a map, compute, read through another."""
    want = np.random.RandomState(4).randint(0, 1 << 20, COUNT).astype(np.int32)
    buffer = cl.Buffer(CONTEXT, cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR, want.nbytes)
    array, _ = cl.enqueue_map_buffer(QUEUE, buffer, cl.map_flags.WRITE, 0, COUNT, np.int32)
    array[:] = want
    array.base.release(QUEUE)
    for _ in range(5):
        PROGRAM.scale(QUEUE, (COUNT,), None, buffer)
        want = want * np.int32(3) + np.int32(1)
    array, _ = cl.enqueue_map_buffer(QUEUE, buffer, cl.map_flags.READ, 0, COUNT, np.int32)
    got = array.copy()
    array.base.release(QUEUE)
    QUEUE.finish()
    same("through maps", got, want)
    return got


Work("maps").repeat(one_pass)
