#include "remote/driver/transfer.h"

/*
 * What is long, and goes through blocks (block.h), is given in parts, so that copying one and the
 * device's part in the next are done at the same time. All of them are given without another
 * command in between, and each ends after the one before it, as the queue's commands do; the last
 * one's event is the program's. Where the queue has no order it is one command.
 */

#define PART_LEAST ((size_t)1 << 20)
#define PARTS_MOST 64

static bool pays(const struct transfer *transfer, const struct queue *queue)
{
    uint32_t area;
    uint64_t place;
    struct client *client = queue->base.client;
    return client->bulk && transfer->size >= 2 * PART_LEAST &&
           !(queue->properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) &&
           !block_find(client, transfer->bytes, transfer->size, &area, &place);
}

static cl_int post_read(const struct transfer *part, struct command *command)
{
    const struct layout run = {part->size, 1, 1, part->size, part->size};
    command_aim(command, part->bytes, &run);
    return POST(part->memory->base.client, read_buffer,
                {.command = command->head,
                 .buffer = handle_id(part->memory),
                 .offset = part->offset,
                 .size = part->size});
}

static cl_int post_write(const struct transfer *part, struct command *command)
{
    const struct layout run = {part->size, 1, 1, part->size, part->size};
    const void *content = NULL;
    void *owned = NULL;
    size_t size = 0;
    cl_int error = command_fill(command, part->bytes, &run, &content, &size, &owned);
    if (error)
        return error;
    return POST(part->memory->base.client, write_buffer,
                {.command = command->head,
                 .buffer = handle_id(part->memory),
                 .offset = part->offset,
                 .size = size,
                 .content = content,
                 .content_size = content ? size : 0});
}

/* @follows: it is one of several parts. */
static cl_int begin(const struct transfer *part, bool follows, struct command *command,
                    cl_event *event)
{
    /* Small writes are in the message, and need nobody to hear of their end. */
    bool told = part->type == CL_COMMAND_READ_BUFFER || follows ||
                (part->memory->base.client->bulk && part->size >= BLOCK_LEAST);
    return told ? command_begin_transfer(command, part->queue, part->type, part->blocking,
                                         part->count, part->waits, event)
                : command_begin(command, part->queue, part->type, part->blocking, false,
                                part->count, part->waits, event);
}

static cl_int post(const struct transfer *part, struct command *command)
{
    return part->type == CL_COMMAND_READ_BUFFER ? post_read(part, command)
                                                : post_write(part, command);
}

/* One that is not the last. *before is used; then it is this one. */
static cl_int give_part(const struct transfer *part, struct event **before)
{
    struct command command;
    cl_int error = begin(part, true, &command, NULL);
    if (error)
        return error;
    struct event *event = command.event;
    handle_use(event);
    event->before = *before;
    *before = event;
    return command_end(&command, post(part, &command));
}

cl_int transfer_run(const struct transfer *transfer, cl_event *event)
{
    struct queue *queue = queue_get(transfer->queue);
    struct transfer part = *transfer;
    struct command command;
    struct event *before = NULL;
    cl_int error = CL_SUCCESS;
    bool parted = pays(transfer, queue);
    if (parted) {
        part.size = transfer->size / PARTS_MOST & ~(PART_LEAST - 1);
        part.size = part.size < PART_LEAST ? PART_LEAST : part.size;
        part.blocking = false;
        pthread_mutex_lock(&queue->lock);
        for (size_t left = transfer->size; error == CL_SUCCESS && left > part.size;
             left -= part.size) {
            error = give_part(&part, &before);
            part.offset += part.size;
            part.bytes = (char *)part.bytes + part.size;
        }
        part.size = transfer->offset + transfer->size - part.offset;
        part.blocking = transfer->blocking;
    }
    if (error == CL_SUCCESS)
        error = begin(&part, before != NULL, &command, event);
    if (error) {
        if (parted)
            pthread_mutex_unlock(&queue->lock);
        if (before)
            handle_unuse(before);
        return error;
    }
    if (before)
        command.event->before = before;
    error = post(&part, &command);
    if (parted)
        pthread_mutex_unlock(&queue->lock);
    return command_end(&command, error);
}
