#include "remote/server/session/passage_priv.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "remote/link/link_unix.h"
#include "remote/server/listener/channel.h"
#include "remote/server/session/connector.h"
#include "remote/server/session/gates.h"
#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/threads/thread.h"

/* So often who waits for a driver looks whether it forgot to say that a command failed. */
#define TICK_NS NS_PER_S
/* Threads that wait for links and drivers. */
#define STACK ((size_t)512 << 10)
/* A ticket counts for so long, and who has one needs no longer to come. */
#define TICKET_NS  (60 * NS_PER_S)
#define CONNECT_NS (10 * NS_PER_S)

static pthread_mutex_t passage_lock = PTHREAD_MUTEX_INITIALIZER;
/* Those that have not ended, guarded by passage_lock. */
static struct passage *passages;
static pthread_cond_t passage_listed = PTHREAD_COND_INITIALIZER;
static unsigned passage_count;

static void passage_hold(struct passage *passage)
{
    atomic_fetch_add(&passage->holders, 1);
}

void passage_unref(struct passage *passage)
{
    if (!passage || atomic_fetch_sub(&passage->holders, 1) != 1)
        return;
    if (passage->start)
        passage->cl->clReleaseEvent(passage->start);
    if (passage->gate)
        passage->cl->clReleaseEvent(passage->gate);
    if (passage->buffer)
        passage->cl->clReleaseMemObject(passage->buffer);
    if (passage->link)
        passage->link->ops->destroy(passage->link);
    pthread_cond_destroy(&passage->changed);
    OPENSSL_cleanse(&passage->ticket, sizeof(passage->ticket));
    free(passage->where);
    free(passage);
}

cl_int passage_status(const struct passage *passage)
{
    return atomic_load(&passage->status);
}

/* ---- waiting ---- */

static void CL_CALLBACK passage_on_start(cl_event event, cl_int status, void *data)
{
    struct passage *passage = data;
    (void)event, (void)status;
    pthread_mutex_lock(&passage_lock);
    passage->ready = true;
    pthread_cond_broadcast(&passage->changed);
    pthread_mutex_unlock(&passage_lock);
    passage_unref(passage);
}

static cl_int passage_start_status(const struct passage *passage)
{
    cl_int status = CL_COMPLETE;
    if (passage->start)
        passage->cl->clGetEventInfo(passage->start, CL_EVENT_COMMAND_EXECUTION_STATUS,
                                    sizeof(status), &status, NULL);
    return status;
}

