#include "remote/wire/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "remote/wire/stream_rings.h"
#include "remote/wire/wire.h"
#include "state/base/clock.h"
#include "state/base/threads/thread.h"

#define FRAGMENT_MAX (256u << 10) /* The longest body of a frame. */
#define PACKET_LEAST (32u << 10)
#define IN_SIZE      (2 * (sizeof(struct stream_header) + FRAGMENT_MAX))
#define IOV_MAX_USED 16
#define BEAT_NS      NS_PER_S
/* Each send costs as much as many small messages: messages of one MOMENT_NS are sent together. */
#define MOMENT_NS (NS_PER_MS / 10)
/* No more room than this is reserved for a message in advance, however long the last one was. */
#define EXPECTED_MAX ((size_t)64 << 20)
#define FLAG_MORE    1u /* The message goes on in the next frame. */
/* How many bytes may be received before an acknowledgement is sent: fewer than any window has. */
#define ACKNOWLEDGE_EACH (1u << 20)

/* The greater part of a large frame's body, outside its packet: a copy in memory of the pool, or
 * memory of the thread that posts. */
struct apart {
    struct pooled *memory; /* NULL: there is none. */
    const unsigned char *at;
    size_t size;
};

/* Whole frames, as they are sent. What was sent of a packet never changes. */
struct packet {
    struct packet *next;
    uint64_t last; /* Number of its last frame. */
    size_t used, room;
    struct apart apart;      /* Follows `bytes`; then the packet has one frame. */
    struct owned descriptor; /* Sent with the packet; then the packet has one frame. */
    unsigned char bytes[];
};

/* ---- sending ---- */

static void stream_packet_free(struct packet *packet)
{
    owned_close(&packet->descriptor);
    pooled_drop(packet->apart.memory);
    free(packet);
}

/* How many bytes the packet sends. */
static size_t stream_packet_size(const struct packet *packet)
{
    return packet->used + packet->apart.size;
}

/* The bytes from @at on; returns in how many parts. */
static size_t stream_packet_rest(const struct packet *packet, size_t at, struct iovec parts[2])
{
    size_t count = 0;
    if (at < packet->used)
        parts[count++] = (struct iovec){(void *)(packet->bytes + at), packet->used - at};
    at = at < packet->used ? 0 : at - packet->used;
    if (at < packet->apart.size)
        parts[count++] = (struct iovec){(void *)(packet->apart.at + at), packet->apart.size - at};
    return count;
}

static void stream_trim(struct stream *stream)
{
    while (!stream->sending && stream->first && stream->first != stream->unsent &&
           stream->first->last <= stream->acknowledged) {
        struct packet *packet = stream->first;
        /* No more frames can be added to a packet that is freed. */
        if (packet == stream->last)
            stream->last = NULL;
        stream->first = packet->next;
        stream->kept -= packet->room + packet->apart.size;
        stream_packet_free(packet);
    }
}

/* A descriptor that the program has closed is not sent; the peer does without. */
static int stream_send_descriptor(struct link *link, const struct owned *descriptor)
{
    int fd = descriptor ? owned_fd(descriptor) : -1;
    return fd >= 0 && link->ops->send_descriptor ? link->ops->send_descriptor(link, fd) : 0;
}

/* Called with the lock. The receiving thread notices and detaches the link. */
static void stream_break_link(struct stream *stream)
{
    if (!stream->broken)
        stream->broken_ns = clock_now_ns();
    stream->broken = true;
    if (stream->link)
        stream->link->ops->shut_down(stream->link);
}

