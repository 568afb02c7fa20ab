#ifndef RESEAT_AGENT_DAEMON_RELOAD_H
#define RESEAT_AGENT_DAEMON_RELOAD_H

#include "agent/daemon/agent.h"

/* The agent's configuration, and another one while it runs: nothing else of its state changes. */

/**
 * Read the configuration again, as the file now says. One that is wrong is refused, the one before
 * stays, and agent->config_problem says why. Both go to the log. Blocks on the file.
 *
 * @ret_error  Written on failure only.
 * Returns as config_load().
 */
int agent_reload(struct agent *agent, struct config_error *ret_error);

/** The same for a client, who is told what came of it. */
void reload_answer(struct peer *client);

#endif
