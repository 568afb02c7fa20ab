#ifndef RESEAT_AGENT_DAEMON_GOVERN_LIMITS_H
#define RESEAT_AGENT_DAEMON_GOVERN_LIMITS_H

#include "agent/daemon/programs/registry.h"

/*
 * What operators set: the memory of a device that programs may have, devices that are drained, and
 * how much one program may have. That of devices is kept in a file, that of programs with them.
 */

/** Returns 0, or -errno: none hold. Blocks on the file, as limits_save(). */
int limits_load(struct agent *agent);
MUST_CHECK int limits_save(const struct agent *agent);
/** MSG_LIMIT of a client. */
void limits_handle(struct peer *client, struct message *message);

#endif
