#include "interpose/entry.h"
#include "interpose/entry_sync.h"
#include "state/kernel.h"
#include "state/launch.h"
#include "state/native.h"

/* 5.8: what the program was told, and what the kernel's source asks for. */
struct shape {
    cl_uint dims;
    const size_t *offset, *global, *local;
};

static cl_int check_owners(const struct queue *queue, const struct kernel *kernel)
{
    if (UNLIKELY(!queue))
        return CL_INVALID_COMMAND_QUEUE;
    if (UNLIKELY(!kernel))
        return CL_INVALID_KERNEL;
    if (UNLIKELY(kernel->context != queue->context))
        return CL_INVALID_CONTEXT;
    /* With one device there is no kernel without an executable for it. */
    if (UNLIKELY(queue->context->seat_count > 1) &&
        !program_is_executable(kernel->program, 1u << queue->seat_index))
        return CL_INVALID_PROGRAM_EXECUTABLE;
    return LIKELY(kernel->unset == 0) ? CL_SUCCESS : CL_INVALID_KERNEL_ARGS;
}

/* Against what the program was told, so that the launch can be made on another device too. */
static cl_int check_local(const struct shape *shape, const struct seat_limits *limits)
{
    const size_t *local = shape->local;
    size_t items = 1;
    for (cl_uint i = 0; i < shape->dims; i++) {
        if (UNLIKELY(local[i] == 0))
            return CL_INVALID_WORK_GROUP_SIZE;
        if (UNLIKELY(local[i] >
                     atomic_load_explicit(&limits->work_item_sizes[i], memory_order_relaxed)))
            return CL_INVALID_WORK_ITEM_SIZE;
        if (UNLIKELY(__builtin_mul_overflow(items, local[i], &items)))
            return CL_INVALID_WORK_GROUP_SIZE;
    }
    size_t most = atomic_load_explicit(&limits->work_group_size, memory_order_relaxed);
    return LIKELY(items <= most) ? CL_SUCCESS : CL_INVALID_WORK_GROUP_SIZE;
}

/* reqd_work_group_size: dimensions that are left out are 1. */
static bool is_required(const struct shape *shape, const size_t *required)
{
    for (cl_uint i = 0; i < 3; i++)
        if (required[i] != (i < shape->dims ? shape->local[i] : 1))
            return false;
    return true;
}

static bool divides(const struct shape *shape)
{
    for (cl_uint i = 0; i < shape->dims; i++)
        if (!launch_divides(shape->global[i], shape->local[i]))
            return false;
    return true;
}

/* @shape->local is set where only the kernel says what it is. */
static cl_int check_group(const struct kernel *kernel, struct shape *shape)
{
    const size_t *required = kernel_required_group(kernel);
    if (UNLIKELY(required != NULL)) {
        /* Up to 1.2 it had to be given; since 2.0 leaving it out leaves it to us, and drivers do
         * not agree about what to do then. */
        if (!shape->local && the_present.version >= CL_MAKE_VERSION(2, 0, 0))
            shape->local = required;
        if (!shape->local || !is_required(shape, required))
            return CL_INVALID_WORK_GROUP_SIZE;
    }
    return shape->local && the_limits.uniform_groups && UNLIKELY(!divides(shape))
               ? CL_INVALID_WORK_GROUP_SIZE
               : CL_SUCCESS;
}

static bool overflows(const struct shape *shape)
{
    size_t end;
    for (cl_uint i = 0; shape->offset && i < shape->dims; i++)
        if (__builtin_add_overflow(shape->offset[i], shape->global[i], &end))
            return true;
    return false;
}

static bool is_empty(cl_uint dims, const size_t *global)
{
    bool empty = global == NULL;
    for (cl_uint i = 0; i < dims && !empty; i++)
        empty = global[i] == 0;
    return empty;
}

cl_int clEnqueueNDRangeKernel(cl_command_queue command_queue, cl_kernel kernel, cl_uint work_dim,
                              const size_t *global_work_offset, const size_t *global_work_size,
                              const size_t *local_work_size, cl_uint num_events_in_wait_list,
                              const cl_event *event_wait_list, cl_event *event)
{
    struct queue *queue = queue_get(command_queue);
    struct kernel *k = kernel_get(kernel);
    cl_int error = check_owners(queue, k);
    if (UNLIKELY(error != CL_SUCCESS))
        return error;
    if (UNLIKELY(work_dim < 1 || work_dim > 3))
        return CL_INVALID_WORK_DIMENSION;
    struct shape shape = {work_dim, global_work_offset, global_work_size, local_work_size};
    if (local_work_size) {
        error = check_local(&shape, &seat_limits[queue->seat->index]);
        if (UNLIKELY(error != CL_SUCCESS))
            return error;
    }
    if (UNLIKELY(is_empty(work_dim, global_work_size)))
        return the_limits.empty_launches
                   ? sync_empty_launch(queue, num_events_in_wait_list, event_wait_list, event)
                   : CL_INVALID_GLOBAL_WORK_SIZE;
    if (UNLIKELY(overflows(&shape)))
        return CL_INVALID_GLOBAL_OFFSET;
    error = check_group(k, &shape);
    if (UNLIKELY(error != CL_SUCCESS))
        return error;
    return launch_run(queue, k, work_dim, global_work_offset, global_work_size, shape.local,
                      CL_COMMAND_NDRANGE_KERNEL, num_events_in_wait_list, event_wait_list, event);
}

cl_int clEnqueueTask(cl_command_queue command_queue, cl_kernel kernel,
                     cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                     cl_event *event)
{
    const size_t one = 1;
    struct queue *queue = queue_get(command_queue);
    struct kernel *k = kernel_get(kernel);
    cl_int error = check_owners(queue, k);
    struct shape shape = {1, NULL, &one, &one};
    if (error == CL_SUCCESS)
        error = check_group(k, &shape);
    if (error != CL_SUCCESS)
        return error;
    return launch_run(queue, k, 1, NULL, &one, &one, CL_COMMAND_TASK, num_events_in_wait_list,
                      event_wait_list, event);
}

static bool native_offered(void)
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
    if (!native_offered())
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
    return native_enqueue(queue, &call, num_events_in_wait_list, event_wait_list, event);
}
