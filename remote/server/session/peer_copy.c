#include "remote/server/session/peer_copy.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "remote/link/link.h"
#include "remote/server/listener/channel.h"
#include "remote/server/session/greeting.h"
#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/threads/thread.h"

/* How often a thread that waits for a driver's callback queries the status: the driver may not call
 * back for a command that failed. */
#define TICK_NS NS_PER_S
/* Stack of the threads that wait for links and drivers. */
#define STACK ((size_t)512 << 10)
/* How long a ticket is valid. */
#define TICKET_NS (60 * NS_PER_S)

static pthread_mutex_t peer_copy_lock = PTHREAD_MUTEX_INITIALIZER;
/* Peer copies that have not ended; guarded by peer_copy_lock. */
static struct peer_copy *peer_copies;
static pthread_cond_t peer_copy_listed = PTHREAD_COND_INITIALIZER;
static unsigned peer_copy_count;

static void peer_copy_hold(struct peer_copy *peer_copy)
{
    atomic_fetch_add(&peer_copy->holders, 1);
}

void peer_copy_unref(struct peer_copy *peer_copy)
{
    if (!peer_copy || atomic_fetch_sub(&peer_copy->holders, 1) != 1)
        return;
    if (peer_copy->start)
        peer_copy->cl->clReleaseEvent(peer_copy->start);
    if (peer_copy->gate)
        peer_copy->cl->clReleaseEvent(peer_copy->gate);
    if (peer_copy->buffer)
        peer_copy->cl->clReleaseMemObject(peer_copy->buffer);
    if (peer_copy->link)
        peer_copy->link->ops->destroy(peer_copy->link);
    pthread_cond_destroy(&peer_copy->changed);
    OPENSSL_cleanse(&peer_copy->ticket, sizeof(peer_copy->ticket));
    free(peer_copy->where);
    free(peer_copy);
}

cl_int peer_copy_status(const struct peer_copy *peer_copy)
{
    return atomic_load(&peer_copy->status);
}

/* ---- waiting ---- */

static void CL_CALLBACK peer_copy_on_start(cl_event event, cl_int status, void *data)
{
    struct peer_copy *peer_copy = data;
    (void)event, (void)status;
    pthread_mutex_lock(&peer_copy_lock);
    peer_copy->ready = true;
    pthread_cond_broadcast(&peer_copy->changed);
    pthread_mutex_unlock(&peer_copy_lock);
    peer_copy_unref(peer_copy);
}

static cl_int peer_copy_start_status(const struct peer_copy *peer_copy)
{
    cl_int status = CL_COMPLETE;
    if (peer_copy->start)
        peer_copy->cl->clGetEventInfo(peer_copy->start, CL_EVENT_COMMAND_EXECUTION_STATUS,
                                      sizeof(status), &status, NULL);
    return status;
}

cl_int peer_copy_await_start(struct peer_copy *peer_copy, cl_int (*tick)(void *data), void *data)
{
    for (;;) {
        uint64_t until = clock_now_ns() + TICK_NS;
        pthread_mutex_lock(&peer_copy_lock);
        while (!peer_copy->ready && !peer_copy->forgotten &&
               clock_wait(&peer_copy->changed, &peer_copy_lock, until) == 0)
            ;
        bool forgotten = peer_copy->forgotten;
        pthread_mutex_unlock(&peer_copy_lock);
        cl_int status = peer_copy_start_status(peer_copy);
        if (forgotten)
            return CL_OUT_OF_RESOURCES;
        if (status < 0)
            return CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
        if (status == CL_COMPLETE)
            return CL_SUCCESS;
        cl_int error = tick ? tick(data) : CL_SUCCESS;
        if (error)
            return error;
    }
}

/* ---- both ends in this session ---- */

/* The other end of @peer_copy, if its message has come. The lock is held. */
static struct peer_copy *peer_copy_find_other(const struct peer_copy *peer_copy)
{
    struct peer_copy *at = peer_copies;
    while (at && (at->transfer != peer_copy->transfer || at->gives == peer_copy->gives ||
                  at->way != TRANSFER_HERE || at->other))
        at = at->next;
    return at;
}

/* Called by the session's thread, which also handles server_forget(), so that no other thread sets
 * `other`. */
static bool peer_copy_match(struct peer_copy *peer_copy)
{
    pthread_mutex_lock(&peer_copy_lock);
    struct peer_copy *other = peer_copy_find_other(peer_copy);
    if (other) {
        peer_copy->other = other;
        other->other = peer_copy;
    }
    pthread_mutex_unlock(&peer_copy_lock);
    return other;
}

