#ifndef RESEAT_TESTS_STATE_BUDGET_TEST_BUDGET_COMMON_H
#define RESEAT_TESTS_STATE_BUDGET_TEST_BUDGET_COMMON_H

#include "tests/support/cases.h"

#include "state/budget/budget.h"
#include "state/memory/memory.h"
#include "tests/support/engine_rig.h"

/*
 * What does not fit: programs that need several times what they may have, or what there is, end
 * with the bytes that a host computation gives.
 */

#define MIB        ((size_t)1 << 20)
#define BYTES      MIB
#define WORDS      (BYTES / sizeof(cl_uint))
#define BUFFERS    12
#define FEW        (4 * BYTES)
#define EVERYTHING (64 * MIB)

static const char plenty[] = "[one] name=one [two] name=two";
static const char scarce[] = "[one] name=one memory=4MiB [two] name=two";

static const char source[] =
    "__kernel void add(__global uint *out, __global const uint *in, uint n)"
    "{ size_t i = get_global_id(0); out[i] += in[i] * n + (uint)i; }"
    "__kernel void set(__global uint *out, uint n)"
    "{ size_t i = get_global_id(0); out[i] = (uint)i ^ n; }";

static struct engine_rig rig;
static struct engine_program program;
static cl_kernel add, set;
static cl_mem buffers[BUFFERS];
static cl_uint *want[BUFFERS];

/* The policy of a test, and what it was asked. */
static struct {
    _Atomic unsigned asked, failed;
    uint64_t total, least, wanted;
    bool owns;
    enum budget_answer answer;
    const char *device; /* moves there first */
    uint64_t grants;    /* grants that much first */
} policy;

static inline enum budget_answer decide(const struct budget_need *need)
{
    atomic_fetch_add(&policy.asked, 1);
    atomic_fetch_add(&policy.failed, need->failed);
    policy.total = need->total;
    policy.owns = need->owns;
    policy.least = need->least;
    policy.wanted = need->wanted;
    if (policy.grants)
        budget_grant(need->vdev, policy.grants);
    if (policy.device)
        engine_rig_moves(&rig, policy.device);
    return policy.answer;
}

static inline struct budget *budget(const char *name)
{
    struct device *device;
    cr_assert_eq(driver_open_device(engine_rig_key(&rig, name), &device), 0);
    return &device->budget;
}

static inline void begin(const char *config, enum budget_answer answer)
{
    engine_rig_open(&rig, config);
    engine_program_open(&rig, 0, source, &program);
    add = engine_kernel(program.program, "add");
    set = engine_kernel(program.program, "set");
    policy.answer = answer;
    budget_set_policy(decide);
}

static inline void make(size_t count)
{
    for (size_t b = 0; b < count; b++) {
        want[b] = malloc(BYTES);
        cr_assert_not_null(want[b]);
        for (size_t i = 0; i < WORDS; i++)
            want[b][i] = (cl_uint)(i * 7 + b);
        buffers[b] = engine_buffer(program.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, BYTES,
                                   want[b]);
    }
}

static inline void launch(cl_kernel kernel, cl_command_queue queue)
{
    const size_t global = WORDS;
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, NULL, 0, NULL, NULL));
}

static inline void step(size_t out, size_t in, cl_uint n)
{
    ARGS(add, buffers[out], buffers[in], n);
    launch(add, program.queue);
    for (size_t i = 0; i < WORDS; i++)
        want[out][i] += want[in][i] * n + (cl_uint)i;
}

static inline void rounds(unsigned count, size_t buffers_used)
{
    for (unsigned r = 0; r < count; r++)
        for (size_t b = 0; b < buffers_used; b++)
            step(b,
                 (b * 5 + 1 + r) % buffers_used == b ? (b + 1) % buffers_used
                                                     : (b * 5 + 1 + r) % buffers_used,
                 r * 31 + (cl_uint)b);
}

static inline void check(size_t count)
{
    cl_uint *got = malloc(BYTES);
    cr_assert_not_null(got);
    for (size_t b = 0; b < count; b++) {
        OK(clEnqueueReadBuffer(program.queue, buffers[b], CL_TRUE, 0, BYTES, got, 0, NULL, NULL));
        cr_assert(memcmp(got, want[b], BYTES) == 0, "buffer %zu differs", b);
    }
    free(got);
}

static inline void end(size_t count)
{
    for (size_t b = 0; b < count; b++) {
        OK(clReleaseMemObject(buffers[b]));
        free(want[b]);
    }
    RELEASE(add, set);
    engine_program_close(&program);
}

#endif
