#ifndef RESEAT_STATE_DRIVER_INVENTORY_H
#define RESEAT_STATE_DRIVER_INVENTORY_H

#include <stdbool.h>
#include <stddef.h>

#include "state/base/compiler.h"
#include "state/driver/devinfo.h"
#include "state/driver/driver.h"

/*
 * The devices of this machine with all their answers, in a file, so that neither the agent nor a
 * program has to open a driver to know them. msgpack, versioned; written by the lister, read on the
 * same machine (answers keep the machine's byte order).
 */

/** Environments that are remembered for one device. */
#define INVENTORY_SEEN_MAX 16

struct inventory_entry {
    char name[32]; /**< The operators' name; "" until the agent has named it. */
    struct device_key key;
    struct devinfo info;
    /** Used by the agent, not in the file: digests of the environments that show it, 0 after the
     * last. */
    uint64_t seen[INVENTORY_SEEN_MAX];
    bool lost; /**< Used by the agent, not in the file: its server cannot be reached. */
};

struct inventory {
    struct inventory_entry *entries;
    size_t count;
};

/** Largest file, and most devices in it. */
#define INVENTORY_SIZE_MAX  (32u << 20)
#define INVENTORY_COUNT_MAX 1024

/**
 * Read and validate a file that inventory_write made.
 *
 * @ret_inv  Owned by the caller (inventory_finish).
 * Returns 0, -EPROTO (not an inventory, damaged, or of another version), -EPERM (another user wrote
 * it or could), -ENOMEM, or open(2)'s and read(2)'s errors. Blocks on the file.
 */
MUST_CHECK int inventory_read(const char *path, struct inventory *ret_inv);

/**
 * Write @inv so that readers see the old file or the new one, whole, and a crash leaves one of
 * them.
 *
 * Returns 0, -E2BIG (over the limits above), -ENOMEM, or the file system's errors; @path is then
 * unchanged. Blocks until the bytes are on the disk.
 */
MUST_CHECK int inventory_write(const char *path, const struct inventory *inv);

/** The same to and from memory. @ret_data is the caller's (free()). */
MUST_CHECK int inventory_encode(const struct inventory *inv, char **ret_data, size_t *ret_size);
MUST_CHECK int inventory_decode(const char *data, size_t size, struct inventory *ret_inv);

/** Move the entries of @more to the end of @inv, leaving @more empty. 0, -ENOMEM or -E2BIG. */
MUST_CHECK int inventory_append(struct inventory *inv, struct inventory *more);

/** Release what @inv owns and leave it empty. */
void inventory_finish(struct inventory *inv);

#endif
