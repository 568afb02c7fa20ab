#ifndef RESEAT_STATE_MOVE_READY_H
#define RESEAT_STATE_MOVE_READY_H

#include "state/move/move_priv.h"

/*
 * Residences made ahead of a move that may come: the context, the programs and the kernels, which
 * are what a move waits for before its bytes. Nobody lives there: to the program, to what it is
 * granted and to its status it is nowhere but where it was. A move to the device takes the
 * residence over, as one that a rollback left, and makes what is missing; one to anywhere else lets
 * go of it. context->ready says which places are such. All of it but that is a mover's: under
 * move_run's lock, with the gate open; but what is built is built without the lock, for several
 * devices at once (move_lock_to_prewarm).
 */

/** Places of a context that stay free of them: for a move, and for what a rollback left. */
#define READY_STANDBY 2

/**
 * A request to prewarm, after PLAN: make what is missing on move->target. What was made before it
 * failed is taken apart again, but for the sake of another mover (move->gave_way): that goes first,
 * and this begins anew. 0, -ENOSPC, -EIO, or as move_check.
 */
MUST_CHECK int ready_make(struct move *move);

/** True when the residence was made ahead: it is this move's target now. */
bool ready_take(struct context *context, uint8_t residence_index);

/** Ask those on @device whether it is still there, and let go of those where it is not. */
void ready_examine(const struct device *device);

/** Let go of those on @device (NULL: any) in contexts of @vdev (NULL: any). How many there were. */
unsigned ready_drop(const struct device *device, const struct vdev *vdev);

#endif
