#ifndef RESEAT_STATE_OBJECT_RETRY_H
#define RESEAT_STATE_OBJECT_RETRY_H

#include "state/object/context.h"

/*
 * Operations that a move forces to start again, because they run outside the gate for the device
 * where they began: builds, and the creation of contexts. If moves came faster than such an
 * operation ends, it would never end; so once it had to start again a few times, moves of its
 * devices wait for it before they begin.
 *
 * They wait within their own deadline and cancellation, and for RETRY_NS at most, since the
 * operation may hang in a driver. A resume does not wait, since the operation may be waiting for
 * it.
 */

#define RETRY_AFTER 3 /**< Attempts in vain. */
#define RETRY_NS    120000000000u

/** One such operation; initialised as {.vdevs, .count}. */
struct retry {
    struct vdev *const *vdevs; /**< Borrowed. */
    cl_uint count;
    unsigned attempts; /**< Attempts in vain so far. */
};

/** Note an attempt in vain. Not inside the gate. */
void retry_again(struct retry *retry);
/** The operation has ended; also to be called where no attempt was in vain. */
void retry_end(struct retry *retry);

/** True while moves of @vdev must wait. */
bool retry_delays_moves(const struct vdev *vdev);
/** Wait until some operation has ended, but no longer than @wait_ns. */
void retry_wait(uint64_t wait_ns);

#endif
