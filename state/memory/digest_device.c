#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/clock.h"
#include "state/memory/device_tool.h"
#include "state/memory/digest.h"

#define ITEMS_MAX 256u
/* A launch has as many chunks as take this long: short enough to notice a cancellation, but within
 * limits, for its own cost and for the memory of the results. */
#define LAUNCH_SECONDS 20e-3
#define LAUNCH_MIN     ((size_t)64)
#define LAUNCH_MAX     ((size_t)16384) /* chunks: a GiB */
#define SAMPLE         ((size_t)16 << 20)
#define BUILD_SECONDS  0.3 /* measured: NVIDIA 0.16 s; POCL 0.5 to 1 s, which it caches */

/* One work-group for each chunk. Its items take interleaved pairs, so that loads are coalesced. */
static const char source[] =
    "void add(ulong *sums, ulong pair, global const ulong *key)\n"
    "{\n"
    "    for (uint i = 0; i < 4; i++)\n"
    "        sums[i] += (ulong)((uint)pair + (uint)key[i]) *\n"
    "                   ((uint)(pair >> 32) + (uint)(key[i] >> 32));\n"
    "}\n"
    "kernel void reseat_digest(global const ulong *words, ulong size, ulong first,\n"
    "                          global const ulong *key, local ulong *shared,\n"
    "                          global ulong *digests)\n"
    "{\n"
    "    const uint item = get_local_id(0), items = get_local_size(0);\n"
    "    const ulong begin = (first + get_group_id(0)) * PAIRS, left = size / 8 - begin;\n"
    "    const uint pairs = left < PAIRS ? (uint)left : PAIRS;\n"
    "    global const ulong *here = words + begin;\n"
    "    ulong sums[4] = {0, 0, 0, 0};\n"
    "    uint at = item;\n"
    "    for (; at + 3 * items < pairs; at += 4 * items) {\n"
    "        const ulong a = here[at], b = here[at + items];\n"
    "        const ulong c = here[at + 2 * items], d = here[at + 3 * items];\n"
    "        add(sums, a, key + at);\n"
    "        add(sums, b, key + at + items);\n"
    "        add(sums, c, key + at + 2 * items);\n"
    "        add(sums, d, key + at + 3 * items);\n"
    "    }\n"
    "    for (; at < pairs; at += items)\n"
    "        add(sums, here[at], key + at);\n"
    "    if (item == 0 && left < PAIRS && size % 8 != 0) {\n"
    "        uchar last[8] = {0, 0, 0, 0, 0, 0, 0, 0};\n"
    "        for (uint i = 0; i < size % 8; i++)\n"
    "            last[i] = ((global const uchar *)here)[pairs * 8 + i];\n"
    "        add(sums, as_ulong(vload8(0, last)), key + pairs);\n"
    "    }\n"
    "    for (uint i = 0; i < 4; i++)\n"
    "        shared[i * items + item] = sums[i];\n"
    "    for (uint step = items / 2; step > 0; step /= 2) {\n"
    "        barrier(CLK_LOCAL_MEM_FENCE);\n"
    "        for (uint i = 0; i < 4 && item < step; i++)\n"
    "            shared[i * items + item] += shared[i * items + item + step];\n"
    "    }\n"
    "    if (item == 0) {\n"
    "        global const ulong *k = key + KEY_PAIRS;\n"
    "        ulong out[4];\n"
    "        for (uint i = 0; i < 4; i++) {\n"
    "            ulong sum = *k++;\n"
    "            for (uint t = 0; t < 4; t++) {\n"
    "                sum += *k++ * (shared[t * items] & 0xffffffffUL);\n"
    "                sum += *k++ * (shared[t * items] >> 32);\n"
    "            }\n"
    "            out[i] = sum >> 32;\n"
    "        }\n"
    "        digests[2 * get_group_id(0)] = out[0] | out[1] << 32;\n"
    "        digests[2 * get_group_id(0) + 1] = out[2] | out[3] << 32;\n"
    "    }\n"
    "}\n";

#define OPTIONS "-DPAIRS=8192u -DKEY_PAIRS=8195u"
_Static_assert(DIGEST_SUMS == 4 && DIGEST_PAIRS == 8192 && DIGEST_KEY_PAIRS == 8195,
               "the kernel takes four, of so many");

enum { BUFFER_KEY, BUFFER_DIGESTS };

/* The key exists: callers have checked that before they take the tool. */
static cl_int digest_device_prepare(struct residence *residence, struct residence_tool *made)
{
    const cl_icd_dispatch *cl = residence->cl;
    const uint64_t *key = digest_key();
    cl_int error;
    made->buffers[BUFFER_KEY] =
        cl->clCreateBuffer(residence->context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR,
                           DIGEST_KEY * sizeof(*key), (void *)(uintptr_t)key, &error);
    if (!made->buffers[BUFFER_KEY])
        return error;
    made->buffers[BUFFER_DIGESTS] = cl->clCreateBuffer(
        residence->context, CL_MEM_WRITE_ONLY, LAUNCH_MAX * sizeof(struct digest), NULL, &error);
    made->staging = malloc(LAUNCH_MAX * sizeof(struct digest));
    return error != CL_SUCCESS || made->staging ? error : CL_OUT_OF_HOST_MEMORY;
}

