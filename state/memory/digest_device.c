#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/memory/digest_priv.h"

#define ITEMS_MAX 256u
/* Of one launch: as much as takes this long, for cancellation to be seen, but not so little that
 * launching is what takes long, nor more than there is memory for. */
#define LAUNCH_SECONDS 20e-3
#define LAUNCH_MIN     ((size_t)64)
#define LAUNCH_MAX     ((size_t)16384) /* chunks: a GiB */
#define SAMPLE         ((size_t)16 << 20)
#define BUILD_SECONDS  0.3 /* seen: 0.16 s for NVIDIA's, 0.5 to 1 s for POCL's, which keeps it */

/* One work-group a chunk; its items take every so many pairs, as loads from memory like it. */
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

_Static_assert(DIGEST_SUMS == 4, "the kernel takes four");

enum digest_state {
    DIGEST_UNTRIED,
    DIGEST_READY,
    DIGEST_BUSY,   /* a thread builds or uses it */
    DIGEST_ABSENT, /* for good */
};

static bool host_is_little(void)
{
    const uint16_t one = 1;
    return *(const unsigned char *)&one == 1;
}

/* Whether the device could at all. */
static bool is_able(const struct residence *residence)
{
    const struct devinfo *info = &residence->device->info;
    return !residence_is_lost(residence) &&
           devinfo_scalar(info, CL_DEVICE_COMPILER_AVAILABLE, 0) != 0 &&
           (devinfo_scalar(info, CL_DEVICE_ENDIAN_LITTLE, 1) != 0) == host_is_little();
}

bool digest_device_may(const struct residence *residence)
{
    return is_able(residence) && atomic_load(&residence->digest.state) != DIGEST_ABSENT;
}

double digest_device_rate(struct residence *residence)
{
    return (double)atomic_load(&residence->device->digest_rate);
}

double digest_device_build(const struct residence *residence)
{
    return atomic_load(&residence->digest.state) == DIGEST_UNTRIED ? BUILD_SECONDS : 0;
}

/* The largest power of two that no limit forbids. */
static size_t choose_items(const struct residence *residence, size_t of_kernel)
{
    size_t most = of_kernel, items = 1;
    size_t shared = (size_t)devinfo_scalar(&residence->device->info, CL_DEVICE_LOCAL_MEM_SIZE, 0) /
                    (DIGEST_SUMS * sizeof(cl_ulong));
    const size_t limits[] = {ITEMS_MAX, shared, atomic_load(&residence->groups.items),
                             atomic_load(&residence->groups.sizes[0])};
    for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
        most = limits[i] < most ? limits[i] : most;
    while (2 * items <= most)
        items *= 2;
    return items;
}

/* What of it was made goes with the residence. */
static cl_int build(struct residence *residence, const uint64_t *key)
{
    const cl_icd_dispatch *cl = residence->cl;
    struct residence_digest *digest = &residence->digest;
    const char *text = source;
    char options[96];
    size_t items = 0;
    cl_int error;
    (void)snprintf(options, sizeof(options), "-DPAIRS=%zuu -DKEY_PAIRS=%zuu", DIGEST_PAIRS,
                   DIGEST_KEY_PAIRS);
    digest->program = cl->clCreateProgramWithSource(residence->context, 1, &text, NULL, &error);
    if (!digest->program)
        return error;
    error = cl->clBuildProgram(digest->program, 1, &residence->device->id, options, NULL, NULL);
    if (error != CL_SUCCESS)
        return error;
    digest->kernel = cl->clCreateKernel(digest->program, "reseat_digest", &error);
    if (!digest->kernel)
        return error;
    error = cl->clGetKernelWorkGroupInfo(digest->kernel, residence->device->id,
                                         CL_KERNEL_WORK_GROUP_SIZE, sizeof(items), &items, NULL);
    if (error != CL_SUCCESS)
        return error;
    digest->items = choose_items(residence, items);
    digest->key = cl->clCreateBuffer(residence->context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR,
                                     DIGEST_KEY * sizeof(*key), (void *)(uintptr_t)key, &error);
    if (!digest->key)
        return error;
    digest->digests = cl->clCreateBuffer(residence->context, CL_MEM_WRITE_ONLY,
                                         LAUNCH_MAX * sizeof(struct digest), NULL, &error);
    return error;
}

/* Have the device for this thread alone. 0; -ENOTSUP: another one has it, or it is not to be had.
 */
