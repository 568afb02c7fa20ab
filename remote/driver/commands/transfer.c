#include <sched.h>
#include <stdlib.h>

#include "remote/driver/commands/command.h"

#include "state/base/memory/past_caches.h"
#include "state/opencl/checks.h"

/* A long transfer is given in parts, so that one part is copied, or sent over a link, while the
 * device works on another. The parts are posted with no other command between them, and each ends
 * after the one before it, as commands of an in-order queue do; the program gets the event of the
 * last. On an out-of-order queue the transfer is one command. Where parts go through blocks
 * (session.h) and there are copying threads (copy.h), these help: they copy parts to be written
 * ahead of the thread that posts them, and parts that were read when they arrive (client_done()).
 */

#define PART_LEAST ((size_t)1 << 20)
#define LINK_PART                                                                                  \
    ((size_t)4 << 20) /* The least size of a part over a link, where each costs two messages. */
#define PARTS_MOST                                                                                 \
    64 /* There may be up to twice as many, since a part's size is rounded down to a multiple of   \
          PART_LEAST. */
/* Each part is copied in so many pieces by several threads, because the device waits for the whole
 * first part. */
#define PIECES 4

/* Parts that are copied by several threads, and posted by one. */
struct ahead {
    struct copy_team team;
    const struct transfer *transfer;
    size_t part;    /* Bytes of each but the last. */
    unsigned count; /* That there were blocks for. */
    struct bulk_block blocks[2 * PARTS_MOST];
    atomic_uint copied[2 * PARTS_MOST]; /* Pieces of each. */
    atomic_uint next;                   /* The next piece to be copied, counted over all parts. */
};

static size_t transfer_part_size(const struct transfer *transfer)
{
    size_t least = transfer->memory->base.client->bulk ? PART_LEAST : LINK_PART;
    size_t size = transfer->size / PARTS_MOST & ~(PART_LEAST - 1);
    return size < least ? least : size;
}

/* False: each was, or is being. */
static bool transfer_copy_next(struct copy_team *team)
{
    struct ahead *ahead = container_of(team, struct ahead, team);
    unsigned piece = atomic_fetch_add(&ahead->next, 1), i = piece / PIECES;
    if (i >= ahead->count)
        return false;
    size_t size = ahead->part / PIECES, at = piece % PIECES * size;
    size_t begin = i * ahead->part + at, all = ahead->transfer->size;
    if (begin < all) /* The last part may have fewer pieces. */
        copy_past_caches((char *)ahead->blocks[i].bytes + at,
                         (const char *)ahead->transfer->bytes + begin,
                         size < all - begin ? size : all - begin);
    atomic_fetch_add(&ahead->copied[i], 1);
    return true;
}

/* Take blocks for as many parts as there are blocks, and have copying threads begin. */
static void transfer_ahead_begin(struct ahead *ahead, const struct transfer *transfer)
{
    const struct context *context = queue_get(transfer->queue)->context;
    ahead->transfer = transfer;
    ahead->part = transfer_part_size(transfer);
    ahead->count = 0;
    atomic_init(&ahead->next, 0);
    for (size_t at = 0; at < transfer->size && ahead->count < ARRAY_SIZE(ahead->blocks);
         at += ahead->part) {
        size_t left = transfer->size - at;
        if (!block_take(context->base.client, context->areas_before,
                        left < ahead->part ? left : ahead->part, &ahead->blocks[ahead->count]))
            break;
        atomic_init(&ahead->copied[ahead->count++], 0);
    }
    copy_team_begin(&ahead->team, transfer_copy_next, (size_t)ahead->count * PIECES);
}

/* The block with the bytes of part @i; 0 bytes: the part has no block. */
static struct bulk_block transfer_ahead_take(struct ahead *ahead, unsigned i)
{
    struct bulk_block block = {0};
    if (i >= ahead->count)
        return block;
    while (atomic_load(&ahead->copied[i]) < PIECES)
        if (!transfer_copy_next(&ahead->team))
            sched_yield(); /* Somebody is copying it. */
    block = ahead->blocks[i];
    ahead->blocks[i].size = 0;
    return block;
}

/* End the copying, and give blocks back that were not used. */
static void transfer_ahead_end(struct ahead *ahead, struct client *client)
{
    atomic_store(&ahead->next, ahead->count * PIECES);
    copy_team_end(&ahead->team);
    for (unsigned i = 0; i < ahead->count; i++)
        block_give(client, &ahead->blocks[i]);
}

static bool transfer_pays(const struct transfer *transfer, const struct queue *queue)
{
    uint32_t area;
    uint64_t place;
    struct client *client = queue->base.client;
    return transfer->size >= 2 * transfer_part_size(transfer) &&
           !(queue->properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) &&
           !block_find(client, transfer->bytes, transfer->size, &area, &place);
}

static cl_int transfer_post_read(const struct transfer *part, struct command *command)
{
    const struct layout run = {part->size, 1, 1, part->size, part->size};
    command_aim(command, part->bytes, &run);
    return POST(part->memory->base.client, read_buffer,
                {.command = command->head,
                 .buffer = handle_id(part->memory),
                 .offset = part->offset,
                 .size = part->size});
}

