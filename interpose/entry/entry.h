#ifndef RESEAT_INTERPOSE_ENTRY_ENTRY_H
#define RESEAT_INTERPOSE_ENTRY_ENTRY_H

#include "calls_generated.h"
#include "interpose/entry/start.h"
#include "state/object/context.h"
#include "state/opencl/create.h"
#include "state/opencl/info.h"

/* What the hand-written entry points have in common. */

struct event;
struct kernel;
struct program;
struct queue;

/** NULL stands for the only platform there is, as with the loaders that programs are used to. */
static inline struct platform *platform_get(cl_platform_id handle)
{
    return handle ? object_get(handle, OBJECT_PLATFORM) : the_platform;
}
static inline struct vdev *vdev_get(cl_device_id handle)
{
    return object_get(handle, OBJECT_DEVICE);
}
static inline struct context *context_get(cl_context handle)
{
    return object_get(handle, OBJECT_CONTEXT);
}

/** A handle to what an object is made of; NULL is allowed. */
static inline cl_int info_object(const struct info_request *request, void *object)
{
    return info_pointer(request, object_lend(object));
}

/**
 * The virtual devices that clGetDeviceIDs and clCreateContextFromType mean by @type (4.2). start()
 * returned 0.
 *
 * @ret_vdevs  At least VDEVS long.
 * Returns CL_SUCCESS, CL_INVALID_DEVICE_TYPE or CL_DEVICE_NOT_FOUND.
 */
cl_int device_select(cl_device_type type, struct vdev **ret_vdevs, cl_uint *ret_count);

/**
 * Enqueue a command that has nothing to do: a launch of no work-items, a transfer of no bytes. It
 * ends when its wait list does. No driver is asked, since they do not agree about what to do then.
 *
 * @type  CL_COMMAND_NDRANGE_KERNEL, or one of CALLS_MAY_BE_EMPTY: what CL_EVENT_COMMAND_TYPE says.
 * Runs as command_run (state/command/command.h).
 */
cl_int sync_empty(struct queue *queue, cl_command_type type, bool blocking, cl_uint waits,
                  const cl_event *wait_list, cl_event *ret_event);

/* Answers of info.txt that are more than an expression. */
cl_int context_answer_devices(const struct context *context, const struct info_request *request);
cl_uint event_refs(const struct event *event);
cl_int kernel_answer_attributes(struct kernel *kernel, const struct info_request *request);
cl_int program_answer_binaries(struct program *program, const struct info_request *request);
cl_int program_answer_binary_sizes(struct program *program, const struct info_request *request);
cl_int program_answer_devices(const struct program *program, const struct info_request *request);
cl_int program_answer_il(const struct program *program, const struct info_request *request);
cl_int program_answer_kernels(struct program *program, cl_program_info name,
                              const struct info_request *request);
cl_int program_answer_source(const struct program *program, const struct info_request *request);

#endif
