#ifndef RESEAT_AGENT_CLI_SHOW_SERVER_LOOKS_H
#define RESEAT_AGENT_CLI_SHOW_SERVER_LOOKS_H

#include <stdbool.h>
#include <stdio.h>

/**
 * Check all servers that the configuration or an operator named, in parallel and without an agent,
 * and print for each whether it can be used and what it lacks, as lines of `reseat doctor`.
 *
 * Blocks for ten seconds at most. Returns false if a server needs a person's action.
 */
bool server_looks(FILE *to);

#endif
