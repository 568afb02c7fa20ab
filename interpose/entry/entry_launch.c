#include "interpose/entry/entry.h"
#include "state/command/launch.h"
#include "state/command/native.h"
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
    /* With one device there is no kernel without an executable for it. */
    if (UNLIKELY(queue->context->vdev_count > 1) &&
        !program_is_executable(kernel->program, 1u << queue->vdev_index))
        return CL_INVALID_PROGRAM_EXECUTABLE;
    return LIKELY(kernel->unset == 0) ? CL_SUCCESS : CL_INVALID_KERNEL_ARGS;
}

/* reqd_work_group_size: dimensions that are left out are 1. */
static bool entry_launch_is_required(const struct launch_space *space, const size_t *required)
{
    for (cl_uint i = 0; i < 3; i++)
        if (required[i] != (space->local && i < space->dims ? space->local[i] : 1))
            return false;
    return space->local != NULL;
}

/* What one walk over the dimensions finds. */
struct findings {
    bool empty, overflows;
};

/* Against what the program was told, so that the launch can be made on another device too. */
static inline cl_int entry_launch_measure(struct launch_space *space,
                                          const struct group_limits *limits,
                                          struct findings *ret_findings)
{
    struct findings found = {.empty = space->global == NULL};
    bool uneven = false;
    size_t items = 1, end;
    for (cl_uint i = 0; i < space->dims; i++) {
        size_t offset = space->offset ? space->offset[i] : 0;
        size_t global = space->global ? space->global[i] : 0;
        size_t local = space->local ? space->local[i] : 1;
        if (UNLIKELY(local == 0 || __builtin_mul_overflow(items, local, &items)))
            return CL_INVALID_WORK_GROUP_SIZE;
        if (UNLIKELY(local > atomic_load_explicit(&limits->sizes[i], memory_order_relaxed)))
            return CL_INVALID_WORK_ITEM_SIZE;
        found.empty |= global == 0;
        found.overflows |= __builtin_add_overflow(offset, global, &end);
        uneven |= !launch_divides(global, local);
    }
    if (UNLIKELY(items > atomic_load_explicit(&limits->items, memory_order_relaxed)))
        return CL_INVALID_WORK_GROUP_SIZE;
    space->items = space->local ? items : 0;
    space->uneven = uneven;
    *ret_findings = found;
    return CL_SUCCESS;
}

/* @space->local is set where only the kernel says what it is. */
static ALWAYS_INLINE cl_int entry_launch_run(struct queue *queue, struct kernel *kernel,
                                             cl_command_type type, struct launch_space *space,
                                             cl_uint waits, const cl_event *wait_list,
                                             cl_event *ret_event)
{
    struct findings found;
    cl_int error = entry_launch_check_owners(queue, kernel);
    if (UNLIKELY(error != CL_SUCCESS))
        return error;
    if (UNLIKELY(space->dims < 1 || space->dims > 3))
        return CL_INVALID_WORK_DIMENSION;
    const size_t *required = kernel_required_group(kernel);
    /* Up to 1.2 it had to be given; since 2.0 leaving it out leaves it to us, and drivers do not
     * agree about what to do then. */
    if (UNLIKELY(required != NULL) && !space->local &&
        the_present.version >= CL_MAKE_VERSION(2, 0, 0))
        space->local = required;
    space->presented = &vdev_limits[queue->vdev->index].groups;
    error = entry_launch_measure(space, space->presented, &found);
    if (UNLIKELY(error != CL_SUCCESS))
        return error;
    if (UNLIKELY(found.empty))
        return the_limits.empty_commands
                   ? sync_empty(queue, type, false, waits, wait_list, ret_event)
                   : CL_INVALID_GLOBAL_WORK_SIZE;
    if (UNLIKELY(found.overflows))
        return CL_INVALID_GLOBAL_OFFSET;
    if (UNLIKELY(required != NULL) && !entry_launch_is_required(space, required))
        return CL_INVALID_WORK_GROUP_SIZE;
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
