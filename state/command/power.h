#ifndef RESEAT_STATE_COMMAND_POWER_H
#define RESEAT_STATE_COMMAND_POWER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "state/base/compiler.h"

/*
 * Launches of a program under a power cap; a part of defer.c. They are deferred until the agent
 * grants power, and few of them are with the driver at once, so that they end soon after the grant
 * did. Without a cap a launch costs one load.
 */

extern atomic_bool power_capped;

/** True when launches are to be deferred until there is power for them. */
static inline bool power_is_capped(void)
{
    return UNLIKELY(atomic_load_explicit(&power_capped, memory_order_relaxed));
}

/** The agent's word: whether a cap concerns the program, and whether it may launch. Outside the
 * gate. */
void power_set(bool capped, bool granted);

struct power_state {
    bool runs;  /**< It may launch, or launches of it have not ended. */
    bool wants; /**< Launches wait for power. */
};
void power_read(struct power_state *ret_state);
/** Call @wake, on any thread and without locks, when what power_read() says may have changed. */
void power_set_waker(void (*wake)(void));

#endif
