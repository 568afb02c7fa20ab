#ifndef RESEAT_STATE_BASE_CLOCK_H
#define RESEAT_STATE_BASE_CLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * The program's clock: what profiling times of one virtual device are in (5.14). It is that of the
 * device where the program started; on each later device that one's clock is shifted, so that times
 * go on from where they were (M3). In between it runs with the host's.
 *
 * A driver may fail to say what its clock is. What was last known, the host's clock and the latest
 * time that the program was given then say how far the program's clock has come at least, and the
 * shift is found from the first event that the program asks for.
 *
 * Changed by movers with the gate closed; read inside the gate.
 */

struct residence;

#define CLOCK_UNKNOWN INT64_MIN

struct clock {
    _Atomic int64_t shift;   /**< Added to the device's times; or CLOCK_UNKNOWN. */
    _Atomic uint64_t latest; /**< The latest time that was asked for, and when that was. */
    _Atomic uint64_t host_at_latest;
    uint64_t at_move, host_at_move; /**< Both clocks at the last move; 0: there was none. */
};

/** Monotonic, in nanoseconds. */
uint64_t clock_host(void);

/** True when clock_translate can be called; else clock_find comes first. */
static inline bool clock_is_known(const struct clock *clock)
{
    return atomic_load_explicit(&clock->shift, memory_order_relaxed) != CLOCK_UNKNOWN;
}
/** Some command of the device ended, at @end of its clock. */
void clock_find(struct clock *clock, uint64_t end);
/** The program's time of what happened at @time of the device. */
uint64_t clock_translate(struct clock *clock, uint64_t time);
/** Now, as far as it is known: for what ended at a time that its driver does not say. */
uint64_t clock_guess(const struct clock *clock);

/** The clock of a part of a device begins as the whole device's. Inside the gate. */
void clock_inherit(struct clock *clock, const struct clock *whole);

/** The seat leaves @residence (NULL: it was on no device). Its events have been settled. Blocks. */
void clock_leave(struct clock *clock, struct residence *residence);
/** It comes to @residence (NULL: none that is known). After clock_leave. Blocks on the device. */
void clock_arrive(struct clock *clock, struct residence *residence);

#endif
