#ifndef RESEAT_REMOTE_RINGS_RING_H
#define RESEAT_REMOTE_RINGS_RING_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "remote/rings/bell.h"
#include "state/base/compiler.h"

/*
 * Frames from one thread to one thread of another process, in order, in memory that both can write.
 *
 * A frame is a header (its number and its size) and its bytes. Positions only rise; where in the
 * ring they are is their remainder. The bytes of the ring are mapped twice, one behind the other,
 * so that every frame is in one piece, also one that ends where the ring begins again.
 *
 * Neither side trusts the other. Each keeps its own position in memory of its own, and of the other
 * one's it believes only what is possible: it is read once, then checked, then used. So are
 * headers. Nobody is shown bytes that can still change: ring_take() copies. What is impossible is
 * -EPROTO, and stays so: there is no way back to the beginning of a frame.
 */

/** What both write; each only its own. On lines of their own, two for those who fetch pairs. */
struct ring_shared {
    alignas(128) _Atomic uint64_t head; /**< The writer's: all before it is whole. */
    alignas(128) _Atomic uint64_t tail; /**< The reader's: all before it was taken. */
    alignas(128) struct bell room;      /**< Where the writer waits. */
};

/** What a frame takes beside its bytes; frames begin at multiples of it. */
#define RING_HEADER ((size_t)16)

/** The largest frame of a ring of @capacity bytes: whoever has taken half of them has room for it.
 */
static inline size_t ring_frame_most(size_t capacity)
{
    return capacity / 2 - RING_HEADER;
}

struct ring_writer {
    struct ring_shared *shared;
    char *bytes; /**< Twice @capacity, a power of two. */
    size_t capacity;
    uint64_t head, tail; /**< Its own; the reader's when it was last read. */
    size_t open;         /**< What the frame takes that was begun; 0: none. */
    bool broken;
    struct bell_waiter room;
};

struct ring_reader {
    struct ring_shared *shared;
    const char *bytes;
    size_t capacity;
    uint64_t tail, head; /**< Its own; the writer's when it was last read. */
    uint64_t number;     /**< Of the frame at the tail, and its size, */
    size_t size;
    bool front; /**< once they were read. */
    bool broken;
};

/** On a ring that is all zero, once each. */
void ring_writer_init(struct ring_writer *writer, struct ring_shared *shared, char *bytes,
                      size_t capacity, struct bell_peer *peer);
void ring_reader_init(struct ring_reader *reader, struct ring_shared *shared, const char *bytes,
                      size_t capacity);

/**
 * Begin a frame, or begin it anew: nothing is seen of it until ring_publish().
 *
 * @ret_bytes  Where its @size bytes are to be written, never to be read.
 * Does not block. Returns 0, -EAGAIN (full), -EMSGSIZE (larger than ring_frame_most()) or -EPROTO.
 */
MUST_CHECK int ring_begin(struct ring_writer *writer, size_t size, char **ret_bytes);
/** Wait until a frame of @size bytes can be begun. 0, -EPROTO, or as bell_wait(). */
MUST_CHECK int ring_await_room(struct ring_writer *writer, size_t size, uint64_t deadline_ns);
/** The frame that was begun is whole. The reader's bell is to be rung then. */
void ring_publish(struct ring_writer *writer, uint64_t number);

/**
 * The first frame's header; again and again the same until it is taken. Does not block. Returns 0,
 * -EAGAIN (empty) or -EPROTO.
 */
MUST_CHECK int ring_front(struct ring_reader *reader, uint64_t *ret_number, size_t *ret_size);
/** Take it, after ring_front() has returned 0: copy its bytes to @buffer. */
void ring_take(struct ring_reader *reader, void *buffer);

#endif
