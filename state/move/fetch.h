#ifndef RESEAT_STATE_MOVE_FETCH_H
#define RESEAT_STATE_MOVE_FETCH_H

#include <stdint.h>

#include "state/object/context.h"

/*
 * Moves and resumes on demand. The program runs at once, with real objects on the target that have
 * no content yet: the latest bytes are still at the sources. A command that names an object has its
 * bytes brought (budget/bring.c). A thread fetches the rest while the program runs, most recently
 * used objects first. It copies in slices of some milliseconds, so that no command waits long
 * behind one, and pauses while commands bring bytes.
 *
 * Sources are host memory (after a resume) and the residences that the program left (source.h).
 * Their replicas stay until the last byte is fetched, so that no failure of the target loses one
 * (M1); then they are released. What does not fit on the target is copied to host memory.
 *
 * The thread holds the movers' lock while it copies, and releases it as soon as another mover
 * waits. That move copies what is not fetched yet from the sources to its own target; if it is on
 * demand too, they stay sources. A move back finds those bytes in their old residence.
 */

/**
 * Begin to fetch what only the sources of @vdev have, after a move that committed without content
 * (@on_demand) or where an earlier one left sources. Does not block. Without memory or a thread,
 * the bytes stay at the sources until commands name them. Called with the movers' lock held.
 *
 * @bandwidth  Bytes a second; 0: no limit.
 *
 * Returns the number of bytes to fetch.
 */
uint64_t fetch_begin(struct vdev *vdev, bool on_demand, uint64_t bandwidth);

/** Bytes fetched so far, and in all; both 0 where nothing is being fetched. Wait-free. */
void fetch_read(uint32_t vdev, uint64_t *ret_fetched, uint64_t *ret_total);

#endif
