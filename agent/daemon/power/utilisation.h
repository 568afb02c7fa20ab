#ifndef RESEAT_AGENT_DAEMON_POWER_UTILISATION_H
#define RESEAT_AGENT_DAEMON_POWER_UTILISATION_H

#include "agent/daemon/power/device_use.h"
#include "agent/daemon/programs/registry.h"

/*
 * How much of devices is used, by all programs and by one. Nothing is measured for this: meters are
 * read once a second anyway, and programs report what they know from launches that end.
 */

/** The use of @device. */
struct device_use utilisation_of_device(const struct agent *agent, uint32_t device);
/**
 * The share of recent time, in thousandths, in which @program used @device: in which a thread of it
 * waited for the device, or in which its measured launches ran there, whichever is more. Each
 * misses something: a program may not wait, and short launches are measured now and then.
 */
uint32_t utilisation_of_program(const struct agent *agent, const struct program *program,
                                uint32_t device);

/** Put the use of @device into an open map, for `reseat devices` and `reseat explain`. */
void utilisation_put_device(const struct agent *agent, uint32_t device, struct frame *frame);
/** Put "use", a list of the devices that @program uses and of its share of each. */
void utilisation_put_program(const struct agent *agent, const struct program *program,
                             struct frame *frame);

#endif
