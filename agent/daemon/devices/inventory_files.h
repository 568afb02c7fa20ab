#ifndef RESEAT_AGENT_DAEMON_DEVICES_INVENTORY_FILES_H
#define RESEAT_AGENT_DAEMON_DEVICES_INVENTORY_FILES_H

#include "agent/daemon/agent.h"

/** How many lists of devices that no program was told of are kept: a program's child may have been
 * told, and outlive it. */
#define INVENTORY_FILES_KEPT 8

/**
 * Remove the lists of devices in the runtime folder that nobody will read: all but those that
 * programs which live were told of, the last, and the newest of the others. And what a helper or an
 * agent left that was killed while it wrote one. No helper may be writing one. Blocks on files.
 */
void inventory_files_tidy(const struct agent *agent);

#endif
