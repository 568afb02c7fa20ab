#!/usr/bin/python3
"""PyOpenCL's events: chains over two queues, profiling, waiting."""

import numpy as np
import pyopencl as cl

from pycommon import Work, open_device, same

CONTEXT, _ = open_device()
TIMED = cl.CommandQueue(CONTEXT, properties=cl.command_queue_properties.PROFILING_ENABLE)
OTHER = cl.CommandQueue(CONTEXT)
COUNT = 8192
PROGRAM = cl.Program(CONTEXT, """
__kernel void add(__global uint *a, uint k) { a[get_global_id(0)] = a[get_global_id(0)] * 5u + k; }
""").build()


def one_pass():
    """Each launch waits for the one before, on the other queue."""
    want = np.arange(COUNT, dtype=np.uint32)
    buffer = cl.Buffer(CONTEXT, cl.mem_flags.COPY_HOST_PTR | cl.mem_flags.READ_WRITE, hostbuf=want)
    kernel = PROGRAM.add
    event, newest = None, 0
    for step in range(10):
        queue = OTHER if step % 2 else TIMED
        event = kernel(queue, (COUNT,), None, buffer, np.uint32(step),
                       wait_for=[event] if event else None)
        queue.flush()
        want = want * np.uint32(5) + np.uint32(step)
        if step % 2 == 0:
            event.wait()
            if not newest <= event.profile.start <= event.profile.end:
                raise SystemExit("profiling times run backwards")
            newest = event.profile.start
    got = np.empty_like(want)
    cl.enqueue_copy(TIMED, got, buffer, wait_for=[event])
    same("chain", got, want)
    if event.command_execution_status != cl.command_execution_status.COMPLETE:
        raise SystemExit("the last event is not complete")
    return got


Work("events").repeat(one_pass)