static void peer_copy_unlist(struct peer_copy *peer_copy)
{
    pthread_mutex_lock(&peer_copy_lock);
    struct peer_copy **at = &peer_copies;
    while (*at != peer_copy)
        at = &(*at)->next;
    *at = peer_copy->next;
    peer_copy_count--;
    pthread_mutex_unlock(&peer_copy_lock);
}

/* The peer copy has ended with @error; let the commands that wait for it go on. */
static void peer_copy_settle(struct peer_copy *peer_copy, cl_int error)
{
    peer_copy_unlist(peer_copy);
    atomic_store(&peer_copy->status, error ? error : CL_COMPLETE);
    if (error)
        log_info("a transfer of %llu bytes between devices failed: OpenCL error %d",
                 (unsigned long long)peer_copy->size, error);
    if (peer_copy->gate)
        peer_copy->cl->clSetUserEventStatus(peer_copy->gate, CL_COMPLETE);
    if (peer_copy->bytes)
        peer_copy->bytes->done(peer_copy->data, error);
    peer_copy_unref(peer_copy);
}

/* Runs both ends; started for the end whose message came second. */
static void *peer_copy_run_here(void *data)
{
    struct peer_copy *late = data;
    struct peer_copy *from = late->gives ? late : late->other;
    struct peer_copy *to = late->gives ? late->other : late;
    cl_int error = from->size == to->size ? CL_SUCCESS : CL_INVALID_VALUE;
    if (error == CL_SUCCESS)
        error = peer_copy_await_start(from, NULL, NULL);
    if (error == CL_SUCCESS)
        error = peer_copy_await_start(to, NULL, NULL);
    if (error == CL_SUCCESS)
        error = pump_run(from, to, NULL);
    peer_copy_settle(from, error);
    peer_copy_settle(to, error);
    return NULL;
}

/* ---- the other end in another session ---- */

static cl_int peer_copy_connect(struct peer_copy *peer_copy)
{
    struct link *link = NULL;
    int error = connector_ask(peer_copy->server->channel, peer_copy->where, &peer_copy->ticket,
                              clock_now_ns() + CONNECT_NS, &link);
    if (error) {
        log_info("cannot connect to %s: %s", peer_copy->where, strerror(-error));
        return TRANSFER_UNREACHED;
    }
    pthread_mutex_lock(&peer_copy_lock);
    peer_copy->link = link;
    if (peer_copy->forgotten)
        link->ops->shut_down(link);
    pthread_mutex_unlock(&peer_copy_lock);
    return CL_SUCCESS;
}

/* Wait until a peer has connected with the ticket. */
static cl_int peer_copy_await_link(struct peer_copy *peer_copy)
{
    uint64_t until = peer_copy->begun_ns + TICKET_NS;
    pthread_mutex_lock(&peer_copy_lock);
    while (!peer_copy->link && !peer_copy->forgotten &&
           clock_wait(&peer_copy->changed, &peer_copy_lock, until) == 0)
        ;
    peer_copy->met = true; /* From now on the ticket is not valid. */
    bool came = peer_copy->link && !peer_copy->forgotten;
    pthread_mutex_unlock(&peer_copy_lock);
    return came ? CL_SUCCESS : CL_OUT_OF_RESOURCES;
}

static void *peer_copy_run_apart(void *data)
{
    struct peer_copy *peer_copy = data;
    cl_int error = peer_copy->way == TRANSFER_CONNECT ? peer_copy_connect(peer_copy)
                   : peer_copy->way == TRANSFER_AWAIT ? peer_copy_await_link(peer_copy)
                                                      : CL_SUCCESS;
    if (error) {
        peer_copy_settle(peer_copy, error);
        return NULL;
    }
    error = pump_agree(peer_copy, peer_copy->link);
    if (error == CL_SUCCESS && peer_copy->bytes)
        error = pump_run_bytes(peer_copy, peer_copy->link);
    else if (error == CL_SUCCESS)
        error = peer_copy->gives ? pump_run(peer_copy, NULL, peer_copy->link)
                                 : pump_run(NULL, peer_copy, peer_copy->link);
    peer_copy_settle(peer_copy, pump_part(peer_copy, peer_copy->link, error));
    return NULL;
}

/* ---- peers with a ticket ---- */

/* Threads for peers whose ticket was not checked yet. Anybody who knows the session's number can
 * start one, with any name. */
#define MEETING_MAX 128
static atomic_uint meeting;

