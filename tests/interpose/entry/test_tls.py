#!/usr/bin/python3
"""
The library's thread-local storage moves stacks by whole multiples of what OpenCL aligns to.

    test_tls.py LIBRARY

Static storage is laid out module by module, each rounded to its own alignment: a size that is a
multiple of LARGEST and an alignment that asks for no rounding leave all others where they were,
modulo LARGEST.
"""

import struct
import sys

PT_TLS = 7
LARGEST = 128  # long16, double16 (6.1.5)
COMMON = 16  # what any other module's storage is aligned to


def storage(path):
    """(size in memory, alignment) of a 64-bit ELF file's thread-local storage, or None."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:5] != b"\x7fELF\x02":
        sys.exit(f"{path} is no 64-bit ELF file")
    order = "<" if data[5] == 1 else ">"
    (start,) = struct.unpack_from(order + "Q", data, 32)
    size, count = struct.unpack_from(order + "HH", data, 54)
    for i in range(count):
        kind, _, _, _, _, _, memory, align = struct.unpack_from(order + "IIQQQQQQ", data,
                                                                start + i * size)
        if kind == PT_TLS:
            return memory, align
    return None


def main():
    found = storage(sys.argv[1])
    if not found:
        return
    size, align = found
    if size % LARGEST or align > COMMON:
        sys.exit(f"thread-local storage of {size} bytes, aligned to {align}: stacks move by what is "
                 f"no multiple of {LARGEST}; all of it belongs into state/base/threads/thread_own.h")


if __name__ == "__main__":
    main()
