#ifndef RESEAT_REMOTE_WIRE_STREAM_H
#define RESEAT_REMOTE_WIRE_STREAM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "remote/link/link.h"
#include "state/base/compiler.h"
#include "state/base/files/owned.h"

/*
 * Reference-counted memory for message bodies, kept for reuse: the kernel provides fresh pages at 3
 * GB/s a core, and memory that was just used is still in the caches. Several holders may share the
 * bytes, so that a driver reads them from where they were received, and they are sent from where a
 * driver wrote them.
 */

struct pool;

struct pooled {
    struct pool *pool;
    struct pooled *newer, *older; /**< In the list of free memory; guarded by the pool's lock. */
    atomic_uint holders;
    size_t room;
    _Alignas(64) unsigned char bytes[];
};

struct pool {
    pthread_mutex_t lock; /**< No other lock is taken under it. */
    /* Guarded by lock: */
    struct pooled *newest, *oldest; /**< The list of free memory. */
    size_t free_bytes, most;        /**< At most `most` bytes of free memory are kept. */
    bool taken;                     /**< Memory was taken since the last pool_tidy(). */
};

/** @most  Bytes of free memory to keep. */
void pool_init(struct pool *pool, size_t most);
/** Free what is kept. Memory that is still held is freed when it is dropped. Nothing may be taken
 * any more. */
void pool_finish(struct pool *pool);
/** Take memory for @size bytes, or a kept piece of at most twice that, with one holder. NULL: out
 * of memory. Any thread. */
struct pooled *pool_take(struct pool *pool, size_t size);
/** Add a holder. */
void pooled_hold(struct pooled *memory);
/** Remove a holder. @memory may be NULL. Any thread. */
void pooled_drop(struct pooled *memory);
/** Call it regularly: frees what is kept if nothing was taken since the last call. */
void pool_tidy(struct pool *pool);

/*
 * The messages of a session, in order and exactly once, over a series of links; or, between two
 * processes of one machine, over rings. Only the code that begins a session knows which.
 *
 * Messages are sent as numbered frames. Each side keeps what it sent until the other has
 * acknowledged it, so that a new link continues where the last one broke. What is kept is bounded:
 * when it exceeds `window` bytes, posting blocks. A server's stream has no window, as a driver's
 * threads must never block; what it keeps is bounded by what its client asked for.
 *
 * Each stream has a thread, which sends what no other thread sends, and a heartbeat each second.
 * The receiving thread never sends, so the two sides cannot block each other.
 */

struct packet;
struct stream_rings;

struct stream {
    struct stream_rings *rings; /**< If set, rings carry the messages (stream_rings.h), and of the
                                   fields below only the link is used. */
    pthread_mutex_t posting;    /**< Held to post one message; taken before `lock`. */
    pthread_mutex_t lock;
    pthread_cond_t changed; /**< There is something to send, room, a new link, or the end. */
    pthread_t sender;
    /* Guarded by lock: */
    struct link *link;  /**< NULL: none at the moment. */
    bool broken;        /**< The link has failed; nobody starts another send. */
    uint64_t broken_ns; /**< When the link failed; 0: it has not. */
    bool sending;       /**< A thread is sending, without holding the lock. */
    bool beat;          /**< An acknowledgement must be sent, even without a frame. */
    int ended;          /**< 0, or the -errno with which everything fails from now on. */
    bool soon;          /**< The stream's thread was told to send what there is. */
    uint64_t sent_ns;   /**< When something was last sent. */
    struct packet *first, *last, *unsent;
    size_t unsent_at; /**< Offset in `unsent` of the first byte that was not sent. */
    uint64_t posted, acknowledged;
    size_t kept, window;
    size_t waiting;         /**< Bytes that were posted and not given to a link. */
    _Atomic size_t longest; /**< Bytes accepted in a message; WIRE_MESSAGE_MAX at first. */
    uint64_t received;      /**< Number of the last frame received. */
    struct pool pool;       /**< For bodies of large frames, and messages of several frames. */
    /* Used by the receiving thread alone: */
    unsigned char *in;
    size_t in_at, in_used;
    size_t unacknowledged; /**< Bytes received since the last acknowledgement. */
    struct pooled *whole;  /**< The message of several frames that is being received; or NULL. */
    size_t whole_used;
    bool whole_done;    /**< The caller of stream_receive() has it. */
    size_t whole_last;  /**< Length of the one before. */
    bool straight;      /**< The rest of a frame's body is received directly into `whole`; only its
                           header is in `in`. */
    size_t straight_at; /**< Offset in that frame's body. */
};

/** A received message; the body is valid until the next one is received. */
struct message {
    unsigned type;
    const unsigned char *body;
    size_t size;
};

/** @window  Bytes; 0: unlimited. Starts the stream's thread. 0 or -errno. */
MUST_CHECK int stream_init(struct stream *stream, size_t window);
/** Free it. No other thread may be using it. */
void stream_finish(struct stream *stream);

