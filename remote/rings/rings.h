#ifndef RESEAT_REMOTE_RINGS_RINGS_H
#define RESEAT_REMOTE_RINGS_RINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "remote/rings/bell.h"
#include "remote/rings/ring.h"
#include "state/base/compiler.h"

/*
 * Frames from all threads of one process to one thread of another, in one order: a ring for each
 * thread that writes, in one area (area.h). Whoever writes takes no lock.
 *
 * Each frame has a number, one more than the one before it. A thread takes it when its frame is
 * written and has its room, right before it publishes it; so the order of the numbers is one in
 * which the threads' calls may have been, and a thread that waits for room has none that the reader
 * would wait for. The reader takes frames in the order of the numbers.
 *
 * A thread gets a ring when it first posts, and gives it back when it ends. When there are no more,
 * the others share one, under a lock.
 *
 * A thread that is canceled finishes its frame first. A signal handler must not post while its own
 * thread is in a post, nor leave one: a flag of the ring shows that, and the next post to this ring
 * ends the session. The reader ends it when a number is missing for a minute while later ones are
 * there.
 *
 * In a child of a fork, however made, nothing is posted or taken: all of it is the parent's. What
 * the child has to do itself is to close its copy of the socket, which else does not hang up.
 */

/** What both sides have to agree on. */
struct rings_shape {
    unsigned count;  /**< Of rings, the shared one among them: 2 to RINGS_MOST. */
    size_t capacity; /**< Of each: a power of two, whole pages, at most RINGS_CAPACITY_MOST. */
};
#define RINGS_MOST          64
#define RINGS_CAPACITY_MOST ((size_t)16 << 20)

/** The size of their area; 0: no such shape. */
size_t rings_size(const struct rings_shape *shape);
/** Bytes of a frame, at most. */
static inline size_t rings_frame_most(const struct rings_shape *shape)
{
    return ring_frame_most(shape->capacity);
}

struct rings_writer;

/**
 * The side that writes. Either side may have made the area; it is all zero.
 *
 * @fd    The area's. Borrowed, and not needed any more afterwards.
 * @peer  Borrowed; outlives it.
 * Returns 0, -EINVAL (no such shape), -EPROTO (not such an area), -ENOMEM or -EAGAIN (no key for
 * the threads' rings).
 */
MUST_CHECK int rings_writer_create(const struct rings_shape *shape, int fd, struct bell_peer *peer,
                                   struct rings_writer **ret_writer);
/** Nobody posts any more. Threads that have may end at any time. NULL is allowed. */
void rings_writer_destroy(struct rings_writer *writer);

/**
 * Write a frame of these parts and wake the reader. Thread-safe; blocks while the ring is full.
 *
 * @deadline_ns  CLOCK_MONOTONIC; UINT64_MAX: none.
 * @ret_number   Or NULL.
 * Returns 0; or, with nothing posted, -EMSGSIZE (larger than rings_frame_most()), -ETIMEDOUT,
 * -ENOMEM (for a new ring), -EPIPE (the peer has gone), -ECANCELED (rings_writer_end()), -EPROTO
 * (the peer broke the ring, or a signal handler posted in, or left, a post), -ECHILD (this is the
 * child of a fork).
 */
MUST_CHECK int rings_post(struct rings_writer *writer, const struct iovec *parts, unsigned count,
                          uint64_t deadline_ns, uint64_t *ret_number);
/** End all waits of the peer's, also those to come. From any thread. */
void rings_writer_end(struct rings_writer *writer);

struct rings_reader;

/** The side that reads, likewise. */
MUST_CHECK int rings_reader_create(const struct rings_shape *shape, int fd, struct bell_peer *peer,
                                   struct rings_reader **ret_reader);
void rings_reader_destroy(struct rings_reader *reader);

/**
 * Take the next frame; one thread at a time. Blocks until there is one.
 *
 * @buffer  Of rings_frame_most() bytes. Its content is a copy that nobody else can change.
 * @ret_number  Counts from 0. Or NULL.
 * Returns 0, -ETIMEDOUT, -EPIPE or -ECANCELED (the peer has gone, or rings_reader_end(), and all
 * that it had published was taken), -EPROTO (it broke a ring: for good) or -ECHILD.
 */
MUST_CHECK int rings_take(struct rings_reader *reader, void *buffer, uint64_t deadline_ns,
                          size_t *ret_size, uint64_t *ret_number);
void rings_reader_end(struct rings_reader *reader);
/**
 * Several threads may take in turn: whoever leads, which is one at a time. rings_await() waits
 * until there may be something, for a thread that does not lead, and then it tries to.
 */
MUST_CHECK bool rings_lead(struct rings_reader *reader);
void rings_leave(struct rings_reader *reader);
/** As rings_take(), without a frame. */
MUST_CHECK int rings_await(struct rings_reader *reader, uint64_t deadline_ns);
/**
 * For a thread that waits and does not sleep: lead, if that is to be had within a moment. Until
 * rings_attend_no_more() rings_await() finds nothing, however much there is, and who leads has
 * nobody woken, by rings_look() now and then: whoever was about to sleep may have asked to be.
 *
 * Returns whether it leads.
 */
MUST_CHECK bool rings_attend(struct rings_reader *reader);
void rings_look(struct rings_reader *reader);
/** It attends no more, and @leads no more; whoever sleeps is woken by what comes. True: something
 *  came in between. */
MUST_CHECK bool rings_attend_no_more(struct rings_reader *reader, bool leads);
/** Is there one, or does rings_take() return for another reason? By the thread that takes; never
 *  blocks. */
bool rings_has_next(struct rings_reader *reader);

/** How long a reader waits for a number while there are later ones: for tests. */
extern uint64_t rings_gap_ns;

/** What was measured of the reader's waits; by the thread that takes. */
const struct bell_waiter *rings_reader_waits(const struct rings_reader *reader);

#endif