static int take(struct residence *residence)
{
    uint8_t state = DIGEST_READY;
    if (!is_able(residence))
        return -ENOTSUP;
    if (atomic_compare_exchange_strong(&residence->digest.state, &state, DIGEST_BUSY))
        return 0;
    const uint64_t *key = state == DIGEST_UNTRIED ? digest_key() : NULL;
    if (!key || !atomic_compare_exchange_strong(&residence->digest.state, &state, DIGEST_BUSY))
        return -ENOTSUP;
    cl_int error = build(residence, key);
    if (error == CL_SUCCESS)
        return 0;
    log_info("%s does not build what digests take (error %d): what may have changed is copied",
             residence->device->key.device, error);
    atomic_store(&residence->digest.state, DIGEST_ABSENT);
    return -ENOTSUP;
}

static void give(struct residence *residence, cl_int error)
{
    if (error != CL_SUCCESS)
        log_info("%s fails to digest (error %d): what may have changed is copied",
                 residence->device->key.device, error);
    atomic_store(&residence->digest.state, error == CL_SUCCESS ? DIGEST_READY : DIGEST_ABSENT);
}

static cl_int set_arguments(struct residence *residence, cl_mem real, size_t size, size_t first)
{
    const struct residence_digest *digest = &residence->digest;
    const cl_ulong bytes = size, chunk = first;
    const struct {
        size_t size;
        const void *value;
    } arguments[] = {{sizeof(real), &real},
                     {sizeof(bytes), &bytes},
                     {sizeof(chunk), &chunk},
                     {sizeof(digest->key), &digest->key},
                     {digest->items * DIGEST_SUMS * sizeof(cl_ulong), NULL},
                     {sizeof(digest->digests), &digest->digests}};
    cl_int error = CL_SUCCESS;
    for (cl_uint i = 0; i < ARRAY_SIZE(arguments) && error == CL_SUCCESS; i++)
        error =
            residence->cl->clSetKernelArg(digest->kernel, i, arguments[i].size, arguments[i].value);
    return error;
}

/* What the device itself took for it; 0: it does not say. */
static uint64_t time_of(const cl_icd_dispatch *cl, cl_event event)
{
    cl_ulong start = 0, end = 0;
    if (cl->clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof(start), &start,
                                    NULL) != CL_SUCCESS ||
        cl->clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof(end), &end, NULL) !=
            CL_SUCCESS)
        return 0;
    return end > start ? end - start : 0;
}

/* One launch, and its digests. Nothing is under way afterwards. The best of all is how fast the
 * device is: the program's kernels may be in the way of the others. */
static cl_int launch(struct residence *residence, cl_mem real, size_t size, size_t first,
                     size_t count, struct digest *ret)
{
    const struct residence_digest *digest = &residence->digest;
    const cl_icd_dispatch *cl = residence->cl;
    const size_t local = digest->items, global = count * local;
    cl_event event = NULL;
    cl_int error = set_arguments(residence, real, size, first);
    uint64_t begin = clock_now_ns();
    if (error != CL_SUCCESS)
        return error;
    error = cl->clEnqueueNDRangeKernel(residence->io, digest->kernel, 1, NULL, &global, &local, 0,
                                       NULL, &event);
    if (error == CL_SUCCESS)
        error = cl->clEnqueueReadBuffer(residence->io, digest->digests, CL_FALSE, 0,
                                        count * sizeof(*ret), ret, 0, NULL, NULL);
    cl_int ended = residence_await_queue(residence, residence->io);
    cl = residence->cl; /* another one, if it was lost */
    if (error == CL_SUCCESS && ended == CL_SUCCESS) {
        uint64_t took = time_of(cl, event);
        took = took != 0 ? took : clock_now_ns() - begin + 1;
        account_raise(&residence->device->digest_rate, count * DIGEST_CHUNK * NS_PER_S / took + 1);
    }
    if (event)
        cl->clReleaseEvent(event);
    return error != CL_SUCCESS ? error : ended;
}

static size_t launch_chunks(struct residence *residence)
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
    int error = take(residence);
    if (error != 0)
        return error;
    size_t most = launch_chunks(residence);
    for (size_t at = 0; at < count && error == 0 && failed == CL_SUCCESS; at += most) {
        error = digest_check(limits);
        if (error == 0)
            failed = launch(residence, real, size, first + at,
                            count - at < most ? count - at : most, ret + at);
    }
    give(residence, failed);
    return failed != CL_SUCCESS ? -ENOTSUP : error;
}

/* Twice: the first launch of all may compile. */
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
