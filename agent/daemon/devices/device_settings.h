#ifndef RESEAT_AGENT_DAEMON_DEVICES_DEVICE_SETTINGS_H
#define RESEAT_AGENT_DAEMON_DEVICES_DEVICE_SETTINGS_H

#include "agent/daemon/agent.h"
#include "policy/decide.h"

/** What the configuration says of a device, over what it says of itself. */
void device_settings(const struct agent *agent, const struct inventory_entry *entry,
                     struct policy_device *device);
/** Bytes that the configuration leaves of a device. */
uint64_t device_settings_memory(const struct agent *agent, const struct inventory_entry *entry);

#endif
