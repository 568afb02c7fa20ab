#ifndef RESEAT_STATE_COMMAND_NATIVE_H
#define RESEAT_STATE_COMMAND_NATIVE_H

#include "state/command/command.h"

/** Checked arguments of clEnqueueNativeKernel. */
struct native_call {
    void(CL_CALLBACK *function)(void *);
    const void *args;
    size_t size; /**< Bytes of @args. */
    cl_uint count;
    struct memory *const *objects; /**< Buffers; handles are the objects. */
    const void *const *locations;  /**< Positions in @args for the objects' addresses. */
};

/**
 * clEnqueueNativeKernel (5.10). It pins the context, because the function gets device addresses and
 * may keep them.
 *
 * The driver calls the function at any time and in any thread, perhaps inside an entry point of
 * ours; it still runs outside the gate (G3).
 *
 * @ret_stray  As in pin_enter.
 */
cl_int native_enqueue(struct queue *queue, const struct native_call *call, cl_uint waits,
                      const cl_event *wait_list, cl_event *ret_event, struct vdev **ret_stray);

#endif
