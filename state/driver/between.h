#ifndef RESEAT_STATE_DRIVER_BETWEEN_H
#define RESEAT_STATE_DRIVER_BETWEEN_H

#include <CL/cl.h>

/*
 * An extension function of our remote driver (remote/), found under this name: it copies from a
 * buffer to one of another context, of any of its device servers, without passing through the
 * program's host.
 */
#define BETWEEN_NAME "clEnqueueCopyBufferBetweenRESEAT"

/**
 * As clEnqueueCopyBuffer, with these differences:
 *
 * @source_queue, @target_queue  Of the buffers' contexts. The copy is a command of both: it begins
 *                once what is before it on either has ended, and what is behind it waits, as
 *                in-order queues do.
 * @waits  Of either context.
 * @event  Of the target's queue.
 * If the copy fails, the target's bytes in that range are undefined, and both queues continue.
 * CL_INVALID_OPERATION: these two cannot copy directly, so copy through the host.
 */
typedef cl_int(CL_API_CALL *between_function)(cl_command_queue source_queue,
                                              cl_command_queue target_queue, cl_mem source,
                                              cl_mem target, size_t source_offset,
                                              size_t target_offset, size_t size, cl_uint wait_count,
                                              const cl_event *waits, cl_event *event);

#endif
