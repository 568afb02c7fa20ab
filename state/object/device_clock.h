#ifndef RESEAT_STATE_OBJECT_DEVICE_CLOCK_H
#define RESEAT_STATE_OBJECT_DEVICE_CLOCK_H

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

#define DEVICE_CLOCK_UNKNOWN INT64_MIN

struct device_clock {
    _Atomic int64_t shift;   /**< Added to the device's times; or DEVICE_CLOCK_UNKNOWN. */
    _Atomic uint64_t latest; /**< The latest time that was asked for, and when that was. */
    _Atomic uint64_t host_at_latest;
    uint64_t at_move, host_at_move; /**< Both clocks at the last move; 0: there was none. */
    uint64_t last;                  /**< Of device_clock_last; 0: nobody asked. */
};

/** True when device_clock_translate can be called; else device_clock_find comes first. */
static inline bool device_clock_is_known(const struct device_clock *clock)
{
    return atomic_load_explicit(&clock->shift, memory_order_relaxed) != DEVICE_CLOCK_UNKNOWN;
}
/** Some command of the device ended, at @end of its clock. */
void device_clock_find(struct device_clock *clock, uint64_t end);
/** The program's time of what happened at @time of the device. */
uint64_t device_clock_translate(struct device_clock *clock, uint64_t time);
/** Now, as far as it is known: for what ended at a time that its driver does not say. */
uint64_t device_clock_guess(const struct device_clock *clock);

/** When all that ended on a device which is lost did so, as far as is known: one time for all, so
 * that none lies before what it came after. By a mover, until device_clock_leave. */
uint64_t device_clock_last(struct device_clock *clock);

/** The clock of a part of a device begins as the whole device's. Inside the gate. */
void device_clock_inherit(struct device_clock *clock, const struct device_clock *whole);

/** The virtual device leaves @residence (NULL: it was on no device). Its events have been settled.
 * Blocks. */
void device_clock_leave(struct device_clock *clock, struct residence *residence);
/** It comes to @residence (NULL: none that is known). After device_clock_leave. Blocks on the
 * device. */
void device_clock_arrive(struct device_clock *clock, struct residence *residence);

#endif
