#ifndef RESEAT_AGENT_CLI_ISOLATE_H
#define RESEAT_AGENT_CLI_ISOLATE_H

#include <stdbool.h>

#include "agent/config/paths.h"

/**
 * Where this process, and what it becomes, has drivers opened for it: at the agent's server, or,
 * @alone, at one that is started here and ends with it.
 *
 * @ret_driver   Our driver in front of servers.
 * @ret_address  Of the server.
 * Blocks until such a server listens, seconds at most. Returns 0, -ENOENT (something is not
 * installed), -ENAMETOOLONG (the runtime folder's name), -ETIMEDOUT, or -errno.
 */
MUST_CHECK int isolate_find(const struct paths *paths, bool alone, char ret_driver[PATH_MAX],
                            char ret_address[PATH_MAX]);

#endif
