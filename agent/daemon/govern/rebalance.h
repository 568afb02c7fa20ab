#ifndef RESEAT_AGENT_DAEMON_GOVERN_REBALANCE_H
#define RESEAT_AGENT_DAEMON_GOVERN_REBALANCE_H

#include "agent/daemon/programs/registry.h"

/** MSG_BALANCE of a client. */
void rebalance_handle(struct peer *client, struct message *message);
/** Begin a step that makes things better. False: there is none. */
bool rebalance_step(struct agent *agent);

#endif
