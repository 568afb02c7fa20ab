#ifndef RESEAT_TESTS_STATE_MOVE_TEST_MOVES_COMMON_H
#define RESEAT_TESTS_STATE_MOVE_TEST_MOVES_COMMON_H

#include "tests/state/move/test_moves_state.h"

/* What the suites of moves share: two emulated devices alike, and a program of two kernels. */

#define CONFIG "[one] name=one [two] name=two"

#define SOURCE                                                                                     \
    "__kernel void add(__global uint *words, uint value)\n"                                        \
    "{ words[get_global_id(0)] += value; }\n"                                                      \
    "__kernel void share(__global uint *words, __local uint *scratch)\n"                           \
    "{ scratch[get_local_id(0)] = 1; barrier(CLK_LOCAL_MEM_FENCE);\n"                              \
    "  words[get_global_id(0)] = scratch[0]; }\n"

#define WORDS 1024
#define SIZE  (WORDS * sizeof(cl_uint))

static inline void launch(cl_command_queue queue, cl_kernel kernel, size_t items, size_t group,
                          cl_event *ret_event)
{
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, group ? &group : NULL, 0, NULL,
                              ret_event));
}

static inline const char *place_of_vdev(void)
{
    static struct vdev_status status;
    status_vdev(0, &status);
    return status.suspended ? "" : status.device.device;
}

#endif
