#include "remote/driver/commands/command.h"

#include <stdlib.h>
#include <string.h>

#include "state/opencl/checks.h"

/* What all enqueued commands have in common. */

struct manner {
    bool blocking, after_all, reads;
};

static cl_int command_begin_locked(struct command *command, cl_command_queue queue,
                                   cl_command_type type, struct manner manner, cl_uint count,
                                   const cl_event *waits, cl_event *event)
{
    bool knows = event || manner.blocking || manner.reads;
    struct queue *q = queue_get(queue);
    if (!q)
        return CL_INVALID_COMMAND_QUEUE;
    cl_int error = check_wait_list(count, waits, q->context, event_context_of);
    if (error == CL_SUCCESS)
        error = client_state(q->base.client);
    if (error)
        return error;
    *command = (struct command){.queue = q,
                                .ret_event = event,
                                .blocking = manner.blocking,
                                .count = count,
                                .waits = waits};
    uint64_t *ids = command->ids;
    if (count > COMMAND_WAITS)
        ids = command->many = calloc(count, sizeof(*ids));
    if (knows)
        command->event = event_make(q->context, q, type);
    if (!ids || (knows && !command->event)) {
        free(command->many);
        return CL_OUT_OF_HOST_MEMORY;
    }
    for (cl_uint i = 0; i < count; i++)
        ids[i] = handle_id(event_get(waits[i]));
    command->head = (struct msg_command){
        .queue = handle_id(q),
        .event = handle_id(command->event),
        .purpose = command->event ? COMMAND_TELL | (event ? COMMAND_NAMED : 0) : 0,
        .waits = ids,
        .waits_count = count,
    };
    pthread_mutex_lock(&q->lock);
    q->given++;
    if (command->event) {
        bool in_order = !(q->properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
        command->event->covers = in_order || manner.after_all ? q->given : 0;
        command->event->named = event != NULL;
        event_list(command->event, manner.after_all, count, waits);
    } else {
        q->untold = q->given;
    }
    return CL_SUCCESS;
}

cl_int command_begin_transfer(struct command *command, cl_command_queue queue, cl_command_type type,
                              cl_bool blocking, cl_uint count, const cl_event *waits,
                              cl_event *event)
{
    return command_begin_locked(command, queue, type,
                                (struct manner){.blocking = blocking != CL_FALSE, .reads = true},
                                count, waits, event);
}

cl_int command_begin(struct command *command, cl_command_queue queue, cl_command_type type,
                     bool blocking, bool after_all, cl_uint count, const cl_event *waits,
                     cl_event *event)
{
    return command_begin_locked(command, queue, type,
                                (struct manner){.blocking = blocking, .after_all = after_all},
                                count, waits, event);
}

cl_int command_post_nothing(const struct command *command)
{
    struct client *client = command->queue->base.client;
    bool in_order = !(command->queue->properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    /* A marker without a list waits for all that is on the queue. */
    if (in_order || command->count)
        return POST(client, marker, {.command = command->head});
    return POST(client, nothing, {.command = command->head});
}

cl_int command_enqueue_nothing(cl_command_queue queue, cl_command_type type, bool blocking,
                               cl_uint count, const cl_event *waits, cl_event *event)
{
    struct command command;
    cl_int error = command_begin(&command, queue, type, blocking, false, count, waits, event);
    return error ? error : command_end(&command, command_post_nothing(&command));
}

cl_int command_end(struct command *command, cl_int error)
{
    struct event *event = command->event;
    struct queue *queue = command->queue;
    pthread_mutex_unlock(&queue->lock);
    free(command->many);
    if (error && event) {
        event->named = false;
        event_end(event, error);
        handle_release(event);
        return error;
    }
    if (error)
        return error;
    if (event) {
        /* Unless it ended already. */
        cl_int queued = CL_QUEUED;
        atomic_compare_exchange_strong(&event->status, &queued, CL_SUBMITTED);
    }
    if (!command->blocking) {
        client_flush_soon(queue->base.client);
    } else {
        cl_int status = event_await(event);
        cl_int failed = atomic_exchange(&queue->failed, CL_SUCCESS);
        if (status < 0)
            error = status;
        else if (failed)
            error = failed;
    }
    if (command->ret_event && error == CL_SUCCESS)
        *command->ret_event = (cl_event)event;
    else
        handle_release(event);
    return error;
}

/* ---- where bytes lie ---- */

void command_aim(struct command *command, void *target, const struct layout *layout)
{
    struct event *event = command->event;
    struct client *client = event->base.client;
    struct msg_command *head = &command->head;
    size_t size = 0;
    if (!layout_size(layout, &size))
        size = 0;
    if (!event->user_memory && layout_is_packed(layout) &&
        block_find(client, target, size, &head->area, &head->place)) {
        event->target = NULL;
        return;
    }
    event->target = target;
    event->layout = *layout;
    if (block_take(client, event->context->areas_before, size, &event->block)) {
        head->area = event->block.area;
        head->place = event->block.offset;
        return;
    }
    /* Accept messages longer by what was asked for, and no more. */
    event->asked = size;
    atomic_fetch_add(&client->stream.longest, size);
}

void command_use_block(struct command *command, struct bulk_block *block)
{
    command->event->block = *block;
    command->head.area = block->area;
    command->head.place = block->offset;
    *block = (struct bulk_block){0};
}

cl_int command_fill(struct command *command, const void *source, const struct layout *layout,
                    const void **ret_content, size_t *ret_size, void **ret_owned)
{
    struct event *event = command->event;
    struct client *client = command->queue->base.client;
    struct msg_command *head = &command->head;
    bool is_packed = layout_is_packed(layout);
    *ret_owned = NULL;
    *ret_content = NULL;
    if (!layout_size(layout, ret_size))
        return CL_OUT_OF_HOST_MEMORY;
    if (event && is_packed && block_find(client, source, *ret_size, &head->area, &head->place))
        return CL_SUCCESS;
    struct bulk_block block;
    if (event && block_take(client, event->context->areas_before, *ret_size, &block)) {
        layout_gather(layout, block.bytes, source);
        command_use_block(command, &block);
        return CL_SUCCESS;
    }
    if (!is_packed)
        *ret_owned = malloc(*ret_size);
    if (*ret_owned)
        layout_gather(layout, *ret_owned, source);
    *ret_content = is_packed ? source : *ret_owned;
    return *ret_content ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
}
