#ifndef RESEAT_STATE_COMMAND_WATCH_H
#define RESEAT_STATE_COMMAND_WATCH_H

#include "state/command/event.h"

/*
 * What becomes of an event: the program's callbacks, and deferred commands that wait for a command
 * of another residence.
 *
 * Drivers say it by callbacks of their own. Some say it late, in a strange order, or never: a
 * thread of ours looks as well, a few milliseconds later. An event whose status is known to have
 * come as far as COMPLETE never reports less afterwards.
 */

/** The part of an event that few events have. Owned by the event and by what drivers hold of it. */
struct watch;

/** The lowest status that is known to have been reached; CL_QUEUED when nothing is known. */
cl_int watch_reached(const struct event *event);
/** @event's status is @status now, or has passed it: callbacks that are due are posted. Under
 * engine_lock; no watch is allowed. */
void watch_advance(struct event *event, cl_int status);
/** @event has become ISSUED: its driver is asked to report. Inside the gate. */
void watch_issued(struct event *event);
/** @event ends its life. It has no watch from then on. */
void watch_leave(struct event *event);

#endif
