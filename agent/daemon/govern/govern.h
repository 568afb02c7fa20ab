#ifndef RESEAT_AGENT_DAEMON_GOVERN_GOVERN_H
#define RESEAT_AGENT_DAEMON_GOVERN_GOVERN_H

#include "agent/daemon/programs/registry.h"

/*
 * The agent's side of policy: tells it the world (devices, programs, who waits), and has done what
 * it decides. Whatever happens sets agent->changed; govern_run() then does what follows.
 */

/** Reads the operator's limits. The configuration is there. Returns 0 or -ENOMEM. */
MUST_CHECK int govern_init(struct agent *agent);
void govern_finish(struct agent *agent);

/** The configuration is another: for devices, and for programs that run. */
void govern_reloaded(struct agent *agent);

/** @program ended: what it needed is kept for `reseat report`. */
void govern_remember(struct agent *agent, const struct program *program);

/** Do what follows from all that happened. */
void govern_run(struct agent *agent);
/** The same for what follows from time. Called a few times a second. */
void govern_tick(struct agent *agent);

#endif