/** Continue with @link, which the stream takes. The peer has received the frames up to @received.
 * Called by the receiving thread while there is no link. False: @received is impossible. */
MUST_CHECK bool stream_attach(struct stream *stream, struct link *link, uint64_t received);
/** Destroy the link. Called by the receiving thread. */
void stream_detach(struct stream *stream);
/** Make the receiving thread find its link broken, if there is one. Any thread. */
void stream_interrupt(struct stream *stream);
/** Since when the link has been broken, as the sending side noticed; 0: it is not. Any thread. */
uint64_t stream_broken_since(struct stream *stream);
/** Bytes that are kept because the peer has not acknowledged them. Any thread. */
size_t stream_kept(struct stream *stream);
/** Bytes that were posted but not yet given to a link: the backlog where the peer may be slow to
 * acknowledge. */
size_t stream_waiting(struct stream *stream);
/** Post a last message without a body, and wait until everything was given to the link, or until
 * @deadline_ns, also if other threads hold the locks. */
void stream_leave(struct stream *stream, unsigned type, uint64_t deadline_ns);
/** Fail all sending and receiving from now on, also in threads that are waiting. Any thread; the
 * first @error counts. */
void stream_end(struct stream *stream, int error);
/** Was it ended, even if the receiving thread has not noticed? Any thread. */
bool stream_has_ended(struct stream *stream);

/** Bytes of free memory that are kept for large frames. */
#define STREAM_POOL_MOST ((size_t)16 << 20)

/** Post a message; the stream's thread sends it if no other thread does. Blocks while there is no
 * room. 0, -ENOMEM, -EMSGSIZE, or the error that ended the stream. */
MUST_CHECK int stream_post(struct stream *stream, unsigned type, const void *body, size_t size,
                           const void *tail, size_t tail_size);
/** The same. A long tail within @lies_in is not copied; instead that memory is held until the peer
 * has acknowledged it, and must not change meanwhile. NULL: the tail is elsewhere. */
MUST_CHECK int stream_post_pooled(struct stream *stream, unsigned type, const void *body,
                                  size_t size, const void *tail, size_t tail_size,
                                  struct pooled *lies_in);
/** The same, with a descriptor, which the stream takes on success; the body must fit in a frame.
 * The descriptor does not arrive if the program closes it first. */
MUST_CHECK int stream_post_descriptor(struct stream *stream, unsigned type, const void *body,
                                      size_t size, struct owned *descriptor);
/** Send what was posted, unless another thread is sending. */
void stream_flush(struct stream *stream);

/** Send soon: at once, unless something was sent a moment ago; then what is posted within that
 * moment is sent together. For callers that do not wait for an answer. */
void stream_flush_soon(struct stream *stream);

/** Wait for the next message. 0, -ETIMEDOUT (not even a heartbeat for @silence_ns, unless that is
 * 0), -EPROTO (the peer violates the protocol), -ENOMEM, or the link's error, after which
 * stream_detach() must follow. */
MUST_CHECK int stream_receive(struct stream *stream, uint64_t silence_ns,
                              struct message *ret_message);

/** The memory that holds the last message, for callers that keep it beyond the next one; NULL: it
 * is the stream's own. Called by the receiving thread. */
struct pooled *stream_lies_in(const struct stream *stream);

/** Was everything that was posted given to the link? */
bool stream_is_sent(struct stream *stream);

/** May the next stream_receive() return without waiting? Called by the receiving thread. */
bool stream_has_more(const struct stream *stream);

/** What each frame begins with; a greeting has no flags and no number. */
struct stream_header {
    uint32_t size;
    uint16_t type, flags;
    uint64_t number;   /* From 1; 0: the header only acknowledges. */
    uint64_t received; /* The sender has received all frames up to this number. */
};
_Static_assert(sizeof(struct stream_header) == 24, "as it is sent");

/** Messages that are exchanged before the stream begins. */
#define STREAM_GREETING_MAX 4096
MUST_CHECK int greeting_send(struct link *link, unsigned type, const void *body, size_t size,
                             uint64_t deadline_ns);
MUST_CHECK int greeting_receive(struct link *link, unsigned char buffer[STREAM_GREETING_MAX],
                                uint64_t deadline_ns, struct message *ret_message);

/** Pass a descriptor to the same machine over the link of a stream, or before that begins: in a
 * message of @type with a @number, by which the receiver knows that it is the one it expects. */
MUST_CHECK int greeting_send_descriptor(struct link *link, unsigned type, uint32_t number, int fd,
                                        uint64_t deadline_ns);
/** -EPROTO: something else came, or the message without a descriptor. */
MUST_CHECK int greeting_receive_descriptor(struct link *link, unsigned type, uint32_t number,
                                           uint64_t deadline_ns, int *ret_fd);

#endif
