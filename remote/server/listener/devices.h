#ifndef RESEAT_REMOTE_SERVER_LISTENER_DEVICES_H
#define RESEAT_REMOTE_SERVER_LISTENER_DEVICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "remote/identity/grant.h"
#include "state/base/clock.h"
#include "state/base/compiler.h"
#include "state/driver/driver.h"

/*
 * Time slices on one device: start-time fair queueing of its sessions, by the time for which they
 * had the device, divided by their weights. Pure: no clock, no I/O.
 *
 * A user that is alone keeps its time slice, without messages, until another asks. While others
 * wait, a time slice lasts TIMESLICE_NS; then its holder gives the device no more commands, and
 * says when those that it gave have ended. If it does not do so within TIMESLICE_OVERTIME_NS, the
 * next user gets the device. The late user then pays for the time that its commands take, and until
 * it says that they have ended it gets only rare time slices beside those of others.
 */

#define TIMESLICE_NS          (20 * NS_PER_MS)
#define TIMESLICE_OVERTIME_NS (250 * NS_PER_MS)
#define TIMESLICE_BESIDE_NS   NS_PER_S
#define TIMESLICE_SHARE       100u  /**< The default weight. */
#define TIMESLICE_SHARE_MAX   1000u /**< The largest weight. */

enum timeslice_event {
    TIMESLICE_BEGINS,   /**< It lasts this many ns; UINT64_MAX: until it is recalled. */
    TIMESLICE_RECALLED, /**< It ends in this many ns. */
    TIMESLICE_LOST,     /**< The next user has it. */
};

/** One session on one device. All but owner and share are zero at first. */
struct timeslice_user {
    struct timeslice_user *next; /* In the list of those that wait, or of those that owe. */
    void *owner;                 /**< For `tell`. */
    uint32_t share;              /**< 1 to TIMESLICE_SHARE_MAX. */
    bool waits;
    bool owes; /**< It lost a time slice, and has not said yet that its commands have ended. */
    uint64_t beside_ns;  /* When a user that owes and waits gets a time slice beside others. */
    uint64_t since_ns;   /* From when on it pays. */
    uint64_t most_ns;    /* The most that it pays, in ns. */
    uint64_t start, end; /* Virtual times of its last time slice. */
};

struct timeslices {
    void (*tell)(void *data, struct timeslice_user *user, enum timeslice_event event, uint64_t ns);
    void *data;
    struct timeslice_user *holder; /**< NULL: nobody. */
    bool alone;                    /* Nobody has waited since its time slice began. */
    uint64_t until_ns;             /* When the device goes to the next user, unless alone. */
    uint64_t now;                  /* Virtual time. */
    struct timeslice_user *waiting, *owing;
};

/** Ask for a time slice. Asking again before it is given changes nothing. */
void timeslices_want(struct timeslices *timeslices, struct timeslice_user *user, uint64_t now_ns);
/** The user's commands have ended, and with them its time slice. @again: it asks for another at
 * once, and so is compared with the users that wait now. */
void timeslices_over(struct timeslices *timeslices, struct timeslice_user *user, bool again,
                     uint64_t now_ns);
/** The user is gone. */
void timeslices_leave(struct timeslices *timeslices, struct timeslice_user *user, uint64_t now_ns);
/** Do what is due. Returns when to call it next; UINT64_MAX: not by time. */
uint64_t timeslices_tick(struct timeslices *timeslices, uint64_t now_ns);

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
