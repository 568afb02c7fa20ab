#ifndef RESEAT_AGENT_DAEMON_MESSAGES_REGISTERING_H
#define RESEAT_AGENT_DAEMON_MESSAGES_REGISTERING_H

#include "agent/daemon/agent.h"

/**
 * MSG_DEVICES and MSG_REGISTER, which want the list as the client's environment shows it. May take
 * @message, to be handled again when that is there.
 */
void registering_handle(struct peer *peer, struct message *message);
/**
 * Have the list made anew for a request that names what is not in it. Once: true when @message was
 * taken, to be handled again.
 */
MUST_CHECK bool registering_await(struct peer *peer, struct message *message);

#endif
