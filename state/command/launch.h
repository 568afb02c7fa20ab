#ifndef RESEAT_STATE_COMMAND_LAUNCH_H
#define RESEAT_STATE_COMMAND_LAUNCH_H

#include "state/command/command.h"
#include "state/object/usage.h"
#include "state/program/kernel.h"

/**
 * clEnqueueNDRangeKernel and clEnqueueTask (@type tells which), with a @space that was checked
 * against the kernel and against what the program was told about its device. If the present device
 * cannot run the launch (its local size, its memory), the program is moved back to a device that
 * could, while the call blocks, and the launch is tried again there. A deferred launch does the
 * same when its turn comes.
 */
cl_int launch_run(struct queue *queue, struct kernel *kernel, cl_command_type type,
                  const struct launch_space *space, cl_uint waits, const cl_event *wait_list,
                  cl_event *ret_event);

#endif
