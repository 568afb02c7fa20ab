#ifndef RESEAT_AGENT_DAEMON_GOVERN_LIVENESS_H
#define RESEAT_AGENT_DAEMON_GOVERN_LIVENESS_H

#include "agent/daemon/agent.h"

/* Programs that are stopped, or hang, answer nothing: nobody waits for them for long. */

/** @program said something, whatever it was. */
void liveness_heard(struct agent *agent, struct program *program);
/** Ask those of whom something is wanted whether they are there; give up who has not been for long.
 */
void liveness_sweep(struct agent *agent);

#endif
