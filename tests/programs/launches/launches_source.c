#include "launches.h"

/*
 * An item's record, of RECORD words, is at a place that the arguments alone say: none of the
 * functions that are tested has a part in it but get_global_id, without which nothing could be
 * told. Its first word counts how often the item was run.
 */
#define COMMON                                                                                     \
    "#ifndef DIMENSIONS\n"                                                                         \
    "#define DIMENSIONS 4\n"                                                                       \
    "#endif\n"                                                                                     \
    "#if __OPENCL_C_VERSION__ >= 200\n"                                                            \
    "#define LINEAR(r)                                                  \\\n"                      \
    "    r[30] = get_global_linear_id(), r[31] = get_local_linear_id(), \\\n"                      \
    "    r[32] = get_enqueued_local_size(0), r[33] = get_enqueued_local_size(1), \\\n"             \
    "    r[34] = get_enqueued_local_size(2), \\\n"                                                 \
    "    r[35] = DIMENSIONS > 3 ? get_enqueued_local_size(3) : 0\n"                                \
    "#else\n"                                                                                      \
    "#define LINEAR(r) (void)0\n"                                                                  \
    "#endif\n"                                                                                     \
    "#define ASK(r, at, d)                                    \\\n"                                \
    "    r[2 + 7 * (at)] = get_global_size(d), r[3 + 7 * (at)] = get_global_id(d), \\\n"           \
    "    r[4 + 7 * (at)] = get_local_size(d), r[5 + 7 * (at)] = get_local_id(d),   \\\n"           \
    "    r[6 + 7 * (at)] = get_num_groups(d), r[7 + 7 * (at)] = get_group_id(d),   \\\n"           \
    "    r[8 + 7 * (at)] = get_global_offset(d)\n"                                                 \
    "#if DIMENSIONS > 3\n"                                                                         \
    "#define BEYOND(r) ASK(r, 3, 3)\n"                                                             \
    "#else\n"                                                                                      \
    "#define BEYOND(r) (void)0\n"                                                                  \
    "#endif\n"                                                                                     \
    "size_t place(__constant ulong *s) {\n"                                                        \
    "    return (get_global_id(0) - s[3]) +\n"                                                     \
    "           s[0] * ((get_global_id(1) - s[4]) + s[1] * (get_global_id(2) - s[5]));\n"          \
    "}\n"                                                                                          \
    "ulong mixed(ulong a, uint work) {\n"                                                          \
    "    for (uint i = 0; i < work; i++) {\n"                                                      \
    "        a = a * 6364136223846793005ul + 1442695040888963407ul;\n"                             \
    "        a ^= a >> 29;\n"                                                                      \
    "    }\n"                                                                                      \
    "    return a;\n"                                                                              \
    "}\n"                                                                                          \
    "__global ulong *begin(__global ulong *out, __constant ulong *s, uint work) {\n"               \
    "    __global ulong *r = out + 37 * place(s);\n"                                               \
    "    r[0]++;\n"                                                                                \
    "    r[1] = get_work_dim();\n"                                                                 \
    "    r[36] = mixed(place(s), work);\n"                                                         \
    "    return r;\n"                                                                              \
    "}\n"

