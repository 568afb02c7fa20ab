#ifndef RESEAT_AGENT_CLI_PRESENTED_PRINT_H
#define RESEAT_AGENT_CLI_PRESENTED_PRINT_H

#include "agent/cli/output.h"

/**
 * Print what programs are told of their device, and why.
 *
 * @inventory  The file of the devices that there are.
 * Returns an exit status.
 */
int presented_print(const struct output *output, const char *inventory);

#endif
