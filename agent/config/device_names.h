#ifndef RESEAT_AGENT_CONFIG_DEVICE_NAMES_H
#define RESEAT_AGENT_CONFIG_DEVICE_NAMES_H

#include "agent/protocol/protocol.h"
#include "state/base/compiler.h"
#include "state/driver/inventory.h"

/*
 * Short names of devices (gpu0, cpu1): given once to a device, by its identity, and never to
 * another, whatever hardware comes or goes.
 */

struct device_name {
    char name[32];
    struct device_key key;
};

/** Every device that was ever named on this machine. */
struct device_names {
    struct device_name *names;
    size_t count;
};

/** Read the names file; one that is missing or damaged gives what can be read of it. -ENOMEM. */
MUST_CHECK int device_names_load(const char *path, struct device_names *ret_names);
/** Returns 0 or -errno. */
MUST_CHECK int device_names_save(const char *path, const struct device_names *names);
void device_names_finish(struct device_names *names);

/** Name every entry of @inventory; @ret_new says whether @names grew. Returns 0 or -ENOMEM. */
MUST_CHECK int device_names_assign(struct device_names *names, struct inventory *inventory,
                                   bool *ret_new);

/** The same for devices of a server: "gpuhost/gpu0". They are told apart within their server, at
 *  whatever address it is. */
MUST_CHECK int device_names_assign_served(struct device_names *names, const char *server,
                                          struct inventory *inventory, bool *ret_new);
/** Names of that server's devices may be given anew. True: there were some. */
bool device_names_forget(struct device_names *names, const char *server);

/** "gpu", "cpu", "accel" or "dev". */
const char *device_kind(const struct devinfo *info);

/**
 * Find the device that @text means: its name, a unique prefix (4 characters or more) of its UUID,
 * its PCI address, or a unique part of what its driver calls it.
 *
 * @ret_error  On failure one line for the operator, which lists the candidates.
 * Returns 0, -ENODEV (nothing matches) or -ENOTUNIQ.
 */
MUST_CHECK int device_resolve(const struct inventory *inventory, const char *text,
                              const struct inventory_entry **ret_entry, char *ret_error,
                              size_t error_size);

/** What device_resolve says of names, and where it says nothing. */
struct device_wish {
    const char *names[PROTOCOL_VDEVS_MAX];
    size_t named; /**< Of the names. */
    size_t count; /**< Virtual devices of the program; 1 to PROTOCOL_VDEVS_MAX. */
};
/** How full a device is, for device_place_by(): any unit, as long as it is one for both. */
struct device_fill {
    uint64_t memory, used;
    bool closed; /**< Only who names it starts there. */
};
/**
 * Where the virtual devices of a program start: those that are named there, in that order, the
 * others spread over the GPUs, or over all devices where there is no GPU (policy/place.h).
 *
 * @ret_entries  PROTOCOL_VDEVS_MAX; NULL beyond the count, and everywhere without any device.
 * Returns as device_resolve.
 */
MUST_CHECK int device_place(const struct inventory *inventory, const struct device_wish *wish,
                            const struct inventory_entry **ret_entries, char *ret_error,
                            size_t error_size);
/** The same by how full they are. @fills: of each device of @inventory; NULL: empty and open. */
MUST_CHECK int device_place_by(const struct inventory *inventory, const struct device_wish *wish,
                               const struct device_fill *fills,
                               const struct inventory_entry **ret_entries, char *ret_error,
                               size_t error_size);

/** The entry with this key, or NULL. */
const struct inventory_entry *device_by_key(const struct inventory *inventory,
                                            const struct device_key *key);

#endif
