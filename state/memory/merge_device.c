#include "state/memory/merge_device.h"

#include <errno.h>

#include "state/base/clock.h"
#include "state/memory/digest.h"
#include "state/object/lost.h"

#define ITEMS_MAX 256u
#define SAID_MOST 1u         /* of a flag */
#define UNSAID    UINT32_MAX /* a flag that no kernel has written */
#define TURN_NS   50000u     /* another thread sets a kernel's arguments, or builds */

/* One work-group for each chunk. Its items take interleaved units, so that loads are coalesced.
 * Units are only compared for equality. */
static const char source[] =
    "void say(uint said, local uint *shared, global uint *flags)\n"
    "{\n"
    "    const uint item = get_local_id(0);\n"
    "    shared[item] = said;\n"
    "    for (uint step = get_local_size(0) / 2; step > 0; step /= 2) {\n"
    "        barrier(CLK_LOCAL_MEM_FENCE);\n"
    "        if (item < step)\n"
    "            shared[item] |= shared[item + step];\n"
    "    }\n"
    "    if (item == 0)\n"
    "        flags[get_group_id(0)] = shared[0];\n"
    "}\n"
    "kernel void reseat_differs(global const ulong *now, ulong origin,\n"
    "                           global const ulong *before, ulong base, ulong end, ulong first,\n"
    "                           local uint *shared, global uint *flags)\n"
    "{\n"
    "    const uint item = get_local_id(0), items = get_local_size(0);\n"
    "    const ulong chunk = (first + get_group_id(0)) * UNITS, whole = end / 8;\n"
    "    const ulong from = chunk > base ? chunk : base;\n"
    "    const ulong to = chunk + UNITS < whole ? chunk + UNITS : whole;\n"
    "    const uint units = to > from ? (uint)(to - from) : 0;\n"
    "    global const ulong *a = now + (from - origin), *b = before + (from - base);\n"
    "    ulong x = 0;\n"
    "    uint at = item;\n"
    "    for (; at + 3 * items < units; at += 4 * items) {\n"
    "        const ulong p = a[at], q = a[at + items];\n"
    "        const ulong r = a[at + 2 * items], s = a[at + 3 * items];\n"
    "        x |= (p ^ b[at]) | (q ^ b[at + items]);\n"
    "        x |= (r ^ b[at + 2 * items]) | (s ^ b[at + 3 * items]);\n"
    "    }\n"
    "    for (; at < units; at += items)\n"
    "        x |= a[at] ^ b[at];\n"
    "    if (item == 0 && end % 8 != 0 && chunk + UNITS > whole) {\n"
    "        global const uchar *c = (global const uchar *)(now + (whole - origin));\n"
    "        global const uchar *d = (global const uchar *)(before + (whole - base));\n"
    "        for (uint i = 0; i < end % 8; i++)\n"
    "            x |= c[i] ^ d[i];\n"
    "    }\n"
    "    say(x != 0, shared, flags);\n"
    "}\n"
    "kernel void reseat_overlaps(global const ulong *before, global const ulong *after,\n"
    "                            ulong first, global const ulong *now, uint bits,\n"
    "                            local uint *shared, global uint *flags)\n"
    "{\n"
    "    const ulong slot = (first + get_group_id(0)) * UNITS;\n"
    "    global const ulong *here = now + get_group_id(0) * (ulong)UNITS;\n"
    "    uint x = 0;\n"
    "    for (uint at = get_local_id(0); at < UNITS; at += get_local_size(0)) {\n"
    "        const ulong p = before[slot + at], q = after[slot + at], r = here[at];\n"
    "        if (q == p || r == p || r == q)\n"
    "            continue;\n"
    "        for (uint i = 0; i < 64; i += bits) {\n"
    "            const ulong mask = (~0UL >> (64 - bits)) << i;\n"
    "            x |= ((q ^ p) & mask) != 0 && ((r ^ p) & mask) != 0 && ((r ^ q) & mask) != 0;\n"
    "        }\n"
    "    }\n"
    "    say(x, shared, flags);\n"
    "}\n"
    "kernel void reseat_apply(global uchar *real, global const ulong *chunks,\n"
    "                         global const uchar *before, global const uchar *after)\n"
    "{\n"
    "    const ulong slot = get_group_id(0) * (ulong)UNITS * 8;\n"
    "    global uchar *here = real + chunks[get_group_id(0)] * UNITS * 8;\n"
    "    global const ulong *p = (global const ulong *)(before + slot);\n"
    "    global const ulong *q = (global const ulong *)(after + slot);\n"
    "    for (uint at = get_local_id(0); at < UNITS; at += get_local_size(0)) {\n"
    "        if (p[at] == q[at])\n"
    "            continue;\n"
    "        for (uint i = 8 * at; i < 8 * at + 8; i++)\n"
    "            if (after[slot + i] != before[slot + i])\n"
    "                here[i] = after[slot + i];\n"
    "    }\n"
    "}\n";

#define OPTIONS "-DUNITS=8192u"
_Static_assert(DIGEST_CHUNK == (size_t)8192 * 8, "a chunk has so many units");

