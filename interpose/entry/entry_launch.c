#include "interpose/entry/entry.h"
#include "state/command/command.h"
#include "state/move/move.h"
#include "state/program/kernel.h"

static inline cl_int entry_launch_check_owners(const struct queue *queue,
                                               const struct kernel *kernel)
{
    if (UNLIKELY(!queue))
        return CL_INVALID_COMMAND_QUEUE;
    if (UNLIKELY(!kernel))
        return CL_INVALID_KERNEL;
    if (UNLIKELY(kernel->context != queue->context))
        return CL_INVALID_CONTEXT;
    /* With one device every kernel has an executable for it. */
    if (UNLIKELY(queue->context->vdev_count > 1) &&
        !program_is_executable(kernel->program, 1u << queue->vdev_index))
        return CL_INVALID_PROGRAM_EXECUTABLE;
    return LIKELY(kernel->unset == 0) ? CL_SUCCESS : CL_INVALID_KERNEL_ARGS;
}

/* Checked against what the program was told, so that another device can run the launch too. */
static ALWAYS_INLINE cl_int entry_launch_run(struct queue *queue, struct kernel *kernel,
                                             cl_command_type type, struct launch_space *space,
                                             cl_uint waits, const cl_event *wait_list,
                                             cl_event *ret_event)
{
    bool empty;
    cl_int error = entry_launch_check_owners(queue, kernel);
    if (UNLIKELY(error != CL_SUCCESS))
        return error;
    space->presented = &vdev_limits[queue->vdev->index].groups;
    const struct launch_rules rules = {space->presented, kernel_required_group(kernel),
                                       &the_present.version, SIZE_MAX};
    error = check_launch(space, &rules, &empty);
    if (UNLIKELY(error != CL_SUCCESS))
        return error;
    if (UNLIKELY(empty))
        return sync_empty(queue, type, false, waits, wait_list, ret_event);
    if (UNLIKELY(space->uneven) && the_limits.uniform_groups)
        return CL_INVALID_WORK_GROUP_SIZE;
    return launch_run(queue, kernel, type, space, waits, wait_list, ret_event);
}

HOT cl_int clEnqueueNDRangeKernel(cl_command_queue command_queue, cl_kernel kernel,
                                  cl_uint work_dim, const size_t *global_work_offset,
                                  const size_t *global_work_size, const size_t *local_work_size,
                                  cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                                  cl_event *event)
{
    struct launch_space space = {work_dim, global_work_offset, global_work_size, local_work_size};
    return entry_launch_run(queue_get(command_queue), kernel_get(kernel), CL_COMMAND_NDRANGE_KERNEL,
                            &space, num_events_in_wait_list, event_wait_list, event);
}

cl_int clEnqueueTask(cl_command_queue command_queue, cl_kernel kernel,
                     cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                     cl_event *event)
{
    const size_t one = 1;
    struct launch_space space = {1, NULL, &one, &one};
    return entry_launch_run(queue_get(command_queue), kernel_get(kernel), CL_COMMAND_TASK, &space,
                            num_events_in_wait_list, event_wait_list, event);
}

static bool entry_launch_native_offered(void)
{
    return devinfo_scalar(&the_present.device, CL_DEVICE_EXECUTION_CAPABILITIES, 0) &
           CL_EXEC_NATIVE_KERNEL;
}

cl_int clEnqueueNativeKernel(cl_command_queue command_queue, void(CL_CALLBACK *user_func)(void *),
                             void *args, size_t cb_args, cl_uint num_mem_objects,
                             const cl_mem *mem_list, const void **args_mem_loc,
                             cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                             cl_event *event)
{
    struct queue *queue = queue_get(command_queue);
    if (!queue)
        return CL_INVALID_COMMAND_QUEUE;
    if (!entry_launch_native_offered())
        return CL_INVALID_OPERATION;
    if (!user_func || (args == NULL) != (cb_args == 0) || (!args && num_mem_objects != 0) ||
        (num_mem_objects == 0) != (mem_list == NULL) ||
        (num_mem_objects == 0) != (args_mem_loc == NULL))
        return CL_INVALID_VALUE;
    for (cl_uint i = 0; i < num_mem_objects; i++) {
        const struct memory *memory = memory_get(mem_list[i]);
        uintptr_t offset = (uintptr_t)args_mem_loc[i] - (uintptr_t)args;
        if (!memory || memory->type != CL_MEM_OBJECT_BUFFER)
            return CL_INVALID_MEM_OBJECT;
        if (memory->context != queue->context)
            return CL_INVALID_CONTEXT;
        if (cb_args < sizeof(void *) || offset > cb_args - sizeof(void *))
            return CL_INVALID_VALUE;
    }
    const struct native_call call = {
        .function = user_func,
        .args = args,
        .size = cb_args,
        .count = num_mem_objects,
        .objects = (struct memory *const *)mem_list,
        .locations = args_mem_loc,
    };
    struct vdev *stray;
    cl_int error;
    do
        error =
            native_enqueue(queue, &call, num_events_in_wait_list, event_wait_list, event, &stray);
    while (stray && move_home(stray));
    return error;
}
