#ifndef RESEAT_INTERPOSE_ENTRY_SYNC_H
#define RESEAT_INTERPOSE_ENTRY_SYNC_H

#include "state/command.h"

/**
 * Enqueue a launch that has no work-items (5.8, since 2.1): it ends when its wait list does. Runs
 * as command_run; CL_EVENT_COMMAND_TYPE is a launch's.
 */
cl_int sync_empty_launch(struct queue *queue, cl_uint waits, const cl_event *wait_list,
                         cl_event *ret_event);

#endif
