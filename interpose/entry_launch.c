#include "interpose/entry.h"
#include "interpose/entry_sync.h"
#include "state/kernel.h"
#include "state/launch.h"
#include "state/native.h"

static cl_int check_owners(const struct queue *queue, const struct kernel *kernel)
{
    if (UNLIKELY(!queue))
        return CL_INVALID_COMMAND_QUEUE;
    if (UNLIKELY(!kernel))
        return CL_INVALID_KERNEL;
    return LIKELY(kernel->program->context == queue->context) ? CL_SUCCESS : CL_INVALID_CONTEXT;
}

/* 5.8: against what the program was told, so that the launch can be made on another device too. */
static cl_int check_local(cl_uint dims, const size_t *local)
{
    size_t items = 1;
    for (cl_uint i = 0; i < dims; i++) {
        if (UNLIKELY(local[i] == 0))
            return CL_INVALID_WORK_GROUP_SIZE;
        if (UNLIKELY(local[i] > the_limits.work_item_sizes[i]))
            return CL_INVALID_WORK_ITEM_SIZE;
        if (UNLIKELY(__builtin_mul_overflow(items, local[i], &items)))
            return CL_INVALID_WORK_GROUP_SIZE;
    }
    return LIKELY(items <= the_limits.work_group_size) ? CL_SUCCESS : CL_INVALID_WORK_GROUP_SIZE;
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
    if (local_work_size) {
        error = check_local(work_dim, local_work_size);
        if (UNLIKELY(error != CL_SUCCESS))
            return error;
    }
    if (UNLIKELY(is_empty(work_dim, global_work_size)))
        return the_limits.empty_launches
                   ? sync_empty_launch(queue, num_events_in_wait_list, event_wait_list, event)
                   : CL_INVALID_GLOBAL_WORK_SIZE;
    return launch_run(queue, k, work_dim, global_work_offset, global_work_size, local_work_size,
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
