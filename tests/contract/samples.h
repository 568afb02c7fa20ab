#ifndef RESEAT_TESTS_CONTRACT_SAMPLES_H
#define RESEAT_TESTS_CONTRACT_SAMPLES_H

#include "tests/support/cases.h"
#include <CL/opencl.h>

/* One object of each type on the first device that there is. Each function asserts that it
 * succeeds. */

struct samples {
    cl_platform_id platform;
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;
    cl_mem buffer; /**< SAMPLE_BYTES. */
    cl_mem image;  /**< 8 x 8, of 4 bytes. */
    cl_sampler sampler;
    cl_program program;
    cl_kernel kernel; /**< fill(global uint *out, uint value). */
    cl_event event;   /**< A user event. */
    void *scratch;    /**< 64 KiB, for what a call may write. */
};

#define SAMPLE_BYTES 4096

#define expect_error(call, error)                                                                  \
    do {                                                                                           \
        cl_int got_ = (call);                                                                      \
        cr_expect_eq(got_, error, "%s gave %d", #call, got_);                                      \
    } while (0)

/** Those of the test: made and released by a suite's .init and .fini. */
extern struct samples s;
void samples_begin(void);
void samples_end(void);

void samples_make(struct samples *ret);
void samples_release(struct samples *samples);

#endif
