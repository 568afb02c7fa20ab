#ifndef RESEAT_STATE_OBJECT_RETRY_H
#define RESEAT_STATE_OBJECT_RETRY_H

#include "state/object/context.h"

/*
 * Work that a move makes start over, because it is done outside the gate and for the device where
 * it begins: builds, and contexts that are being made. Where moves come faster than it ends it
 * would never end; so that what had to start over a few times is let finish, and moves of its
 * devices wait before they begin.
 *
 * They wait within their own deadline and cancellation, and no longer than RETRY_NS, for the work
 * may hang in a driver. A suspended device is resumed all the same, since the work may wait for
 * that.
 */

#define RETRY_AFTER 3 /**< Attempts in vain. */
#define RETRY_NS    120000000000u

/** One piece of such work; starts as {.virtual devices, .count}. */
struct retry {
    struct vdev *const *vdevs; /**< Borrowed. */
    cl_uint count;
    unsigned attempts; /**< In vain so far. */
};

/** Another attempt was in vain. Not inside the gate. */
void retry_again(struct retry *retry);
/** The work has ended; also where no attempt was in vain. */
void retry_end(struct retry *retry);

/** True while moves of @vdev are to wait. */
bool retry_delays_moves(const struct vdev *vdev);
/** Wait until some work has ended, but no longer than @wait_ns. */
void retry_wait(uint64_t wait_ns);

#endif