static cl_int transfer_post_write(struct transfer *part, struct command *command)
{
    const struct layout run = {part->size, 1, 1, part->size, part->size};
    const void *content = NULL;
    void *owned = NULL;
    size_t size = part->size;
    cl_int error = CL_SUCCESS;
    if (part->block.size) {
        command_use_block(command, &part->block);
    } else {
        error = command_fill(command, part->bytes, &run, &content, &size, &owned);
        if (error)
            return error;
    }
    return POST(part->memory->base.client, write_buffer,
                {.command = command->head,
                 .buffer = handle_id(part->memory),
                 .offset = part->offset,
                 .size = size,
                 .content = content,
                 .content_size = content ? size : 0});
}

/* @follows: it is one of several parts. */
static cl_int transfer_begin(const struct transfer *part, bool follows, struct command *command,
                             cl_event *event)
{
    /* The bytes of small writes are in the message, so nobody has to be told of the end. */
    bool told = part->type == CL_COMMAND_READ_BUFFER || follows ||
                (part->memory->base.client->bulk && part->size >= BLOCK_LEAST);
    return told ? command_begin_transfer(command, part->queue, part->type, part->blocking,
                                         part->count, part->waits, event)
                : command_begin(command, part->queue, part->type, part->blocking, false,
                                part->count, part->waits, event);
}

static cl_int transfer_post(struct transfer *part, struct command *command)
{
    return part->type == CL_COMMAND_READ_BUFFER ? transfer_post_read(part, command)
                                                : transfer_post_write(part, command);
}

/* Post a part that is not the last. *before: the part before it, which is used; then this one. */
static cl_int transfer_give_part(struct transfer *part, struct event **before)
{
    struct command command;
    cl_int error = transfer_begin(part, true, &command, NULL);
    if (error)
        return error;
    struct event *event = command.event;
    object_hold(event);
    event->before = *before;
    *before = event;
    return command_end(&command, transfer_post(part, &command));
}

/* Post all parts but the last, which is left in @part. */
static cl_int transfer_give_parts(const struct transfer *transfer, struct transfer *part,
                                  struct ahead *ahead, struct event **before)
{
    cl_int error = CL_SUCCESS;
    unsigned i = 0;
    part->size = transfer_part_size(transfer);
    part->blocking = false;
    for (size_t left = transfer->size; error == CL_SUCCESS && left > part->size;
         left -= part->size) {
        if (ahead)
            part->block = transfer_ahead_take(ahead, i++);
        error = transfer_give_part(part, before);
        part->offset += part->size;
        part->bytes = (char *)part->bytes + part->size;
    }
    part->size = transfer->offset + transfer->size - part->offset;
    part->blocking = transfer->blocking;
    if (ahead && error == CL_SUCCESS)
        part->block = transfer_ahead_take(ahead, i);
    return error;
}

static cl_int transfer_parts(const struct transfer *transfer, bool parted, struct ahead *ahead,
                             cl_event *event)
{
    struct queue *queue = queue_get(transfer->queue);
    struct transfer part = *transfer;
    struct command command;
    struct event *before = NULL;
    cl_int error = CL_SUCCESS;
    if (parted) {
        pthread_mutex_lock(&queue->lock);
        error = transfer_give_parts(transfer, &part, ahead, &before);
    }
    if (error == CL_SUCCESS)
        error = transfer_begin(&part, before != NULL, &command, event);
    if (error) {
        if (ahead)
            transfer_ahead_end(ahead, queue->base.client);
        if (parted)
            pthread_mutex_unlock(&queue->lock);
        handle_unuse(before);
        block_give(queue->base.client, &part.block);
        return error;
    }
    if (before)
        command.event->before = before;
    error = transfer_post(&part, &command);
    if (ahead) /* Before command_end() waits, since the thread may be cancelled there. */
        transfer_ahead_end(ahead, queue->base.client);
    if (parted)
        pthread_mutex_unlock(&queue->lock);
    return command_end(&command, error);
}

cl_int transfer_run(const struct transfer *transfer, cl_event *event)
{
    const struct queue *queue = queue_get(transfer->queue);
    bool parted = transfer_pays(transfer, queue);
    if (!parted || !queue->base.client->bulk || transfer->type != CL_COMMAND_WRITE_BUFFER ||
        copy_threads() == 0)
        return transfer_parts(transfer, parted, NULL, event);
    struct ahead ahead = {0};
    transfer_ahead_begin(&ahead, transfer);
    return transfer_parts(transfer, true, &ahead, event);
}

static const void *transfer_context_of(cl_mem handle)
{
    const struct memory *memory = memory_get(handle);
    return memory ? memory->context : NULL;
}

cl_int queue_migrate(struct queue *queue, cl_uint num_mem_objects, const cl_mem *mem_objects,
                     cl_mem_migration_flags flags, cl_uint num_events_in_wait_list,
                     const cl_event *event_wait_list, cl_event *event)
{
    struct command command;
    cl_int error =
        check_migration(num_mem_objects, mem_objects, flags, queue->context, transfer_context_of);
    if (error)
        return error;
    uint64_t *ids = calloc(num_mem_objects, sizeof(*ids));
    if (!ids)
        return CL_OUT_OF_HOST_MEMORY;
    for (cl_uint i = 0; i < num_mem_objects; i++)
        ids[i] = handle_id(memory_get(mem_objects[i]));
    error = command_begin(&command, (cl_command_queue)queue, CL_COMMAND_MIGRATE_MEM_OBJECTS, false,
                          false, num_events_in_wait_list, event_wait_list, event);
    if (error == CL_SUCCESS) {
        error = POST(queue->base.client, migrate,
                     {.command = command.head,
                      .flags = flags,
                      .objects = ids,
                      .objects_count = num_mem_objects});
        error = command_end(&command, error);
    }
    free(ids);
    return error;
}
