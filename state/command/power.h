#ifndef RESEAT_STATE_COMMAND_POWER_H
#define RESEAT_STATE_COMMAND_POWER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "state/base/compiler.h"

/*
 * Deferral of launches while a power cap concerns the program; implemented in defer.c. Launches
 * wait until the agent grants power, and few are submitted to the driver at once, so that they end
 * soon after a grant is withdrawn. Without a cap, a launch costs one atomic load.
 */

extern atomic_bool power_capped;

/** True when launches must be deferred until power is granted. */
static inline bool power_is_capped(void)
{
    return UNLIKELY(atomic_load_explicit(&power_capped, memory_order_relaxed));
}

/**
 * Set the agent's decision: whether a cap concerns the program, and whether it may launch. Call
 * this outside the gate.
 */
void power_set(bool capped, bool granted);

struct power_state {
    bool runs;  /**< The program may launch, or its launches have not ended. */
    bool wants; /**< Launches wait for power. */
};
void power_read(struct power_state *ret_state);
/**
 * Set a function that is called, on any thread and without locks, when the result of power_read()
 * may have changed.
 */
void power_set_waker(void (*wake)(void));

#endif
