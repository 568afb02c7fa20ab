#ifndef RESEAT_REMOTE_DRIVER_COMMANDS_BETWEEN_H
#define RESEAT_REMOTE_DRIVER_COMMANDS_BETWEEN_H

#include "state/driver/between.h"

/** What BETWEEN_NAME names. */
cl_int CL_API_CALL between_enqueue(cl_command_queue source_queue, cl_command_queue target_queue,
                                   cl_mem source, cl_mem target, size_t source_offset,
                                   size_t target_offset, size_t size, cl_uint wait_count,
                                   const cl_event *waits, cl_event *event);

#endif
