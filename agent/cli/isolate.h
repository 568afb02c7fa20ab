#ifndef RESEAT_AGENT_CLI_ISOLATE_H
#define RESEAT_AGENT_CLI_ISOLATE_H

#include <stdbool.h>

#include "agent/config/paths.h"

/**
 * Find the server that opens drivers for this process and the program that it executes: the
 * agent's, or with @alone a new one, which ends with this process.
 *
 * @ret_driver   The driver that connects to servers.
 * @ret_address  Of the server. Blocks until a new server listens, seconds at most. Returns 0,
 * -ENOENT (something is not installed), -ENAMETOOLONG (the runtime folder's name), -ETIMEDOUT, or
 * -errno.
 */
MUST_CHECK int isolate_find(const struct paths *paths, bool alone, char ret_driver[PATH_MAX],
                            char ret_address[PATH_MAX]);

#endif
