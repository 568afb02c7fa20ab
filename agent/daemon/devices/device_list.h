#ifndef RESEAT_AGENT_DAEMON_DEVICES_DEVICE_LIST_H
#define RESEAT_AGENT_DAEMON_DEVICES_DEVICE_LIST_H

#include "agent/daemon/agent.h"
#include "policy/decide.h"

/** Read the names and the last inventory. Returns 0 or -errno. */
MUST_CHECK int devices_init(struct agent *agent, uint64_t timeout_ms);
void devices_finish(struct agent *agent);

/**
 * Start to make the list anew with a helper process; events.devices_listed
 * follows when it is there or has failed (devices.problem).
 *
 * @environment  As environment_for_lister() takes it; NULL: that of the last time.
 */
void devices_refresh(struct agent *agent, const char *environment);

/** The same where a list was made before, in the environment of that; else nothing. */
void devices_renew(struct agent *agent);

/** What servers show is another: only their part of the list is made anew, and
 * events.devices_changed follows. Blocks on files. */
void devices_recompose(struct agent *agent);
/** The same, and names of that server's devices may be given to others. */
void devices_forget(struct agent *agent, const char *server);

/** True when the list was made, in that environment, less than @age_ms ago. */
bool devices_fresh(const struct agent *agent, const char *environment, uint64_t age_ms);

/** True when @environment (NULL: that of the last listing) shows the device, as far as is known:
 * the others are listed for programs of other environments. */
bool devices_shown(const struct agent *agent, const char *environment,
                   const struct inventory_entry *entry);

/** The device of an entry by its name in the inventory; NULL: not listed. */
const struct inventory_entry *devices_entry(const struct agent *agent, uint32_t device);
/** Its index in the ledger, or LEDGER_NONE without memory for it. */
uint32_t devices_index(struct agent *agent, const struct inventory_entry *entry);
/** Nanoseconds until a drain that was announced; 0: there is none. */
uint64_t devices_drain_in_ns(const struct agent *agent, const struct ledger_device *device);

/** What the configuration says of a device, over what it says of itself. */
void device_settings(const struct agent *agent, const struct inventory_entry *entry,
                     struct policy_device *device);
/** Bytes that the configuration leaves of a device. */
uint64_t device_settings_memory(const struct agent *agent, const struct inventory_entry *entry);

#endif
