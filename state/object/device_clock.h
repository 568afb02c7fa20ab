#ifndef RESEAT_STATE_OBJECT_DEVICE_CLOCK_H
#define RESEAT_STATE_OBJECT_DEVICE_CLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * The clock of one virtual device's profiling times (5.14). It is the clock of the device where the
 * program started; the clock of each later device is shifted so that times continue (M3). Between
 * devices it advances with the host's clock.
 *
 * A driver may fail to tell its clock's time. Then the host's clock and the latest time that the
 * program was given show how far the program's clock has advanced at least, and the shift is
 * computed from the first event that the program asks about.
 *
 * Changed by movers with the gate closed; read inside the gate.
 */

struct residence;

#define DEVICE_CLOCK_UNKNOWN INT64_MIN

struct device_clock {
    _Atomic int64_t shift;   /**< Added to the device's times; or DEVICE_CLOCK_UNKNOWN. */
    _Atomic uint64_t latest; /**< The latest time given to the program, and when. */
    _Atomic uint64_t host_at_latest;
    uint64_t at_move, host_at_move; /**< Both clocks at the last move; 0: there was none. */
    uint64_t last;                  /**< Result of device_clock_last; 0: nobody asked. */
};

/** True when device_clock_translate can be called; else device_clock_find comes first. */
static inline bool device_clock_is_known(const struct device_clock *clock)
{
    return atomic_load_explicit(&clock->shift, memory_order_relaxed) != DEVICE_CLOCK_UNKNOWN;
}
/** Compute the shift from a command that ended at @end of the device's clock. */
void device_clock_find(struct device_clock *clock, uint64_t end);
/** The program's time for @time of the device. */
uint64_t device_clock_translate(struct device_clock *clock, uint64_t time);
/** The estimated present time, for a command whose end time the driver does not tell. */
uint64_t device_clock_guess(const struct device_clock *clock);

/** The end time of all commands that a lost device had not ended: one time for all, so that none
 * ends before a command that it waited for. By a mover, before device_clock_leave. */
uint64_t device_clock_last(struct device_clock *clock);

/** A sub-device's clock starts as the whole device's. Inside the gate. */
void device_clock_inherit(struct device_clock *clock, const struct device_clock *whole);

/** The virtual device leaves @residence (NULL: it was on no device). Its events have been settled.
 * Blocks. */
void device_clock_leave(struct device_clock *clock, struct residence *residence);
/** The virtual device arrives at @residence (NULL: none). After device_clock_leave. Blocks on the
 * device. */
void device_clock_arrive(struct device_clock *clock, struct residence *residence);

#endif