const char launches_source[] = COMMON
    /* Dimensions that only the running kernel knows, up to one that no launch has. */
    "__kernel void loops(__global ulong *out, __constant ulong *s, uint work) {\n"
    "    __global ulong *r = begin(out, s, work);\n"
    "    for (uint d = 0; d < DIMENSIONS; d++)\n"
    "        ASK(r, d, d);\n"
    "    LINEAR(r);\n"
    "}\n"
    /* Only what a part of a launch, given with an offset, has like the whole. */
    "__kernel void positions(__global ulong *out, __constant ulong *s, uint work) {\n"
    "    __global ulong *r = begin(out, s, work);\n"
    "    for (uint d = 0; d < 3u; d++) {\n"
    "        r[3 + 7 * d] = get_global_id(d);\n"
    "        r[4 + 7 * d] = get_local_size(d);\n"
    "        r[5 + 7 * d] = get_local_id(d);\n"
    "    }\n"
    "}\n"
    /* Dimensions that are constant, and functions called from functions. */
    "void deeper(__global ulong *r) {\n"
    "    ASK(r, 0, 0); ASK(r, 1, 1); ASK(r, 2, 2); BEYOND(r);\n"
    "}\n"
    "void deep(__global ulong *r) {\n"
    "    deeper(r);\n"
    "    LINEAR(r);\n"
    "}\n"
    "__kernel void constants(__global ulong *out, __constant ulong *s, uint work) {\n"
    "    deep(begin(out, s, work));\n"
    "}\n"
    /* Some items of each group end early, and some take another branch. */
    "__kernel void branches(__global ulong *out, __constant ulong *s, uint work) {\n"
    "    __global ulong *r = begin(out, s, work);\n"
    "    if (place(s) % 5u == 0) {\n"
    "        deep(r);\n"
    "        return;\n"
    "    }\n"
    "    switch (get_local_id(0) % 3u) {\n"
    "    case 0: ASK(r, 0, 0); break;\n"
    "    case 1: for (uint d = 1; d--;) ASK(r, d, d); break;\n"
    "    default: ASK(r, 0, 0);\n"
    "    }\n"
    "    ASK(r, 1, 1); ASK(r, 2, 2); BEYOND(r);\n"
    "    LINEAR(r);\n"
    "}\n"
    "__kernel __attribute__((reqd_work_group_size(4, 3, 2)))\n"
    "void required(__global ulong *out, __constant ulong *s, uint work) {\n"
    "    deep(begin(out, s, work));\n"
    "}\n"
    /* Every group adds up what its items say, twice, with memory of both kinds between them. */
    "__kernel void shared(__global ulong *out, __constant ulong *s, uint work,\n"
    "                     __local ulong *given) {\n"
    "    __local uint own[64];\n"
    "    __global ulong *r = begin(out, s, work);\n"
    "    uint w = (uint)get_local_size(0), h = (uint)get_local_size(1);\n"
    "    uint n = w * h * (uint)get_local_size(2), sum = 0;\n"
    "    uint l = (uint)(get_local_id(0) + w * (get_local_id(1) + h * get_local_id(2)));\n"
    "    ulong total = 0;\n"
    "    given[l] = place(s);\n"
    "    own[l] = (uint)place(s) * 7u;\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    for (uint i = 0; i < n; i++) {\n"
    "        total = total * 3u + given[i];\n"
    "        sum += own[(l + i) % n] * (i + 1u);\n"
    "    }\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    given[n - 1u - l] = total + sum;\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    r[2] = total;\n"
    "    r[3] = given[l];\n"
    "}\n"
    /* Groups that write to the same words: what they come to does not depend on their order. */
    "__kernel void atomics(__global ulong *out, __constant ulong *s, uint work,\n"
    "                      __global uint *totals) {\n"
    "    __global ulong *r = begin(out, s, work);\n"
    "    uint i = (uint)place(s), group = (uint)(get_group_id(0) + get_num_groups(0) *\n"
    "        (get_group_id(1) + get_num_groups(1) * get_group_id(2)));\n"
    "    r[2] = atomic_inc(&totals[0]);\n"
    "    atomic_add(&totals[1], i * 3u + 1u);\n"
    "    atomic_xor(&totals[2], i * 2654435761u);\n"
    "    atomic_max(&totals[3], i ^ 85u);\n"
    "    atomic_min(&totals[4], i ^ 85u);\n"
    "    atomic_or(&totals[5], 1u << (i & 31u));\n"
    "    atomic_and(&totals[6], ~(1u << (i & 7u)));\n"
    "    atomic_sub(&totals[7], i + 5u);\n"
    "    atomic_inc(&totals[8 + group]);\n"
    "}\n"
    /* Launches behind each other on the same cells, whose order shows. */
    "__kernel void chained(__global ulong *cells, __constant ulong *s, uint work) {\n"
    "    size_t i = place(s);\n"
    "    ulong a = cells[i] * 31u + get_work_dim();\n"
    "    for (uint d = 0; d < 3u; d++) {\n"
    "        a = a * 31u + get_group_id(d);\n"
    "        a = a * 31u + get_num_groups(d);\n"
    "        a = a * 31u + get_global_offset(d);\n"
    "        a = a * 31u + get_global_size(d);\n"
    "    }\n"
    "    cells[i] = mixed(a, work);\n"
    "}\n"
    "__kernel void ordered(__global ulong *cells, __constant ulong *s, uint work) {\n"
    "    size_t i = place(s);\n"
    "    ulong a = cells[i] * 31u + get_work_dim();\n"
    "    for (uint d = 0; d < 3u; d++) {\n"
    "        a = a * 31u + get_global_id(d);\n"
    "        a = a * 31u + get_local_id(d);\n"
    "    }\n"
    "    cells[i] = mixed(a, work);\n"
    "}\n";

