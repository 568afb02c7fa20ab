#ifndef RESEAT_AGENT_CONFIG_DEVICE_NAMES_H
#define RESEAT_AGENT_CONFIG_DEVICE_NAMES_H

#include "agent/protocol/protocol.h"
#include "state/base/compiler.h"
#include "state/driver/inventory.h"

/*
 * Short names of devices (gpu0, cpu1). A name is given to one device, by its identity, and is never
 * given to another device, even when hardware is added or removed.
 */

struct device_name {
    char name[32];
    struct device_key key;
};

/** All devices that were ever named on this machine. */
struct device_names {
    struct device_name *names;
    size_t count;
};

/** Read what can be read of the names file. Returns 0 or -ENOMEM. */
MUST_CHECK int device_names_load(const char *path, struct device_names *ret_names);
/** Returns 0 or -errno. */
MUST_CHECK int device_names_save(const char *path, const struct device_names *names);
void device_names_finish(struct device_names *names);

/** Name every entry of @inventory. @ret_new is set when @names grew. Returns 0 or -ENOMEM. */
MUST_CHECK int device_names_assign(struct device_names *names, struct inventory *inventory,
                                   bool *ret_new);

/**
 * As device_names_assign(), for devices of a server: "gpuhost/gpu0". A server's devices are
 * identified by the server's name, not by its address.
 */
MUST_CHECK int device_names_assign_served(struct device_names *names, const char *server,
                                          struct inventory *inventory, bool *ret_new);
/** Release the names of that server's devices. Returns true when there were any. */
bool device_names_forget(struct device_names *names, const char *server);

/** "gpu", "cpu", "accel" or "dev". */
const char *device_kind(const struct devinfo *info);

/**
 * Find the device that @text names: by its name, by a unique prefix (at least 4 characters) of its
 * UUID, by its PCI address, or by a unique part of its driver's name for it.
 *
 * @ret_error  On failure one line for the operator, which lists the candidates.
 * Returns 0, -ENODEV (nothing matches) or -ENOTUNIQ.
 */
MUST_CHECK int device_resolve(const struct inventory *inventory, const char *text,
                              const struct inventory_entry **ret_entry, char *ret_error,
                              size_t error_size);

/**
 * Is this entry among those that @list names: a name as device_resolve() takes it, or several with
 * commas? "": all are. Names of no device are ignored.
 */
bool device_listed(const struct inventory *inventory, const char *list,
                   const struct inventory_entry *entry);

/** What device_resolve says of names, and where it says nothing. */
struct device_wish {
    const char *names[PROTOCOL_VDEVS_MAX];
    size_t named; /**< Number of names. */
    size_t count; /**< Virtual devices of the program; 1 to PROTOCOL_VDEVS_MAX. */
};
/** The memory use of a device, for device_place(), in any unit. */
struct device_fill {
    uint64_t memory, used;
    bool small;  /**< What the program needed in former runs does not fit. */
    bool closed; /**< Only programs that name it start there. */
};
/**
 * Choose the devices on which a program's virtual devices start: the named devices in their order,
 * and for the remaining ones the GPUs in turn, or all devices where there is no GPU
 * (policy/decide.h).
 *
 * @fills  The use of each device of @inventory; NULL: all are empty and open.
 * @ret_entries  PROTOCOL_VDEVS_MAX elements; NULL beyond the count, and all NULL where there is no
 *       device.
 * Returns as device_resolve() does.
 */
MUST_CHECK int device_place(const struct inventory *inventory, const struct device_wish *wish,
                            const struct device_fill *fills,
                            const struct inventory_entry **ret_entries, char *ret_error,
                            size_t error_size);

/**
 * Check what device_place() chose against the devices that @only lists, as device_listed() takes
 * them. 0, -ENODEV (it chose none) or -EINVAL (a named one is not among them).
 */
MUST_CHECK int device_check_only(const struct inventory *inventory, const char *only,
                                 const struct device_wish *wish,
                                 const struct inventory_entry *const *entries, char *ret_error,
                                 size_t error_size);

/** Find the entry with this key; NULL: there is none. */
const struct inventory_entry *device_by_key(const struct inventory *inventory,
                                            const struct device_key *key);

#endif