enum { KERNEL_DIFFERS, KERNEL_OVERLAPS, KERNEL_APPLY };
static const char *const kernels[] = {"reseat_differs", "reseat_overlaps", "reseat_apply"};
static const struct device_tool tool = {.kind = RESIDENCE_MERGE,
                                        .source = source,
                                        .options = OPTIONS,
                                        .kernels = kernels,
                                        .kernel_count = ARRAY_SIZE(kernels),
                                        .items_most = ITEMS_MAX,
                                        .item_local = sizeof(cl_uint),
                                        .name = "merging",
                                        .without = "launches are not shared with it"};

/* Waits for the tool: other threads hold it for moments only, unless they build it. */
int merge_device_begin(struct residence *residence, const struct transfer_limits *limits)
{
    cl_int reason = CL_SUCCESS;
    int error = digest_check(limits), taken = -EBUSY;
    while (error == 0 && taken == -EBUSY) {
        taken = device_tool_take(residence, &tool, &reason);
        if (taken == -EBUSY) {
            clock_sleep(TURN_NS);
            error = digest_check(limits);
        }
    }
    if (taken == 0)
        device_tool_give(residence, &tool, CL_SUCCESS);
    if (error != 0 || taken == 0)
        return error;
    return residence_is_lost(residence) || residence_failed(residence, reason) ? -EIO : -ENOTSUP;
}

/* A kernel's arguments are shared by all threads, so the tool is taken for each launch. */
static void merge_device_launch(struct device_work *work, unsigned kernel, size_t groups,
                                const struct device_argument *arguments, cl_uint count)
{
    int error;
    while ((error = device_tool_take(work->residence, &tool, NULL)) == -EBUSY)
        clock_sleep(TURN_NS);
    if (error != 0) { /* the tool existed when the merge began */
        work->error = CL_DEVICE_NOT_AVAILABLE;
        return;
    }
    device_tool_launch(work, &tool, kernel, groups, arguments, count);
    device_tool_give(work->residence, &tool, CL_SUCCESS);
}

/* Constant since it was built. */
static size_t merge_device_shared_size(const struct device_work *work)
{
    return work->residence->tools[RESIDENCE_MERGE].items * tool.item_local;
}

bool chunk_flags_valid(const struct chunk_flags *flags, size_t count)
{
    bool valid = true;
    for (size_t i = 0; i < count; i++)
        valid = valid && flags->words[i] <= SAID_MOST;
    return valid;
}

/* Launch @kernel, which answers for @count chunks in @flags, and read the answers. */
static void merge_device_ask(struct device_work *work, unsigned kernel, size_t count,
                             const struct device_argument *arguments, cl_uint argument_count,
                             const struct chunk_flags *flags)
{
    const size_t size = count * sizeof(*flags->words);
    device_work_fill(work, flags->real, UNSAID, 0, size);
    merge_device_launch(work, kernel, count, arguments, argument_count);
    device_work_read(work, flags->real, size, flags->words);
}

void merge_device_differs(struct device_work *work, const struct merge_look *look, size_t first,
                          size_t count, const struct chunk_flags *flags)
{
    const cl_ulong origin = look->origin / 8, base = look->base / 8, end = look->end, chunk = first;
    const struct device_argument arguments[] = {{sizeof(look->now), &look->now},
                                                {sizeof(origin), &origin},
                                                {sizeof(look->before), &look->before},
                                                {sizeof(base), &base},
                                                {sizeof(end), &end},
                                                {sizeof(chunk), &chunk},
                                                {merge_device_shared_size(work), NULL},
                                                {sizeof(flags->real), &flags->real}};
    merge_device_ask(work, KERNEL_DIFFERS, count, arguments, ARRAY_SIZE(arguments), flags);
}

void merge_device_overlaps(struct device_work *work, const struct merge_stage *stage, size_t first,
                           size_t count, size_t unit, const struct chunk_flags *flags)
{
    const cl_ulong slot = first;
    const cl_uint bits = (cl_uint)(unit * 8);
    const struct device_argument arguments[] = {{sizeof(stage->before), &stage->before},
                                                {sizeof(stage->after), &stage->after},
                                                {sizeof(slot), &slot},
                                                {sizeof(stage->now), &stage->now},
                                                {sizeof(bits), &bits},
                                                {merge_device_shared_size(work), NULL},
                                                {sizeof(flags->real), &flags->real}};
    merge_device_ask(work, KERNEL_OVERLAPS, count, arguments, ARRAY_SIZE(arguments), flags);
}

void merge_device_apply(struct device_work *work, const struct merge_stage *stage, size_t count,
                        cl_mem real)
{
    const struct device_argument arguments[] = {{sizeof(real), &real},
                                                {sizeof(stage->chunks), &stage->chunks},
                                                {sizeof(stage->before), &stage->before},
                                                {sizeof(stage->after), &stage->after}};
    merge_device_launch(work, KERNEL_APPLY, count, arguments, ARRAY_SIZE(arguments));
}
