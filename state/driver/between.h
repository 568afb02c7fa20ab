#ifndef RESEAT_STATE_DRIVER_BETWEEN_H
#define RESEAT_STATE_DRIVER_BETWEEN_H

#include <CL/cl.h>

/*
 * What our own driver (remote/) offers beyond OpenCL, to whom asks it for the address of this name:
 * a copy from a buffer to one of another context, of any of its device servers, that does not pass
 * through the program's host.
 */
#define BETWEEN_NAME "clEnqueueCopyBufferBetweenRESEAT"

/**
 * As clEnqueueCopyBuffer, but for what follows.
 *
 * @source_queue, @target_queue  Of the buffers' contexts. The copy is a command of both: it begins
 *         once what is before it on either has ended, and what is behind it waits, as in-order
 *         queues do.
 * @waits  Of either context.
 * @event  Of the target's queue.
 * Where the copy fails the target's bytes in that range are undefined, and both queues go on.
 * CL_INVALID_OPERATION: between these two there is no such way, and the host has to be the way.
 */
typedef cl_int(CL_API_CALL *between_function)(cl_command_queue source_queue,
                                              cl_command_queue target_queue, cl_mem source,
                                              cl_mem target, size_t source_offset,
                                              size_t target_offset, size_t size, cl_uint wait_count,
                                              const cl_event *waits, cl_event *event);

#endif
