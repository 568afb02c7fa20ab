#ifndef RESEAT_STATE_BASE_THREADS_GATE_H
#define RESEAT_STATE_BASE_THREADS_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "state/base/compiler.h"
#include "state/base/threads/thread_own.h"

/*
 * The gate (invariants G1 to G4). A thread is inside from gate_enter to gate_leave; a mover closes
 * the gate, waits until all inside have left, and then owns every residence alone.
 *
 * The open gate writes no shared cache line and has no fence: each thread raises a flag of its own,
 * and a mover that closes the gate makes every thread pass a barrier with membarrier(2), so that
 * either the thread sees the closed gate or the mover sees the flag.
 */

extern _Atomic uint32_t gate_closed;

void gate_enter_slow(void);
void gate_leave_slow(void);

/** Enter; blocks while a mover has the gate. Nothing between here and gate_leave may wait (G2). */
static inline void gate_enter(void)
{
    uint32_t inside = atomic_load_explicit(&the_thread.gate.inside, memory_order_relaxed);
    if (UNLIKELY(!the_thread.gate.known)) {
        gate_enter_slow();
        return;
    }
    atomic_store_explicit(&the_thread.gate.inside, inside + 1, memory_order_relaxed);
    /* The processor may delay the store past this load; membarrier in gate_close undoes that. */
    atomic_signal_fence(memory_order_seq_cst);
    if (UNLIKELY(atomic_load_explicit(&gate_closed, memory_order_acquire) != 0) && inside == 0)
        gate_enter_slow();
}

static inline void gate_leave(void)
{
    uint32_t inside = atomic_load_explicit(&the_thread.gate.inside, memory_order_relaxed);
    atomic_store_explicit(&the_thread.gate.inside, inside - 1, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
    if (UNLIKELY(atomic_load_explicit(&gate_closed, memory_order_relaxed) != 0))
        gate_leave_slow();
}

/** True when the calling thread is inside. */
static inline bool gate_is_inside(void)
{
    return atomic_load_explicit(&the_thread.gate.inside, memory_order_relaxed) != 0;
}

/** True when a mover waits for the calling thread, which is inside, to leave. */
static inline bool gate_is_awaited(void)
{
    return UNLIKELY(atomic_load_explicit(&gate_closed, memory_order_relaxed) != 0) &&
           !the_thread.gate.owner;
}

/**
 * Close the gate and wait until every thread inside has left. One closer at a time: a second one
 * waits. Not inside the gate. The closer itself passes the gate freely until gate_open.
 *
 * @deadline_ns  CLOCK_MONOTONIC, 0 for none.
 * Returns 0, or -ETIMEDOUT with the gate open again.
 */
MUST_CHECK int gate_close(uint64_t deadline_ns);
/** The same, but returns -ECANCELED soon after @cancel (or NULL) becomes true, since a thread
 * inside may be in a slow driver call. */
MUST_CHECK int gate_close_unless(uint64_t deadline_ns, const atomic_bool *cancel);
void gate_open(void);

#endif
