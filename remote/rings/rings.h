#ifndef RESEAT_REMOTE_RINGS_RINGS_H
#define RESEAT_REMOTE_RINGS_RINGS_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

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

/*
 * Frames from all threads of one process to one thread of another, in one order: each writing
 * thread has a ring in a shared area (area.h), and takes no lock.
 *
 * Frames are numbered. A thread takes the next number right before it publishes its frame, when the
 * frame is already written. So the order of numbers is a possible order of the threads' calls, and
 * no thread holds a number, for which the reader would wait, while it waits for room. The reader
 * takes frames in the order of their numbers.
 *
 * A thread gets a ring when it first posts, and gives it back when it ends. Threads that find no
 * free ring share one, under a lock.
 *
 * Cancellation of a thread is delayed until its frame is complete. A signal handler must not post
 * while its thread is posting, nor leave such a post by longjmp() or by ending the thread: a flag
 * of the ring shows it, and the next post to that ring ends the session. The reader ends the
 * session if a number is missing for a minute while later ones are there.
 *
 * In a child of a fork, of whatever kind, nothing is posted or taken: all of it belongs to the
 * parent. The child must close its copy of the socket, which otherwise keeps the peer from noticing
 * the end of the parent.
 */

/** What both sides must agree on. */
struct rings_shape {
    unsigned count;  /**< Number of rings, with the shared one: 2 to RINGS_MOST. */
    size_t capacity; /**< Bytes of each ring: a power of two, whole pages, at most
                        RINGS_CAPACITY_MOST. */
};
#define RINGS_MOST          64
#define RINGS_CAPACITY_MOST ((size_t)16 << 20)

/** The size of the area; 0: no valid shape. */
size_t rings_size(const struct rings_shape *shape);
/** The largest frame, in bytes. */
static inline size_t rings_frame_most(const struct rings_shape *shape)
{
    return ring_frame_most(shape->capacity);
}

struct rings_writer;

/**
 * Make the writing side. Either process may have made the area, which must be all zeroes.
 *
 * @fd    The area's descriptor. Borrowed, and not needed afterwards.
 * @peer  Borrowed; outlives it.
 * Returns 0, -EINVAL (no valid shape), -EPROTO (no such area), -ENOMEM or -EAGAIN (no key for
 * thread-specific data).
 */
MUST_CHECK int rings_writer_create(const struct rings_shape *shape, int fd, struct bell_peer *peer,
                                   struct rings_writer **ret_writer);
/** Nobody may be posting. Threads that have posted may end later. NULL is allowed. */
void rings_writer_destroy(struct rings_writer *writer);

/**
 * Write a frame of these parts and wake the reader. Thread-safe; blocks while the ring is full.
 *
 * @deadline_ns  CLOCK_MONOTONIC; UINT64_MAX: none.
 * @ret_number   May be NULL.
 * Returns 0; or, with nothing posted, -EMSGSIZE (larger than rings_frame_most()), -ETIMEDOUT,
 * -ENOMEM (for a new ring), -EPIPE (the peer has ended), -ECANCELED (rings_writer_end()), -EPROTO
 * (the peer broke the ring, or a signal handler posted in, or left, a post), -ECHILD (this is the
 * child of a fork).
 */
MUST_CHECK int rings_post(struct rings_writer *writer, const struct iovec *parts, unsigned count,
                          uint64_t deadline_ns, uint64_t *ret_number);
/** End all present and future waits for the peer. From any thread. */
void rings_writer_end(struct rings_writer *writer);

struct rings_reader;

/** The reading side, made and freed as the writing side is. */
MUST_CHECK int rings_reader_create(const struct rings_shape *shape, int fd, struct bell_peer *peer,
                                   struct rings_reader **ret_reader);
void rings_reader_destroy(struct rings_reader *reader);

/**
 * Take the next frame; one thread at a time. Blocks until there is one.
 *
 * @buffer  Of rings_frame_most() bytes. Gets a copy that nobody else can change.
 * @ret_number  Counts from 0. May be NULL.
 * Returns 0, -ETIMEDOUT, -EPIPE or -ECANCELED (the peer has ended, or rings_reader_end() was
 * called, and everything published before was taken), -EPROTO (the peer broke a ring: for good) or
 * -ECHILD.
 */
MUST_CHECK int rings_take(struct rings_reader *reader, void *buffer, uint64_t deadline_ns,
                          size_t *ret_size, uint64_t *ret_number);
void rings_reader_end(struct rings_reader *reader);
/**
 * Several threads may take frames in turn: the one that leads, one at a time. A thread that does
 * not lead waits in rings_await() until there may be a frame, and then tries to lead.
 */
MUST_CHECK bool rings_lead(struct rings_reader *reader);
void rings_leave(struct rings_reader *reader);
/** Waits and returns as rings_take() does, but takes no frame. */
MUST_CHECK int rings_await(struct rings_reader *reader, uint64_t deadline_ns);
/**
 * For a thread that spins rather than sleeps: try to lead for a moment. Until
 * rings_attend_no_more(), rings_await() finds nothing, whatever arrives. By calling rings_look()
 * regularly, the leading thread keeps the writer from waking sleeping threads in vain.
 *
 * Returns whether it leads.
 */
MUST_CHECK bool rings_attend(struct rings_reader *reader);
void rings_look(struct rings_reader *reader);
/** The thread stops spinning, and leading if it @leads; sleeping threads are woken again. Returns
 * true if something has arrived in between. */
MUST_CHECK bool rings_attend_no_more(struct rings_reader *reader, bool leads);
/** Is there a frame, or another reason for rings_take() to return? Called by the thread that takes;
 * never blocks. */
bool rings_has_next(struct rings_reader *reader);

/** How long the reader waits for a missing number. Tests change it. */
extern uint64_t rings_gap_ns;

/** Statistics of the reader's waits. Called by the thread that takes. */
const struct bell_waiter *rings_reader_waits(const struct rings_reader *reader);

#endif