cl_int passage_await_start(struct passage *passage, cl_int (*tick)(void *data), void *data)
{
    for (;;) {
        uint64_t until = clock_now_ns() + TICK_NS;
        pthread_mutex_lock(&passage_lock);
        while (!passage->ready && !passage->forgotten &&
               clock_wait(&passage->changed, &passage_lock, until) == 0)
            ;
        bool forgotten = passage->forgotten;
        pthread_mutex_unlock(&passage_lock);
        cl_int status = passage_start_status(passage);
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

/* ---- ends of one session ---- */

/* The other end of @passage, if it has come. Under the lock. */
static struct passage *passage_find_other(const struct passage *passage)
{
    struct passage *at = passages;
    while (at && (at->transfer != passage->transfer || at->gives == passage->gives ||
                  at->way != TRANSFER_HERE || at->other))
        at = at->next;
    return at;
}

/* By the session's thread, which also forgets: nothing else matches them. */
static bool passage_match(struct passage *passage)
{
    pthread_mutex_lock(&passage_lock);
    struct passage *other = passage_find_other(passage);
    if (other) {
        passage->other = other;
        other->other = passage;
    }
    pthread_mutex_unlock(&passage_lock);
    return other;
}

static void passage_unlist(struct passage *passage)
{
    pthread_mutex_lock(&passage_lock);
    struct passage **at = &passages;
    while (*at != passage)
        at = &(*at)->next;
    *at = passage->next;
    passage_count--;
    pthread_mutex_unlock(&passage_lock);
}

/* It has ended so, and what waited for it goes on. */
static void passage_settle(struct passage *passage, cl_int error)
{
    passage_unlist(passage);
    atomic_store(&passage->status, error ? error : CL_COMPLETE);
    if (error)
        log_info("a transfer of %llu bytes between devices failed: %d",
                 (unsigned long long)passage->size, error);
    if (passage->gate)
        passage->cl->clSetUserEventStatus(passage->gate, CL_COMPLETE);
    if (passage->done)
        passage->done(passage->data, error);
    passage_unref(passage);
}

/* Both ends, for which the one that came later has a thread. */
static void *passage_run_here(void *data)
{
    struct passage *late = data;
    struct passage *from = late->gives ? late : late->other;
    struct passage *to = late->gives ? late->other : late;
    cl_int error = from->size == to->size ? CL_SUCCESS : CL_INVALID_VALUE;
    if (error == CL_SUCCESS)
        error = passage_await_start(from, NULL, NULL);
    if (error == CL_SUCCESS)
        error = passage_await_start(to, NULL, NULL);
    if (error == CL_SUCCESS)
        error = pump_run(from, to, NULL);
    passage_settle(from, error);
    passage_settle(to, error);
    return NULL;
}

/* ---- an end whose other one is elsewhere ---- */

static cl_int passage_connect(struct passage *passage)
{
    struct link *link = NULL;
    int error = connector_ask(passage->server->channel, passage->where, &passage->ticket,
                              clock_now_ns() + CONNECT_NS, &link);
    if (error) {
        log_info("no way to %s: %s", passage->where, strerror(-error));
        return TRANSFER_UNREACHED;
    }
    pthread_mutex_lock(&passage_lock);
    passage->link = link;
    if (passage->forgotten)
        link->ops->shut_down(link);
    pthread_mutex_unlock(&passage_lock);
    return CL_SUCCESS;
}

/* Until somebody is let in with the ticket. */
static cl_int passage_await_link(struct passage *passage)
{
    uint64_t until = passage->begun_ns + TICKET_NS;
    pthread_mutex_lock(&passage_lock);
    while (!passage->link && !passage->forgotten &&
           clock_wait(&passage->changed, &passage_lock, until) == 0)
        ;
    passage->met = true; /* Its ticket counts no more. */
    bool came = passage->link && !passage->forgotten;
    pthread_mutex_unlock(&passage_lock);
    return came ? CL_SUCCESS : CL_OUT_OF_RESOURCES;
}

static void *passage_run_apart(void *data)
{
    struct passage *passage = data;
    cl_int error = passage->way == TRANSFER_CONNECT ? passage_connect(passage)
                   : passage->way == TRANSFER_AWAIT ? passage_await_link(passage)
                                                    : CL_SUCCESS;
    if (error) {
        passage_settle(passage, error);
        return NULL;
    }
    error = pump_agree(passage, passage->link);
    if (error == CL_SUCCESS)
        error = passage->gives ? pump_run(passage, NULL, passage->link)
                               : pump_run(NULL, passage, passage->link);
    passage_settle(passage, pump_part(passage, passage->link, error));
    return NULL;
}

/* ---- who comes with a ticket ---- */

/* Who knows the session's number, and comes with whatever name, takes a thread for a while. */
#define MEETING_MAX 128
static atomic_uint meeting;

/* Under the lock. */
static struct passage *passage_find_ticket(const struct ticket_name *name)
{
    struct passage *found = NULL;
    for (struct passage *at = passages; at; at = at->next)
        if (at->way == TRANSFER_AWAIT && CRYPTO_memcmp(name, &at->ticket.name, sizeof(*name)) == 0)
            found = at;
    return found;
}

/* The passage that a ticket of that name is for, held, which has none from now on. What was told to
   the other server may come before what was told to this one. */
static struct passage *passage_redeem(const struct ticket_name *name)
{
    uint64_t until = clock_now_ns() + CONNECT_NS;
    struct passage *found;
    pthread_mutex_lock(&passage_lock);
    while (!(found = passage_find_ticket(name)) &&
           clock_wait(&passage_listed, &passage_lock, until) == 0)
        ;
    if (found && (found->met || found->forgotten))
        found = NULL;
    if (found) {
        found->met = true;
        passage_hold(found);
    }
    pthread_mutex_unlock(&passage_lock);
    return found;
}

/* The link of who came, once that has shown that it has the key. */
static struct link *passage_take_link_of(int channel)
{
    struct link *link = NULL;
    char done = 0;
    int fd = -1;
    if (channel_wait(channel, clock_now_ns() + CONNECT_NS) ||
        channel_receive(channel, &done, sizeof(done), &fd) || fd < 0 || link_unix_of(fd, &link))
        return NULL;
    return link;
}

static void passage_meet_peer(int channel)
{
    struct ticket_name name;
    struct passage *passage = NULL;
    struct link *link = NULL;
    if (channel_wait(channel, clock_now_ns() + CONNECT_NS) == 0 &&
        channel_receive(channel, &name, sizeof(name), NULL) == 0)
        passage = passage_redeem(&name);
    if (passage && channel_send(channel, passage->ticket.key, TICKET_KEY_SIZE, -1) == 0)
        link = passage_take_link_of(channel);
    close(channel);
    if (!passage)
        return;
    pthread_mutex_lock(&passage_lock);
    if (link)
        passage->link = link;
    else
        passage->forgotten = true; /* A ticket is for one attempt. */
    pthread_cond_broadcast(&passage->changed);
    pthread_mutex_unlock(&passage_lock);
    passage_unref(passage);
}

static void *passage_run_meet(void *data)
{
    passage_meet_peer((int)(intptr_t)data);
    atomic_fetch_sub(&meeting, 1);
    return NULL;
}

void passage_meet(int channel)
{
    if (atomic_fetch_add(&meeting, 1) < MEETING_MAX &&
        thread_start("reseat-meet", STACK, passage_run_meet, (void *)(intptr_t)channel, NULL) == 0)
        return;
    atomic_fetch_sub(&meeting, 1);
    close(channel);
}

/* ---- beginnings ---- */

static int passage_take_link(struct passage *passage)
{
    struct server *server = passage->server;
    struct link *link = server->stream.link; /* The receiver's, who calls this. */
    int fd = -1;
    if (!link || !link->ops->take_descriptor)
        return -ENOENT;
    /* Programs close descriptors that they do not know. */
    if (server->stream.rings ? areas_take_descriptor(link, 0, &fd)
                             : link->ops->take_descriptor(link, &fd))
        return -ENOENT;
    /* One of ours, as the client that connects is. */
    return link_unix.admit(fd, 0, &passage->link);
}

static cl_int passage_take_ticket(struct passage *passage, const struct passage_wish *wish)
{
    if (wish->ticket_size != sizeof(passage->ticket)) {
        server_wrong(wish->server, "a transfer comes without its ticket");
        return CL_INVALID_VALUE;
    }
    memcpy(&passage->ticket, wish->ticket, sizeof(passage->ticket));
    passage->where = strdup(wish->where);
    return passage->where ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
}

/* A driver that is given what has failed to wait for may do so for ever (POCL 3.1). */
static bool passage_has_failed(const struct passage_wish *wish)
{
    cl_int status = CL_COMPLETE;
    for (cl_uint i = 0; i < wish->wait_count && status >= 0; i++)
        wish->queue->cl->clGetEventInfo(wish->waits[i], CL_EVENT_COMMAND_EXECUTION_STATUS,
                                        sizeof(status), &status, NULL);
    return status < 0;
}

/* It begins once what it waits for has ended, and on an in-order queue all that is before it. */
static cl_int passage_enqueue_start(struct passage *passage, const struct passage_wish *wish)
{
    const cl_icd_dispatch *cl = passage->cl;
    cl_command_queue queue = wish->queue->real;
    cl_command_queue_properties properties = 0;
    cl_int error = cl->clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof(properties),
                                             &properties, NULL);
    if (error == CL_SUCCESS && passage_has_failed(wish))
        error = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
    bool at_once = (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) && wish->wait_count == 0;
    if (error || at_once) {
        passage->ready = true;
        return error;
    }
    error = cl->clEnqueueMarkerWithWaitList(queue, wish->wait_count, wish->waits, &passage->start);
    if (error)
        return error;
    passage_hold(passage);
    error = cl->clSetEventCallback(passage->start, CL_COMPLETE, passage_on_start, passage);
    if (error)
        passage_unref(passage);
    return error;
}

/* What follows waits for its end. */
static cl_int passage_enqueue(struct passage *passage, const struct passage_wish *wish,
                              cl_event *ret_event)
{
    cl_int error = CL_SUCCESS;
    passage->gate = passage->cl->clCreateUserEvent(passage->context, &error);
    if (error == CL_SUCCESS)
        error = passage_enqueue_start(passage, wish);
    if (error == CL_SUCCESS)
        error = passage->cl->clEnqueueMarkerWithWaitList(wish->queue->real, 1, &passage->gate,
                                                         ret_event);
    return error;
}

static bool passage_list(struct passage *passage)
{
    pthread_mutex_lock(&passage_lock);
    bool room = passage_count < WIRE_TRANSFERS_MAX;
    if (room) {
        passage->next = passages;
        passages = passage;
        passage_count++;
        pthread_cond_broadcast(&passage_listed);
    }
    pthread_mutex_unlock(&passage_lock);
    return room;
}

static struct passage *passage_create(const struct passage_wish *wish)
{
    struct passage *passage = calloc(1, sizeof(*passage));
    if (!passage)
        return NULL;
    *passage = (struct passage){
        .holders = 1,
        .server = wish->server,
        .buffer = wish->buffer,
        .transfer = wish->transfer,
        .offset = wish->offset,
        .size = wish->size,
        .gives = wish->gives,
        .way = wish->way,
        .begun_ns = clock_now_ns(),
        .status = CL_QUEUED,
    };
    pthread_cond_init(&passage->changed, NULL);
    if (!wish->queue)
        return passage;
    passage->cl = wish->queue->cl;
    passage->context = wish->queue->context;
    if (passage->buffer)
        passage->cl->clRetainMemObject(passage->buffer);
    return passage;
}

/* The other end of this session's, which is still to come, learns it then. Takes @passage. */
static void passage_refuse_one(struct passage *passage)
{
    passage->refused = true;
    if (passage->way != TRANSFER_HERE || !passage_list(passage))
        passage_unref(passage);
}

static cl_int passage_take_way(struct passage *passage, const struct passage_wish *wish)
{
    if (wish->way == TRANSFER_DESCRIPTOR && passage_take_link(passage))
        return CL_OUT_OF_RESOURCES;
    if (wish->way == TRANSFER_CONNECT || wish->way == TRANSFER_AWAIT)
        return passage_take_ticket(passage, wish);
    return CL_SUCCESS;
}

void passage_refuse(const struct passage_wish *wish)
{
    struct passage *passage = passage_create(wish);
    if (passage && passage_take_way(passage, wish) == CL_SUCCESS)
        passage_refuse_one(passage);
    else
        passage_unref(passage);
}

/* Has the other end come, and is it one that goes? */
static cl_int passage_start(struct passage *passage)
{
    bool here = passage->way == TRANSFER_HERE;
    if (here && !passage_match(passage))
        return CL_SUCCESS;
    if (here && passage->other->refused)
        return CL_OUT_OF_RESOURCES;
    return thread_start("reseat-pass", STACK, here ? passage_run_here : passage_run_apart, passage,
                        NULL)
               ? CL_OUT_OF_RESOURCES
               : CL_SUCCESS;
}

cl_int passage_begin_bytes(const struct passage_wish *wish, unsigned char *bytes,
                           void (*done)(void *data, cl_int error), void *data)
{
    struct passage *passage = passage_create(wish);
    if (!passage)
        return CL_OUT_OF_HOST_MEMORY;
    passage->bytes = bytes;
    passage->data = data;
    passage->ready = true;
    cl_int error = passage_take_way(passage, wish);
    if (error || !passage_list(passage)) {
        passage_unref(passage);
        return error ? error : CL_OUT_OF_RESOURCES;
    }
    passage->done = done;
    if (thread_start("reseat-pass", STACK, passage_run_apart, passage, NULL) == 0)
        return CL_SUCCESS;
    passage->done = NULL;
    passage_settle(passage, CL_OUT_OF_RESOURCES);
    return CL_OUT_OF_RESOURCES;
}

cl_int passage_begin(const struct passage_wish *wish, cl_event *ret_event,
                     struct passage **ret_passage)
{
    struct passage *passage = passage_create(wish);
    if (!passage)
        return CL_OUT_OF_HOST_MEMORY;
    cl_int error = passage_take_way(passage, wish);
    if (error == CL_SUCCESS)
        error = passage->cl->clGetCommandQueueInfo(wish->queue->real, CL_QUEUE_DEVICE,
                                                   sizeof(passage->device), &passage->device, NULL);
    enum gates gates =
        error ? GATES_GOOD : gates_of(passage->cl, passage->context, passage->device);
    if (gates != GATES_GOOD) {
        passage_refuse_one(passage);
        return gates == GATES_NONE ? CL_INVALID_OPERATION : CL_OUT_OF_RESOURCES;
    }
    if (error == CL_SUCCESS && !passage_list(passage))
        error = CL_OUT_OF_RESOURCES;
    if (error) {
        passage_unref(passage);
        return error;
    }
    cl_event end = NULL;
    error = passage_enqueue(passage, wish, &end);
    passage_hold(passage); /* The caller's. */
    if (error == CL_SUCCESS)
        error = passage_start(passage);
    if (error) {
        bool alone = passage->way == TRANSFER_HERE && !passage->other;
        struct passage *none = alone ? passage_create(wish) : NULL;
        if (passage->other)
            passage_settle(passage->other, error);
        passage_settle(passage, error);
        passage_unref(passage);
        if (none)
            passage_refuse_one(none);
        if (end)
            wish->queue->cl->clReleaseEvent(end);
        return error;
    }
    *ret_event = end;
    *ret_passage = passage;
    return CL_SUCCESS;
}

void server_forget(struct server *server, const struct msg_forget *message)
{
    struct passage *alone = NULL;
    (void)server;
    pthread_mutex_lock(&passage_lock);
    for (struct passage *at = passages; at; at = at->next) {
        if (at->transfer != message->transfer)
            continue;
        at->forgotten = true;
        if (at->link)
            at->link->ops->shut_down(at->link);
        if (at->way == TRANSFER_HERE && !at->other)
            alone = at;
        pthread_cond_broadcast(&at->changed);
    }
    pthread_mutex_unlock(&passage_lock);
    if (alone)
        passage_settle(alone, CL_OUT_OF_RESOURCES);
}
