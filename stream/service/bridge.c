#include "stream/service/service.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "state/base/clock.h"
#include "stream/frame.h"

/*
 * Three threads: one receives RECORDS, one sends ANSWERS, and that of bridge_run() looks after the
 * worker. The worker's doorbell is a pair of sockets.
 */
struct bridge {
    struct link *link;
    const struct stream_area *area;
    struct supervisor *supervisor;
    int (*begin)(void *data); /* The caller's. */
    void *data;
    int doorbell; /* Our end. */
    int over;     /* An eventfd: the stream has ended. */
    pthread_t receiver, sender;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint64_t sent, taken; /* Under `lock`. */
    bool finished, ended; /* No more records come; no more answers are wanted. Under `lock`. */
    int error;            /* Why, with the reason: the first. Under `lock`. */
    char reason[STREAM_REASON_MAX];
};

/* How long a client may take to read why its stream has failed. */
#define REFUSE_NS (2 * NS_PER_S)

/* The time until which a stranger may pause in the middle of a frame, so that it cannot occupy what
 * its stream uses for ever. */
static uint64_t bridge_deadline(const struct bridge *bridge)
{
    uint64_t patience_ns = bridge->supervisor->patience_ns;
    return patience_ns == UINT64_MAX ? UINT64_MAX : clock_now_ns() + patience_ns;
}

/* End the stream. @reason: for the client; NULL: it is gone, or has all answers. */
static void bridge_end(struct bridge *bridge, int error, const char *reason)
{
    uint64_t one = 1;
    pthread_mutex_lock(&bridge->lock);
    if (!bridge->ended) {
        bridge->error = error;
        snprintf(bridge->reason, sizeof(bridge->reason), "%s", reason ? reason : "");
    }
    bridge->ended = true;
    pthread_cond_broadcast(&bridge->moved);
    pthread_mutex_unlock(&bridge->lock);
    (void)!write(bridge->over, &one, sizeof(one));
    /* Wakes the sender, where it waits for answers, and tells the worker that its client is gone.
     */
    (void)shutdown(bridge->doorbell, SHUT_RDWR);
}

/* ---- records ---- */

/* Wait until there is room for records. Returns how many fit; 0: the stream has ended. */
static uint64_t bridge_wait_for_room(struct bridge *bridge)
{
    pthread_mutex_lock(&bridge->lock);
    while (!bridge->ended && bridge->sent - bridge->taken == bridge->area->shape.capacity)
        pthread_cond_wait(&bridge->moved, &bridge->lock);
    uint64_t room = bridge->ended ? 0 : bridge->taken + bridge->area->shape.capacity - bridge->sent;
    pthread_mutex_unlock(&bridge->lock);
    return room;
}

/* Receive records straight into the area. 0 or -errno. */
static int bridge_receive_records(struct bridge *bridge, uint64_t count)
{
    struct stream_area_header *header = bridge->area->header;
    while (count > 0) {
        uint64_t together, room = bridge_wait_for_room(bridge);
        char *at = stream_area_input(bridge->area, bridge->sent, &together);
        uint64_t now = count < room ? count : room;
        now = now < together ? now : together;
        if (now == 0)
            return -ECANCELED;
        int error = stream_frame_receive_all(
            bridge->link, at, (size_t)now * bridge->area->shape.input, bridge_deadline(bridge));
        if (error)
            return error;
        pthread_mutex_lock(&bridge->lock);
        bridge->sent += now;
        pthread_mutex_unlock(&bridge->lock);
        stream_area_advance(&header->sent, bridge->sent, &header->worker_sleeps, bridge->doorbell);
        count -= now;
    }
    return 0;
}

