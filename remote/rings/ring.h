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
 * A frame is a header (number and size) and its bytes. Positions only increase; their remainder is
 * the place in the ring. The bytes of the ring are mapped twice in a row, so that a frame that
 * wraps around is contiguous, too.
 *
 * Neither side trusts the other. Each keeps its own position in private memory. The other's
 * position, and each header, is read once, then checked, then used. ring_take() copies, so that
 * nobody sees bytes that can still change. Impossible values are -EPROTO for good, as there is no
 * way back to the beginning of a frame.
 */

/** Both processes write here, each only its own part. The parts are 128 bytes apart, as some
 * processors fetch pairs of cache lines. */
struct ring_shared {
    alignas(128) _Atomic uint64_t head; /**< All frames before it are complete. */
    alignas(128) _Atomic uint64_t tail; /**< The reader's: frames before it were taken. */
    alignas(128) struct bell room;      /**< Where the writer waits for room. */
};

/** Size of a frame's header; frames are aligned to it. */
#define RING_HEADER ((size_t)16)

/** The largest frame of a ring of @capacity bytes: it fits whenever half of the ring is free. */
static inline size_t ring_frame_most(size_t capacity)
{
    return capacity / 2 - RING_HEADER;
}

struct ring_writer {
    struct ring_shared *shared;
    char *bytes; /**< Mapped twice; @capacity is a power of two. */
    size_t capacity;
    uint64_t head, tail; /**< Its own position, and the reader's when it was last read. */
    size_t open;         /**< Bytes of the frame that was begun; 0: none. */
    bool broken;
    struct bell_waiter room;
};

struct ring_reader {
    struct ring_shared *shared;
    const char *bytes;
    size_t capacity;
    uint64_t tail, head; /**< Its own position, and the writer's when it was last read. */
    uint64_t number;     /**< Number and size of the frame at the tail, if `front`. */
    size_t size;
    bool front; /**< The header was read. */
    bool broken;
};

/** For a ring that is all zeroes, once on each side. */
void ring_writer_init(struct ring_writer *writer, struct ring_shared *shared, char *bytes,
                      size_t capacity, struct bell_peer *peer);
void ring_reader_init(struct ring_reader *reader, struct ring_shared *shared, const char *bytes,
                      size_t capacity);

/**
 * Begin a frame, or begin it anew; the reader sees nothing before ring_publish().
 *
 * @ret_bytes  Where to write its @size bytes. Never read there.
 * Does not block. Returns 0, -EAGAIN (full), -EMSGSIZE (larger than ring_frame_most()) or -EPROTO.
 */
MUST_CHECK int ring_begin(struct ring_writer *writer, size_t size, char **ret_bytes);
/** Wait until a frame of @size bytes can be begun. 0, -EPROTO, or as bell_wait() returns. */
MUST_CHECK int ring_await_room(struct ring_writer *writer, size_t size, uint64_t deadline_ns);
/** The frame that was begun is complete. Ring the reader's bell afterwards. */
void ring_publish(struct ring_writer *writer, uint64_t number);

/**
 * The header of the first frame; the same until it is taken. Does not block. Returns 0, -EAGAIN
 * (empty) or -EPROTO.
 */
MUST_CHECK int ring_front(struct ring_reader *reader, uint64_t *ret_number, size_t *ret_size);
/** Take that frame after ring_front() has returned 0: copies its bytes to @buffer. */
void ring_take(struct ring_reader *reader, void *buffer);

#endif
