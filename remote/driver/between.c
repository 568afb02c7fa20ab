#include "remote/driver/between.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "remote/driver/block.h"
#include "remote/driver/remote.h"
#include "remote/link/ticket.h"
#include "state/base/clock.h"

/* A server that another one did not reach is not tried again for so long. */
#define UNREACHED_NS (60 * NS_PER_S)

/*
 * Copies between buffers of two contexts: one command gives, in the source's session, and one
 * takes, in the target's. The sessions' processes meet as the messages say, and this one hears of
 * their ends. The event of the one that takes is the program's; it has not ended for the program
 * before the other one has, so that what both waited for has ended as well.
 */

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
    uint64_t transfer;
    enum transfer_way ways[2]; /* Of from and to. */
    struct owned sockets[2];
    struct client *awaits; /* Of TRANSFER_AWAIT; or NULL. */
    struct ticket ticket;
    cl_event *waits; /* Those of from, then those of to. Owned. */
};

static cl_int take_end(cl_command_queue queue, cl_mem memory, size_t offset, size_t size,
                       struct end *ret_end)
{
    struct end end = {.queue = queue_get(queue), .memory = memory_get(memory), .offset = offset};
    if (!end.queue)
        return CL_INVALID_COMMAND_QUEUE;
    if (!end.memory || end.memory->type != CL_MEM_OBJECT_BUFFER)
        return CL_INVALID_MEM_OBJECT;
    if (end.memory->context != end.queue->context)
        return CL_INVALID_CONTEXT;
    if (size == 0 || offset > end.memory->size || size > end.memory->size - offset)
        return CL_INVALID_VALUE;
    *ret_end = end;
    return CL_SUCCESS;
}

/* Each event to the end whose context it is of. */
static cl_int sort_waits(struct between *between, cl_uint count, const cl_event *waits)
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

static bool is_near(const struct client *client)
{
    return strncmp(client->address, "unix:", strlen("unix:")) == 0;
}

/* One of the servers has an address, which the other one connects to. */
static cl_int draw_ticket(struct between *between)
{
    struct client *to = between->to.queue->base.client;
    bool target_awaits = !is_near(to);
    struct client *awaits = target_awaits ? to : between->from.queue->base.client;
    struct ticket *ticket = &between->ticket;
    if (awaits->session == 0 || clock_now_ns() < atomic_load(&awaits->unreached_until_ns))
        return CL_INVALID_OPERATION;
    if (getrandom(ticket, sizeof(*ticket), 0) != (ssize_t)sizeof(*ticket))
        return CL_OUT_OF_RESOURCES;
    ticket->name.session = awaits->session;
    between->awaits = awaits;
    between->ways[target_awaits] = TRANSFER_AWAIT;
    between->ways[!target_awaits] = TRANSFER_CONNECT;
    return CL_SUCCESS;
}

/* How the two sessions meet. */
static cl_int choose_way(struct between *between)
{
    const struct client *from = between->from.queue->base.client;
    const struct client *to = between->to.queue->base.client;
    if (atomic_load(&between->from.queue->device->gateless) ||
        atomic_load(&between->to.queue->device->gateless))
        return CL_INVALID_OPERATION;
    if (from == to)
        return CL_SUCCESS; /* TRANSFER_HERE, both. */
    if (!is_near(from) || !is_near(to))
        return draw_ticket(between);
    between->ways[0] = between->ways[1] = TRANSFER_DESCRIPTOR;
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return CL_OUT_OF_RESOURCES;
    int first = owned_take(ends[0], &between->sockets[0]);
    int second = owned_take(ends[1], &between->sockets[1]);
    return first || second ? CL_OUT_OF_RESOURCES : CL_SUCCESS;
}

static int post_socket(struct client *client, unsigned type, const struct pack *pack,
                       struct owned *socket)
{
    if (!client->stream.rings)
        return stream_post_descriptor(&client->stream, type, pack->bytes, pack->used, socket);
    int fd = owned_fd(socket); /* Programs close descriptors that they do not know. */
    int error = fd < 0 ? -EBADF : blocks_post_descriptor(client, type, pack->bytes, pack->used, fd);
    if (error == 0)
        owned_close(socket);
    return error;
}

/* Gives up @pack. @socket goes with it, if there is one. */
static cl_int post_packed(struct client *client, unsigned type, struct pack *pack,
                          struct owned *socket)
{
    int error = client_state(client) ? -ENODEV : pack->failed ? -ENOMEM : 0;
    if (error == 0 && socket->fd >= 0)
        error = post_socket(client, type, pack, socket);
    else if (error == 0)
        error = stream_post(&client->stream, type, pack->bytes, pack->used, NULL, 0);
    pack_finish(pack);
    return posted(error);
}

/* What was begun is not going to be: the other session need not wait for it. */
static void forget(struct client *client, uint64_t transfer)
{
    (void)POST(client, forget, {.transfer = transfer});
    client_flush(client);
}

static const char *where(const struct between *between)
{
    return between->awaits ? between->awaits->address : "";
}

static uint32_t ticket_size(const struct between *between)
{
    return between->awaits ? sizeof(between->ticket) : 0;
}

