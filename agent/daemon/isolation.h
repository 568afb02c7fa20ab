#ifndef RESEAT_AGENT_DAEMON_ISOLATION_H
#define RESEAT_AGENT_DAEMON_ISOLATION_H

#include "agent/daemon/agent.h"

/*
 * A device server for this user's isolated programs. The agent listens for it: whoever connects has
 * it started, also after it was killed, and it takes whoever waits. It ends by itself some time
 * after its last session, and outlives the agent, as programs do.
 */

/** Listen. Where a server of an earlier agent does, that one is left alone, and this is tried
 *  again. 0 or -errno. */
MUST_CHECK int isolation_init(struct agent *agent);
void isolation_sweep(struct agent *agent);
/** As the agent stops: what the server has goes on. */
void isolation_stop(struct agent *agent);

#endif