/* Called with the lock, which is released while sending. One thread at a time sends for all. */
static void stream_send_posted(struct stream *stream)
{
    if (stream->sending)
        return;
    stream->sending = true;
    while (stream->link && !stream->broken && !stream->ended && (stream->unsent || stream->beat)) {
        struct stream_header beat = {.received = stream->received};
        struct iovec iov[IOV_MAX_USED];
        size_t count = 0;
        if (stream->beat)
            iov[count++] = (struct iovec){&beat, sizeof(beat)};
        stream->beat = false;
        struct packet *packet = stream->unsent;
        size_t at = stream->unsent_at, end = 0, sent = 0;
        struct packet *last = NULL;
        const struct owned *descriptor = NULL;
        for (; packet && count + 2 <= IOV_MAX_USED; packet = packet->next, at = 0) {
            /* A link sends one descriptor at a time, with the first bytes of a send. */
            if (packet->descriptor.fd >= 0 && count != 0)
                break;
            if (packet->descriptor.fd >= 0)
                descriptor = &packet->descriptor;
            count += stream_packet_rest(packet, at, iov + count);
            last = packet;
            end = stream_packet_size(packet);
            sent += end - at;
        }
        struct link *link = stream->link;
        pthread_mutex_unlock(&stream->lock);
        int error = stream_send_descriptor(link, descriptor);
        if (error == 0 && count)
            error = link->ops->send(link, iov, count, UINT64_MAX);
        pthread_mutex_lock(&stream->lock);
        stream->sent_ns = clock_now_ns();
        if (error) {
            stream_break_link(stream);
            break;
        }
        if (last) {
            stream->waiting -= sent;
            bool grew = end < stream_packet_size(last);
            stream->unsent = grew ? last : last->next;
            stream->unsent_at = grew ? end : 0;
        }
    }
    stream->sending = stream->soon = false;
    stream_trim(stream);
    pthread_cond_broadcast(&stream->changed);
}

void stream_flush(struct stream *stream)
{
    if (stream->rings)
        return; /* A post to a ring is visible at once. */
    pthread_mutex_lock(&stream->lock);
    stream_send_posted(stream);
    pthread_mutex_unlock(&stream->lock);
}

void stream_flush_soon(struct stream *stream)
{
    if (stream->rings)
        return;
    pthread_mutex_lock(&stream->lock);
    /* A thread that is sending goes on until nothing is left. */
    if (!stream->sending && !stream->soon) {
        if (clock_now_ns() - stream->sent_ns >= MOMENT_NS) {
            stream_send_posted(stream);
        } else {
            stream->soon = true;
            pthread_cond_broadcast(&stream->changed);
        }
    }
    pthread_mutex_unlock(&stream->lock);
}

