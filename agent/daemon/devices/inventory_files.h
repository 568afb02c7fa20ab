#ifndef RESEAT_AGENT_DAEMON_DEVICES_INVENTORY_FILES_H
#define RESEAT_AGENT_DAEMON_DEVICES_INVENTORY_FILES_H

#include "agent/daemon/agent.h"

/**
 * Number of lists of devices that are kept although no known program uses them: a child of a
 * program may use one and outlive the program.
 */
#define INVENTORY_FILES_KEPT 8

/**
 * Remove lists of devices that no process will read. The lists that living programs use, the last
 * list, and the newest of the others stay. Also removes partial files that a killed helper or agent
 * left; no helper may be writing at that time. Blocks on files.
 */
void inventory_files_tidy(const struct agent *agent);

#endif
