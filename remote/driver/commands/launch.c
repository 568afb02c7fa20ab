#include <stdlib.h>
#include <string.h>

#include "remote/driver/commands/command.h"
#include "remote/driver/programs/program.h"

/* Launches. They are checked at the call against what is known of the kernel and the device. */

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

static cl_int launch_check(const struct queue *queue, struct kernel *kernel,
                           struct launch_space *space, bool *ret_empty)
{
    const struct device_object *device = queue->device;
    struct group_limits limits;
    struct msg_kernel_group group;
    bool set = true;
    if (kernel->program->context != queue->context)
        return CL_INVALID_CONTEXT;
    pthread_mutex_lock(&kernel->lock);
    for (cl_uint i = 0; i < kernel->facts->count; i++)
        set = set && kernel->set[i];
    pthread_mutex_unlock(&kernel->lock);
    if (!set)
        return CL_INVALID_KERNEL_ARGS;
    cl_int error = kernel_group(kernel, device, &group);
    if (error)
        return error;
    devinfo_group_limits(&device->answers->info, &limits);
    atomic_store(&limits.items, group.size); /* A kernel's limit is never above its device's. */
    const size_t required[3] = {group.compiled[0], group.compiled[1], group.compiled[2]};
    bool is_32 = device_number(device, CL_DEVICE_ADDRESS_BITS) == 32;
    const struct launch_rules rules = {&limits,
                                       required[0] || required[1] || required[2] ? required : NULL,
                                       &device->version, is_32 ? UINT32_MAX : SIZE_MAX};
    error = check_launch(space, &rules, ret_empty);
    return error == CL_SUCCESS && !*ret_empty && space->uneven &&
                   !launch_may_be_uneven(kernel, device)
               ? CL_INVALID_WORK_GROUP_SIZE
               : error;
}

static cl_int launch_enqueue(cl_command_queue queue, cl_kernel handle, cl_command_type type,
                             struct launch_space space, cl_uint count, const cl_event *waits,
                             cl_event *event)
{
    struct queue *q = queue_get(queue);
    struct kernel *kernel = kernel_get(handle);
    struct command command;
    bool empty = false;
    if (!q)
        return CL_INVALID_COMMAND_QUEUE;
    if (!kernel)
        return CL_INVALID_KERNEL;
    cl_int error = launch_check(q, kernel, &space, &empty);
    if (error == CL_SUCCESS)
        error = command_begin(&command, queue, type, false, false, count, waits, event);
    if (error)
        return error;
    if (empty)
        return command_end(&command, command_post_nothing(&command));
    struct msg_launch message = {.command = command.head,
                                 .kernel = handle_id(kernel),
                                 .dimensions = space.dims,
                                 .given = (space.offset ? LAUNCH_OFFSET : 0) |
                                          (space.local ? LAUNCH_LOCAL : 0)};
    for (cl_uint i = 0; i < space.dims; i++) {
        message.offset[i] = space.offset ? space.offset[i] : 0;
        message.global[i] = space.global[i];
        message.local[i] = space.local ? space.local[i] : 0;
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
    const struct launch_space space = {work_dim, global_work_offset, global_work_size,
                                       local_work_size};
    return launch_enqueue(command_queue, kernel, CL_COMMAND_NDRANGE_KERNEL, space,
                          num_events_in_wait_list, event_wait_list, event);
}

cl_int clEnqueueTask(cl_command_queue command_queue, cl_kernel kernel,
                     cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                     cl_event *event)
{
    const size_t one = 1;
    const struct launch_space space = {1, NULL, &one, &one};
    return launch_enqueue(command_queue, kernel, CL_COMMAND_TASK, space, num_events_in_wait_list,
                          event_wait_list, event);
}