static cl_int send_take(struct between *between, const struct command *command)
{
    struct pack pack;
    pack_init(&pack);
    pack_take(&pack, &(struct msg_take){.command = command->head,
                                        .buffer = handle_id(between->to.memory),
                                        .offset = between->to.offset,
                                        .size = between->size,
                                        .transfer = between->transfer,
                                        .way = between->ways[1],
                                        .where = where(between),
                                        .ticket = &between->ticket,
                                        .ticket_size = ticket_size(between)});
    return post_packed(command->queue->base.client, MSG_TAKE, &pack, &between->sockets[1]);
}

static cl_int send_give(struct between *between, const struct command *command)
{
    struct pack pack;
    pack_init(&pack);
    pack_give(&pack, &(struct msg_give){.command = command->head,
                                        .buffer = handle_id(between->from.memory),
                                        .offset = between->from.offset,
                                        .size = between->size,
                                        .transfer = between->transfer,
                                        .way = between->ways[0],
                                        .where = where(between),
                                        .ticket = &between->ticket,
                                        .ticket_size = ticket_size(between)});
    return post_packed(command->queue->base.client, MSG_GIVE, &pack, &between->sockets[0]);
}

/* The end that takes, until the one that gives has ended. */
struct taking {
    struct event *event; /* Held. */
    struct device_object *source, *target;
    struct client *awaits;
    uint64_t transfer;
};

/* A device's server says that it cannot: not once more. Or it found no way: not for a while. */
static void learn(const struct taking *taking, struct device_object *device, cl_int status)
{
    if (status == CL_INVALID_OPERATION)
        atomic_store(&device->gateless, true);
    if (status == TRANSFER_UNREACHED && taking->awaits)
        atomic_store(&taking->awaits->unreached_until_ns, clock_now_ns() + UNREACHED_NS);
}

static void CL_CALLBACK on_given(cl_event event, cl_int status, void *data)
{
    struct taking *taking = data;
    (void)event;
    learn(taking, taking->source, status);
    if (status < 0)
        forget(taking->event->base.client, taking->transfer);
    pthread_mutex_lock(&taking->event->base.client->lock);
    cl_int end = taking->event->ended ? taking->event->end : CL_SUCCESS;
    pthread_mutex_unlock(&taking->event->base.client->lock);
    learn(taking, taking->target, end);
    event_let_go(taking->event);
    free(taking);
}

static cl_int begin_take(struct between *between, struct taking *taking, cl_event *ret_event)
{
    struct command command;
    cl_int error =
        command_begin(&command, (cl_command_queue)between->to.queue, CL_COMMAND_COPY_BUFFER, false,
                      false, between->to.wait_count, between->to.waits, ret_event);
    if (error)
        return error;
    *taking = (struct taking){command.event, between->from.queue->device, between->to.queue->device,
                              between->awaits, between->transfer};
    event_hold(taking->event);
    error = command_end(&command, send_take(between, &command));
    if (error)
        event_let_go(taking->event);
    return error;
}

/* @taking: whoever hears of the end has it. */
static cl_int begin_give(struct between *between, struct taking *taking)
{
    struct command command;
    cl_event given = NULL;
    cl_int error =
        command_begin(&command, (cl_command_queue)between->from.queue, CL_COMMAND_COPY_BUFFER,
                      false, false, between->from.wait_count, between->from.waits, &given);
    if (error == CL_SUCCESS)
        error = command_end(&command, send_give(between, &command));
    if (error)
        return error;
    error = clSetEventCallback(given, CL_COMPLETE, on_given, taking);
    handle_release(given);
    return error;
}

static cl_int run(struct between *between, cl_event *event)
{
    cl_event taken = NULL;
    struct taking *taking = malloc(sizeof(*taking));
    if (!taking)
        return CL_OUT_OF_HOST_MEMORY;
    cl_int error = begin_take(between, taking, &taken);
    if (error) {
        if (taken)
            handle_release(taken);
        free(taking);
        return error;
    }
    error = begin_give(between, taking);
    if (error) {
        forget(between->to.queue->base.client, between->transfer);
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
    static _Atomic uint64_t serial;
    struct between between = {.size = size, .sockets = {OWNED_NONE, OWNED_NONE}};
    cl_int error = take_end(source_queue, source, source_offset, size, &between.from);
    if (error == CL_SUCCESS)
        error = take_end(target_queue, target, target_offset, size, &between.to);
    if (error)
        return error;
    if (between.from.queue->context == between.to.queue->context)
        return clEnqueueCopyBuffer(target_queue, source, target, source_offset, target_offset, size,
                                   wait_count, waits, event);
    between.transfer = atomic_fetch_add(&serial, 1) + 1;
    error = sort_waits(&between, wait_count, waits);
    if (error == CL_SUCCESS)
        error = choose_way(&between);
    if (error == CL_SUCCESS)
        error = run(&between, event);
    for (int i = 0; i < 2; i++)
        owned_close(&between.sockets[i]); /* Unless it went. */
    free(between.waits);
    return error;
}
