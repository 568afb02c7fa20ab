#ifndef RESEAT_AGENT_CLI_SHOW_LINKS_H
#define RESEAT_AGENT_CLI_SHOW_LINKS_H

#include "agent/cli/show/output.h"

/**
 * Print what is known of the links of the devices in an inventory, and how transfers would go about
 * some sizes.
 *
 * @file      The inventory's path.
 * @limit_ms  Measure first, each device for at most so long, with a helper process; 0: do not.
 * Blocks meanwhile. Returns an exit status.
 */
int links_print(const struct output *output, const char *file, uint64_t limit_ms);

#endif
