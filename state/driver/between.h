#ifndef RESEAT_STATE_DRIVER_BETWEEN_H
#define RESEAT_STATE_DRIVER_BETWEEN_H

#include <CL/cl.h>
#include <stdatomic.h>

/*
 * Extension functions of our remote driver (remote/), found under these names.
 *
 * The first copies from a buffer to one of another context, of any of its device servers, without
 * passing through the program's host.
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

/*
 * Host memory that the server of a context shares, so that its device transfers to and from it
 * without a copy. It is ordinary memory to the program: it stays valid, with its content, when the
 * session ends, and a child of a fork has a copy.
 */
struct lent_memory {
    char *bytes;
    /** Counted by the borrower: pointers to it that the program has. While it is 0 a child of a
     * fork has zeroes there. */
    atomic_uint maps;
};

/** At least @size bytes of any content; NULL where the server is on another machine, or too much is
 * lent. Blocks: for a round trip, and while pages are made. Thread-safe. */
#define LEND_NAME "reseat_lend_memory"
typedef struct lent_memory *(*lend_function)(cl_context context, size_t size);
/** The memory may not be in use by a command. Thread-safe, also where the context or its session is
 * gone, and in a child of a fork. */
#define LENT_RETURN_NAME "reseat_return_memory"
typedef void (*lent_return_function)(struct lent_memory *lent);

#endif
