#ifndef RESEAT_AGENT_DAEMON_MESSAGES_HANDLERS_H
#define RESEAT_AGENT_DAEMON_MESSAGES_HANDLERS_H

#include "agent/daemon/peers.h"

/* Messages that no other part of the agent takes. May take @message, to be handled again. */

void hello_handle(struct peer *peer, struct message *message);
void wish_handle(struct peer *peer, struct message *message);
void alive_handle(struct peer *peer, struct message *message);
void register_handle(struct peer *peer, struct message *message);
void devices_handle(struct peer *peer, struct message *message);
void programs_handle(struct peer *peer, struct message *message);
void agent_handle(struct peer *peer, struct message *message);
void stop_handle(struct peer *peer, struct message *message);
void reload_handle(struct peer *peer, struct message *message);
void cancel_handle(struct peer *peer, struct message *message);
void notice_handle(struct peer *peer, struct message *message);
void explain_handle(struct peer *peer, struct message *message);
void use_handle(struct peer *peer, struct message *message);

#endif
