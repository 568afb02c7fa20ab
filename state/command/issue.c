#include "state/command/command_inline.h"

/*
 * What every command needs to be given to a driver: whether a residence has what it uses, the call
 * itself, and what becomes of a driver's shortage of memory. Owns no state.
 */

/* True when @residence_index lacks the latest bytes that @command needs of the object at cursor
 * @use. The quick check of the whole object failed, but its extents may differ. */
bool command_lacks(const struct command *command, unsigned use, const struct memory *memory,
                   bool writes, uint8_t residence_index)
{
    const struct memory *root = memory->root;
    if (!memory->real[residence_index])
        return true;
    struct range range = command_range(command, use, memory);
    return !extents_latest(root, residence_index, range) ||
           (writes && !command_may_write(command, root, residence_index) &&
            !extents_written_by(root, residence_index, range));
}

/* Objects that could not be brought once are not tried again: a deferred command ends in that
 * error. */
cl_int command_absent(const struct command *command)
{
    return command->refused != CL_SUCCESS ? command->refused : COMMAND_ABSENT;
}

/* Bytes of the objects that it names; each object counts once. */
uint64_t command_distinct_bytes(const struct command *command)
{
    struct memory *one, *before;
    uint64_t bytes = 0;
    bool writes;
    for (unsigned i = 0; (one = command_use(command, &i, &writes));) {
        unsigned at = i, j = 0;
        while ((before = command_use(command, &j, &writes)) && j < at && before->root != one->root)
            ;
        if (j == at)
            bytes += one->root->size;
    }
    return bytes;
}

/* Drivers may notice a shortage of memory only when they are given the command: then room is made,
 * and then the policy is asked. The same error may say that a launch exceeds the device's limits,
 * which no room changes. */
cl_int command_issue_failed(struct command *command, struct residence *residence,
                            uint8_t residence_index, cl_int error)
{
    const struct command_ops *ops = command->ops;
    if (!is_shortage(error) || command->squeezes > COMMAND_SQUEEZES ||
        (error == CL_OUT_OF_RESOURCES && ops->exceeds &&
         ops->exceeds(command, residence, residence_index)))
        return error;
    command->squeezes++;
    command->shortage = error;
    return COMMAND_ABSENT;
}

HOT cl_int command_ready(struct command *command, struct residence *residence,
                         uint8_t residence_index)
{
    return command_ready_as(command->ops, command, residence, residence_index);
}

cl_int command_issue(struct command *command, struct residence *residence, uint8_t residence_index,
                     cl_uint waits, struct event *const *wait_list, cl_event *ret_real)
{
    return command_issue_in(command, residence, residence_index, command->queue->real, waits,
                            wait_list, ret_real);
}

cl_int command_issue_in(struct command *command, struct residence *residence,
                        uint8_t residence_index, cl_command_queue queue, cl_uint waits,
                        struct event *const *wait_list, cl_event *ret_real)
{
    return command_issue_as(command->ops, command, residence, residence_index, queue, waits,
                            wait_list, ret_real);
}

cl_int command_marker_issue(struct command *command, struct residence *residence,
                            uint8_t residence_index, cl_command_queue queue, cl_uint waits,
                            const cl_event *wait_list, cl_event *ret_event)
{
    (void)command, (void)residence_index;
    if (LIKELY(residence->cl->clEnqueueMarkerWithWaitList))
        return residence->cl->clEnqueueMarkerWithWaitList(queue, waits, wait_list, ret_event);
    return waits == 0 && ret_event ? residence->cl->clEnqueueMarker(queue, ret_event)
                                   : CL_INVALID_OPERATION;
}

/* Flush the other queues that have commands which one of @queue is going to wait for. Inside the
 * gate. */
void command_flush_awaited(struct residence *residence, uint8_t residence_index,
                           const struct queue *queue, cl_uint waits, struct event *const *wait_list)
{
    for (cl_uint i = 0; i < waits; i++) {
        const struct event *event = wait_list[i];
        if (event->queue && event->queue != queue && event_state(event) == EVENT_ISSUED &&
            event->residence_index == residence_index && event->queue->real)
            residence_flush(residence, event->queue->real);
    }
}
