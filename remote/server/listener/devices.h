#ifndef RESEAT_REMOTE_SERVER_LISTENER_DEVICES_H
#define RESEAT_REMOTE_SERVER_LISTENER_DEVICES_H

#include <stddef.h>
#include <stdint.h>

#include "remote/identity/grant.h"
#include "remote/server/listener/timeslices.h"
#include "state/base/compiler.h"
#include "state/driver/driver.h"

/*
 * What memory of one device its sessions were promised: together never more than there is. Pure.
 */

struct ledger {
    uint64_t total; /**< What may be promised. */
    uint64_t given; /**< What is. */
};

/**
 * Ask for @wish bytes, or at the least for @least of them; more than that is promised only while
 * there is plenty.
 *
 * @held  What the session has; becomes more by what is returned.
 * Returns what was promised, 0 or from @least to @wish.
 */
MUST_CHECK uint64_t ledger_ask(struct ledger *ledger, uint64_t *held, uint64_t least,
                               uint64_t wish);
/** Give @bytes of what it has back; no more than that counts. */
void ledger_return(struct ledger *ledger, uint64_t *held, uint64_t bytes);

/*
 * The devices of a server, as the listening process knows them: from a helper that lists them when
 * the server begins, and ends, so that no session has a say in how much memory there is. Sessions'
 * processes have a copy, from which they know the numbers.
 */

#define DEVICES_MAX 64

struct device_row {
    struct device_key key;
    char name[GRANT_DEVICE_MAX]; /**< As grants call it: "gpu0". */
    uint64_t memory;             /**< That there is, less the reserve. */
};

struct devices {
    struct device_row rows[DEVICES_MAX];
    size_t count;
    /* The listening process's alone. */
    struct ledger ledger[DEVICES_MAX];
    struct timeslices timeslices[DEVICES_MAX];
};

/**
 * List them, in a helper. Blocks for as long as drivers take to start, a minute at most.
 *
 * @reserve  Bytes of each device that nobody is promised; UINT64_MAX: a part of it.
 * Returns 0, -ETIMEDOUT, -EIO (the helper crashed), or -errno.
 */
MUST_CHECK int devices_list(uint64_t reserve, struct devices *ret_devices);

/** The number of a device; -1: it was not there when they were listed. */
int devices_find(const struct devices *devices, const struct device_key *key);

/** What grants call the next device of a list: by its kind, whether or not it is offered. @counts:
 *  of DEVICE_KINDS, zero before the first. */
#define DEVICE_KINDS 3
void devices_name(const struct device *device, size_t counts[DEVICE_KINDS],
                  char ret_name[GRANT_DEVICE_MAX]);

#endif
