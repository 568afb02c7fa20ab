#ifndef RESEAT_STATE_COMMAND_WATCH_H
#define RESEAT_STATE_COMMAND_WATCH_H

#include "state/command/event.h"

/*
 * Follows the status of an event, for the program's callbacks, and for deferred commands that wait
 * for a command of another residence.
 *
 * Drivers report it by their own callbacks. Some report it late, in a strange order, or never: a
 * thread of ours polls as well, a few milliseconds later. A status that was reached once is never
 * reported as lower afterwards.
 */

/** Additional state that few events need. Owned by the event and by pending reports of drivers. */
struct watch;

/** The furthest status that the event is known to have reached; CL_QUEUED when nothing is known. */
cl_int watch_reached(const struct event *event);
/** @event has reached @status: post the callbacks that are due. With engine_lock; does nothing for
 * an event without a watch. */
void watch_advance(struct event *event, cl_int status);
/** @event has become ISSUED: ask its driver to report. Inside the gate. */
void watch_issued(struct event *event);
/** @event is destroyed. It has no watch from then on. */
void watch_leave(struct event *event);

#endif