/* Ways of writing the same that a program which reads or replaces names may take wrongly. */
const char launches_spelled[] =
    /* Names where they are no calls, in a comment, a member and a parameter. */
    "/* get_group_id(0) + get_num_groups(0) \" ' */ // get_global_size(\n"
    "struct names { ulong get_group_id, get_global_offset; };\n"
    "ulong twice(ulong get_num_groups) { return get_num_groups * 2u; }\n" COMMON
    /* Its own macros, some that name themselves. */
    "#define joined(a, b) a##b\n"
    "#define JOINED(a, b) joined(a, b)\n"
    "#define WORD group\n"
    "#define get_num_groups(d) (get_num_groups(d) + 0)\n"
    "#define get_global_size(get_group_id) (get_global_size(get_group_id) + 0)\n"
    "#define OFFSET get_global_offset\n"
    "__kernel void spelled(__global ulong *out, __constant ulong *s, uint work) {\n"
    "    __global ulong *r = begin(out, s, work);\n"
    "    struct names n = {.get_group_id = 5u};\n"
    "    n.get_global_offset = twice(4u);\n"
    "    for (uint d = 0; d < DIMENSIONS;) {\n"
    "        uint a = d, b = d, c = d;\n"
    "        r[2 + 7 * d] = get_global_size(a++);\n"
    "        r[3 + 7 * d] = get_global_\\\n"
    "id(d);\n"
    "        r[4 + 7 * d] = get_local_size /* of */ (\n"
    "            d);\n"
    "        r[5 + 7 * d] = JOINED(get_local, _id)(d);\n"
    "        r[6 + 7 * d] = get_num_groups(b++) + (n.get_group_id - 5u);\n"
    "        r[7 + 7 * d] = joined(get_, group_id)(c++) + (n.get_global_offset - 8u);\n"
    "        r[8 + 7 * d] = OFFSET(d) + (a - d - 1u) + (b - d - 1u) + (c - d - 1u);\n"
    "        d++;\n"
    "    }\n"
    "    LINEAR(r);\n"
    "}\n"
    "#undef get_num_groups\n"
    "#undef get_global_size\n"
    "#define of(function, d) function(d)\n"
    "__kernel void pasted(__global ulong *out, __constant ulong *s, uint work) {\n"
    "    __global ulong *r = begin(out, s, work);\n"
    "#pragma unroll\n"
    "    for (int d = 0; d < DIMENSIONS; d++) {\n"
    "        r[2 + 7 * d] = of(get_global_size, d);\n"
    "        r[3 + 7 * d] = of(get_global_id, d);\n"
    "        r[4 + 7 * d] = of(get_local_size, d);\n"
    "        r[5 + 7 * d] = of(get_local_id, d);\n"
    "        r[6 + 7 * d] = of(get_num_groups, d);\n"
    "        r[7 + 7 * d] = JOINED(get_, JOINED(WORD, _id))(d);\n"
    "        r[8 + 7 * d] = of(get_global_offset, d);\n"
    "    }\n"
    "    LINEAR(r);\n"
    "}\n"
    /* A kernel that calls a kernel. */
    "__kernel void nested(__global ulong *out, __constant ulong *s, uint work) {\n"
    "    pasted(out, s, work);\n"
    "}\n";
