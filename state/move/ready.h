#ifndef RESEAT_STATE_MOVE_READY_H
#define RESEAT_STATE_MOVE_READY_H

#include "state/move/move_priv.h"

/*
 * Residences made ahead of a possible move: the context, its programs and kernels, which take
 * longest to make. No virtual device is in such a residence, so the program, its grant and its
 * status do not change. A move to its device takes it over and makes what is missing; a move to
 * another device releases it. context->ready lists the devices of these residences and may be read
 * by any thread; everything else belongs to movers, under their lock and with the gate open. Only
 * programs are built without that lock, for several devices at once (move_lock_to_prewarm).
 */

/** Residence indexes of a context that are kept free for a move and for a target left by a
 * rollback. */
#define READY_STANDBY 2

/**
 * Serve a request to prewarm, after PLAN: make what is missing on move->target. On failure what was
 * made is released, except when it gave way to another mover (move->gave_way): then call it again
 * after that move. 0, -ENOSPC, -EIO, or as move_check.
 */
MUST_CHECK int ready_make(struct move *move);

/** Take over the residence for this move if it was made ahead. Returns whether it did. */
bool ready_take(struct context *context, uint8_t residence_index);

/** If residences were made ahead on @device, check whether it is lost, and release them if it is.
 */
void ready_examine(const struct device *device);

/** Release residences made ahead on @device (NULL: any) in contexts of @vdev (NULL: any). Returns
 * how many. */
unsigned ready_drop(const struct device *device, const struct vdev *vdev);

#endif
