#include <stdlib.h>
#include <string.h>

#include "calls_generated.h"
#include "interpose/entry/entry.h"
#include "state/memory/svm.h"
#include "state/move/move.h"
#include "state/program/kernel.h"

/* Shared virtual memory (5.6), which is offered under --profile native only. */

static uint64_t entry_svm_capabilities(void)
{
    return devinfo_scalar(&the_present.device, CL_DEVICE_SVM_CAPABILITIES, 0);
}

/* 5.6.1: at most one kind of access, and only flags that were offered. */
static bool entry_svm_flags_valid(cl_svm_mem_flags flags)
{
    const cl_svm_mem_flags accesses = CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY;
    cl_svm_mem_flags access = flags & accesses;
    if (flags & ~(accesses | CL_MEM_SVM_FINE_GRAIN_BUFFER | CL_MEM_SVM_ATOMICS) ||
        (access & (access - 1)) != 0)
        return false;
    if ((flags & CL_MEM_SVM_ATOMICS) && !(flags & CL_MEM_SVM_FINE_GRAIN_BUFFER))
        return false;
    return (entry_svm_capabilities() & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER) &&
           (!(flags & CL_MEM_SVM_FINE_GRAIN_BUFFER) ||
            (entry_svm_capabilities() & CL_DEVICE_SVM_FINE_GRAIN_BUFFER)) &&
           (!(flags & CL_MEM_SVM_ATOMICS) || (entry_svm_capabilities() & CL_DEVICE_SVM_ATOMICS));
}

void *clSVMAlloc(cl_context context, cl_svm_mem_flags flags, size_t size, cl_uint alignment)
{
    struct context *c = context_get(context);
    if (!c || !entry_svm_flags_valid(flags) || size == 0 || size > limits_allocation(c) ||
        (alignment & (alignment - 1)) != 0)
        return NULL;
    struct vdev *stray;
    void *pointer;
    do
        pointer = svm_alloc(c, flags, size, alignment, &stray);
    while (stray && move_home(stray));
    return pointer;
}

void clSVMFree(cl_context context, void *svm_pointer)
{
    struct context *c = context_get(context);
    if (c)
        svm_free(c, svm_pointer);
}

cl_int
clEnqueueSVMFree(cl_command_queue command_queue, cl_uint num_svm_pointers, void *svm_pointers[],
                 void(CL_CALLBACK *pfn_free_func)(cl_command_queue, cl_uint, void *[], void *),
                 void *user_data, cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                 cl_event *event)
{
    struct queue *queue = queue_get(command_queue);
    if (!queue)
        return CL_INVALID_COMMAND_QUEUE;
    if (!entry_svm_capabilities())
        return CL_INVALID_OPERATION;
    if ((num_svm_pointers == 0) != (svm_pointers == NULL))
        return CL_INVALID_VALUE;
    return svm_enqueue_free(queue, num_svm_pointers, svm_pointers, pfn_free_func, user_data,
                            num_events_in_wait_list, event_wait_list, event);
}

cl_int check_svm_memcpy(void *dst_ptr, const void *src_ptr, size_t size)
{
    const char *to = dst_ptr, *from = src_ptr;
    if (!entry_svm_capabilities())
        return CL_INVALID_OPERATION;
    if (!to || !from)
        return CL_INVALID_VALUE;
    bool overlap = to < from ? (size_t)(from - to) < size : (size_t)(to - from) < size;
    return overlap ? CL_MEM_COPY_OVERLAP : CL_SUCCESS;
}

cl_int check_svm_mem_fill(void *svm_ptr, size_t width, size_t size)
{
    if (!entry_svm_capabilities())
        return CL_INVALID_OPERATION;
    return svm_ptr && width != 0 && (width & (width - 1)) == 0 && (uintptr_t)svm_ptr % width == 0 &&
                   size % width == 0
               ? CL_SUCCESS
               : CL_INVALID_VALUE;
}

cl_int check_svm_map(cl_map_flags flags, void *svm_ptr, size_t size)
{
    const cl_map_flags known = CL_MAP_READ | CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION;
    if (!entry_svm_capabilities())
        return CL_INVALID_OPERATION;
    return svm_ptr && size != 0 && !(flags & ~known) ? CL_SUCCESS : CL_INVALID_VALUE;
}

cl_int check_svm_unmap(void *svm_ptr)
{
    if (!entry_svm_capabilities())
        return CL_INVALID_OPERATION;
    return svm_ptr ? CL_SUCCESS : CL_INVALID_VALUE;
}

struct migration {
    struct command base;
    cl_mem_migration_flags flags;
    cl_uint count;
    const void *const *pointers; /* The program's lists, or copies in one block. */
    const size_t *sizes;         /* Or NULL. */
};

