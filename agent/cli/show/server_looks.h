#ifndef RESEAT_AGENT_CLI_SHOW_SERVER_LOOKS_H
#define RESEAT_AGENT_CLI_SHOW_SERVER_LOOKS_H

#include <stdbool.h>
#include <stdio.h>

/**
 * Look at every server that the configuration or an operator named, whether or not an agent runs,
 * all at once, and say of each whether it can be used or what it lacks: lines as doctor's are.
 *
 * Blocks for ten seconds at most. False: there is one that only a person can put right.
 */
bool server_looks(FILE *to);

#endif
