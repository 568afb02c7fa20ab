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
