#ifndef RESEAT_AGENT_DAEMON_GOVERN_BARS_H
#define RESEAT_AGENT_DAEMON_GOVERN_BARS_H

#include "agent/daemon/programs/registry.h"

/* Devices that a program is kept off for a while, and programs that are left alone for a while. */

/** A step of @program failed: leave it alone, for longer each time. */
void bars_rest(struct agent *agent, struct program *program);
/** Keep @program off the device for as long as @cause asks for, with @reason for the operator. */
void bars_add(struct agent *agent, struct program *program, uint32_t device,
              enum program_bar_cause cause, const char *reason);
/** Whether that still keeps @program off the device. */
bool bars_hold(const struct agent *agent, const struct program *program,
               const struct program_bar *bar);

#endif
