#!/usr/bin/python3
"""PyOpenCL's images: an integer kernel over a picture, copies in and out."""

import numpy as np
import pyopencl as cl

from pycommon import Work, open_device, same

CONTEXT, QUEUE = open_device()
PICTURE = np.random.RandomState(3).randint(0, 256, (48, 64, 4)).astype(np.uint8)
PROGRAM = cl.Program(CONTEXT, """
__constant sampler_t at = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_NEAREST;
__kernel void mirror(__read_only image2d_t in, __write_only image2d_t out) {
    int x = (int)get_global_id(0), y = (int)get_global_id(1), w = (int)get_global_size(0);
    write_imageui(out, (int2)(x, y), 255u - read_imageui(in, at, (int2)(w - 1 - x, y)));
}""").build()


def one_pass():
    """Mirror and invert."""
    flags = cl.mem_flags
    layout = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.UNSIGNED_INT8)
    shape = (PICTURE.shape[1], PICTURE.shape[0])
    source = cl.Image(CONTEXT, flags.READ_ONLY | flags.COPY_HOST_PTR, layout, shape=shape,
                      hostbuf=PICTURE)
    target = cl.Image(CONTEXT, flags.READ_WRITE, layout, shape=shape)
    PROGRAM.mirror(QUEUE, shape, None, source, target)
    got = np.empty_like(PICTURE)
    cl.enqueue_copy(QUEUE, got, target, origin=(0, 0), region=shape)
    same("mirrored", got, 255 - PICTURE[:, ::-1])
    return got


Work("images").repeat(one_pass)
