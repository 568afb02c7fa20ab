#ifndef RESEAT_REMOTE_SERVER_LISTENER_DEVICES_H
#define RESEAT_REMOTE_SERVER_LISTENER_DEVICES_H

#include <stddef.h>
#include <stdint.h>

#include "remote/identity/grant.h"
#include "remote/server/listener/timeslices.h"
#include "state/base/compiler.h"
#include "state/driver/driver.h"

/*
 * Promises of one device's memory to sessions: together never more than the device has. Pure.
 */

struct ledger {
    uint64_t total; /**< Bytes that may be promised. */
    uint64_t given; /**< Bytes that are promised. */
};

/**
 * Ask for @wish bytes, and at least @least; more than @least is promised only while there is
 * plenty.
 *
 * @held  What the session has already; increased by what is returned.
 * Returns the bytes promised: 0, or from @least to @wish.
 */
MUST_CHECK uint64_t ledger_ask(struct ledger *ledger, uint64_t *held, uint64_t least,
                               uint64_t wish);
/** Return @bytes; more than the session holds are not counted. */
void ledger_return(struct ledger *ledger, uint64_t *held, uint64_t bytes);

/*
 * The server's devices, as the listening process knows them. A helper process lists them when the
 * server starts, so that no session can claim how much memory a device has. Sessions' processes get
 * a copy, so that both use the same numbers.
 */

#define DEVICES_MAX 64

struct device_row {
    struct device_key key;
    char name[GRANT_DEVICE_MAX]; /**< The name that grants use: "gpu0". */
    uint64_t memory;             /**< Bytes, without the reserve. */
};

struct devices {
    struct device_row rows[DEVICES_MAX];
    size_t count;
    /* Used by the listening process alone. */
    struct ledger ledger[DEVICES_MAX];
    struct timeslices timeslices[DEVICES_MAX];
};

/**
 * List the devices in a helper process. Blocks while drivers start, for at most a minute.
 *
 * @reserve  Bytes of each device that are never promised; UINT64_MAX: the default part.
 * Returns 0, -ETIMEDOUT, -EIO (the helper crashed), or -errno.
 */
MUST_CHECK int devices_list(uint64_t reserve, struct devices *ret_devices);

/** The number of a device; -1: it is not in the list. */
int devices_find(const struct devices *devices, const struct device_key *key);

/** The name that grants use for the next device of a list. Numbers count devices of the same kind,
 * whether or not they are offered. @counts: DEVICE_KINDS counters, zero before the first device. */
#define DEVICE_KINDS 3
void devices_name_next(const struct device *device, size_t counts[DEVICE_KINDS],
                       char ret_name[GRANT_DEVICE_MAX]);

#endif
