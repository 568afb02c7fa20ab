#include "remote/wire/stream_rings.h"
#include "remote/wire/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "messages.h"
#include "remote/rings/area.h"
#include "remote/rings/bell.h"
#include "state/base/clock.h"
#include "state/base/threads/thread.h"
#include "state/base/threads/tsan.h"

/* One ring for each thread that gives commands, or, from the server, for each driver thread that
 * calls back. Further threads share one. Rings that are never used take only addresses. */
const struct rings_shape rings_to_server = {.count = 24, .capacity = 256u << 10};
const struct rings_shape rings_to_client = {.count = 8, .capacity = 256u << 10};

#define BEAT_NS NS_PER_S
/* The frame is part of a message of several frames; more of them follow. */
#define FLAG_PART 1u
#define FLAG_MORE 2u

struct head {
    uint16_t type; /* 0: a heartbeat. */
    uint16_t flags;
    uint32_t none;
};
_Static_assert(sizeof(struct head) == 8, "as it is sent");

struct stream_rings {
    struct stream *stream;
    struct bell_peer peer;
    struct lookout *lookout; /* In the program, unless there is none; NULL in the server. */
    struct rings_writer *writer;
    struct rings_reader *reader;
    size_t part_most;
    pthread_mutex_t posting; /* Held to post one message of several frames. */
    /* Used by the receiving thread alone: */
    unsigned char *frame;
    struct bell_spin spin;
    _Atomic uint64_t heard_ns; /* When the last frame was received. */
    /* The heartbeat. */
    bool beats;
    pthread_t beat;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool over; /* Guarded by lock. */
};

/* ---- posting ---- */

/* Take as much of both parts as fits in a frame. */
static unsigned stream_rings_take_part(struct iovec left[2], size_t most, struct iovec ret_part[2])
{
    unsigned count = 0;
    for (int i = 0; i < 2; i++) {
        size_t some = left[i].iov_len < most ? left[i].iov_len : most;
        if (some == 0)
            continue;
        ret_part[count++] = (struct iovec){left[i].iov_base, some};
        left[i].iov_base = (char *)left[i].iov_base + some;
        left[i].iov_len -= some;
        most -= some;
    }
    return count;
}

static size_t stream_rings_size_of(const struct iovec left[2])
{
    return left[0].iov_len + left[1].iov_len;
}

/* Frames of other threads may come in between. The message takes the place of its last frame in the
 * order of messages. */
static int stream_rings_post_parts(struct stream_rings *rings, unsigned type, struct iovec left[2])
{
    int error = 0;
    bool begun = false;
    int cancel = cancel_hold();
    pthread_mutex_lock(&rings->posting);
    while (error == 0 && stream_rings_size_of(left) != 0) {
        struct head head = {.type = (uint16_t)type, .flags = FLAG_PART};
        struct iovec frame[3] = {{&head, sizeof(head)}};
        unsigned count = stream_rings_take_part(left, rings->part_most, frame + 1);
        if (stream_rings_size_of(left) != 0)
            head.flags |= FLAG_MORE;
        error = rings_post(rings->writer, frame, count + 1, UINT64_MAX, NULL);
        begun |= error == 0;
    }
    /* The peer has part of the message, and cannot go on without the rest. */
    if (error && begun)
        stream_rings_end(rings, error);
    pthread_mutex_unlock(&rings->posting);
    cancel_allow(cancel);
    return error;
}

int stream_rings_post(struct stream_rings *rings, unsigned type, const void *body, size_t size,
                      const void *tail, size_t tail_size)
{
    struct head head = {.type = (uint16_t)type};
    struct iovec frame[] = {{&head, sizeof(head)}, {(void *)body, size}, {(void *)tail, tail_size}};
    if (tail_size > WIRE_MESSAGE_MAX || size > WIRE_MESSAGE_MAX - tail_size)
        return -EMSGSIZE;
    tsan_before(rings);
    if (size + tail_size > rings->part_most)
        return stream_rings_post_parts(rings, type, frame + 1);
    return rings_post(rings->writer, frame, ARRAY_SIZE(frame), UINT64_MAX, NULL);
}

/* ---- receiving ---- */

/* Returns 1 if the frame is, or completes, a message; else 0 or -errno. */
static int stream_rings_end_message(struct stream_rings *rings, size_t size,
                                    struct message *ret_message)
{
    struct head head;
    if (size < sizeof(head))
        return -EPROTO;
    memcpy(&head, rings->frame, sizeof(head));
    const unsigned char *body = rings->frame + sizeof(head);
    size -= sizeof(head);
    /* For ThreadSanitizer: the message may answer what another thread posted. */
    tsan_after(rings);
    if (head.flags == 0 && (head.type != 0 || size == 0)) {
        *ret_message = (struct message){head.type, body, size};
        return head.type != 0;
    }
    if (head.type == 0 || (head.flags & ~FLAG_MORE) != FLAG_PART)
        return -EPROTO;
    struct stream *stream = rings->stream;
    int error = stream_add_part(stream, body, size);
    if (error || (head.flags & FLAG_MORE))
        return error;
    stream->whole_done = true;
    *ret_message = (struct message){head.type, stream->whole->bytes, stream->whole_used};
    return 1;
}

