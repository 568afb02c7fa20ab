#!/usr/bin/python3
"""Run each kernel of a folder on all devices, as a stream's worker does, and compare with its references."""

import os
import re
import sys

import numpy as np
import pyopencl as cl

import references

FOLDER = sys.argv[1]
RECORDS = 40
GUARD = 0xa5


def description(name):
    with open(os.path.join(FOLDER, name + ".stream"), encoding="utf-8") as file:
        text = file.read()
    number = {key: int(value) for key, value in re.findall(r"^(\w+) = (\d+);", text, re.MULTILINE)}
    constants = re.findall(r'name = "(\w+)"; bytes = (\d+);', text)
    return number["input"], number["output"], number.get("items", 1), [(c, int(size)) for c, size in constants]


def run(device, name, constants, records, begin, count):
    """The whole ring of answers, of which the kernel is given @count slots from @begin on."""
    size, answer, items, expected = description(name)
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    with open(os.path.join(FOLDER, name + ".cl"), encoding="utf-8") as file:
        program = cl.Program(context, file.read()).build()
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    slots = len(records) // size
    ring = np.full(slots * answer, GUARD, np.uint8)
    out = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=ring)
    assert [(c, len(value)) for c, value in constants.items()] == expected, f"{name}: other constants"
    given = [cl.Buffer(context, flags, hostbuf=np.frombuffer(value, np.uint8))
             for value in (records, *constants.values())]  # a kernel does not keep its arguments
    kernel = cl.Kernel(program, name)
    kernel.set_args(given[0], out, *given[1:])
    cl.enqueue_nd_range_kernel(queue, kernel, (count * items,), None, (begin * items,))
    cl.enqueue_copy(queue, ring, out)
    return ring.tobytes()


def check(device, name, seed, begin, count):
    size, answer, _, _ = description(name)
    constants, records, answers = references.example(name, seed, RECORDS)
    assert len(records) == RECORDS * size and len(answers) == RECORDS * answer, f"{name}: other sizes"
    got = run(device, name, constants, records, begin, count)
    guard = bytes([GUARD])
    expected = (guard * (begin * answer) + answers[begin * answer:(begin + count) * answer] +
                guard * ((RECORDS - begin - count) * answer))
    wrong = [i for i in range(RECORDS) if got[i * answer:(i + 1) * answer] != expected[i * answer:(i + 1) * answer]]
    if wrong:
        raise SystemExit(f"{name} on {device.name}, seed {seed}: answers {wrong} are wrong")


def check_fips_197(device):
    """The example of the standard, of which OpenSSL need know nothing."""
    key, block = bytes(range(16)), bytes(0x11 * i for i in range(16))
    got = run(device, "aes", {"key": key}, block, 0, 1)
    assert got.hex() == "69c4e0d86a7b0430d8cdb78070b4c55a", f"aes on {device.name}: {got.hex()}"


def main():
    devices = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    assert devices, "no device"
    described = sorted(file[:-3] for file in os.listdir(FOLDER) if file.endswith(".cl"))
    assert described == sorted(references.NAMES), f"kernels without a reference: {described}"
    for device in devices:
        check_fips_197(device)
        for name in references.NAMES:
            check(device, name, 1, 0, RECORDS)
            check(device, name, 2, 7, RECORDS - 11)
        print(f"{device.platform.name}, {device.name}: {len(references.NAMES)} kernels")


if __name__ == "__main__":
    main()
