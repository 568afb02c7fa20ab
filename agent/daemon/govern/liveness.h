#ifndef RESEAT_AGENT_DAEMON_GOVERN_LIVENESS_H
#define RESEAT_AGENT_DAEMON_GOVERN_LIVENESS_H

#include "agent/daemon/agent.h"

/* Programs that are stopped, or hang, answer nothing: nobody waits for them for long. */

/** @app said something, whatever it was. */
void silence_ends(struct agent *agent, struct app *app);
/** Ask those of whom something is wanted whether they are there; give up who has not been for long.
 */
void silence_sweep(struct agent *agent);

#endif
