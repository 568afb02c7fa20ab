#include "state/command/elsewhere.h"

#include "state/base/clock.h"
#include "state/command/parts.h"

/* The residence that has the latest of all bytes that @command reads; RESIDENCE_NONE: no residence
 * has all. */
static uint8_t elsewhere_index_of(const struct command *command)
{
    const struct memory *memory = command->uses[0];
    const struct context *context = memory->context;
    struct range range = command_range(command, 0, memory);
    for (uint8_t residence_index = 0; residence_index < context->residences; residence_index++)
        if (memory->real[residence_index] && context_lives(context, residence_index) &&
            replica_has(memory->root, residence_index, range) &&
            !context->at[residence_index]->runs_in_caller)
            return residence_index;
    return RESIDENCE_NONE;
}

bool elsewhere_can(const struct command *command, uint8_t residence_index)
{
    return command->ops->reads_to_host && elsewhere_index_of(command) != RESIDENCE_NONE &&
           !command->queue->context->at[residence_index]->runs_in_caller;
}

struct event *elsewhere_mark(struct queue *queue, struct residence *residence,
                             uint8_t residence_index, cl_uint waits, struct event *const *wait_list,
                             uint64_t since)
{
    static const struct command_ops ops = {.type = CL_COMMAND_MARKER,
                                           .issue = command_marker_issue};
    struct command mark;
    cl_event real;
    struct event *marker = event_create(queue->context, queue, ops.type);
    if (!marker)
        return NULL;
    command_init(&mark, &ops, queue);
    marker->begun = queue_step(queue);
    if (command_issue(&mark, residence, residence_index, waits, wait_list, &real) != CL_SUCCESS) {
        event_discard(marker);
        return NULL;
    }
    marker->times[0] = clock_now_ns() - since;
    event_issued(marker, residence_index, real);
    object_publish_internal(marker);
    if (event_watch(marker))
        return marker;
    object_unhold(marker);
    return NULL;
}

static cl_int elsewhere_read_there(void *data, struct residence *residence, uint8_t residence_index,
                                   cl_command_queue queue, cl_event *ret_event)
{
    struct command *command = data;
    return command->ops->issue(command, residence, residence_index, queue, 0, NULL, ret_event);
}

/* If the driver does not tell the time: now. */
static cl_ulong elsewhere_time_of(struct event *marker, cl_profiling_info name)
{
    cl_ulong time;
    return event_profiling(marker, name, &time) == CL_SUCCESS
               ? time
               : device_clock_guess(&marker->queue->vdev->clock);
}

cl_int elsewhere_give(struct command *command, struct event *marker, struct event *event)
{
    if (event_failed(marker))
        return CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
    uint8_t residence_index = elsewhere_index_of(command);
    struct parts *parts =
        residence_index != RESIDENCE_NONE && event_watch(event) ? parts_create(1) : NULL;
    if (!parts)
        return COMMAND_ABSENT;
    if (part_issue(&parts->of[0], event->context, residence_index, event->profiled,
                   elsewhere_read_there, command) != CL_SUCCESS) {
        parts_release(parts, event->context);
        parts_leave(parts);
        return COMMAND_ABSENT;
    }
    event->begun = marker->begun;
    if (event->profiled) {
        parts->queued = elsewhere_time_of(marker, CL_PROFILING_COMMAND_QUEUED);
        parts->submit = elsewhere_time_of(marker, CL_PROFILING_COMMAND_SUBMIT);
        parts->due = elsewhere_time_of(marker, CL_PROFILING_COMMAND_END);
    }
    event_issued_in_parts(event, parts);
    return CL_SUCCESS;
}
