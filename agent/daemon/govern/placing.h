#ifndef RESEAT_AGENT_DAEMON_GOVERN_PLACING_H
#define RESEAT_AGENT_DAEMON_GOVERN_PLACING_H

#include "agent/daemon/agent.h"

/**
 * Where the virtual devices of a new program start: as device_place(), but by what is in use, and
 * -EBUSY where one that is named drains. Where all drain it is as if none did.
 */
MUST_CHECK int placing_choose(struct agent *agent, const struct device_wish *wish,
                              const struct inventory_entry **ret_entries, char *ret_error,
                              size_t error_size);

#endif