int stream_rings_receive(struct stream_rings *rings, uint64_t silence_ns,
                         struct message *ret_message)
{
    stream_drop_whole(rings->stream);
    for (;;) {
        size_t size = 0;
        uint64_t until = silence_ns ? clock_now_ns() + silence_ns : UINT64_MAX;
        int error = rings_take(rings->reader, rings->frame, until, &size, NULL);
        if (error == 0)
            error = stream_rings_end_message(rings, size, ret_message);
        if (error != 0)
            return error < 0 ? error : 0;
    }
}

/* Returns 1 if there was a message, else 0 or -errno. Called by the leading thread. */
static int stream_rings_take_one(struct stream_rings *rings, struct message *ret_message)
{
    int error = 0;
    stream_drop_whole(rings->stream);
    while (error == 0 && rings_has_next(rings->reader)) {
        size_t size = 0;
        error = rings_take(rings->reader, rings->frame, 0, &size, NULL);
        if (error == 0) {
            atomic_store_explicit(&rings->heard_ns, clock_now_ns(), memory_order_relaxed);
            error = stream_rings_end_message(rings, size, ret_message);
        }
    }
    return error;
}

int stream_rings_lead(struct stream_rings *rings, uint64_t silence_ns, struct message *ret_message)
{
    atomic_store_explicit(&rings->heard_ns, clock_now_ns(), memory_order_relaxed);
    for (;;) {
        uint64_t heard = atomic_load_explicit(&rings->heard_ns, memory_order_relaxed);
        int error = rings_await(rings->reader, heard + silence_ns);
        /* A thread in stream_rings_attend() may have received something meanwhile. */
        if (error == -ETIMEDOUT &&
            atomic_load_explicit(&rings->heard_ns, memory_order_relaxed) != heard)
            continue;
        if (error)
            return error;
        if (!rings_lead(rings->reader))
            continue;
        error = stream_rings_take_one(rings, ret_message);
        if (error == 1)
            return 0;
        rings_leave(rings->reader);
        if (error)
            return error;
    }
}

void stream_rings_leave(struct stream_rings *rings)
{
    rings_leave(rings->reader);
}

/* Returns 0 when nothing is left, or -errno. */
static int stream_rings_take_all(struct stream_rings *rings,
                                 void (*take)(void *data, const struct message *message),
                                 void *data)
{
    struct message message;
    int taken;
    while ((taken = stream_rings_take_one(rings, &message)) == 1)
        take(data, &message);
    return taken; /* An error stays, and the thread that ends the session finds it. */
}

#define LOOKS 16

/* Spin; called by the leading thread. */
static int stream_rings_attend_ring(struct stream_rings *rings, bool (*over)(void *data),
                                    void (*take)(void *data, const struct message *message),
                                    void *data)
{
    uint64_t budget = bell_spin_begin(&rings->spin), begin = clock_now_ns(), took = 0;
    bool is_over = false;
    int error = stream_rings_take_all(rings, take, data);
    while (error == 0 && !(is_over = over(data)) && took < budget) {
        rings_look(rings->reader);
        for (int i = 0; i < LOOKS && !rings_has_next(rings->reader); i++)
            bell_relax();
        error = stream_rings_take_all(rings, take, data);
        took = clock_now_ns() - begin;
    }
    if (is_over && took > 0)
        bell_spin_paid(&rings->spin, took);
    else if (!is_over && budget > 0)
        bell_spin_failed(&rings->spin);
    return error;
}

void stream_rings_attend(struct stream_rings *rings, bool (*over)(void *data),
                         void (*take)(void *data, const struct message *message), void *data)
{
    int cancel = cancel_hold();
    bool leads = rings_attend(rings->reader);
    int error = leads ? stream_rings_attend_ring(rings, over, take, data) : 0;
    /* What came in the meantime is for the sleeping receiver, but that was not woken for it. */
    while (rings_attend_no_more(rings->reader, leads) && error == 0) {
        leads = rings_attend(rings->reader);
        if (leads)
            error = stream_rings_take_all(rings, take, data);
    }
    cancel_allow(cancel);
}

bool stream_rings_has_more(const struct stream_rings *rings)
{
    return rings_has_next(rings->reader);
}

/* ---- begin and end ---- */

static void *stream_rings_beat(void *data)
{
    struct stream_rings *rings = data;
    pthread_mutex_lock(&rings->lock);
    while (!rings->over) {
        const struct head head = {0};
        struct iovec frame = {(void *)&head, sizeof(head)};
        if (clock_wait(&rings->changed, &rings->lock, clock_now_ns() + BEAT_NS) == 0)
            continue;
        /* If the ring is full, the client has other messages to hear. */
        pthread_mutex_unlock(&rings->lock);
        (void)!rings_post(rings->writer, &frame, 1, clock_now_ns(), NULL);
        pool_tidy(&rings->stream->pool);
        pthread_mutex_lock(&rings->lock);
    }
    pthread_mutex_unlock(&rings->lock);
    return NULL;
}

