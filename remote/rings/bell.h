#ifndef RESEAT_REMOTE_RINGS_BELL_H
#define RESEAT_REMOTE_RINGS_BELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "state/base/compiler.h"
#include "state/base/files/owned.h"

/*
 * Waiting for another process. One thread waits at a bell; others ring it after they have changed
 * what it waits for, which costs a load while nobody sleeps. No wake-up is lost
 * (tests/model/ring.pml): the waiting thread announces that it sleeps and then checks once more;
 * the ringing thread first makes its change and then checks whether anybody sleeps. All four
 * accesses are sequentially consistent, so that no load comes before the store in front of it.
 *
 * The bell is in memory that the other process can write. By that it can wake us without reason,
 * fail to wake us, or make us do a system call at each ring. So each wait also ends at its
 * deadline, and when the peer has ended.
 */

struct bell {
    _Atomic uint32_t sleeps; /**< A futex. 1: a thread sleeps, or slept a moment ago. */
};

/** The process at the other end. Must outlive all waits. */
struct bell_peer {
    struct owned socket; /**< Hangs up when the peer ends, for whatever reason. */
    bool watched;        /**< A thread watches the socket, so waiting threads need not. */
    atomic_int ended;    /**< 0, or the -errno with which all waits end; set once. */
};

/** What a thread waits for: the other process alone, or a device's command as well, or what is to
 * be given to a device. */
enum bell_spin_for { BELL_SPIN_PROCESS, BELL_SPIN_DEVICE };

/**
 * How long to spin before sleeping. Spinning pays if a processor is free for it and what is awaited
 * comes in that time. The budget is at most twice what recent waits took. After a failure, or when
 * other threads wanted the processor, it is halved, and in the end spinning is tried only now and
 * then.
 */
struct bell_spin {
    enum bell_spin_for what;
    uint32_t budget_ns; /**< 0: sleep at once. */
    uint32_t most_ns;   /**< 0: there is one processor, which the other side needs. */
    uint32_t skip;      /**< Waits left before spinning is tried again. */
    uint32_t pause;     /**< Waits between two tries; doubled after each failure. */
    long preempted;     /**< Preemptions of this thread before it began a long spin. */
    /** Statistics of bell_spin_until(): waits that ended while spinning, and spins in vain. */
    uint64_t spun, spun_in_vain;
};

/** A new one has its full budget. bell_spin_begin() returns how long to spin now, in nanoseconds;
 * 0: not at all. */
void bell_spin_init(struct bell_spin *spin, enum bell_spin_for what);
uint64_t bell_spin_begin(struct bell_spin *spin);
/** Report to the same thread's bell_spin: what was awaited came after @took_ns, or it did not come
 * in the budget. */
void bell_spin_paid(struct bell_spin *spin, uint64_t took_ns);
void bell_spin_failed(struct bell_spin *spin);
/** Spin until @there returns true, as long as the budget allows. Returns false when it is over. */
bool bell_spin_until(struct bell_spin *spin, bool (*there)(void *data), void *data);
/** Pause between two checks. */
static inline void bell_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/** A thread that waits at a bell; one at a time. */
struct bell_waiter {
    struct bell *bell;
    struct bell_peer *peer;
    struct bell_spin spin;
    /** Statistics: sleeps; and sleeps in which a timed check, rather than a wake-up, found what was
     * awaited. */
    uint64_t slept, overslept;
};

void bell_waiter_init(struct bell_waiter *waiter, struct bell *bell, struct bell_peer *peer);

/**
 * Wait until @there returns true.
 *
 * @there  Called repeatedly, first at once. Must not block, and must read with sequentially
 *         consistent loads what others change before they ring.
 * @deadline_ns  CLOCK_MONOTONIC; UINT64_MAX: none.
 * Returns 0, -ETIMEDOUT, -EPIPE (the peer has ended) or the error given to bell_peer_end(). Calls
 * @there once more before it returns any error.
 */
MUST_CHECK int bell_wait(struct bell_waiter *waiter, bool (*there)(void *data), void *data,
                         uint64_t deadline_ns);

/** Wake the waiting thread, after a sequentially consistent store of what it waits for. */
void bell_ring_slow(struct bell *bell);
static inline void bell_ring(struct bell *bell)
{
    if (UNLIKELY(atomic_load(&bell->sleeps) != 0))
        bell_ring_slow(bell);
}

/** End all waits for the peer with @err, unless they were ended already. Sleeping threads notice
 * when they are rung, or at their next timed check, within half a second. */
void bell_peer_end(struct bell_peer *peer, int err);
/** Time to the first of those checks, and the longest time between two of them. Tests change them.
 */
extern uint64_t bell_look_first_ns, bell_look_most_ns;

/** Check the socket, unless it is watched. 0, or the error with which waits end. */
int bell_peer_look(struct bell_peer *peer);

/*
 * A thread that notices when the peer hangs up, for programs that may close any descriptor, as
 * daemons do. The thread has a descriptor table of its own, with nothing but the socket. So the
 * peer sees the socket hang up only when the program ends, not when the program closes it.
 */
struct lookout;

/**
 * Start the thread; blocks until it has the socket. From then on only the thread checks the socket
 * of @peer, which must outlive it.
 *
 * @wake  Called by the thread when waits for @peer have ended: must wake sleeping threads.
 *
 * Returns 0; or, with nothing changed, -ENOMEM, -EAGAIN (no thread), -ENOSYS (the kernel or a
 * sandbox does not allow a separate table), -EBADF (the program has closed the socket already).
 */
MUST_CHECK int lookout_create(struct bell_peer *peer, void (*wake)(void *data), void *data,
                              struct lookout **ret_lookout);
/** NULL is allowed. Blocks for a second at most. */
void lookout_destroy(struct lookout *lookout);

#endif
