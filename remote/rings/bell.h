#ifndef RESEAT_REMOTE_RINGS_BELL_H
#define RESEAT_REMOTE_RINGS_BELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "state/base/compiler.h"
#include "state/base/files/owned.h"

/*
 * Waiting for another process. One waits at a bell, others ring it after they have changed what is
 * waited for; that costs them nothing while nobody sleeps. No wake-up is lost
 * (tests/model/ring.pml): who waits says so and then looks once more; who rings has changed it
 * first, and then looks whether somebody sleeps. All four are sequentially consistent, which keeps
 * each one's load behind its own store.
 *
 * The bell is in memory that the other process can write. What it can do with it is to wake us for
 * nothing, not to wake us, and to have us make a system call for each ring: no wait is longer than
 * its deadline for it, nor goes on once the peer has gone.
 */

struct bell {
    _Atomic uint32_t sleeps; /**< A futex: somebody does, or did until a moment ago. */
};

/** Who is at the other end. Outlives all waits. */
struct bell_peer {
    struct owned socket; /**< Hangs up with it, however it ends. */
    bool watched;     /**< By a thread that ends the waits (lookout.h): nobody asks the socket. */
    atomic_int ended; /**< Why nothing more is to be waited for: -errno, set once; or 0. */
};

/** What is waited for: the other process, or with it a command of a device. */
enum bell_spin_for { BELL_SPIN_PROCESS, BELL_SPIN_DEVICE };

/**
 * Spinning, so long as it pays: a processor is free for it, and what was waited for did come
 * meanwhile. It takes at most twice as long as what is waited for took of late; when that did not
 * come, or others wanted the processor, half as long the next time, and at last it is tried now and
 * then only.
 */
struct bell_spin {
    enum bell_spin_for what;
    uint32_t budget_ns; /**< 0: sleep at once. */
    uint32_t most_ns;   /**< 0: there is one processor, which the other side needs. */
    uint32_t skip;      /**< Waits until it is tried again. */
    uint32_t pause;     /**< Waits between two tries; doubles. */
    long preempted;     /**< How often this thread was before it began to spin for long. */
};

/** One begins with all of its budget. How long to spin this time, in nanoseconds; 0: not at all. */
void bell_spin_init(struct bell_spin *spin, enum bell_spin_for what);
uint64_t bell_spin_begin(struct bell_spin *spin);
/** What was waited for came after so long, to the thread that began; or it did not while it spun.
 */
void bell_spin_paid(struct bell_spin *spin, uint64_t took_ns);
void bell_spin_failed(struct bell_spin *spin);
/** Between two looks. */
static inline void bell_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/** One who waits at a bell; one thread at a time. */
struct bell_waiter {
    struct bell *bell;
    struct bell_peer *peer;
    struct bell_spin spin;
    /** What was measured: waits ended by spinning; spun in vain; sleeps; and of these, how many
     *  were found to be over by looking after a while, without having been woken. */
    uint64_t spun, spun_in_vain, slept, overslept;
};

void bell_waiter_init(struct bell_waiter *waiter, struct bell *bell, struct bell_peer *peer);

/**
 * Wait until @there.
 *
 * @there  Called again and again, also at once. Reads what others change before they ring with
 *         sequentially consistent loads. Without waiting.
 * @deadline_ns  CLOCK_MONOTONIC; UINT64_MAX: none.
 * Returns 0, -ETIMEDOUT, -EPIPE (the peer has gone) or what bell_peer_end() was given. Looks once
 * more before any of these.
 */
MUST_CHECK int bell_wait(struct bell_waiter *waiter, bool (*there)(void *data), void *data,
                         uint64_t deadline_ns);

/** Wake who waits; after a sequentially consistent store of what it waits for. */
void bell_ring_slow(struct bell *bell);
static inline void bell_ring(struct bell *bell)
{
    if (UNLIKELY(atomic_load(&bell->sleeps) != 0))
        bell_ring_slow(bell);
}

/** Let all waits for the peer end with @err, unless they end already. Those that sleep do when they
 * are rung, or look by themselves, which they do every half second. */
void bell_peer_end(struct bell_peer *peer, int err);
/** How long nobody looks by itself at first, and at most: for tests. */
extern uint64_t bell_look_first_ns, bell_look_most_ns;

/** Ask the socket, unless it is watched: 0, or why they end. */
int bell_peer_look(struct bell_peer *peer);

#endif