static const char *const kernels[] = {"reseat_digest"};
static const struct device_tool tool = {.kind = RESIDENCE_DIGEST,
                                        .source = source,
                                        .options = OPTIONS,
                                        .kernels = kernels,
                                        .kernel_count = ARRAY_SIZE(kernels),
                                        .items_most = ITEMS_MAX,
                                        .item_local = DIGEST_SUMS * sizeof(cl_ulong),
                                        .prepare = digest_device_prepare,
                                        .name = "digesting",
                                        .without = "what may have changed is copied"};

bool digest_device_may(const struct residence *residence)
{
    return device_tool_may(residence, RESIDENCE_DIGEST);
}

double digest_device_rate(struct residence *residence)
{
    return (double)atomic_load(&residence->device->digest_rate);
}

double digest_device_build(const struct residence *residence)
{
    return device_tool_is_new(residence, RESIDENCE_DIGEST) ? BUILD_SECONDS : 0;
}

/* The results are filled with zeroes first, which are no digests, lest results of an earlier launch
 * be taken for those of a kernel that did nothing. Returns the index of the kernel's event in
 * @work. */
static cl_uint digest_device_give_work(struct device_work *work, cl_mem real, size_t size,
                                       size_t first, size_t count)
{
    const struct residence_tool *taken = &work->residence->tools[RESIDENCE_DIGEST];
    const size_t bytes = count * sizeof(struct digest);
    const cl_ulong end = size, chunk = first;
    const struct device_argument arguments[] = {
        {sizeof(real), &real},
        {sizeof(end), &end},
        {sizeof(chunk), &chunk},
        {sizeof(cl_mem), &taken->buffers[BUFFER_KEY]},
        {taken->items * DIGEST_SUMS * sizeof(cl_ulong), NULL},
        {sizeof(cl_mem), &taken->buffers[BUFFER_DIGESTS]}};
    device_work_fill(work, taken->buffers[BUFFER_DIGESTS], 0, 0, bytes);
    const cl_uint kernel = work->count;
    device_tool_launch(work, &tool, 0, count, arguments, ARRAY_SIZE(arguments));
    device_work_read(work, taken->buffers[BUFFER_DIGESTS], bytes, taken->staging);
    return kernel;
}

/* One launch, and its digests. The device's rate is that of the fastest launch, since the program's
 * kernels may slow others. */
static cl_int digest_device_launch(struct residence *residence, cl_mem real, size_t size,
                                   size_t first, size_t count, struct digest *ret)
{
    struct device_work work = {.residence = residence};
    uint64_t begin = clock_now_ns();
    cl_uint kernel = digest_device_give_work(&work, real, size, first, count);
    cl_int error = device_work_await(&work);
    if (error == CL_SUCCESS) {
        uint64_t took = device_event_ns(residence->cl, work.events[kernel]);
        took = took != 0 ? took : clock_now_ns() - begin + 1;
        mark_raise(&residence->device->digest_rate, count * DIGEST_CHUNK * NS_PER_S / took + 1);
        memcpy(ret, residence->tools[RESIDENCE_DIGEST].staging, count * sizeof(*ret));
    }
    device_work_end(&work);
    return error;
}

static size_t digest_device_launch_chunks(struct residence *residence)
{
    double chunks = digest_device_rate(residence) * LAUNCH_SECONDS / (double)DIGEST_CHUNK;
    return chunks >= (double)LAUNCH_MAX  ? LAUNCH_MAX
           : chunks > (double)LAUNCH_MIN ? (size_t)chunks
                                         : LAUNCH_MIN;
}

int digest_device(struct residence *residence, cl_mem real, size_t size, size_t first, size_t count,
                  const struct transfer_limits *limits, struct digest *ret)
{
    cl_int failed = CL_SUCCESS;
    int error = 0;
    if (!digest_key() || device_tool_take(residence, &tool, NULL) != 0)
        return -ENOTSUP;
    size_t most = digest_device_launch_chunks(residence);
    for (size_t at = 0; at < count && error == 0 && failed == CL_SUCCESS; at += most) {
        error = digest_check(limits);
        if (error == 0)
            failed = digest_device_launch(residence, real, size, first + at,
                                          count - at < most ? count - at : most, ret + at);
    }
    device_tool_give(residence, &tool, failed);
    return failed != CL_SUCCESS ? -ENOTSUP : error;
}

/* Launches twice, because a driver may compile at the first launch. */
bool digest_device_begin(struct residence *residence, cl_mem real, size_t size)
{
    size_t chunks = digest_chunks(size < SAMPLE ? size : SAMPLE);
    bool begun = digest_device_build(residence) == 0 && digest_device_rate(residence) != 0;
    struct digest *digests = begun ? NULL : malloc(chunks * sizeof(*digests));
    for (int i = 0; i < 2 && digests; i++)
        if (digest_device(residence, real, size, 0, chunks, NULL, digests) != 0)
            break;
    free(digests);
    return digest_device_may(residence) && digest_device_rate(residence) != 0;
}
