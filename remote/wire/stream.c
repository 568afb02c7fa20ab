#include "remote/wire/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "remote/wire/stream_rings.h"
#include "remote/wire/wire.h"
#include "state/base/clock.h"
#include "state/base/thread.h"

#define FRAGMENT_MAX (256u << 10) /* Of a frame's body. */
#define PACKET_LEAST (32u << 10)
#define IN_SIZE      (2 * (sizeof(struct header) + FRAGMENT_MAX))
#define IOV_MAX_USED 16
#define BEAT_NS      NS_PER_S
/* Each send costs as much as many small messages: those of one moment go together. */
#define MOMENT_NS (NS_PER_MS / 10)
#define FLAG_MORE 1u /* Of a frame: the message goes on in the next one. */
/* Say that it was received after that many bytes: well within any window. */
#define ACKNOWLEDGE_EACH (1u << 20)

struct header {
    uint32_t size;
    uint16_t type, flags;
    uint64_t number;   /* From 1; 0: only says what was received. */
    uint64_t received; /* The highest number, without a gap. */
};
_Static_assert(sizeof(struct header) == 24, "as it is sent");

/* Whole frames, and what was sent of them never changes. */
struct packet {
    struct packet *next;
    uint64_t last; /* Number of the last frame. */
    size_t used, room;
    struct owned descriptor; /* Goes with its one frame. */
    unsigned char bytes[];
};

/* ---- sending ---- */

static void packet_free(struct packet *packet)
{
    owned_close(&packet->descriptor);
    free(packet);
}

static void trim(struct stream *stream)
{
    while (!stream->sending && stream->first && stream->first != stream->unsent &&
           stream->first->last <= stream->acknowledged) {
        struct packet *packet = stream->first;
        /* The last one is where the next frame goes, if there is room. */
        if (packet == stream->last)
            stream->last = NULL;
        stream->first = packet->next;
        stream->kept -= packet->room;
        packet_free(packet);
    }
}

/* One that the program has closed does not go; the other side does without. */
static int send_descriptor(struct link *link, const struct owned *descriptor)
{
    int fd = descriptor ? owned_fd(descriptor) : -1;
    return fd >= 0 && link->ops->send_descriptor ? link->ops->send_descriptor(link, fd) : 0;
}

/* Under the lock. The receiver sees to it. */
static void break_link(struct stream *stream)
{
    if (!stream->broken)
        stream->broken_ns = clock_now_ns();
    stream->broken = true;
    if (stream->link)
        stream->link->ops->shut_down(stream->link);
}

/* Under the lock, which is let go meanwhile. Only one at a time: it sends for all. */
static void send_posted(struct stream *stream)
{
    if (stream->sending)
        return;
    stream->sending = true;
    while (stream->link && !stream->broken && !stream->ended && (stream->unsent || stream->beat)) {
        struct header beat = {.received = stream->received};
        struct iovec iov[IOV_MAX_USED];
        size_t count = 0;
        if (stream->beat)
            iov[count++] = (struct iovec){&beat, sizeof(beat)};
        stream->beat = false;
        struct packet *packet = stream->unsent;
        size_t at = stream->unsent_at, end = 0, sent = 0;
        struct packet *last = NULL;
        const struct owned *descriptor = NULL;
        for (; packet && count < IOV_MAX_USED; packet = packet->next, at = 0) {
            /* One at a time, and with the first bytes. */
            if (packet->descriptor.fd >= 0 && count != 0)
                break;
            if (packet->descriptor.fd >= 0)
                descriptor = &packet->descriptor;
            if (packet->used > at)
                iov[count++] = (struct iovec){packet->bytes + at, packet->used - at};
            last = packet;
            end = packet->used;
            sent += packet->used - at;
        }
        struct link *link = stream->link;
        pthread_mutex_unlock(&stream->lock);
        int error = send_descriptor(link, descriptor);
        if (error == 0 && count)
            error = link->ops->send(link, iov, count, UINT64_MAX);
        pthread_mutex_lock(&stream->lock);
        stream->sent_ns = clock_now_ns();
        if (error) {
            break_link(stream);
            break;
        }
        if (last) {
            stream->waiting -= sent;
            stream->unsent = end < last->used ? last : last->next;
            stream->unsent_at = end < last->used ? end : 0;
        }
    }
    stream->sending = stream->soon = false;
    trim(stream);
    pthread_cond_broadcast(&stream->changed);
}

