#ifndef RESEAT_AGENT_DAEMON_MESSAGES_DESCRIBE_H
#define RESEAT_AGENT_DAEMON_MESSAGES_DESCRIBE_H

#include "agent/daemon/peers.h"
#include "agent/daemon/programs/registry.h"

/* What clients are shown of programs and devices. */

/** Fields of one program, into an open map. */
void describe_program(const struct agent *agent, const struct program *program,
                      struct frame *frame);
/** What the ledger knows of a device, into an open map. */
void describe_account(const struct agent *agent, const struct ledger_device *device,
                      struct frame *frame);
/** The answer to MSG_DEVICES: all devices, and which programs of those @peer may see use them. */
void describe_devices(struct agent *agent, const struct peer *peer, struct frame *frame);

#endif
