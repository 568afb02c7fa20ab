#include "state/launch.h"

#include <string.h>

#include "state/log.h"
#include "state/move.h"

struct launch {
    struct command base;
    struct kernel *kernel;
    cl_uint dims;
    const size_t *offset, *global, *local; /* the program's, or the copies below */
    size_t offset_copy[3], global_copy[3], local_copy[3];
    struct kernel_snapshot *snapshot; /* when held: the arguments at the time of the call */
};

static struct memory *launch_uses(const struct command *command, unsigned *cursor, bool *ret_writes)
{
    const struct launch *launch = (const struct launch *)command;
    if (launch->snapshot)
        return kernel_snapshot_memory(launch->snapshot, (*cursor)++, ret_writes);
    const struct kernel *kernel = launch->kernel;
    while (*cursor < kernel->arg_count) {
        const struct kernel_arg *arg = &kernel->args[(*cursor)++];
        if (arg->kind != ARG_MEMORY)
            continue;
        struct memory *memory = object_weak_get(arg->object);
        if (!memory)
            continue;
        /* 5.2.1: a kernel that writes a CL_MEM_READ_ONLY object has no defined effect. */
        *ret_writes = arg->writes && !(memory->flags & CL_MEM_READ_ONLY);
        return memory;
    }
    return NULL;
}

static cl_int launch_ready(struct command *command, struct residence *residence, uint8_t place)
{
    const struct launch *launch = (const struct launch *)command;
    struct kernel *kernel = launch->kernel;
    if (launch->snapshot)
        return CL_SUCCESS;
    if (UNLIKELY(!kernel->real[place])) {
        cl_int error = kernel_make_real(kernel, residence, place);
        if (error != CL_SUCCESS)
            return error;
    }
    return LIKELY(kernel->applied[place] == kernel->edition)
               ? CL_SUCCESS
               : kernel_apply(kernel, residence, place);
}

static cl_int launch_issue(struct command *command, struct residence *residence, uint8_t place,
                           cl_command_queue queue, cl_uint waits, const cl_event *wait_list,
                           cl_event *ret_event)
{
    const struct launch *launch = (const struct launch *)command;
    cl_kernel real = launch->kernel->real[place];
    cl_int error = CL_SUCCESS;
    /* The program may be setting arguments of its kernel: a held launch has one of its own. */
    if (launch->snapshot)
        error = kernel_snapshot_make(launch->snapshot, residence, place, &real);
    if (error != CL_SUCCESS)
        return error;
    error = command->ops->type == CL_COMMAND_TASK
                ? residence->cl->clEnqueueTask(queue, real, waits, wait_list, ret_event)
                : residence->cl->clEnqueueNDRangeKernel(queue, real, launch->dims, launch->offset,
                                                        launch->global, launch->local, waits,
                                                        wait_list, ret_event);
    if (launch->snapshot)
        residence->cl->clReleaseKernel(real);
    return error;
}

static const size_t *copy_sizes(size_t *copy, const size_t *sizes, cl_uint dims)
{
    if (!sizes)
        return NULL;
    memcpy(copy, sizes, dims * sizeof(*sizes));
    return copy;
}

/* What the driver would have said at once (5.10), of what can be known without it. */
static cl_int launch_check(const struct launch *launch)
{
    const struct kernel *kernel = launch->kernel;
    for (cl_uint i = 0; i < kernel->arg_count; i++)
        if (kernel->args[i].kind == ARG_UNSET)
            return CL_INVALID_KERNEL_ARGS;
    for (cl_uint i = 0; launch->local && i < launch->dims; i++)
        if (launch->local[i] == 0 ||
            (launch->global && launch->global[i] % launch->local[i] != 0 &&
             device_version(launch->base.queue->seat->last) < CL_MAKE_VERSION(2, 0, 0)))
            return CL_INVALID_WORK_GROUP_SIZE;
    return CL_SUCCESS;
}

static cl_int launch_defer(struct command *command)
{
    struct launch *launch = (struct launch *)command;
    cl_int error = launch_check(launch);
    if (error != CL_SUCCESS)
        return error;
    if (kernel_snapshot_take(launch->kernel, &launch->snapshot) != 0)
        return CL_OUT_OF_HOST_MEMORY;
    launch->offset = copy_sizes(launch->offset_copy, launch->offset, launch->dims);
    launch->global = copy_sizes(launch->global_copy, launch->global, launch->dims);
    launch->local = copy_sizes(launch->local_copy, launch->local, launch->dims);
    object_hold(launch->kernel);
    return CL_SUCCESS;
}

static void launch_drop(struct command *command)
{
    struct launch *launch = (struct launch *)command;
    kernel_snapshot_free(launch->snapshot);
    object_unhold(launch->kernel);
}

static const struct command_ops ndrange_ops = {
    .type = CL_COMMAND_NDRANGE_KERNEL,
    .size = sizeof(struct launch),
    .issue = launch_issue,
    .defer = launch_defer,
    .drop = launch_drop,
    .ready = launch_ready,
};
static const struct command_ops task_ops = {
    .type = CL_COMMAND_TASK,
    .size = sizeof(struct launch),
    .issue = launch_issue,
    .defer = launch_defer,
    .drop = launch_drop,
    .ready = launch_ready,
};

/* Errors that say "not on this device" rather than "not like this". */
static bool device_refuses(cl_int error)
{
    return error == CL_INVALID_WORK_GROUP_SIZE || error == CL_INVALID_WORK_ITEM_SIZE ||
           error == CL_OUT_OF_RESOURCES || error == CL_MEM_OBJECT_ALLOCATION_FAILURE;
}

/* Back to where the program came from; true when it is somewhere else than before. */
static bool go_back(struct seat *seat, const struct kernel *kernel, cl_int refused)
{
    struct device *here = atomic_load(&seat->device);
    if (!here || here == seat->origin)
        return false;
    log_info("kernel %s cannot run on %s (error %d): going back to %s", kernel->name,
             here->key.device, refused, seat->origin->key.device);
    return move_home(seat);
}

cl_int launch_run(struct queue *queue, struct kernel *kernel, cl_uint dims, const size_t *offset,
                  const size_t *global, const size_t *local, cl_command_type type, cl_uint waits,
                  const cl_event *wait_list, cl_event *ret_event)
{
    if (kernel->program->context != queue->context)
        return CL_INVALID_CONTEXT;
    if (dims < 1 || dims > 3)
        return CL_INVALID_WORK_DIMENSION;
    cl_int error;
    bool again;
    do {
        /* Field by field: the copies are only for a launch that is held. */
        struct launch launch;
        launch.base = (struct command){.ops = type == CL_COMMAND_TASK ? &task_ops : &ndrange_ops,
                                       .queue = queue,
                                       .more = launch_uses};
        launch.kernel = kernel;
        launch.dims = dims;
        launch.offset = offset;
        launch.global = global;
        launch.local = local;
        launch.snapshot = NULL;
        error = command_run(&launch.base, false, waits, wait_list, ret_event);
        again = UNLIKELY(device_refuses(error)) && go_back(queue->seat, kernel, error);
    } while (again);
    if (error == CL_SUCCESS)
        kernel_note_launch(kernel, dims, global, local);
    return error;
}