/* The lock is held. */
static struct peer_copy *peer_copy_find_ticket(const struct ticket_name *name)
{
    struct peer_copy *found = NULL;
    for (struct peer_copy *at = peer_copies; at; at = at->next)
        if (at->way == TRANSFER_AWAIT && CRYPTO_memcmp(name, &at->ticket.name, sizeof(*name)) == 0)
            found = at;
    return found;
}

/* Find the peer copy of a ticket, and hold it; the ticket is not valid again. Waits, as the peer
 * may have been told of the ticket before this session was. */
static struct peer_copy *peer_copy_redeem(const struct ticket_name *name)
{
    uint64_t until = clock_now_ns() + CONNECT_NS;
    struct peer_copy *found;
    pthread_mutex_lock(&peer_copy_lock);
    while (!(found = peer_copy_find_ticket(name)) &&
           clock_wait(&peer_copy_listed, &peer_copy_lock, until) == 0)
        ;
    if (found && (found->met || found->forgotten))
        found = NULL;
    if (found) {
        found->met = true;
        peer_copy_hold(found);
    }
    pthread_mutex_unlock(&peer_copy_lock);
    return found;
}

/* The peer's link, after it has proven that it has the key. */
static struct link *peer_copy_take_link_of(int channel)
{
    struct link *link = NULL;
    char done = 0;
    int fd = -1;
    if (channel_wait(channel, clock_now_ns() + CONNECT_NS) ||
        channel_receive(channel, &done, sizeof(done), &fd) || fd < 0 || link_unix_of(fd, &link))
        return NULL;
    return link;
}

static void peer_copy_meet_peer(int channel)
{
    struct ticket_name name;
    struct peer_copy *peer_copy = NULL;
    struct link *link = NULL;
    if (channel_wait(channel, clock_now_ns() + CONNECT_NS) == 0 &&
        channel_receive(channel, &name, sizeof(name), NULL) == 0)
        peer_copy = peer_copy_redeem(&name);
    if (peer_copy && channel_send(channel, peer_copy->ticket.key, TICKET_KEY_SIZE, -1) == 0)
        link = peer_copy_take_link_of(channel);
    close(channel);
    if (!peer_copy)
        return;
    pthread_mutex_lock(&peer_copy_lock);
    if (link)
        peer_copy->link = link;
    else
        peer_copy->forgotten = true; /* A ticket allows one attempt. */
    pthread_cond_broadcast(&peer_copy->changed);
    pthread_mutex_unlock(&peer_copy_lock);
    peer_copy_unref(peer_copy);
}

static void *peer_copy_run_meet(void *data)
{
    peer_copy_meet_peer((int)(intptr_t)data);
    atomic_fetch_sub(&meeting, 1);
    return NULL;
}

void peer_copy_meet(int channel)
{
    if (atomic_fetch_add(&meeting, 1) < MEETING_MAX &&
        thread_start("reseat-meet", STACK, peer_copy_run_meet, (void *)(intptr_t)channel, NULL) ==
            0)
        return;
    atomic_fetch_sub(&meeting, 1);
    close(channel);
}

/* ---- begin ---- */

static int peer_copy_take_link(struct peer_copy *peer_copy)
{
    struct server *server = peer_copy->server;
    /* Only the receiving thread, which is this one, changes it. */
    struct link *link = server->stream.link;
    int fd = -1;
    if (!link || !link->ops->take_descriptor)
        return -ENOENT;
    /* The descriptor may not arrive: the program may have closed it. */
    if (server->stream.rings ? areas_take_descriptor(link, 0, &fd)
                             : link->ops->take_descriptor(link, &fd))
        return -ENOENT;
    /* The other end must be a process of our own user, as with any client. */
    return link_unix.admit(fd, 0, &peer_copy->link);
}

static cl_int peer_copy_take_ticket(struct peer_copy *peer_copy, const struct peer_copy_wish *wish)
{
    if (wish->peer->ticket_size != sizeof(peer_copy->ticket)) {
        server_wrong(wish->server, "a transfer has no valid ticket");
        return CL_INVALID_VALUE;
    }
    memcpy(&peer_copy->ticket, wish->peer->ticket, sizeof(peer_copy->ticket));
    peer_copy->where = strdup(wish->peer->where);
    return peer_copy->where ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
}

