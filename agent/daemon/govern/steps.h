#ifndef RESEAT_AGENT_DAEMON_GOVERN_STEPS_H
#define RESEAT_AGENT_DAEMON_GOVERN_STEPS_H

#include "agent/daemon/govern/world.h"

/* Steps of the policy, carried out: as messages to programs and as requests, like operators'. */

/** Do one step of the world as it is; false when nothing came of it. */
bool step_do(struct agent *agent, const struct policy_step *step);
/** Have those who do not use what they were granted return it, where @index of the world needs it.
 */
bool step_trim(struct agent *agent, uint32_t index);
/** Have one that has more than its quota give back what is too much. False: there is none. */
bool step_quota(struct agent *agent);

#endif
