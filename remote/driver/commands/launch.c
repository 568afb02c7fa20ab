#include <stdlib.h>
#include <string.h>

#include "remote/driver/commands/command.h"
#include "remote/driver/programs/kernel.h"

/* Launches. They are checked at the call against what is known of the kernel and the device. */

static cl_int launch_check_sizes(const struct device_object *device, cl_uint dimensions,
                                 const size_t *offset, const size_t *global)
{
    uint64_t bits = device_number(device, CL_DEVICE_ADDRESS_BITS);
    size_t most = bits == 32 ? UINT32_MAX : SIZE_MAX;
    bool empty = device->version >= CL_MAKE_VERSION(2, 1, 0);
    if (!global)
        return empty ? CL_SUCCESS : CL_INVALID_GLOBAL_WORK_SIZE;
    for (cl_uint i = 0; i < dimensions; i++) {
        if ((global[i] == 0 && !empty) || global[i] > most)
            return CL_INVALID_GLOBAL_WORK_SIZE;
        if (offset && offset[i] > most - global[i])
            return CL_INVALID_GLOBAL_OFFSET;
    }
    return CL_SUCCESS;
}

/* May work-groups at the end be smaller than the others? */
static bool launch_may_be_uneven(const struct kernel *kernel, const struct device_object *device)
{
    if (device->version < CL_MAKE_VERSION(2, 0, 0))
        return false;
    if (device->version >= CL_MAKE_VERSION(3, 0, 0) &&
        !device_number(device, CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT))
        return false;
    return program_takes_uneven(kernel->program, device);
}

static cl_int launch_check_local(struct kernel *kernel, const struct device_object *device,
                                 cl_uint dimensions, const size_t *global, const size_t *local)
{
    const struct devinfo_value *most =
        devinfo_find(&device->answers->info, CL_DEVICE_MAX_WORK_ITEM_SIZES);
    struct msg_kernel_group group;
    uint64_t items = 1;
    cl_int error = kernel_group(kernel, device, &group);
    if (error)
        return error;
    bool compiled = group.compiled[0] || group.compiled[1] || group.compiled[2];
    if (!local)
        return CL_SUCCESS;
    for (cl_uint i = 0; i < dimensions; i++) {
        size_t limit = SIZE_MAX;
        if (most && most->size >= (i + 1) * sizeof(limit))
            memcpy(&limit, most->bytes + i * sizeof(limit), sizeof(limit));
        if (local[i] == 0)
            return CL_INVALID_WORK_GROUP_SIZE;
        if (local[i] > limit)
            return CL_INVALID_WORK_ITEM_SIZE;
        if (__builtin_mul_overflow(items, local[i], &items))
            return CL_INVALID_WORK_GROUP_SIZE;
        if (compiled && local[i] != group.compiled[i])
            return CL_INVALID_WORK_GROUP_SIZE;
        if (global[i] % local[i] && !launch_may_be_uneven(kernel, device))
            return CL_INVALID_WORK_GROUP_SIZE;
    }
    return items > group.size ? CL_INVALID_WORK_GROUP_SIZE : CL_SUCCESS;
}

static cl_int launch_check_launch(const struct queue *queue, struct kernel *kernel,
                                  cl_uint dimensions, const size_t *offset, const size_t *global,
                                  const size_t *local)
{
    if (kernel->program->context != queue->context)
        return CL_INVALID_CONTEXT;
    if (dimensions < 1 || dimensions > 3)
        return CL_INVALID_WORK_DIMENSION;
    pthread_mutex_lock(&kernel->lock);
    bool set = true;
    for (cl_uint i = 0; i < kernel->facts->count; i++)
        set = set && kernel->set[i];
    pthread_mutex_unlock(&kernel->lock);
    if (!set)
        return CL_INVALID_KERNEL_ARGS;
    cl_int error = launch_check_sizes(queue->device, dimensions, offset, global);
    if (error == CL_SUCCESS && global)
        error = launch_check_local(kernel, queue->device, dimensions, global, local);
    return error;
}

static cl_int launch(cl_command_queue queue, cl_kernel handle, cl_command_type type,
                     cl_uint dimensions, const size_t *offset, const size_t *global,
                     const size_t *local, cl_uint count, const cl_event *waits, cl_event *event)
{
    struct queue *q = queue_get(queue);
    struct kernel *kernel = kernel_get(handle);
    struct command command;
    if (!q)
        return CL_INVALID_COMMAND_QUEUE;
    if (!kernel)
        return CL_INVALID_KERNEL;
    cl_int error = launch_check_launch(q, kernel, dimensions, offset, global, local);
    bool empty = !global;
    for (cl_uint i = 0; error == CL_SUCCESS && !empty && i < dimensions; i++)
        empty = global[i] == 0;
    if (error == CL_SUCCESS)
        error = command_begin(&command, queue, type, false, false, count, waits, event);
    if (error)
        return error;
    if (empty)
        return command_end(&command, command_post_nothing(&command));
    struct msg_launch message = {.command = command.head,
                                 .kernel = handle_id(kernel),
                                 .dimensions = dimensions,
                                 .given =
                                     (offset ? LAUNCH_OFFSET : 0) | (local ? LAUNCH_LOCAL : 0)};
    for (cl_uint i = 0; i < dimensions; i++) {
        message.offset[i] = offset ? offset[i] : 0;
        message.global[i] = global[i];
        message.local[i] = local ? local[i] : 0;
    }
    error = client_state(q->base.client);
    if (error == CL_SUCCESS)
        error = posted(post_launch(&q->base.client->stream, &message));
    return command_end(&command, error);
}

cl_int clEnqueueNDRangeKernel(cl_command_queue command_queue, cl_kernel kernel, cl_uint work_dim,
                              const size_t *global_work_offset, const size_t *global_work_size,
                              const size_t *local_work_size, cl_uint num_events_in_wait_list,
                              const cl_event *event_wait_list, cl_event *event)
{
    return launch(command_queue, kernel, CL_COMMAND_NDRANGE_KERNEL, work_dim, global_work_offset,
                  global_work_size, local_work_size, num_events_in_wait_list, event_wait_list,
                  event);
}

cl_int clEnqueueTask(cl_command_queue command_queue, cl_kernel kernel,
                     cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                     cl_event *event)
{
    const size_t one = 1;
    return launch(command_queue, kernel, CL_COMMAND_TASK, 1, NULL, &one, &one,
                  num_events_in_wait_list, event_wait_list, event);
}
