#ifndef RESEAT_AGENT_DAEMON_GOVERN_ACCOUNTS_H
#define RESEAT_AGENT_DAEMON_GOVERN_ACCOUNTS_H

#include "agent/daemon/programs/registry.h"

/* What programs say of what they have, kept in the ledger. */

/** MSG_STATUS: how it is. */
void accounts_status(struct peer *peer, struct message *message);
/** It connected. @first: as never before. Fields go into the open welcome. */
void accounts_welcome(struct agent *agent, struct program *program, bool first,
                      const msgpack_object *hello, struct frame *welcome);
/** Programs of an agent before have yet to say what they have: what is free is not known. */
bool accounts_awaited(const struct agent *agent);

#endif
