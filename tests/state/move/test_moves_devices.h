#ifndef RESEAT_TESTS_STATE_MOVE_TEST_MOVES_DEVICES_H
#define RESEAT_TESTS_STATE_MOVE_TEST_MOVES_DEVICES_H

#include "tests/support/cases.h"

#include "tests/state/move/test_moves_common.h"

/* What the suites of kernels on one and two virtual devices share. */

static struct engine_rig rig;

static inline cl_mem counters(cl_context context, cl_uint first)
{
    cl_uint words[WORDS];
    for (size_t i = 0; i < WORDS; i++)
        words[i] = first;
    return engine_buffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, SIZE, words);
}

static inline void check_counters(cl_command_queue queue, cl_mem buffer, cl_uint expected)
{
    cl_uint words[WORDS];
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, SIZE, words, 0, NULL, NULL));
    for (size_t i = 0; i < WORDS; i++)
        cr_assert_eq(words[i], expected, "word %zu: %u, not %u", i, words[i], expected);
}

static inline cl_kernel adder(cl_program program, cl_mem buffer, cl_uint value)
{
    cl_kernel kernel = engine_kernel(program, "add");
    ARGS(kernel, buffer, value);
    return kernel;
}

/* Two virtual devices in one context. */
struct both {
    cl_device_id devices[2];
    cl_context context;
    cl_command_queue queues[2];
};

static inline void both_open(struct both *both, const char *config)
{
    engine_rig_open(&rig, config);
    both->devices[0] = rig.device;
    both->devices[1] = engine_rig_vdev(&rig, "two");
    both->context = MADE(clCreateContext, NULL, 2, both->devices, NULL, NULL);
    for (int i = 0; i < 2; i++)
        both->queues[i] = MADE(clCreateCommandQueue, both->context, both->devices[i], 0);
}

static inline void both_close(struct both *both)
{
    for (int i = 0; i < 2; i++)
        OK(clReleaseCommandQueue(both->queues[i]));
    OK(clReleaseContext(both->context));
}

static inline void move_vdev(uint32_t vdev, const char *name)
{
    struct move_request request = {.target = name ? engine_rig_key(&rig, name) : NULL,
                                   .vdev = vdev};
    struct move_report report;
    move_run(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
}

static inline cl_program make_program(struct both *both, const char *text)
{
    cl_program program = MADE(clCreateProgramWithSource, both->context, 1, &text, NULL);
    return program;
}

static inline void *resume_later(void *vdev)
{
    engine_rig_sleep(200);
    move_vdev((uint32_t)(uintptr_t)vdev, vdev ? "two" : "one");
    return NULL;
}

#endif
