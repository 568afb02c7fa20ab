#ifndef RESEAT_STATE_MOVE_FETCH_H
#define RESEAT_STATE_MOVE_FETCH_H

#include <stdint.h>

#include "state/object/context.h"

/*
 * Moves and resumes on demand. The program runs at once: the latest bytes of what it has are still
 * where it came from, its real objects are on the device without them, and a command that names one
 * has it brought (room/bring.c). A thread of ours brings the rest, what was used last first, while
 * the program runs: in slices that take some milliseconds, so that no command waits long behind
 * one, and it stands back while commands bring.
 *
 * Where it came from are its sources: host memory after a resume, and residences that it left
 * (source.h). Until the last byte
 * is fetched their replicas stay, so that no failure of the target loses one (M1); then they are
 * given back. What there is no room for in the target goes to host memory.
 *
 * It is a mover: it has move_run's lock while it copies, and lets go of it as soon as another one
 * waits. That one takes what was not fetched from the sources to where it goes, unless it is on
 * demand as well: then they are sources still. A move back finds what is left there in its place.
 */

/**
 * @vdev has just moved: fetch what its sources alone have, if it came without content (@on_demand)
 * or a residence that it left has some. Blocks on nothing. Without memory or a thread for it, it
 * stays there until commands name it. move_run's lock held.
 *
 * @bandwidth  Bytes a second; 0: no limit.
 * Returns how many bytes.
 */
uint64_t fetch_begin(struct vdev *vdev, bool on_demand, uint64_t bandwidth);

/** How much of what was left at sources is there; both 0 where nothing is fetched. Wait-free. */
void fetch_read(uint32_t vdev, uint64_t *ret_fetched, uint64_t *ret_total);

#endif
