"""As roads_program.c: finds OpenCL by ctypes or by pyopencl, as its argument says."""

import ctypes
import sys

TYPE_ALL = 0xFFFFFFFF
PLATFORM_NAME = 0x0902
COPY_HOST_PTR = 1 << 5


def by_ctypes():
    cl = ctypes.CDLL("libOpenCL.so.1")
    for name in ("clCreateContext", "clCreateCommandQueue", "clCreateBuffer"):
        getattr(cl, name).restype = ctypes.c_void_p
    platforms = (ctypes.c_void_p * 8)()
    count = ctypes.c_uint()
    cl.clGetPlatformIDs(8, platforms, ctypes.byref(count))
    for platform in platforms[:count.value]:
        name = ctypes.create_string_buffer(128)
        cl.clGetPlatformInfo(ctypes.c_void_p(platform), PLATFORM_NAME, ctypes.c_size_t(128), name,
                             None)
        print(f"[{name.value.decode()}]", end="")
    device = ctypes.c_void_p()
    cl.clGetDeviceIDs(ctypes.c_void_p(platforms[0]), ctypes.c_ulong(TYPE_ALL), 1,
                      ctypes.byref(device), None)
    context = ctypes.c_void_p(cl.clCreateContext(None, 1, ctypes.byref(device), None, None, None))
    queue = ctypes.c_void_p(cl.clCreateCommandQueue(context, device, ctypes.c_ulong(0), None))
    sent = bytes(range(64))
    buffer = ctypes.c_void_p(cl.clCreateBuffer(context, ctypes.c_ulong(COPY_HOST_PTR),
                                               ctypes.c_size_t(64), sent, None))
    received = ctypes.create_string_buffer(64)
    cl.clEnqueueReadBuffer(queue, buffer, 1, ctypes.c_size_t(0), ctypes.c_size_t(64), received, 0,
                           None, None)
    return received.raw == sent


def by_pyopencl():
    import numpy
    import pyopencl

    platforms = pyopencl.get_platforms()
    for platform in platforms:
        print(f"[{platform.name}]", end="")
    context = pyopencl.Context([platforms[0].get_devices()[0]])
    queue = pyopencl.CommandQueue(context)
    sent = numpy.arange(64, dtype=numpy.uint8)
    received = numpy.zeros_like(sent)
    buffer = pyopencl.Buffer(context, pyopencl.mem_flags.COPY_HOST_PTR, hostbuf=sent)
    pyopencl.enqueue_copy(queue, received, buffer)
    return bool((received == sent).all())


if __name__ == "__main__":
    same = by_ctypes() if sys.argv[1] == "ctypes" else by_pyopencl()
    print(" same bytes" if same else " other bytes")
