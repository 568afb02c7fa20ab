#ifndef RESEAT_INTERPOSE_CONTROL_CONTROL_PARK_H
#define RESEAT_INTERPOSE_CONTROL_CONTROL_PARK_H

#include <stdbool.h>
#include <stdint.h>

/*
 * What a parked program (state/image/park.h) and the command that keeps its process say to each
 * other: agent/protocol/park.h. One for a process.
 */

/** The program is parked; returns the address of the box. Called by the thread that parked it. */
uint64_t control_park_begin(void);
/** The program has no connection with an agent any more. */
void control_park_closed(void);
/** Resume the program at once: the report that it is parked could not be sent. */
void control_park_cancel(void);
/** Wait until the program is resumed, the command that keeps it is gone, or the process ends.
 * Called by the thread that parked it. */
void control_park_wait(void);

/** Where its agent is, if not where it was; else NULL. Between parks; by the control thread. */
const char *control_park_socket(void);
/** True when the process was restored since the last connection. */
bool control_park_restored(void);

#endif
