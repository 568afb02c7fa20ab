#ifndef RESEAT_AGENT_DAEMON_ISOLATION_H
#define RESEAT_AGENT_DAEMON_ISOLATION_H

#include "agent/daemon/agent.h"

/*
 * A device server for this user's isolated programs. The agent listens on the server's socket and
 * starts the server when a program connects, also after an earlier server was killed. The server
 * then accepts the waiting connections. It ends some time after its last session, and continues
 * when the agent ends.
 */

/**
 * Listen on the server's socket. Where a server that an earlier agent started still listens, that
 * server is kept, and the agent tries to listen again later. Returns 0 or -errno.
 */
MUST_CHECK int isolation_init(struct agent *agent);
void isolation_sweep(struct agent *agent);
/** Stop listening when the agent stops. The server continues. */
void isolation_stop(struct agent *agent);

#endif
