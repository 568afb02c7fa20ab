#ifndef RESEAT_AGENT_CLI_SHOW_LINKS_H
#define RESEAT_AGENT_CLI_SHOW_LINKS_H

#include "agent/cli/show/output.h"

/**
 * Print the stored measurements of the links of an inventory's devices, and how transfers of some
 * sizes would be done.
 *
 * @file      The inventory's path.
 * @limit_ms  Above 0: first measure in a helper process, for at most this time for each device.
 * Blocks meanwhile. Returns an exit status.
 */
int links_print(const struct output *output, const char *file, uint64_t limit_ms);

#endif
