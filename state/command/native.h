#ifndef RESEAT_STATE_COMMAND_NATIVE_H
#define RESEAT_STATE_COMMAND_NATIVE_H

#include "state/command/command.h"

/** What clEnqueueNativeKernel is given, checked. */
struct native_call {
    void(CL_CALLBACK *function)(void *);
    const void *args;
    size_t size; /**< Bytes of @args. */
    cl_uint count;
    struct memory *const *objects; /**< Buffers; handles are the objects. */
    const void *const *locations;  /**< Into @args: where each one's address goes. */
};

/**
 * clEnqueueNativeKernel (5.10). It pins the context: the function is told addresses of the device,
 * and may keep them.
 *
 * The driver calls the function when and where it likes, which may be inside an entry point of
 * ours: it runs outside the gate all the same (G3).
 *
 * @ret_stray  As of pin_enter.
 */
cl_int native_enqueue(struct queue *queue, const struct native_call *call, cl_uint waits,
                      const cl_event *wait_list, cl_event *ret_event, struct vdev **ret_stray);

#endif
