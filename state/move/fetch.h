#ifndef RESEAT_STATE_MOVE_FETCH_H
#define RESEAT_STATE_MOVE_FETCH_H

#include <stdint.h>

#include "state/object/context.h"

/*
 * Resumes on demand. The program runs at once: host memory still has the latest bytes of what it
 * has, its real objects are on the device without them, and a command that names one has it brought
 * (room/bring.c). A thread of ours brings the rest, what was used last first, while the program
 * runs: in slices that take some milliseconds, so that no command waits long behind one, and it
 * stands back while commands bring. Until the last byte is there the replicas in host memory stay;
 * then they are given back.
 *
 * It is a mover: it has move_run's lock while it copies, and lets go of it as soon as another one
 * waits, which finds what was not fetched in host memory.
 */

/**
 * @seat has just been resumed without content: fetch what host memory alone has. Blocks on nothing.
 * Without memory or a thread for it, it stays there until commands name it. move_run's lock held.
 *
 * @bandwidth  Bytes a second; 0: no limit.
 */
void fetch_begin(struct seat *seat, uint64_t bandwidth);
/** @seat is elsewhere, or nowhere: nothing is to be fetched any more. move_run's lock held. */
void fetch_forget(const struct seat *seat);

/** How much of what a resume left in host memory is there; both 0 where nothing is fetched.
 * Wait-free. */
void fetch_read(uint32_t seat, uint64_t *ret_fetched, uint64_t *ret_total);

#endif
