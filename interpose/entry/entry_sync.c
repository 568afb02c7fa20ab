#include "interpose/entry/entry.h"

/* Commands that only order others (5.10). They use no object, and are a plain struct command. */

static cl_int entry_sync_barrier_issue(struct command *command, struct residence *residence,
                                       uint8_t residence_index, cl_command_queue queue,
                                       cl_uint waits, const cl_event *wait_list,
                                       cl_event *ret_event)
{
    (void)command, (void)residence_index;
    if (LIKELY(residence->cl->clEnqueueBarrierWithWaitList))
        return residence->cl->clEnqueueBarrierWithWaitList(queue, waits, wait_list, ret_event);
    return waits == 0 && !ret_event ? residence->cl->clEnqueueBarrier(queue) : CL_INVALID_OPERATION;
}

/* An empty command is a marker for the driver. Without a wait list that waits for all commands
 * before it, so the empty command may only end later than necessary. */
#define EMPTY(command_type)                                                                        \
    {                                                                                              \
        .type = command_type, .size = sizeof(struct command), .issue = command_marker_issue        \
    }
static const struct command_ops empty_ops[] = {
    EMPTY(CL_COMMAND_NDRANGE_KERNEL),
    CALLS_MAY_BE_EMPTY(EMPTY),
};
#undef EMPTY

static const struct command_ops marker_ops = {
    .type = CL_COMMAND_MARKER,
    .size = sizeof(struct command),
    .issue = command_marker_issue,
    .waits_for_all = true,
};

static const struct command_ops barrier_ops = {
    .type = CL_COMMAND_BARRIER,
    .size = sizeof(struct command),
    .issue = entry_sync_barrier_issue,
    .waits_for_all = true,
    .blocks_later = true,
};

cl_int sync_empty(struct queue *queue, cl_command_type type, bool blocking, cl_uint waits,
                  const cl_event *wait_list, cl_event *ret_event)
{
    const struct command_ops *ops = empty_ops;
    while (ops->type != type)
        ops++;
    struct command command = {.ops = ops, .queue = queue};
    return command_run(&command, blocking, waits, wait_list, ret_event);
}

cl_int queue_mark(struct queue *queue, cl_uint waits, const cl_event *wait_list,
                  cl_event *ret_event)
{
    struct command command = {.ops = &marker_ops, .queue = queue};
    return command_run(&command, false, waits, wait_list, ret_event);
}

cl_int queue_bar(struct queue *queue, cl_uint waits, const cl_event *wait_list, cl_event *ret_event)
{
    struct command command = {.ops = &barrier_ops, .queue = queue};
    return command_run(&command, false, waits, wait_list, ret_event);
}
