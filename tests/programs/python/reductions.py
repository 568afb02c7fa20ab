#!/usr/bin/python3
"""PyOpenCL's generated reductions and scans over integers, against numpy."""

import numpy as np
import pyopencl.array as cla
from pyopencl.reduction import ReductionKernel
from pyopencl.scan import InclusiveScanKernel

from pycommon import Work, open_device, same

CONTEXT, QUEUE = open_device()
DATA = np.random.RandomState(2).randint(0, 1000, 30000).astype(np.int64)
DOT = ReductionKernel(CONTEXT, np.int64, neutral="0", reduce_expr="a+b", map_expr="x[i]*y[i]",
                      arguments="__global const long *x, __global const long *y")
SCAN = InclusiveScanKernel(CONTEXT, np.int64, "a+b", neutral="0")


def one_pass():
    """A dot product, largest and smallest, and a running sum."""
    x, y = cla.to_device(QUEUE, DATA), cla.to_device(QUEUE, DATA[::-1].copy())
    got = np.array([DOT(x, y).get(), cla.sum(x).get(), cla.max(x).get(), cla.min(x).get()],
                   dtype=np.int64)
    want = np.array([(DATA * DATA[::-1]).sum(), DATA.sum(), DATA.max(), DATA.min()])
    same("reductions", got, want)
    SCAN(x)
    same("scan", x.get(), np.cumsum(DATA))
    return np.concatenate([got, x.get()])


Work("reductions").repeat(one_pass)
