#ifndef RESEAT_STATE_OBJECT_STAY_H
#define RESEAT_STATE_OBJECT_STAY_H

#include "state/object/context.h"

/*
 * Work that a move makes start over, because it is done outside the gate and for the device where
 * it begins: builds, and contexts that are being made. Where moves come faster than it ends it
 * would never end; so that what had to start over a few times is let finish, and moves of its
 * devices wait before they begin.
 *
 * They wait within their own deadline and cancellation, and no longer than STAY_NS, for the work
 * may hang in a driver. A suspended device is resumed all the same, since the work may wait for
 * that.
 */

#define STAY_AFTER 3 /**< Attempts in vain. */
#define STAY_NS    120000000000u

/** One piece of such work; starts as {.seats, .count}. */
struct stay {
    struct seat *const *seats; /**< Borrowed. */
    cl_uint count;
    unsigned attempts; /**< In vain so far. */
};

/** Another attempt was in vain. Not inside the gate. */
void stay_again(struct stay *stay);
/** The work has ended; also where no attempt was in vain. */
void stay_end(struct stay *stay);

/** True while moves of @seat are to wait. */
bool stay_holds(const struct seat *seat);
/** Wait until some work has ended, but no longer than @wait_ns. */
void stay_wait(uint64_t wait_ns);

#endif
