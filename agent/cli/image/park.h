#ifndef RESEAT_AGENT_CLI_IMAGE_PARK_H
#define RESEAT_AGENT_CLI_IMAGE_PARK_H

#include <stdint.h>
#include <sys/types.h>

#include "state/base/compiler.h"

/* The command's side of agent/wire/park.h. */

struct parked {
    pid_t pid;
    uint64_t box; /**< Where it is in the process. */
};

/**
 * Wait until it has no connection with its agent. 0, -EPERM (we may not look into the process),
 * -ETIMEDOUT, -EBADMSG (there is no box), -ECANCELED (it goes on by itself) or -errno.
 */
MUST_CHECK int park_await(const struct parked *parked);
/** Somebody is there. Where it cannot be said, the program soon goes on by itself. */
void park_beat(void *data);
/**
 * It is to go on.
 *
 * @socket  Of a process that was restored: its agent's. NULL: of the one that was parked.
 * Returns 0, -EBADMSG or -errno.
 */
MUST_CHECK int park_go(const struct parked *parked, const char *socket);

#endif
