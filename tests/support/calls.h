#ifndef RESEAT_TESTS_SUPPORT_CALLS_H
#define RESEAT_TESTS_SUPPORT_CALLS_H

#include <CL/cl.h>

/* Calls of OpenCL that have to succeed: the test fails with the call's text and its error, by
 * CALLS_FAIL, which a test may define otherwise. */

#ifndef CALLS_FAIL
#include "tests/support/cases.h"
#define CALLS_FAIL(call, error) cr_assert(false, "%s: %d", call, error)
#endif

#define OK(expression) CALLS_CHECK(#expression, expression)

/** What @call gives for these arguments, of which the last, the error's address, is left out. */
#define MADE(call, ...)                                                                            \
    ({                                                                                             \
        cl_int error_of_made_;                                                                     \
        __auto_type made_ = call(__VA_ARGS__, &error_of_made_);                                    \
        CALLS_CHECK(#call, error_of_made_);                                                        \
        made_;                                                                                     \
    })

/** A program of @source, built for all devices of the context. */
#define BUILT(context, source, options)                                                            \
    ({                                                                                             \
        const char *source_of_built_ = (source);                                                   \
        cl_program built_ = MADE(clCreateProgramWithSource, context, 1, &source_of_built_, NULL);  \
        OK(clBuildProgram(built_, 0, NULL, options, NULL, NULL));                                  \
        built_;                                                                                    \
    })

/** Release objects of any kinds, up to 8, in this order. */
#define RELEASE(...)                                                                               \
    do {                                                                                           \
        CALLS_EACH(CALLS_RELEASE, __VA_ARGS__);                                                    \
    } while (0)
/** Set the first arguments of @kernel, up to 8, to what these variables hold. */
#define ARGS(kernel, ...)                                                                          \
    do {                                                                                           \
        cl_kernel args_of_ = (kernel);                                                             \
        cl_uint args_at_ = 0;                                                                      \
        CALLS_EACH(CALLS_ARG, __VA_ARGS__);                                                        \
    } while (0)

#define CALLS_CHECK(text, expression)                                                              \
    do {                                                                                           \
        cl_int ok_ = (expression);                                                                 \
        if (ok_ != CL_SUCCESS)                                                                     \
            CALLS_FAIL(text, ok_);                                                                 \
    } while (0)

/* clang-format off */
#define CALLS_RELEASE(object)                                                                      \
    OK(_Generic((object),                                                                          \
        cl_mem: clReleaseMemObject,                                                                \
        cl_event: clReleaseEvent,                                                                  \
        cl_kernel: clReleaseKernel,                                                                \
        cl_program: clReleaseProgram,                                                              \
        cl_command_queue: clReleaseCommandQueue,                                                   \
        cl_sampler: clReleaseSampler,                                                              \
        cl_context: clReleaseContext,                                                              \
        cl_device_id: clReleaseDevice)(object))
#define CALLS_1(act, one)      act(one)
#define CALLS_2(act, one, ...) act(one); CALLS_1(act, __VA_ARGS__)
#define CALLS_3(act, one, ...) act(one); CALLS_2(act, __VA_ARGS__)
#define CALLS_4(act, one, ...) act(one); CALLS_3(act, __VA_ARGS__)
#define CALLS_5(act, one, ...) act(one); CALLS_4(act, __VA_ARGS__)
#define CALLS_6(act, one, ...) act(one); CALLS_5(act, __VA_ARGS__)
#define CALLS_7(act, one, ...) act(one); CALLS_6(act, __VA_ARGS__)
#define CALLS_8(act, one, ...) act(one); CALLS_7(act, __VA_ARGS__)
/* clang-format on */
#define CALLS_ARG(value)                            OK(clSetKernelArg(args_of_, args_at_++, sizeof(value), &(value)))
#define CALLS_NTH(a, b, c, d, e, f, g, h, nth, ...) nth
#define CALLS_EACH(act, ...)                                                                       \
    CALLS_NTH(__VA_ARGS__, CALLS_8, CALLS_7, CALLS_6, CALLS_5, CALLS_4, CALLS_3, CALLS_2, CALLS_1, \
              0)                                                                                   \
    (act, __VA_ARGS__)

#endif
