#ifndef RESEAT_AGENT_DAEMON_GOVERN_MOVING_H
#define RESEAT_AGENT_DAEMON_GOVERN_MOVING_H

#include "agent/daemon/peers.h"

/** MSG_MOVE, MSG_SUSPEND or MSG_RESUME of a client. */
void moving_handle(struct peer *client, struct message *message);

#endif
