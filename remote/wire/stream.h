#ifndef RESEAT_REMOTE_WIRE_STREAM_H
#define RESEAT_REMOTE_WIRE_STREAM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "remote/link/link.h"
#include "remote/wire/pool.h"
#include "state/base/files/owned.h"

/*
 * A session's messages, in order, each of them once, over one link after another; or, between two
 * processes of one machine, over rings. Nobody but who begins a session knows which.
 *
 * Messages are sent as frames, which are counted. Each side keeps what it sent until the other says
 * that it has it, so that a new link goes on where the old one broke. What is kept is bounded: with
 * `window` bytes kept, whoever posts waits. A server's stream has no window, since nothing may
 * make a driver's threads wait; what it keeps is bounded by what its client asked for.
 *
 * A thread of the stream's sends what nobody else does, and a sign of life each second. Nobody who
 * receives ever sends, so that two sides cannot wait for each other.
 */

struct packet;
struct stream_rings;

struct stream {
    struct stream_rings *rings; /**< What carries it instead (stream_rings.h), and then the rest
                                     but the link is not used; or NULL. */
    pthread_mutex_t posting;    /**< One message at a time; before `lock`. */
    pthread_mutex_t lock;
    pthread_cond_t changed; /**< Something to send, room, another link, or the end. */
    pthread_t sender;
    /* Guarded by lock: */
    struct link *link;  /**< NULL: none now. */
    bool broken;        /**< The link is, and nobody begins to send any more. */
    uint64_t broken_ns; /**< Since when; 0: it is not. */
    bool sending;       /**< Somebody sends, without the lock. */
    bool beat;          /**< Send a header alone, with what was received. */
    int ended;          /**< -errno, once nothing more is sent or received. */
    bool soon;          /**< The thread is told to send what there is. */
    uint64_t sent_ns;   /**< When something was last. */
    struct packet *first, *last, *unsent;
    size_t unsent_at; /**< In unsent. */
    uint64_t posted, acknowledged;
    size_t kept, window;
    size_t waiting;         /**< Bytes that no link took yet. */
    _Atomic size_t longest; /**< Bytes of a message that are taken; WIRE_MESSAGE_MAX at first. */
    uint64_t received;      /**< Frames taken. */
    struct pool pool;       /**< Of large frames' bodies, and of messages of several frames. */
    /* The receiver's alone: */
    unsigned char *in;
    size_t in_at, in_used;
    size_t unacknowledged; /**< Bytes since the last frame that was acknowledged. */
    struct pooled *whole;  /**< A message of several frames; or NULL. */
    size_t whole_used;
    bool whole_done;    /**< It was given out. */
    size_t whole_last;  /**< Bytes of the one before. */
    bool straight;      /**< The rest of a frame comes there, and its header alone lies in `in`. */
    size_t straight_at; /**< In its body. */
};

/** One received; the body is valid until the next is. */
struct message {
    unsigned type;
    const unsigned char *body;
    size_t size;
};

/** @window  Bytes; 0: none. Starts the thread. 0 or -errno. */
MUST_CHECK int stream_init(struct stream *stream, size_t window);
/** Ends it. Nobody else is in it any more. */
void stream_finish(struct stream *stream);

/** Go on with @link, which is the stream's from now on. The other side has the frames up to
 *  @received. By the receiver, without another link. False: it cannot have. */
MUST_CHECK bool stream_attach(struct stream *stream, struct link *link, uint64_t received);
/** Give the link up. By the receiver. */
void stream_detach(struct stream *stream);
/** Have the receiver find its link broken, if it has one. Any thread. */
void stream_interrupt(struct stream *stream);
/** Since when there is no link that carries anything, as whoever sent last found; 0: there is. Any
 * thread. */
uint64_t stream_broken_since(struct stream *stream);
/** Bytes of memory that hold what the other side has not got yet. Any thread. */
size_t stream_kept(struct stream *stream);
/** Bytes that no link took yet, which says more where the receiver does not hear what came. */
size_t stream_waiting(struct stream *stream);
/** Post a last message, without a body, and wait until all is given to the link; as far as that is
 * done by @deadline_ns, whoever has the locks. */
void stream_leave(struct stream *stream, unsigned type, uint64_t deadline_ns);
/** Nothing more is sent or received; all that wait return. Any thread, the first @error stays. */
void stream_end(struct stream *stream, int error);
/** Is that so, whether or not the receiver has found out? Any thread. */
bool stream_has_ended(struct stream *stream);

/** Bytes that nobody uses and are kept for the next large frames. */
#define STREAM_POOL_MOST ((size_t)16 << 20)

/** Post one message, sent at the latest when the stream's thread sees to it. Waits for room. 0,
 *  -ENOMEM, -EMSGSIZE, or what ended it. */
MUST_CHECK int stream_post(struct stream *stream, unsigned type, const void *body, size_t size,
                           const void *tail, size_t tail_size);
/** The same; a long tail that lies in @lies_in is not copied, but that is held until the other side
 *  has it, and must not change any more. NULL: it lies elsewhere. */
MUST_CHECK int stream_post_pooled(struct stream *stream, unsigned type, const void *body,
                                  size_t size, const void *tail, size_t tail_size,
                                  struct pooled *lies_in);
/** The same, with a descriptor, which is the stream's once that is 0; the body is of one frame. It
 *  may be lost on its way, where the program closes it. */
MUST_CHECK int stream_post_descriptor(struct stream *stream, unsigned type, const void *body,
                                      size_t size, struct owned *descriptor);
/** Send what was posted, unless somebody does. */
void stream_flush(struct stream *stream);

/** Have it sent soon: at once, unless something was a moment ago; then what is posted within that
 * moment goes together. For whoever does not wait for it. */
void stream_flush_soon(struct stream *stream);

/** The next message. 0, -ETIMEDOUT (not even a sign of life for @silence_ns, unless 0), -EPROTO
 * (the other side is no stream), -ENOMEM, or the link's error: then it is to be detached. */
MUST_CHECK int stream_receive(struct stream *stream, uint64_t silence_ns,
                              struct message *ret_message);

/** What the message that came last lies in, for whoever holds it beyond the next one; NULL: it is
 *  the stream's own. By the receiver. */
struct pooled *stream_lies_in(const struct stream *stream);

/** Was all that was posted given to the link? */
bool stream_is_sent(struct stream *stream);

/** Is there more at hand, so that the next message may come without waiting? By the receiver. */
bool stream_has_more(const struct stream *stream);

/** One message outside a stream, before it begins. */
#define STREAM_GREETING_MAX 4096
MUST_CHECK int greeting_send(struct link *link, unsigned type, const void *body, size_t size,
                             uint64_t deadline_ns);
MUST_CHECK int greeting_receive(struct link *link, unsigned char buffer[STREAM_GREETING_MAX],
                                uint64_t deadline_ns, struct message *ret_message);

#endif