/* POCL 3.1 may wait for ever for an event that has already failed. */
static bool peer_copy_has_failed(const struct peer_copy_wish *wish)
{
    cl_int status = CL_COMPLETE;
    for (cl_uint i = 0; i < wish->wait_count && status >= 0; i++)
        wish->queue->cl->clGetEventInfo(wish->waits[i], CL_EVENT_COMMAND_EXECUTION_STATUS,
                                        sizeof(status), &status, NULL);
    return status < 0;
}

/* Wait for the events of the wait list, and on an in-order queue for all earlier commands. */
static cl_int peer_copy_enqueue_start(struct peer_copy *peer_copy,
                                      const struct peer_copy_wish *wish)
{
    const cl_icd_dispatch *cl = peer_copy->cl;
    cl_command_queue queue = wish->queue->real;
    cl_command_queue_properties properties = 0;
    cl_int error = cl->clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof(properties),
                                             &properties, NULL);
    if (error == CL_SUCCESS && peer_copy_has_failed(wish))
        error = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
    bool at_once = (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) && wish->wait_count == 0;
    if (error || at_once) {
        peer_copy->ready = true;
        return error;
    }
    error =
        cl->clEnqueueMarkerWithWaitList(queue, wish->wait_count, wish->waits, &peer_copy->start);
    if (error)
        return error;
    peer_copy_hold(peer_copy);
    error = cl->clSetEventCallback(peer_copy->start, CL_COMPLETE, peer_copy_on_start, peer_copy);
    if (error)
        peer_copy_unref(peer_copy);
    return error;
}

/* Let later commands of the queue wait for the end of the peer copy. */
static cl_int peer_copy_enqueue(struct peer_copy *peer_copy, const struct peer_copy_wish *wish,
                                cl_event *ret_event)
{
    cl_int error = CL_SUCCESS;
    peer_copy->gate = peer_copy->cl->clCreateUserEvent(peer_copy->context, &error);
    if (error == CL_SUCCESS)
        error = peer_copy_enqueue_start(peer_copy, wish);
    if (error == CL_SUCCESS)
        error = peer_copy->cl->clEnqueueMarkerWithWaitList(wish->queue->real, 1, &peer_copy->gate,
                                                           ret_event);
    return error;
}

static bool peer_copy_list(struct peer_copy *peer_copy)
{
    pthread_mutex_lock(&peer_copy_lock);
    bool room = peer_copy_count < WIRE_TRANSFERS_MAX;
    if (room) {
        peer_copy->next = peer_copies;
        peer_copies = peer_copy;
        peer_copy_count++;
        pthread_cond_broadcast(&peer_copy_listed);
    }
    pthread_mutex_unlock(&peer_copy_lock);
    return room;
}

static struct peer_copy *peer_copy_create(const struct peer_copy_wish *wish)
{
    struct peer_copy *peer_copy = calloc(1, sizeof(*peer_copy));
    if (!peer_copy)
        return NULL;
    *peer_copy = (struct peer_copy){
        .holders = 1,
        .server = wish->server,
        .buffer = wish->buffer,
        .transfer = wish->peer->transfer,
        .offset = wish->offset,
        .size = wish->size,
        .gives = wish->gives,
        .way = (enum transfer_way)wish->peer->way,
        .begun_ns = clock_now_ns(),
        .status = CL_QUEUED,
    };
    pthread_cond_init(&peer_copy->changed, NULL);
    if (!wish->queue)
        return peer_copy;
    peer_copy->cl = wish->queue->cl;
    peer_copy->context = wish->queue->context;
    if (peer_copy->buffer)
        peer_copy->cl->clRetainMemObject(peer_copy->buffer);
    return peer_copy;
}

/* Keep a refused end in the list until the other end of this session comes, and learns of it. Takes
 * @peer_copy. */
static void peer_copy_refuse_one(struct peer_copy *peer_copy)
{
    peer_copy->refused = true;
    if (peer_copy->way != TRANSFER_HERE || !peer_copy_list(peer_copy))
        peer_copy_unref(peer_copy);
}

static cl_int peer_copy_take_way(struct peer_copy *peer_copy, const struct peer_copy_wish *wish)
{
    if (wish->peer->way == TRANSFER_DESCRIPTOR && peer_copy_take_link(peer_copy))
        return CL_OUT_OF_RESOURCES;
    if (wish->peer->way == TRANSFER_CONNECT || wish->peer->way == TRANSFER_AWAIT)
        return peer_copy_take_ticket(peer_copy, wish);
    return CL_SUCCESS;
}

void peer_copy_refuse(const struct peer_copy_wish *wish)
{
    struct peer_copy *peer_copy = peer_copy_create(wish);
    if (peer_copy && peer_copy_take_way(peer_copy, wish) == CL_SUCCESS)
        peer_copy_refuse_one(peer_copy);
    else
        peer_copy_unref(peer_copy);
}

