#include "state/command/elsewhere.h"

#include "state/base/clock.h"
#include "state/command/command_inline.h"
#include "state/command/journal.h"
#include "state/command/parts.h"
#include "state/transfer/transfer.h"

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

static size_t elsewhere_size_of(const struct command *command)
{
    struct range range = command_range(command, 0, command->uses[0]);
    return range.end - range.begin;
}

/* The function that copies what @command does from residence @from; NULL: there is none, or the
 * bytes are copied so often that a replica is worth more: of each version, each byte may cross once
 * for each virtual device. */
static between_function elsewhere_between(const struct command *command, uint8_t from, uint8_t to)
{
    const struct context *context = command->queue->context;
    const struct memory *root = command->uses[0]->root;
    size_t size = elsewhere_size_of(command);
    uint64_t passed = atomic_load(&root->passed_version) == atomic_load(&root->version)
                          ? atomic_load(&root->passed)
                          : 0;
    if (passed + size > (uint64_t)root->size * context->vdev_count)
        return NULL;
    return transfer_between(context->at[from], context->at[to], size);
}

static void elsewhere_count(const struct command *command)
{
    struct memory *root = command->uses[0]->root;
    uint64_t version = atomic_load(&root->version);
    if (atomic_exchange(&root->passed_version, version) != version)
        atomic_store(&root->passed, 0);
    atomic_fetch_add(&root->passed, elsewhere_size_of(command));
}

bool elsewhere_copies(const struct command *command, uint8_t residence_index)
{
    /* What is done again after a loss has to be in one residence. */
    if (command->ops->type != CL_COMMAND_COPY_BUFFER || command->stays ||
        command->queue->context->at[residence_index]->runs_in_caller ||
        atomic_load_explicit(&journal_is_kept, memory_order_relaxed))
        return false;
    uint8_t from = elsewhere_index_of(command);
    return from != RESIDENCE_NONE && from != residence_index &&
           elsewhere_between(command, from, residence_index) != NULL;
}

bool elsewhere_can(const struct command *command, uint8_t residence_index)
{
    if (command->ops->reads_to_host)
        return elsewhere_index_of(command) != RESIDENCE_NONE &&
               !command->queue->context->at[residence_index]->runs_in_caller;
    return elsewhere_copies(command, residence_index) &&
           !command_lacks(command, 1, command->uses[1], true, residence_index);
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

/* What the program is told of the times before the command's own. */
static void elsewhere_leave_times(const struct event *event, struct parts *parts,
                                  struct event *marker)
{
    if (!event->profiled)
        return;
    parts->queued = elsewhere_time_of(marker, CL_PROFILING_COMMAND_QUEUED);
    parts->submit = elsewhere_time_of(marker, CL_PROFILING_COMMAND_SUBMIT);
    parts->due = elsewhere_time_of(marker, CL_PROFILING_COMMAND_END);
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
    elsewhere_leave_times(event, parts, marker);
    event_issued_in_parts(event, parts);
    return CL_SUCCESS;
}

/* A copy that passes. Its part at the target is the copy, the one at the source a marker behind it.
 */
struct pass {
    const struct command *command;
    between_function between;
    struct part *out;
    uint8_t from, to;
    cl_command_queue queue; /* of the target */
    cl_event arrives;
};

static cl_int elsewhere_pass_out(void *data, struct residence *residence, uint8_t residence_index,
                                 cl_command_queue queue, cl_event *ret_event)
{
    struct pass *pass = data;
    const struct memory *source = pass->command->uses[0], *target = pass->command->uses[1];
    size_t from_at = command_range(pass->command, 0, source).begin,
           to_at = command_range(pass->command, 1, target).begin;
    cl_int error = pass->between(queue, pass->queue, source->root->real[residence_index],
                                 target->root->real[pass->to], from_at, to_at,
                                 elsewhere_size_of(pass->command), 0, NULL, &pass->arrives);
    return error != CL_SUCCESS
               ? error
               : command_marker_issue(NULL, residence, residence_index, queue, 0, NULL, ret_event);
}

/* Once bytes are on their way they are waited for, even if the source's part failed. */
static cl_int elsewhere_pass_in(void *data, struct residence *residence, uint8_t residence_index,
                                cl_command_queue queue, cl_event *ret_event)
{
    struct pass *pass = data;
    (void)residence, (void)residence_index;
    pass->queue = queue;
    cl_int error = part_issue(pass->out, pass->command->queue->context, pass->from, false,
                              elsewhere_pass_out, pass);
    *ret_event = pass->arrives;
    return pass->arrives ? CL_SUCCESS : error;
}

static bool elsewhere_pass_issue(struct pass *pass, struct event *event, struct parts *parts)
{
    pass->out = &parts->of[1];
    if (pass->between && part_issue(&parts->of[0], event->context, pass->to, event->profiled,
                                    elsewhere_pass_in, pass) == CL_SUCCESS)
        return true;
    parts_release(parts, event->context);
    parts_leave(parts);
    return false;
}

struct event *elsewhere_pass(struct command *command, struct event *marker, uint8_t residence_index)
{
    uint8_t from = elsewhere_index_of(command);
    if (from == RESIDENCE_NONE)
        return NULL;
    struct pass pass = {.command = command,
                        .between = elsewhere_between(command, from, residence_index),
                        .from = from,
                        .to = residence_index};
    struct event *event = event_create(command->queue->context, command->queue, command->ops->type);
    if (!event)
        return NULL;
    object_publish_internal(event);
    struct parts *parts = event_watch(event) ? parts_create(2) : NULL;
    if (!parts || !elsewhere_pass_issue(&pass, event, parts)) {
        event_finish(event, CL_OUT_OF_RESOURCES);
        object_unhold(event);
        return NULL;
    }
    command_given(command, residence_index);
    elsewhere_count(command);
    event->begun = marker->begun;
    elsewhere_leave_times(event, parts, marker);
    event_issued_in_parts(event, parts);
    return event;
}

void elsewhere_passed(struct event *passed, struct event *event)
{
    for (unsigned i = 0; event->profiled && i < ARRAY_SIZE(event->times); i++)
        event->times[i] = elsewhere_time_of(passed, CL_PROFILING_COMMAND_QUEUED + i);
    event_finish(event, CL_COMPLETE);
}