/* The reason was set by bell_peer_end(). */
static void stream_rings_wake_all(void *data)
{
    struct stream_rings *rings = data;
    rings_writer_end(rings->writer);
    rings_reader_end(rings->reader);
}

void stream_rings_end(struct stream_rings *rings, int error)
{
    bell_peer_end(&rings->peer, error);
    stream_rings_wake_all(rings);
    rings->stream->link->ops->shut_down(rings->stream->link);
}

bool stream_rings_have_ended(const struct stream_rings *rings)
{
    return atomic_load(&rings->peer.ended) != 0;
}

void stream_rings_destroy(struct stream_rings *rings)
{
    if (rings->beats) {
        pthread_mutex_lock(&rings->lock);
        rings->over = true;
        pthread_cond_broadcast(&rings->changed);
        pthread_mutex_unlock(&rings->lock);
        pthread_join(rings->beat, NULL);
    }
    lookout_destroy(rings->lookout);
    rings_writer_destroy(rings->writer);
    rings_reader_destroy(rings->reader);
    free(rings->frame);
    free(rings);
}

static int stream_rings_begin(struct stream *stream, struct link *link,
                              const struct rings_shape *out, const struct rings_shape *in,
                              const struct rings_areas *areas, bool beats)
{
    struct stream_rings *rings = calloc(1, sizeof(*rings));
    if (!rings)
        return -ENOMEM;
    *stream = (struct stream){.posting = PTHREAD_MUTEX_INITIALIZER,
                              .lock = PTHREAD_MUTEX_INITIALIZER,
                              .changed = PTHREAD_COND_INITIALIZER,
                              .longest = WIRE_MESSAGE_MAX};
    pool_init(&stream->pool, 0);
    rings->stream = stream;
    rings->peer.socket = *link->ops->socket(link);
    pthread_mutex_init(&rings->posting, NULL);
    pthread_mutex_init(&rings->lock, NULL);
    pthread_cond_init(&rings->changed, NULL);
    bell_spin_init(&rings->spin, BELL_SPIN_DEVICE);
    rings->part_most = rings_frame_most(out) - sizeof(struct head);
    rings->frame = malloc(rings_frame_most(in));
    int error = rings->frame ? 0 : -ENOMEM;
    if (error == 0)
        error = rings_writer_create(out, areas->out, &rings->peer, &rings->writer);
    if (error == 0)
        error = rings_reader_create(in, areas->in, &rings->peer, &rings->reader);
    /* Without a lookout, a program that closes the socket ends its session. */
    if (error == 0 && !beats)
        (void)!lookout_create(&rings->peer, stream_rings_wake_all, rings, &rings->lookout);
    if (error == 0 && beats)
        error = thread_start("reseat-beat", 0, stream_rings_beat, rings, &rings->beat);
    if (error) {
        stream_rings_destroy(rings);
        return error;
    }
    rings->beats = beats;
    stream->link = link;
    stream->rings = rings;
    return 0;
}

/* ---- after the greetings ---- */

int rings_areas_make(struct rings_areas *ret_areas)
{
    struct rings_areas areas = {-1, -1};
    int error = area_create("reseat-rings", rings_size(&rings_to_server), &areas.out);
    if (error == 0)
        error = area_create("reseat-rings", rings_size(&rings_to_client), &areas.in);
    if (error)
        rings_areas_close(&areas);
    else
        *ret_areas = areas;
    return error;
}

void rings_areas_close(struct rings_areas *areas)
{
    if (areas->out >= 0)
        close(areas->out);
    if (areas->in >= 0)
        close(areas->in);
    *areas = (struct rings_areas){-1, -1};
}

int stream_begin_rings(struct stream *stream, struct link *link, const struct rings_areas *areas,
                       uint64_t deadline_ns)
{
    int error = greeting_send_descriptor(link, MSG_RINGS, 1, areas->out, deadline_ns);
    if (error == 0)
        error = greeting_send_descriptor(link, MSG_RINGS, 0, areas->in, deadline_ns);
    return error
               ? error
               : stream_rings_begin(stream, link, &rings_to_server, &rings_to_client, areas, false);
}

int stream_accept_rings(struct stream *stream, struct link *link, uint64_t deadline_ns)
{
    struct rings_areas areas = {-1, -1};
    int error = greeting_receive_descriptor(link, MSG_RINGS, 1, deadline_ns, &areas.in);
    if (error == 0)
        error = greeting_receive_descriptor(link, MSG_RINGS, 0, deadline_ns, &areas.out);
    if (error == 0)
        error = stream_rings_begin(stream, link, &rings_to_client, &rings_to_server, &areas, true);
    rings_areas_close(&areas);
    return error;
}
