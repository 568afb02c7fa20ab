#include "remote/driver/commands/command.h"

#include <stdlib.h>

#include "remote/driver/session/session.h"

/* Copies between buffers of two contexts. One command gives the bytes, in the source's session, and
 * one takes them, in the target's; the server processes of the sessions connect to each other as
 * the two messages say. The program gets the event of the command that takes. It sees that event
 * end only after the other command has ended too, so that everything that both waited for has
 * ended. */

struct end {
    struct queue *queue;
    struct memory *memory;
    size_t offset;
    const cl_event *waits; /* Of the wait list. */
    cl_uint wait_count;
};

struct between {
    struct end from, to;
    size_t size;
    struct meeting meeting;
    cl_event *waits; /* The events of the source's context, then those of the target's. Owned. */
};

static cl_int between_take_end(cl_command_queue queue, cl_mem memory, size_t offset, size_t size,
                               struct end *ret_end)
{
    struct end end = {.queue = queue_get(queue), .memory = memory_get(memory), .offset = offset};
    if (!end.queue)
        return CL_INVALID_COMMAND_QUEUE;
    if (!end.memory || end.memory->type != CL_MEM_OBJECT_BUFFER)
        return CL_INVALID_MEM_OBJECT;
    if (end.memory->context != end.queue->context)
        return CL_INVALID_CONTEXT;
    if (size == 0 || !range_fits(offset, size, end.memory->size))
        return CL_INVALID_VALUE;
    *ret_end = end;
    return CL_SUCCESS;
}

/* Sort the events of the wait list by the context that they belong to. */
static cl_int between_sort_waits(struct between *between, cl_uint count, const cl_event *waits)
{
    if ((count == 0) != (waits == NULL))
        return CL_INVALID_EVENT_WAIT_LIST;
    between->waits = calloc(count + 1, sizeof(cl_event));
    if (!between->waits)
        return CL_OUT_OF_HOST_MEMORY;
    cl_uint first = 0, last = count;
    for (cl_uint i = 0; i < count; i++) {
        const struct event *event = event_get(waits[i]);
        if (!event)
            return CL_INVALID_EVENT_WAIT_LIST;
        if (event->context == between->from.queue->context)
            between->waits[first++] = waits[i];
        else if (event->context == between->to.queue->context)
            between->waits[--last] = waits[i];
        else
            return CL_INVALID_CONTEXT;
    }
    between->from.waits = first ? between->waits : NULL;
    between->from.wait_count = first;
    between->to.waits = last < count ? between->waits + last : NULL;
    between->to.wait_count = count - last;
    return CL_SUCCESS;
}

/* How the two sessions meet. */
static cl_int between_choose_way(struct between *between)
{
    struct client *from = between->from.queue->base.client;
    struct client *to = between->to.queue->base.client;
    if (atomic_load(&between->from.queue->device->gateless) ||
        atomic_load(&between->to.queue->device->gateless))
        return CL_INVALID_OPERATION;
    return meeting_init(&between->meeting, from, to);
}

static cl_int between_send_take(struct between *between, const struct command *command)
{
    struct pack pack;
    pack_init(&pack);
    pack_take(&pack, &(struct msg_take){.command = command->head,
                                        .buffer = handle_id(between->to.memory),
                                        .offset = between->to.offset,
                                        .size = between->size,
                                        .peer = meeting_peer(&between->meeting, 1)});
    return meeting_post(&between->meeting, 1, MSG_TAKE, &pack);
}

static cl_int between_send_give(struct between *between, const struct command *command)
{
    struct pack pack;
    pack_init(&pack);
    pack_give(&pack, &(struct msg_give){.command = command->head,
                                        .buffer = handle_id(between->from.memory),
                                        .offset = between->from.offset,
                                        .size = between->size,
                                        .peer = meeting_peer(&between->meeting, 0)});
    return meeting_post(&between->meeting, 0, MSG_GIVE, &pack);
}

/* The command that takes, kept until the one that gives has ended. */
struct taking {
    struct event *event; /* Held. */
    struct device_object *source, *target;
    struct client *awaits;
    uint64_t transfer;
};

