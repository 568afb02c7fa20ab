#ifndef RESEAT_INTERPOSE_ENTRY_ENTRY_SYNC_H
#define RESEAT_INTERPOSE_ENTRY_ENTRY_SYNC_H

#include "state/command/command.h"

/**
 * Enqueue a command that has nothing to do: a launch of no work-items, a transfer of no bytes. It
 * ends when its wait list does. No driver is asked, since they do not agree about what to do then.
 *
 * @param type CL_COMMAND_NDRANGE_KERNEL, or one of CALLS_MAY_BE_EMPTY: what CL_EVENT_COMMAND_TYPE
 *             says.
 * Runs as command_run.
 */
cl_int sync_empty(struct queue *queue, cl_command_type type, bool blocking, cl_uint waits,
                  const cl_event *wait_list, cl_event *ret_event);

#endif