static cl_int entry_svm_migration_issue(struct command *base, struct residence *residence,
                                        uint8_t residence_index, cl_command_queue queue,
                                        cl_uint waits, const cl_event *wait_list,
                                        cl_event *ret_event)
{
    (void)residence_index;
    const struct migration *migration = (const struct migration *)base;
    const cl_icd_dispatch *cl = residence->cl;
    /* SVM is 2.0's, this call 2.1's; a hint does nothing but wait where there is none. */
    if (!cl->clEnqueueSVMMigrateMem)
        return cl->clEnqueueMarkerWithWaitList(queue, waits, wait_list, ret_event);
    return cl->clEnqueueSVMMigrateMem(
        queue, migration->count, (const void **)(uintptr_t)migration->pointers, migration->sizes,
        migration->flags, waits, wait_list, ret_event);
}

static cl_int entry_svm_migration_defer(struct command *base)
{
    struct migration *migration = (struct migration *)base;
    size_t count = migration->count;
    const void **copy = calloc(count, sizeof(copy[0]) + sizeof(size_t));
    if (!copy)
        return CL_OUT_OF_HOST_MEMORY;
    memcpy(copy, migration->pointers, count * sizeof(copy[0]));
    if (migration->sizes)
        migration->sizes =
            memcpy(copy + count, migration->sizes, count * sizeof(migration->sizes[0]));
    migration->pointers = copy;
    return CL_SUCCESS;
}

static void entry_svm_migration_drop(struct command *base)
{
    free((void *)(uintptr_t)((struct migration *)base)->pointers);
}

static const struct command_ops migration_ops = {
    .type = CL_COMMAND_SVM_MIGRATE_MEM,
    .size = sizeof(struct migration),
    .issue = entry_svm_migration_issue,
    .defer = entry_svm_migration_defer,
    .drop = entry_svm_migration_drop,
};

cl_int clEnqueueSVMMigrateMem(cl_command_queue command_queue, cl_uint num_svm_pointers,
                              const void **svm_pointers, const size_t *sizes,
                              cl_mem_migration_flags flags, cl_uint num_events_in_wait_list,
                              const cl_event *event_wait_list, cl_event *event)
{
    const cl_mem_migration_flags known =
        CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED;
    struct queue *queue = queue_get(command_queue);
    if (!queue)
        return CL_INVALID_COMMAND_QUEUE;
    if (!entry_svm_capabilities())
        return CL_INVALID_OPERATION;
    if (num_svm_pointers == 0 || !svm_pointers || (flags & ~known) != 0)
        return CL_INVALID_VALUE;
    for (cl_uint i = 0; i < num_svm_pointers; i++)
        if (!svm_has(&queue->context->svm, svm_pointers[i]))
            return CL_INVALID_VALUE;
    struct migration migration = {
        .base = {.ops = &migration_ops, .queue = queue},
        .flags = flags,
        .count = num_svm_pointers,
        .pointers = svm_pointers,
        .sizes = sizes,
    };
    return command_run(&migration.base, false, num_events_in_wait_list, event_wait_list, event);
}

cl_int clSetKernelArgSVMPointer(cl_kernel kernel, cl_uint arg_index, const void *arg_value)
{
    struct kernel *k = kernel_get(kernel);
    if (!k)
        return CL_INVALID_KERNEL;
    return entry_svm_capabilities() ? kernel_set_arg_svm(k, arg_index, arg_value)
                                    : CL_INVALID_OPERATION;
}

cl_int clSetKernelExecInfo(cl_kernel kernel, cl_kernel_exec_info param_name,
                           size_t param_value_size, const void *param_value)
{
    struct kernel *k = kernel_get(kernel);
    cl_bool system;
    if (!k)
        return CL_INVALID_KERNEL;
    if (!entry_svm_capabilities())
        return CL_INVALID_OPERATION;
    switch (param_name) {
    case CL_KERNEL_EXEC_INFO_SVM_PTRS:
        if (!param_value || param_value_size == 0 || param_value_size % sizeof(void *) != 0)
            return CL_INVALID_VALUE;
        return kernel_set_svm_pointers(k, param_value_size / sizeof(void *), param_value);
    case CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM:
        if (!param_value || param_value_size != sizeof(system))
            return CL_INVALID_VALUE;
        memcpy(&system, param_value, sizeof(system));
        if (system && !(entry_svm_capabilities() & CL_DEVICE_SVM_FINE_GRAIN_SYSTEM))
            return CL_INVALID_OPERATION;
        return kernel_set_svm_system(k, system);
    default:
        return CL_INVALID_VALUE;
    }
}