/* Start the peer copy, unless its other end in this session has not come yet. */
static cl_int peer_copy_start(struct peer_copy *peer_copy)
{
    bool here = peer_copy->way == TRANSFER_HERE;
    if (here && !peer_copy_match(peer_copy))
        return CL_SUCCESS;
    if (here && peer_copy->other->refused)
        return CL_OUT_OF_RESOURCES;
    return thread_start("reseat-pass", STACK, here ? peer_copy_run_here : peer_copy_run_apart,
                        peer_copy, NULL)
               ? CL_OUT_OF_RESOURCES
               : CL_SUCCESS;
}

cl_int peer_copy_begin_bytes(const struct peer_copy_wish *wish, const struct peer_copy_bytes *bytes,
                             void *data)
{
    struct peer_copy *peer_copy = peer_copy_create(wish);
    if (!peer_copy)
        return CL_OUT_OF_HOST_MEMORY;
    peer_copy->data = data;
    peer_copy->ready = true;
    cl_int error = peer_copy_take_way(peer_copy, wish);
    if (error || !peer_copy_list(peer_copy)) {
        peer_copy_unref(peer_copy);
        return error ? error : CL_OUT_OF_RESOURCES;
    }
    peer_copy->bytes = bytes;
    if (thread_start("reseat-pass", STACK, peer_copy_run_apart, peer_copy, NULL) == 0)
        return CL_SUCCESS;
    peer_copy->bytes = NULL;
    peer_copy_settle(peer_copy, CL_OUT_OF_RESOURCES);
    return CL_OUT_OF_RESOURCES;
}

cl_int peer_copy_begin(const struct peer_copy_wish *wish, cl_event *ret_event,
                       struct peer_copy **ret_peer_copy)
{
    struct peer_copy *peer_copy = peer_copy_create(wish);
    if (!peer_copy)
        return CL_OUT_OF_HOST_MEMORY;
    cl_int error = peer_copy_take_way(peer_copy, wish);
    if (error == CL_SUCCESS)
        error = peer_copy->cl->clGetCommandQueueInfo(wish->queue->real, CL_QUEUE_DEVICE,
                                                     sizeof(peer_copy->device), &peer_copy->device,
                                                     NULL);
    enum gates gates =
        error ? GATES_GOOD : gates_of(peer_copy->cl, peer_copy->context, peer_copy->device);
    if (gates != GATES_GOOD) {
        peer_copy_refuse_one(peer_copy);
        return gates == GATES_NONE ? CL_INVALID_OPERATION : CL_OUT_OF_RESOURCES;
    }
    if (error == CL_SUCCESS && !peer_copy_list(peer_copy))
        error = CL_OUT_OF_RESOURCES;
    if (error) {
        peer_copy_unref(peer_copy);
        return error;
    }
    cl_event end = NULL;
    error = peer_copy_enqueue(peer_copy, wish, &end);
    peer_copy_hold(peer_copy); /* For *ret_peer_copy. */
    if (error == CL_SUCCESS)
        error = peer_copy_start(peer_copy);
    if (error) {
        bool alone = peer_copy->way == TRANSFER_HERE && !peer_copy->other;
        struct peer_copy *none = alone ? peer_copy_create(wish) : NULL;
        if (peer_copy->other)
            peer_copy_settle(peer_copy->other, error);
        peer_copy_settle(peer_copy, error);
        peer_copy_unref(peer_copy);
        if (none)
            peer_copy_refuse_one(none);
        if (end)
            wish->queue->cl->clReleaseEvent(end);
        return error;
    }
    *ret_event = end;
    *ret_peer_copy = peer_copy;
    return CL_SUCCESS;
}

void server_forget(struct server *server, const struct msg_forget *message)
{
    struct peer_copy *alone = NULL;
    (void)server;
    pthread_mutex_lock(&peer_copy_lock);
    for (struct peer_copy *at = peer_copies; at; at = at->next) {
        if (at->transfer != message->transfer)
            continue;
        at->forgotten = true;
        if (at->link)
            at->link->ops->shut_down(at->link);
        if (at->way == TRANSFER_HERE && !at->other)
            alone = at;
        pthread_cond_broadcast(&at->changed);
    }
    pthread_mutex_unlock(&peer_copy_lock);
    if (alone)
        peer_copy_settle(alone, CL_OUT_OF_RESOURCES);
}