static void bridge_finish(struct bridge *bridge)
{
    pthread_mutex_lock(&bridge->lock);
    bridge->finished = true;
    pthread_mutex_unlock(&bridge->lock);
    /* The sender may be waiting for answers that will not come. */
    (void)!send(bridge->supervisor->doorbell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Read and drop what the client still sends after the end. Closing a socket that has unread bytes
 * resets it, and the client might not get the reason. */
static void *bridge_discard(struct bridge *bridge)
{
    char bytes[4096];
    size_t got;
    while (bridge->link->ops->receive(bridge->link, bytes, sizeof(bytes), UINT64_MAX, &got) == 0)
        continue;
    return NULL;
}

static void *bridge_receive(void *data)
{
    struct bridge *bridge = data;
    uint32_t input = bridge->area->shape.input;
    for (;;) {
        unsigned char bytes[STREAM_FRAME_HEADER];
        char reason[128];
        enum stream_frame type;
        size_t size;
        /* A client may wait for long between two frames, but not within one. */
        int error = stream_frame_receive_all(bridge->link, bytes, 1, UINT64_MAX);
        error = error ? error
                      : stream_frame_receive_all(bridge->link, bytes + 1, sizeof(bytes) - 1,
                                                 bridge_deadline(bridge));
        if (error) {
            bridge_end(bridge, error, NULL);
            return NULL;
        }
        error = stream_frame_header(bytes, &type, &size);
        if (!error && type == STREAM_FINISHED && size == 0) {
            bridge_finish(bridge);
            continue;
        }
        if (error || type != STREAM_RECORDS || size % input || bridge->finished) {
            snprintf(
                reason, sizeof(reason),
                "a frame is not understood: send RECORDS of whole records of %u bytes, at most "
                "%u bytes, then FINISHED",
                input, STREAM_FRAME_MAX);
            bridge_end(bridge, error ? error : -EPROTO, reason);
            return bridge_discard(bridge);
        }
        error = bridge_receive_records(bridge, size / input);
        if (error == -ECANCELED)
            return bridge_discard(bridge);
        if (error) {
            bridge_end(bridge, error, NULL);
            return NULL;
        }
    }
}

/* ---- answers ---- */

/* Wait for answers, or the end. Returns false at the end. @ret_finished: all were sent. */
static bool bridge_wait_for_answers(struct bridge *bridge, uint64_t *answered, bool *ret_finished)
{
    struct stream_area_header *header = bridge->area->header;
    char reason[STREAM_REASON_MAX];
    for (;;) {
        pthread_mutex_lock(&bridge->lock);
        uint64_t sent = bridge->sent;
        bool ended = bridge->ended;
        *ret_finished = bridge->finished && bridge->taken == sent;
        pthread_mutex_unlock(&bridge->lock);
        if (ended || *ret_finished)
            return !ended;
        atomic_store(&header->client_sleeps, 1);
        int error = stream_area_failure(bridge->area, reason, sizeof(reason));
        if (!error)
            error = stream_area_look(&header->answered, sent, answered);
        if (error) {
            bridge_end(bridge, error, reason);
            return false;
        }
        if (*answered != bridge->taken)
            return true;
        struct pollfd bell = {.fd = bridge->doorbell, .events = POLLIN};
        (void)poll(&bell, 1, -1);
        (void)stream_area_hear(bridge->doorbell);
    }
}

static int bridge_send_answers(struct bridge *bridge, uint64_t answered)
{
    struct stream_area_header *header = bridge->area->header;
    uint32_t output = bridge->area->shape.output;
    while (bridge->taken != answered) {
        uint64_t together, count = answered - bridge->taken;
        char *at = stream_area_output(bridge->area, bridge->taken, &together);
        count = count < together ? count : together;
        count = count < STREAM_FRAME_MAX / output ? count : STREAM_FRAME_MAX / output;
        int error = stream_frame_send(bridge->link, STREAM_ANSWERS, at, (size_t)count * output,
                                      bridge_deadline(bridge));
        if (error)
            return error;
        pthread_mutex_lock(&bridge->lock);
        bridge->taken += count;
        pthread_cond_broadcast(&bridge->moved);
        pthread_mutex_unlock(&bridge->lock);
        stream_area_advance(&header->taken, bridge->taken, &header->worker_sleeps,
                            bridge->doorbell);
    }
    return 0;
}

static void *bridge_send(void *data)
{
    struct bridge *bridge = data;
    uint64_t answered = 0;
    bool finished = false;
    while (bridge_wait_for_answers(bridge, &answered, &finished)) {
        int error = finished ? stream_frame_send(bridge->link, STREAM_FINISHED, NULL, 0, UINT64_MAX)
                             : bridge_send_answers(bridge, answered);
        if (error || finished)
            bridge_end(bridge, error, NULL);
    }
    return NULL;
}

/* ---- the stream ---- */

static int bridge_begin(void *data)
{
    struct bridge *bridge = data;
    int error = bridge->begin(bridge->data);
    if (!error)
        error = -pthread_create(&bridge->receiver, NULL, bridge_receive, bridge);
    if (!error)
        error = -pthread_create(&bridge->sender, NULL, bridge_send, bridge);
    return error;
}

/* Wait for a thread, but for no client that takes nothing, or does not hang up. */
static void bridge_join(struct bridge *bridge, pthread_t thread)
{
    struct timespec until = clock_timespec(clock_now_ns() + REFUSE_NS);
    if (pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &until) == 0)
        return;
    bridge->link->ops->shut_down(bridge->link);
    pthread_join(thread, NULL);
}

int bridge_run(struct link *link, struct supervisor *supervisor)
{
    struct bridge bridge = {.link = link,
                            .area = supervisor->area,
                            .supervisor = supervisor,
                            .begin = supervisor->begin,
                            .data = supervisor->data,
                            .lock = PTHREAD_MUTEX_INITIALIZER,
                            .moved = PTHREAD_COND_INITIALIZER};
    int pair[2];
    bridge.over = eventfd(0, EFD_CLOEXEC);
    if (bridge.over < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        return -errno;
    bridge.doorbell = pair[0];
    supervisor->doorbell = pair[1];
    supervisor->client = bridge.over;
    supervisor->client_events = POLLIN;
    supervisor->begin = bridge_begin;
    supervisor->data = &bridge;
    int error = supervisor_run(supervisor);
    char reason[STREAM_REASON_MAX] = "";
    int failure = stream_area_failure(supervisor->area, reason, sizeof(reason));
    if (supervisor->begun && bridge.sender) {
        /* The sender tells the client the reason. After the join no thread uses the link. */
        bridge_end(&bridge, failure ? failure : error, reason);
        bridge_join(&bridge, bridge.sender);
        error = bridge.error;
        failure = error;
        memcpy(reason, bridge.reason, sizeof(reason));
    }
    bool refused = failure && reason[0];
    if (refused)
        stream_frame_refuse(link, failure, reason);
    else
        link->ops->shut_down(link);
    if (supervisor->begun && bridge.receiver)
        bridge_join(&bridge, bridge.receiver);
    return error;
}
