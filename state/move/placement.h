#ifndef RESEAT_STATE_MOVE_PLACEMENT_H
#define RESEAT_STATE_MOVE_PLACEMENT_H

#include "state/move/spread.h"

/*
 * Runs launches on prewarmed residences for their queue's device ("home"; command/place.h says
 * which ones). A helper's results count once they are at home: until then home's bytes are as they
 * were before the launch, so a launch whose helper fails, is lost or is late runs at home instead.
 * What a late helper still writes is dropped: its residence is released.
 *
 * By a mover that yields, under the movers' lock, with the gate open: while launches are placed no
 * other move goes on, and when it ends nothing of the program is on a helper alone.
 */

/**
 * Place launches of request->vdev on the residences that @request offers, until request->stops or
 * none came for a while. 0, or -ENOTSUP: a program was built since the residences were prewarmed.
 */
MUST_CHECK int placement_run(const struct spread_request *request);

#endif