static void *stream_sender(void *data)
{
    struct stream *stream = data;
    pthread_mutex_lock(&stream->lock);
    while (!stream->ended) {
        bool ready =
            stream->link && !stream->broken && !stream->sending && (stream->unsent || stream->beat);
        uint64_t moment = stream->soon ? stream->sent_ns + MOMENT_NS : 0;
        if (ready && clock_now_ns() >= moment)
            stream_send_posted(stream);
        else if (ready)
            (void)clock_wait(&stream->changed, &stream->lock, moment);
        else if (clock_wait(&stream->changed, &stream->lock, clock_now_ns() + BEAT_NS)) {
            stream->beat = true;
            pool_tidy(&stream->pool);
        }
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

/* Returns the last packet if a frame fits there, or else a new one. A frame with a descriptor or
 * with bytes apart gets a packet of its own. Called with the lock. */
static struct packet *stream_room_for(struct stream *stream, size_t size, const struct apart *apart,
                                      struct owned descriptor)
{
    struct packet *packet = stream->last;
    bool alone = apart->memory || descriptor.fd >= 0;
    if (packet && !packet->apart.memory && packet->room - packet->used >= size && !alone)
        return packet;
    size_t room = size > PACKET_LEAST || alone ? size : PACKET_LEAST;
    packet = malloc(sizeof(*packet) + room);
    if (!packet)
        return NULL;
    *packet = (struct packet){.room = room, .apart = *apart, .descriptor = descriptor};
    if (stream->last)
        stream->last->next = packet;
    else
        stream->first = packet;
    stream->last = packet;
    stream->kept += room + apart->size;
    return packet;
}

/* What is left of a message that is being posted. */
struct posting {
    struct iovec parts[2];
    struct pooled *lies_in; /* The memory that holds the second part; or NULL. */
};

static void stream_gather(unsigned char *to, struct posting *posting, size_t size)
{
    while (size != 0) {
        struct iovec *part = &posting->parts[posting->parts[0].iov_len == 0];
        size_t some = part->iov_len < size ? part->iov_len : size;
        memcpy(to, part->iov_base, some);
        part->iov_base = (char *)part->iov_base + some;
        part->iov_len -= some;
        to += some;
        size -= some;
    }
}

/* Put the body of a large frame outside its packet: hold the memory that it is in, or copy it to
 * memory of the pool. Called by the posting thread, without the lock. 0 or -ENOMEM. */
static int stream_set_apart(struct stream *stream, struct posting *posting, size_t size,
                            struct apart *ret_apart)
{
    size_t head = posting->parts[0].iov_len;
    if (size <= PACKET_LEAST || (posting->lies_in && head >= size))
        return 0;
    if (posting->lies_in) {
        struct iovec *tail = &posting->parts[1];
        *ret_apart = (struct apart){posting->lies_in, tail->iov_base, size - head};
        pooled_hold(posting->lies_in);
        tail->iov_base = (char *)tail->iov_base + ret_apart->size;
        tail->iov_len -= ret_apart->size;
        return 0;
    }
    struct pooled *memory = pool_take(&stream->pool, size);
    if (!memory)
        return -ENOMEM;
    stream_gather(memory->bytes, posting, size);
    *ret_apart = (struct apart){memory, memory->bytes, size};
    return 0;
}

/* Called with the lock. On success the frame owns @apart. */
static int stream_post_frame(struct stream *stream, struct stream_header header,
                             struct posting *posting, const struct apart *apart,
                             struct owned descriptor)
{
    size_t size = sizeof(header) + header.size;
    while (!stream->ended && stream->window && stream->kept > stream->window) {
        stream_send_posted(stream);
        if (!stream->ended && stream->kept > stream->window)
            pthread_cond_wait(&stream->changed, &stream->lock);
    }
    if (stream->ended)
        return stream->ended;
    struct packet *packet = stream_room_for(stream, size - apart->size, apart, descriptor);
    if (!packet)
        return -ENOMEM;
    header.number = ++stream->posted;
    header.received = stream->received;
    if (!stream->unsent) {
        stream->unsent = packet;
        stream->unsent_at = packet->used;
    }
    memcpy(packet->bytes + packet->used, &header, sizeof(header));
    stream_gather(packet->bytes + packet->used + sizeof(header), posting,
                  header.size - apart->size);
    packet->used += size - apart->size;
    stream->waiting += size;
    packet->last = stream->posted;
    return 0;
}

static const struct apart in_one; /* Nothing is apart. */

static int stream_post_apart(struct stream *stream, struct stream_header header,
                             struct posting *posting)
{
    struct apart apart = {0};
    int error = stream_set_apart(stream, posting, header.size, &apart);
    pthread_mutex_lock(&stream->lock);
    if (error == 0)
        error = stream_post_frame(stream, header, posting, &apart, OWNED_NONE);
    /* The first frames of a long message can be sent while the others are copied. */
    if (error == 0 && ((header.flags & FLAG_MORE) || !stream->window))
        pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    if (error)
        pooled_drop(apart.memory);
    return error;
}

int stream_post(struct stream *stream, unsigned type, const void *body, size_t size,
                const void *tail, size_t tail_size)
{
    return stream_post_pooled(stream, type, body, size, tail, tail_size, NULL);
}

int stream_post_pooled(struct stream *stream, unsigned type, const void *body, size_t size,
                       const void *tail, size_t tail_size, struct pooled *lies_in)
{
    struct posting posting = {{{(void *)body, size}, {(void *)tail, tail_size}}, lies_in};
    if (stream->rings)
        return stream_rings_post(stream->rings, type, body, size, tail, tail_size);
    size_t left = size + tail_size;
    if (left > WIRE_MESSAGE_MAX)
        return -EMSGSIZE;
    pthread_mutex_lock(&stream->posting);
    int error = 0;
    do {
        uint32_t some = left < FRAGMENT_MAX ? (uint32_t)left : FRAGMENT_MAX;
        left -= some;
        struct stream_header header = {
            .size = some, .type = (uint16_t)type, .flags = left ? FLAG_MORE : 0};
        error = stream_post_apart(stream, header, &posting);
    } while (error == 0 && left != 0);
    /* The peer has part of the message, and cannot go on without the rest. */
    if (error == -ENOMEM && left + FRAGMENT_MAX < size + tail_size)
        stream_end(stream, error);
    pthread_mutex_unlock(&stream->posting);
    return error;
}

int stream_post_descriptor(struct stream *stream, unsigned type, const void *body, size_t size,
                           struct owned *descriptor)
{
    struct posting posting = {{{(void *)body, size}, {NULL, 0}}, NULL};
    struct stream_header header = {.size = (uint32_t)size, .type = (uint16_t)type};
    if (size > FRAGMENT_MAX)
        return -EMSGSIZE;
    pthread_mutex_lock(&stream->posting);
    pthread_mutex_lock(&stream->lock);
    int error = stream_post_frame(stream, header, &posting, &in_one, *descriptor);
    if (error == 0)
        *descriptor = OWNED_NONE;
    pthread_mutex_unlock(&stream->lock);
    pthread_mutex_unlock(&stream->posting);
    return error;
}

/* Post a last frame, and wait until it is sent. Called with both locks. */
static void stream_post_last(struct stream *stream, unsigned type, uint64_t deadline_ns)
{
    struct stream_header header = {.type = (uint16_t)type};
    struct posting none = {{{0}}, NULL};
    stream->window = 0; /* The last frame must not wait for room. */
    if (stream_post_frame(stream, header, &none, &in_one, OWNED_NONE))
        return;
    pthread_cond_broadcast(&stream->changed);
    while (stream->link && !stream->broken && !stream->ended && (stream->unsent || stream->sending))
        if (clock_wait(&stream->changed, &stream->lock, deadline_ns))
            return;
}

void stream_leave(struct stream *stream, unsigned type, uint64_t deadline_ns)
{
    if (stream->rings)
        return; /* With rings, the link hangs up, which the peer notices. */
    if (clock_lock(&stream->posting, deadline_ns))
        return;
    if (clock_lock(&stream->lock, deadline_ns) == 0) {
        if (stream->link && !stream->broken)
            stream_post_last(stream, type, deadline_ns);
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

/* The peer has received all frames up to @received. Called with the lock. */
static bool stream_acknowledge(struct stream *stream, uint64_t received)
{
    if (received > stream->posted)
        return false;
    if (received > stream->acknowledged) {
        stream->acknowledged = received;
        stream_trim(stream);
        pthread_cond_broadcast(&stream->changed);
    }
    return true;
}

/* Check a frame's header, and count the frame as received. */
static int stream_take_header(struct stream *stream, const struct stream_header *header)
{
    pthread_mutex_lock(&stream->lock);
    bool good = stream_acknowledge(stream, header->received);
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

/* Make room for @needed bytes of a message of several frames. The first time, as much as the last
 * such message had; then twice what is needed. */
static int stream_make_room(struct stream *stream, size_t needed)
{
    size_t wished = stream->whole                       ? 2 * needed
                    : stream->whole_last < EXPECTED_MAX ? stream->whole_last
                                                        : EXPECTED_MAX;
    struct pooled *whole = wished > needed ? pool_take(&stream->pool, wished) : NULL;
    if (!whole)
        whole = pool_take(&stream->pool, needed);
    if (!whole)
        return -ENOMEM;
    if (stream->whole)
        memcpy(whole->bytes, stream->whole->bytes, stream->whole_used);
    pooled_drop(stream->whole);
    stream->whole = whole;
    return 0;
}

/* Make room for a frame of a message of several frames, and copy its first @there bytes. */
static int stream_begin_fragment(struct stream *stream, size_t size, const unsigned char *body,
                                 size_t there)
{
    size_t needed = stream->whole_used + size;
    if (needed > atomic_load(&stream->longest))
        return -EPROTO;
    int error =
        stream->whole && needed <= stream->whole->room ? 0 : stream_make_room(stream, needed);
    if (error == 0)
        memcpy(stream->whole->bytes + stream->whole_used, body, there);
    return error;
}

void stream_drop_whole(struct stream *stream)
{
    if (!stream->whole_done)
        return;
    stream->whole_last = stream->whole_used;
    stream->whole_used = 0;
    stream->whole_done = false;
    pooled_drop(stream->whole);
    stream->whole = NULL;
}

int stream_add_part(struct stream *stream, const unsigned char *body, size_t size)
{
    int error = stream_begin_fragment(stream, size, body, size);
    stream->whole_used += error ? 0 : size;
    return error;
}

struct pooled *stream_lies_in(const struct stream *stream)
{
    return stream->whole_done ? stream->whole : NULL;
}

/* Is it part of a message of several frames? */
static bool stream_is_fragment(const struct stream *stream, const struct stream_header *header)
{
    return header->number != 0 && ((header->flags & FLAG_MORE) || stream->whole_used != 0);
}

/* Receive the rest of a frame's body directly into the message. */
static int stream_begin_straight(struct stream *stream, const struct stream_header *header,
                                 size_t there)
{
    const unsigned char *body = stream->in + stream->in_at + sizeof(*header);
    int error = stream_begin_fragment(stream, header->size, body, there);
    if (error)
        return error;
    stream->in_used -= there;
    stream->straight = true;
    stream->straight_at = there;
    return 0;
}

/* Take the next frame. Returns 1, 0 if it has not arrived completely, or -errno. The body is NULL
 * if it was received directly into the message. */
static int stream_take_frame(struct stream *stream, struct stream_header *ret_header,
                             const unsigned char **ret_body)
{
    struct stream_header header;
    size_t there = stream->in_used - stream->in_at;
    if (there < sizeof(header))
        return 0;
    memcpy(&header, stream->in + stream->in_at, sizeof(header));
    if (header.size > FRAGMENT_MAX || (header.flags & ~FLAG_MORE))
        return -EPROTO;
    there -= sizeof(header);
    if (stream->straight && stream->straight_at < header.size)
        return 0;
    if (!stream->straight && there < header.size)
        return stream_is_fragment(stream, &header) ? stream_begin_straight(stream, &header, there)
                                                   : 0;
    *ret_body = stream->straight ? NULL : stream->in + stream->in_at + sizeof(header);
    *ret_header = header;
    stream->in_at += sizeof(header) + (stream->straight ? 0 : header.size);
    stream->straight = false;
    int error = stream_take_header(stream, &header);
    return error ? error : 1;
}

/* Returns 1 if the frame completes a message, else 0 or -errno. */
static int stream_end_message(struct stream *stream, const struct stream_header *header,
                              const unsigned char *body, struct message *ret_message)
{
    if (header->number == 0)
        return 0;
    if (!stream_is_fragment(stream, header)) {
        *ret_message = (struct message){header->type, body, header->size};
        return 1;
    }
    int error = body ? stream_add_part(stream, body, header->size) : 0;
    stream->whole_used += body ? 0 : header->size;
    if (error || (header->flags & FLAG_MORE))
        return error;
    stream->whole_done = true;
    *ret_message = (struct message){header->type, stream->whole->bytes, stream->whole_used};
    return 1;
}

/* Where to receive the next bytes; returns how many at most. Normally that is `in`, with room for
 * the rest of any frame. In the middle of a message, only the next header is read there, so that
 * the body can be received directly into the message. */
static size_t stream_place_for_more(struct stream *stream, unsigned char **ret_place)
{
    struct stream_header header;
    stream->in_used -= stream->in_at;
    memmove(stream->in, stream->in + stream->in_at, stream->in_used);
    stream->in_at = 0;
    if (stream->straight) {
        memcpy(&header, stream->in, sizeof(header));
        *ret_place = stream->whole->bytes + stream->whole_used + stream->straight_at;
        return header.size - stream->straight_at;
    }
    *ret_place = stream->in + stream->in_used;
    bool in_message = stream->whole_used != 0 && stream->in_used < sizeof(header);
    return (in_message ? sizeof(header) : IN_SIZE) - stream->in_used;
}

static int stream_receive_some(struct stream *stream, uint64_t silence_ns)
{
    struct link *link = stream->link; /* Only the receiving thread changes it. */
    unsigned char *place;
    size_t got = 0, most = stream_place_for_more(stream, &place);
    int error = link->ops->receive(link, place, most,
                                   silence_ns ? clock_now_ns() + silence_ns : UINT64_MAX, &got);
    if (error == 0 && stream->straight)
        stream->straight_at += got;
    else if (error == 0)
        stream->in_used += got;
    return error;
}

int stream_receive(struct stream *stream, uint64_t silence_ns, struct message *ret_message)
{
    if (stream->rings)
        return stream_rings_receive(stream->rings, silence_ns, ret_message);
    stream_drop_whole(stream);
    for (;;) {
        const unsigned char *body = NULL;
        struct stream_header header = {0};
        int taken = stream_take_frame(stream, &header, &body);
        if (taken == 1)
            taken = stream_end_message(stream, &header, body, ret_message);
        else if (taken == 0)
            taken = stream_receive_some(stream, silence_ns);
        if (taken != 0)
            return taken < 0 ? taken : 0;
    }
}

bool stream_has_more(const struct stream *stream)
{
    if (stream->rings)
        return stream_rings_has_more(stream->rings);
    return stream->in_used - stream->in_at >= sizeof(struct stream_header);
}

bool stream_is_sent(struct stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    bool sent = !stream->unsent && !stream->sending;
    pthread_mutex_unlock(&stream->lock);
    return sent;
}

/* ---- begin and end ---- */

int stream_init(struct stream *stream, size_t window)
{
    *stream = (struct stream){.posting = PTHREAD_MUTEX_INITIALIZER,
                              .lock = PTHREAD_MUTEX_INITIALIZER,
                              .changed = PTHREAD_COND_INITIALIZER,
                              .window = window,
                              .longest = WIRE_MESSAGE_MAX};
    pool_init(&stream->pool, STREAM_POOL_MOST);
    stream->in = malloc(IN_SIZE);
    int error = stream->in ? thread_start("reseat-send", 0, stream_sender, stream, &stream->sender)
                           : -ENOMEM;
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
        stream_packet_free(packet);
    }
    free(stream->in);
    pooled_drop(stream->whole);
    pool_finish(&stream->pool);
}

/* Set `unsent` to where frame @number begins. Called with the lock. */
static bool stream_seek(struct stream *stream, uint64_t number)
{
    stream->waiting = 0;
    for (struct packet *packet = stream->first; packet; packet = packet->next)
        if (packet->last >= number)
            stream->waiting += stream_packet_size(packet);
    for (struct packet *packet = stream->first; packet; packet = packet->next) {
        if (packet->last < number)
            continue;
        for (size_t at = 0; at < packet->used;) {
            struct stream_header header;
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
    bool good = received >= stream->acknowledged && stream_acknowledge(stream, received) &&
                stream_seek(stream, received + 1);
    if (good) {
        stream->in_at = stream->in_used = 0;
        stream->straight = false;
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
    stream_break_link(stream);
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
        stream_break_link(stream);
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
