#ifndef RESEAT_TESTS_STATE_MEMORY_TEST_INVARIANTS_COMMON_H
#define RESEAT_TESTS_STATE_MEMORY_TEST_INVARIANTS_COMMON_H

#include "state/memory/memory.h"
#include "tests/support/engine_rig.h"

/* Devices that copy, and one that works on the host's bytes in place. */
static const char *const config = "[one] name=one [two] name=two [three] name=three type=cpu "
                                  "host_unified=yes";

static const char *const source =
    "__kernel void add(__global uint *words, uint value)\n"
    "{ words[get_global_id(0)] += value + (uint)get_global_id(0); }\n"
    "__kernel void sum(__global uint *out, __global uint *in, __constant uint *table)\n"
    "{ size_t i = get_global_id(0); out[i] = in[i] + table[i]; }\n"
    "__kernel void look(__global uint *out, read_only image2d_t from, write_only image2d_t to)\n"
    "{ int2 at = (int2)(get_global_id(0), 0); uint4 v = read_imageui(from, at);\n"
    "  out[at.x] = v.x; write_imageui(to, at, v + 1); }\n";

#define WORDS 64
#define SIZE  (WORDS * sizeof(cl_uint))

static inline struct memory *root_of(cl_mem buffer)
{
    return memory_get(buffer)->root;
}

static inline uint64_t version_of(cl_mem buffer)
{
    return atomic_load(&root_of(buffer)->version);
}

#endif
