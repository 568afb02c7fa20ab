#ifndef RESEAT_AGENT_DAEMON_DEVICES_DEVICE_LIST_H
#define RESEAT_AGENT_DAEMON_DEVICES_DEVICE_LIST_H

#include "agent/daemon/agent.h"
#include "policy/decide.h"

/** Read the names and the last inventory. Returns 0 or -errno. */
MUST_CHECK int devices_init(struct agent *agent, uint64_t timeout_ms);
void devices_finish(struct agent *agent);

/**
 * Start a helper process that lists the devices. events.devices_listed follows when the listing has
 * ended; on failure devices.problem says why.
 *
 * @environment  As environment_for_lister() takes it; NULL: the environment of the last listing.
 */
void devices_refresh(struct agent *agent, const char *environment);

/** Start a listing in the environment of the last one. Does nothing where there was none. */
void devices_renew(struct agent *agent);

/** Read the servers' devices again; events.devices_changed follows. Blocks on files. */
void devices_recompose(struct agent *agent);
/** As devices_recompose(), and release the names of @server's devices for use by other devices. */
void devices_forget(struct agent *agent, const char *server);

/** True when the list was made in @environment less than @age_ms ago. */
bool devices_fresh(const struct agent *agent, const char *environment, uint64_t age_ms);

/**
 * A number that identifies an environment; NULL: that of the last listing. 0: there is none.
 */
uint64_t devices_digest(const struct agent *agent, const char *environment);
/**
 * True when a listing in the environment of that number shows the device, as far as is known. The
 * list may also hold devices that only programs of other environments see.
 */
bool devices_shown(uint64_t digest, const struct inventory_entry *entry);

/** Find the device with the key of @entry in the inventory; NULL: it is not listed. */
const struct inventory_entry *devices_entry(const struct agent *agent, uint32_t device);
/** The name of a device; for a device that is not listed, the name that its driver gives it. */
const char *devices_name(const struct agent *agent, const struct device_key *key);
/** The device's index in the ledger; LEDGER_NONE: no memory for a new one. */
uint32_t devices_index(struct agent *agent, const struct inventory_entry *entry);
/** As devices_index(), by the key of a listed or formerly listed device; else LEDGER_NONE. */
uint32_t devices_index_of_key(struct agent *agent, const struct device_key *key);
/** Nanoseconds until an announced drain begins; 0: none is announced. */
uint64_t devices_drain_in_ns(const struct agent *agent, const struct ledger_device *device);

/** The settings of a device: from the configuration, else from the device itself. */
void device_settings(const struct agent *agent, const struct inventory_entry *entry,
                     struct policy_device *device);
/** What the configuration says of a device. */
struct config_device device_settings_said(const struct agent *agent,
                                          const struct inventory_entry *entry);

/* Devices of the ledger, by name: the type `place` of agent/protocol/messages.txt. */

void devices_put_place(const struct agent *agent, struct frame *frame, const char *key,
                       uint32_t device);
/** LEDGER_NONE: the field, or the element of an array, names none. */
uint32_t devices_take_place(struct agent *agent, const msgpack_object *map, const char *key);
uint32_t devices_item_place(struct agent *agent, const msgpack_object *item);
/** As devices_take_place(), of a field that has the device's key. */
uint32_t devices_take_key(struct agent *agent, const msgpack_object *map, const char *key);

#endif
