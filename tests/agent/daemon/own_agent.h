#ifndef RESEAT_TESTS_AGENT_DAEMON_OWN_AGENT_H
#define RESEAT_TESTS_AGENT_DAEMON_OWN_AGENT_H

#include "agent/daemon/agent.h"

/* The agent in the test's own process, in a folder of its own, with no settings but the defaults.
 */

extern struct agent own_agent;

void own_agent_begin(void);
/** Fails when it left a handle open. */
void own_agent_finish(void);
/** A socket connected to it, where it listens; nothing said yet. */
int own_agent_connect(void);

#endif
