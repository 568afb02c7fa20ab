#ifndef RESEAT_STATE_COMMAND_POWER_H
#define RESEAT_STATE_COMMAND_POWER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * Deferral of launches while a power cap concerns the program. Launches wait until the agent grants
 * power, and few are submitted to the driver at once, so that they end soon after a grant is
 * withdrawn. Launches from before the cap are let run, and the program counts
 * as running until they have ended. Without a cap, a launch costs one atomic load.
 */

extern atomic_bool power_capped;

/** True when launches must be deferred until power is granted. */
static inline bool power_is_capped(void)
{
    return UNLIKELY(atomic_load_explicit(&power_capped, memory_order_relaxed));
}

/**
 * Set the agent's decision: whether a cap concerns the program, and for how long from now it may
 * launch. So a process that was stopped, and is continued, does not use a grant that the agent has
 * withdrawn meanwhile. Call this outside the gate.
 *
 * @grant_ns  0: it may not launch. UINT64_MAX: it may until the next call.
 */
void power_set(bool capped, uint64_t grant_ns);

struct power_state {
    bool runs;  /**< The program may launch, or its launches have not ended. */
    bool wants; /**< Launches wait for power. */
};
void power_read(struct power_state *ret_state);
/**
 * Set a function that is called, on any thread and without locks, when the result of power_read()
 * has changed since it was last called.
 */
void power_set_waker(void (*wake)(void));

#endif
