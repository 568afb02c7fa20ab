#ifndef RESEAT_INTERPOSE_CONTROL_CONTROL_PARK_H
#define RESEAT_INTERPOSE_CONTROL_CONTROL_PARK_H

#include <stdbool.h>
#include <stdint.h>

/*
 * What a parked program (state/move/park.h) and the command that keeps its process say to each
 * other: agent/protocol/park.h. One for a process.
 */

/** It is parked; returns where the box is. By the thread that parked it. */
uint64_t control_park_begin(void);
/** It has no connection with an agent. */
void control_park_closed(void);
/** It is to go on at once: nobody was told that it is parked. */
void control_park_cancel(void);
/** Until it is to go on, or nobody is there any more, or the process ends. By the thread that
 *  parked it. */
void control_park_wait(void);

/** Where its agent is, if not where it was; else NULL. Between parks; by the control thread. */
const char *control_park_socket(void);
/** It was restored since the last connection. */
bool control_park_restored(void);

#endif
