#ifndef RESEAT_STATE_COMMAND_LAUNCH_H
#define RESEAT_STATE_COMMAND_LAUNCH_H

#include "state/command/command.h"
#include "state/object/usage.h"
#include "state/program/kernel.h"

/**
 * clEnqueueNDRangeKernel and clEnqueueTask (@type says which), with a @space that was checked
 * against the kernel and what the program was told of its device. A launch that the device a
 * program was moved to cannot run (its local size, its memory) takes the program back to a device
 * that could, and is tried again there; the call blocks meanwhile. A held launch does the same when
 * its turn comes.
 */
cl_int launch_run(struct queue *queue, struct kernel *kernel, cl_command_type type,
                  const struct launch_space *space, cl_uint waits, const cl_event *wait_list,
                  cl_event *ret_event);

#endif
