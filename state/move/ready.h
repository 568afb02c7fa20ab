#ifndef RESEAT_STATE_MOVE_READY_H
#define RESEAT_STATE_MOVE_READY_H

#include "state/move/move_priv.h"

/*
 * Residences made ahead of a possible move: the context, the programs and the kernels, which are
 * what takes a move long before it copies bytes. No virtual device is there, so neither the
 * program, its grant nor its status changes. A move to that device takes the residence over, as it
 * does one that a rollback left, and makes what is missing; a move to another device releases it.
 * context->ready has the device of each such residence and is read by anybody; the rest is the
 * movers', under their lock and with the gate open. Programs are built without that lock, for
 * several devices at once (move_lock_to_prewarm).
 */

/** Residence indexes of a context that stay free for a move, and for what a rollback left. */
#define READY_STANDBY 2

/**
 * A request to prewarm, after PLAN: make what is missing on move->target. What was made before it
 * failed is taken apart again, but for the sake of another mover (move->gave_way): that goes first,
 * and this begins anew. 0, -ENOSPC, -EIO, or as move_check.
 */
MUST_CHECK int ready_make(struct move *move);

/** True when the residence was made ahead: it is this move's target now. */
bool ready_take(struct context *context, uint8_t residence_index);

/** Ask @device, where such residences are on it, whether it is lost; then release them. */
void ready_examine(const struct device *device);

/** Release those on @device (NULL: any) in contexts of @vdev (NULL: any). Returns how many. */
unsigned ready_drop(const struct device *device, const struct vdev *vdev);

#endif