/* Remember a failure: a server that cannot copy between devices is not asked again, and one that
 * could not be reached not for a while. */
static void between_learn(const struct taking *taking, struct device_object *device, cl_int status)
{
    if (status == CL_INVALID_OPERATION)
        atomic_store(&device->gateless, true);
    if (status == TRANSFER_UNREACHED && taking->awaits)
        meeting_unreached(taking->awaits);
}

static void CL_CALLBACK between_on_given(cl_event event, cl_int status, void *data)
{
    struct taking *taking = data;
    (void)event;
    between_learn(taking, taking->source, status);
    if (status < 0)
        meeting_forget(taking->event->base.client, taking->transfer);
    pthread_mutex_lock(&taking->event->base.client->lock);
    cl_int end = taking->event->ended ? taking->event->end : CL_SUCCESS;
    pthread_mutex_unlock(&taking->event->base.client->lock);
    between_learn(taking, taking->target, end);
    event_let_go(taking->event);
    free(taking);
}

static cl_int between_begin_take(struct between *between, struct taking *taking,
                                 cl_event *ret_event)
{
    struct command command;
    cl_int error =
        command_begin(&command, (cl_command_queue)between->to.queue, CL_COMMAND_COPY_BUFFER, false,
                      false, between->to.wait_count, between->to.waits, ret_event);
    if (error)
        return error;
    *taking = (struct taking){command.event, between->from.queue->device, between->to.queue->device,
                              between->meeting.awaits, between->meeting.transfer};
    event_hold(taking->event);
    error = command_end(&command, between_send_take(between, &command));
    if (error)
        event_let_go(taking->event);
    return error;
}

/* On success between_on_given() owns @taking. */
static cl_int between_begin_give(struct between *between, struct taking *taking)
{
    struct command command;
    cl_event given = NULL;
    cl_int error =
        command_begin(&command, (cl_command_queue)between->from.queue, CL_COMMAND_COPY_BUFFER,
                      false, false, between->from.wait_count, between->from.waits, &given);
    if (error == CL_SUCCESS)
        error = command_end(&command, between_send_give(between, &command));
    if (error)
        return error;
    error = clSetEventCallback(given, CL_COMPLETE, between_on_given, taking);
    handle_release(given);
    return error;
}

static cl_int between_run(struct between *between, cl_event *event)
{
    cl_event taken = NULL;
    struct taking *taking = malloc(sizeof(*taking));
    if (!taking)
        return CL_OUT_OF_HOST_MEMORY;
    cl_int error = between_begin_take(between, taking, &taken);
    if (error) {
        handle_release(taken);
        free(taking);
        return error;
    }
    error = between_begin_give(between, taking);
    if (error) {
        meeting_forget(between->to.queue->base.client, between->meeting.transfer);
        event_let_go(taking->event);
        free(taking);
    }
    if (event && error == CL_SUCCESS)
        *event = taken;
    else
        handle_release(taken);
    return error;
}

cl_int CL_API_CALL between_enqueue(cl_command_queue source_queue, cl_command_queue target_queue,
                                   cl_mem source, cl_mem target, size_t source_offset,
                                   size_t target_offset, size_t size, cl_uint wait_count,
                                   const cl_event *waits, cl_event *event)
{
    struct between between = {.size = size, .meeting = MEETING_NONE};
    cl_int error = between_take_end(source_queue, source, source_offset, size, &between.from);
    if (error == CL_SUCCESS)
        error = between_take_end(target_queue, target, target_offset, size, &between.to);
    if (error)
        return error;
    if (between.from.queue->context == between.to.queue->context)
        return clEnqueueCopyBuffer(target_queue, source, target, source_offset, target_offset, size,
                                   wait_count, waits, event);
    error = between_sort_waits(&between, wait_count, waits);
    if (error == CL_SUCCESS)
        error = between_choose_way(&between);
    if (error == CL_SUCCESS)
        error = between_run(&between, event);
    meeting_finish(&between.meeting);
    free(between.waits);
    return error;
}