void stream_flush(struct stream *stream)
{
    if (stream->rings)
        return; /* What was posted is there. */
    pthread_mutex_lock(&stream->lock);
    send_posted(stream);
    pthread_mutex_unlock(&stream->lock);
}

void stream_flush_soon(struct stream *stream)
{
    if (stream->rings)
        return;
    pthread_mutex_lock(&stream->lock);
    /* Whoever sends does so until there is nothing left. */
    if (!stream->sending && !stream->soon) {
        if (clock_now_ns() - stream->sent_ns >= MOMENT_NS) {
            send_posted(stream);
        } else {
            stream->soon = true;
            pthread_cond_broadcast(&stream->changed);
        }
    }
    pthread_mutex_unlock(&stream->lock);
}

static void *sender(void *data)
{
    struct stream *stream = data;
    pthread_mutex_lock(&stream->lock);
    while (!stream->ended) {
        bool ready =
            stream->link && !stream->broken && !stream->sending && (stream->unsent || stream->beat);
        uint64_t moment = stream->soon ? stream->sent_ns + MOMENT_NS : 0;
        if (ready && clock_now_ns() >= moment)
            send_posted(stream);
        else if (ready)
            (void)clock_wait(&stream->changed, &stream->lock, moment);
        else if (clock_wait(&stream->changed, &stream->lock, clock_now_ns() + BEAT_NS))
            stream->beat = true;
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

/* A packet with room for a frame, as the last one; one of its own for one with a descriptor. Under
   the lock. */
static struct packet *room_for(struct stream *stream, size_t size, struct owned descriptor)
{
    struct packet *packet = stream->last;
    if (packet && packet->room - packet->used >= size && descriptor.fd < 0)
        return packet;
    size_t room = size > PACKET_LEAST || descriptor.fd >= 0 ? size : PACKET_LEAST;
    packet = malloc(sizeof(*packet) + room);
    if (!packet)
        return NULL;
    *packet = (struct packet){.room = room, .descriptor = descriptor};
    if (stream->last)
        stream->last->next = packet;
    else
        stream->first = packet;
    stream->last = packet;
    stream->kept += room;
    return packet;
}

static int post_frame(struct stream *stream, struct header header, struct iovec parts[2],
                      struct owned descriptor)
{
    size_t size = sizeof(header) + header.size;
    while (!stream->ended && stream->window && stream->kept > stream->window) {
        send_posted(stream);
        if (!stream->ended && stream->kept > stream->window)
            pthread_cond_wait(&stream->changed, &stream->lock);
    }
    if (stream->ended)
        return stream->ended;
    struct packet *packet = room_for(stream, size, descriptor);
    if (!packet)
        return -ENOMEM;
    header.number = ++stream->posted;
    header.received = stream->received;
    if (!stream->unsent) {
        stream->unsent = packet;
        stream->unsent_at = packet->used;
    }
    unsigned char *at = packet->bytes + packet->used;
    memcpy(at, &header, sizeof(header));
    at += sizeof(header);
    for (size_t left = header.size; left != 0;) {
        struct iovec *part = parts[0].iov_len ? &parts[0] : &parts[1];
        size_t some = part->iov_len < left ? part->iov_len : left;
        memcpy(at, part->iov_base, some);
        part->iov_base = (char *)part->iov_base + some;
        part->iov_len -= some;
        at += some;
        left -= some;
    }
    packet->used += size;
    stream->waiting += size;
    packet->last = stream->posted;
    return 0;
}

int stream_post(struct stream *stream, unsigned type, const void *body, size_t size,
                const void *tail, size_t tail_size)
{
    struct iovec parts[2] = {{(void *)body, size}, {(void *)tail, tail_size}};
    if (stream->rings)
        return stream_rings_post(stream->rings, type, body, size, tail, tail_size);
    size_t left = size + tail_size;
    if (left > WIRE_MESSAGE_MAX)
        return -EMSGSIZE;
    pthread_mutex_lock(&stream->posting);
    pthread_mutex_lock(&stream->lock);
    int error = 0;
    do {
        uint32_t some = left < FRAGMENT_MAX ? (uint32_t)left : FRAGMENT_MAX;
        left -= some;
        struct header header = {
            .size = some, .type = (uint16_t)type, .flags = left ? FLAG_MORE : 0};
        error = post_frame(stream, header, parts, OWNED_NONE);
        /* The first part of a long one can go while the rest is copied. */
        if (error == 0 && left != 0) {
            pthread_cond_broadcast(&stream->changed);
            pthread_mutex_unlock(&stream->lock);
            pthread_mutex_lock(&stream->lock);
        }
    } while (error == 0 && left != 0);
    /* Half a message cannot be taken back. */
    if (error == -ENOMEM && left + FRAGMENT_MAX < size + tail_size)
        stream->ended = error;
    if (!stream->window)
        pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    pthread_mutex_unlock(&stream->posting);
    return error;
}

int stream_post_descriptor(struct stream *stream, unsigned type, const void *body, size_t size,
                           struct owned *descriptor)
{
    struct iovec parts[2] = {{(void *)body, size}, {NULL, 0}};
    struct header header = {.size = (uint32_t)size, .type = (uint16_t)type};
    if (size > FRAGMENT_MAX)
        return -EMSGSIZE;
    pthread_mutex_lock(&stream->posting);
    pthread_mutex_lock(&stream->lock);
    int error = post_frame(stream, header, parts, *descriptor);
    if (error == 0)
        *descriptor = OWNED_NONE;
    pthread_mutex_unlock(&stream->lock);
    pthread_mutex_unlock(&stream->posting);
    return error;
}

/* Post a last frame, and wait until it is sent. Under both locks. */
static void post_last(struct stream *stream, unsigned type, uint64_t deadline_ns)
{
    struct header header = {.type = (uint16_t)type};
    struct iovec none[2] = {{0}};
    stream->window = 0; /* It has room in any case. */
    if (post_frame(stream, header, none, OWNED_NONE))
        return;
    pthread_cond_broadcast(&stream->changed);
    while (stream->link && !stream->broken && !stream->ended && (stream->unsent || stream->sending))
        if (clock_wait(&stream->changed, &stream->lock, deadline_ns))
            return;
}

void stream_leave(struct stream *stream, unsigned type, uint64_t deadline_ns)
{
    if (stream->rings)
        return; /* Hanging up says so. */
    if (clock_lock(&stream->posting, deadline_ns))
        return;
    if (clock_lock(&stream->lock, deadline_ns) == 0) {
        if (stream->link && !stream->broken)
            post_last(stream, type, deadline_ns);
        pthread_mutex_unlock(&stream->lock);
    }
    pthread_mutex_unlock(&stream->posting);
}

size_t stream_waiting(struct stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    size_t waiting = stream->waiting;
    pthread_mutex_unlock(&stream->lock);
    return waiting;
}

/* ---- receiving ---- */

/* The other side has all frames up to @received. Under the lock. */
static bool acknowledge(struct stream *stream, uint64_t received)
{
    if (received > stream->posted)
        return false;
    if (received > stream->acknowledged) {
        stream->acknowledged = received;
        trim(stream);
        pthread_cond_broadcast(&stream->changed);
    }
    return true;
}

/* Check a header, and count its frame. */
static int take_header(struct stream *stream, const struct header *header)
{
    pthread_mutex_lock(&stream->lock);
    bool good = acknowledge(stream, header->received);
    if (header->number != 0) {
        good = good && header->number == stream->received + 1;
        stream->received += good;
        stream->unacknowledged += sizeof(*header) + header->size;
        if (stream->unacknowledged >= ACKNOWLEDGE_EACH) {
            stream->unacknowledged = 0;
            stream->beat = true;
            pthread_cond_broadcast(&stream->changed);
        }
    } else {
        good = good && header->size == 0 && header->type == 0;
    }
    pthread_mutex_unlock(&stream->lock);
    return good ? 0 : -EPROTO;
}

static int add_fragment(struct stream *stream, const unsigned char *body, size_t size)
{
    size_t needed = stream->whole_used + size;
    if (needed > atomic_load(&stream->longest))
        return -EPROTO;
    if (needed > stream->whole_room) {
        size_t room = needed > SIZE_MAX / 2 ? needed : 2 * needed;
        unsigned char *whole = realloc(stream->whole, room);
        if (!whole)
            return -ENOMEM;
        stream->whole = whole;
        stream->whole_room = room;
    }
    memcpy(stream->whole + stream->whole_used, body, size);
    stream->whole_used = needed;
    return 0;
}

/* A message of several frames was used. What was needed for a long one is not kept. */
static void drop_whole(struct stream *stream)
{
    stream->whole_used = 0;
    stream->whole_done = false;
    if (stream->whole_room > 16 * FRAGMENT_MAX) {
        free(stream->whole);
        stream->whole = NULL;
        stream->whole_room = 0;
    }
}

/* One frame that lies in `in`, if there is a whole one: 1. */
static int take_frame(struct stream *stream, struct header *ret_header,
                      const unsigned char **ret_body)
{
    struct header header;
    size_t there = stream->in_used - stream->in_at;
    if (there < sizeof(header))
        return 0;
    memcpy(&header, stream->in + stream->in_at, sizeof(header));
    if (header.size > FRAGMENT_MAX || (header.flags & ~FLAG_MORE))
        return -EPROTO;
    if (there < sizeof(header) + header.size)
        return 0;
    *ret_body = stream->in + stream->in_at + sizeof(header);
    *ret_header = header;
    stream->in_at += sizeof(header) + header.size;
    int error = take_header(stream, &header);
    return error ? error : 1;
}

/* The message that a frame ends: 1. */
static int end_message(struct stream *stream, const struct header *header,
                       const unsigned char *body, struct message *ret_message)
{
    bool more = header->flags & FLAG_MORE;
    if (header->number == 0)
        return 0;
    if (!more && stream->whole_used == 0) {
        *ret_message = (struct message){header->type, body, header->size};
        return 1;
    }
    int error = add_fragment(stream, body, header->size);
    if (error || more)
        return error;
    stream->whole_done = true;
    *ret_message = (struct message){header->type, stream->whole, stream->whole_used};
    return 1;
}

/* More bytes into `in`, which has room for the rest of any frame. */
static int receive_some(struct stream *stream, uint64_t silence_ns)
{
    struct link *link = stream->link; /* Only the receiver changes it. */
    size_t got = 0;
    stream->in_used -= stream->in_at;
    memmove(stream->in, stream->in + stream->in_at, stream->in_used);
    stream->in_at = 0;
    int error = link->ops->receive(link, stream->in + stream->in_used, IN_SIZE - stream->in_used,
                                   silence_ns ? clock_now_ns() + silence_ns : UINT64_MAX, &got);
    if (error == 0)
        stream->in_used += got;
    return error;
}

int stream_receive(struct stream *stream, uint64_t silence_ns, struct message *ret_message)
{
    if (stream->rings)
        return stream_rings_receive(stream->rings, silence_ns, ret_message);
    if (stream->whole_done)
        drop_whole(stream);
    for (;;) {
        const unsigned char *body = NULL;
        struct header header;
        int taken = take_frame(stream, &header, &body);
        if (taken == 1)
            taken = end_message(stream, &header, body, ret_message);
        else if (taken == 0)
            taken = receive_some(stream, silence_ns);
        if (taken != 0)
            return taken < 0 ? taken : 0;
    }
}

bool stream_has_more(const struct stream *stream)
{
    if (stream->rings)
        return stream_rings_has_more(stream->rings);
    return stream->in_used - stream->in_at >= sizeof(struct header);
}

bool stream_is_sent(struct stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    bool sent = !stream->unsent && !stream->sending;
    pthread_mutex_unlock(&stream->lock);
    return sent;
}

/* ---- its life ---- */

int stream_init(struct stream *stream, size_t window)
{
    *stream = (struct stream){.posting = PTHREAD_MUTEX_INITIALIZER,
                              .lock = PTHREAD_MUTEX_INITIALIZER,
                              .changed = PTHREAD_COND_INITIALIZER,
                              .window = window,
                              .longest = WIRE_MESSAGE_MAX};
    stream->in = malloc(IN_SIZE);
    int error =
        stream->in ? thread_start("reseat-send", 0, sender, stream, &stream->sender) : -ENOMEM;
    if (error)
        free(stream->in);
    return error;
}

void stream_finish(struct stream *stream)
{
    stream_end(stream, -ECANCELED);
    if (stream->rings)
        stream_rings_destroy(stream->rings);
    else
        pthread_join(stream->sender, NULL);
    if (stream->link)
        stream->link->ops->destroy(stream->link);
    while (stream->first) {
        struct packet *packet = stream->first;
        stream->first = packet->next;
        packet_free(packet);
    }
    free(stream->in);
    free(stream->whole);
}

/* Where frame @number begins, of those that are kept. Under the lock. */
static bool seek(struct stream *stream, uint64_t number)
{
    stream->waiting = 0;
    for (struct packet *packet = stream->first; packet; packet = packet->next)
        if (packet->last >= number)
            stream->waiting += packet->used;
    for (struct packet *packet = stream->first; packet; packet = packet->next) {
        if (packet->last < number)
            continue;
        for (size_t at = 0; at < packet->used;) {
            struct header header;
            memcpy(&header, packet->bytes + at, sizeof(header));
            if (header.number == number) {
                stream->unsent = packet;
                stream->unsent_at = at;
                stream->waiting -= at;
                return true;
            }
            at += sizeof(header) + header.size;
        }
    }
    stream->unsent = NULL;
    return number == stream->posted + 1;
}

bool stream_attach(struct stream *stream, struct link *link, uint64_t received)
{
    pthread_mutex_lock(&stream->lock);
    bool good = received >= stream->acknowledged && acknowledge(stream, received) &&
                seek(stream, received + 1);
    if (good) {
        stream->in_at = stream->in_used = 0;
        stream->link = link;
        stream->broken = false;
        stream->broken_ns = 0;
        pthread_cond_broadcast(&stream->changed);
    }
    pthread_mutex_unlock(&stream->lock);
    return good;
}

void stream_detach(struct stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    struct link *link = stream->link;
    break_link(stream);
    while (stream->sending)
        pthread_cond_wait(&stream->changed, &stream->lock);
    stream->link = NULL;
    pthread_mutex_unlock(&stream->lock);
    if (link)
        link->ops->destroy(link);
}

void stream_interrupt(struct stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    if (stream->link)
        break_link(stream);
    if (stream->rings)
        stream_rings_end(stream->rings, -EPIPE);
    pthread_mutex_unlock(&stream->lock);
}

uint64_t stream_broken_since(struct stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    uint64_t since = stream->broken_ns;
    pthread_mutex_unlock(&stream->lock);
    return since;
}

size_t stream_kept(struct stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    size_t kept = stream->kept;
    pthread_mutex_unlock(&stream->lock);
    return kept;
}

void stream_end(struct stream *stream, int error)
{
    pthread_mutex_lock(&stream->lock);
    if (!stream->ended)
        stream->ended = error;
    if (stream->rings)
        stream_rings_end(stream->rings, error);
    else if (stream->link)
        stream->link->ops->shut_down(stream->link);
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
}

bool stream_has_ended(struct stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    bool ended = stream->ended != 0 || (stream->rings && stream_rings_have_ended(stream->rings));
    pthread_mutex_unlock(&stream->lock);
    return ended;
}

/* ---- greetings ---- */

int greeting_send(struct link *link, unsigned type, const void *body, size_t size,
                  uint64_t deadline_ns)
{
    struct header header = {.size = (uint32_t)size, .type = (uint16_t)type};
    struct iovec iov[] = {{&header, sizeof(header)}, {(void *)body, size}};
    return link->ops->send(link, iov, ARRAY_SIZE(iov), deadline_ns);
}

static int receive_exactly(struct link *link, void *bytes, size_t size, uint64_t deadline_ns)
{
    int error = 0;
    for (size_t at = 0; error == 0 && at < size;) {
        size_t got = 0;
        error = link->ops->receive(link, (char *)bytes + at, size - at, deadline_ns, &got);
        at += error ? 0 : got;
    }
    return error;
}

int greeting_receive(struct link *link, unsigned char buffer[STREAM_GREETING_MAX],
                     uint64_t deadline_ns, struct message *ret_message)
{
    struct header header;
    int error = receive_exactly(link, &header, sizeof(header), deadline_ns);
    if (error == 0 && (header.size > STREAM_GREETING_MAX || header.flags || header.number))
        error = -EPROTO;
    if (error == 0)
        error = receive_exactly(link, buffer, header.size, deadline_ns);
    if (error == 0)
        *ret_message = (struct message){header.type, buffer, header.size};
    return error;
}
