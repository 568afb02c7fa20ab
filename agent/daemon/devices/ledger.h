#ifndef RESEAT_AGENT_DAEMON_DEVICES_LEDGER_H
#define RESEAT_AGENT_DAEMON_DEVICES_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * Records how much of each device's memory is granted to which virtual device. Every virtual device
 * of a program has an entry, which is on at most one device. During a move the entry also has
 * memory reserved on the target. For each device the ledger keeps the sums and their peaks.
 *
 * An entry reserves the bytes that it was granted or the bytes that it holds, whichever is more: a
 * program that ran without an agent may hold more than its grant. Sizes are bytes. Not thread-safe;
 * no function blocks.
 */

#define LEDGER_NONE      UINT32_MAX
#define LEDGER_NO_LIMIT  UINT64_MAX
#define LEDGER_BYTES_MAX (1ull << 48) /**< Larger amounts are reduced to this one. */

struct ledger_device {
    char name[32];
    uint64_t own;    /**< The device's memory; LEDGER_BYTES_MAX where it is not known. */
    uint64_t limit;  /**< The operator's limit, or LEDGER_NO_LIMIT. */
    uint64_t cap_mw; /**< The operator's power cap, in milliwatts; 0: none. */
    uint64_t tight;  /**< What its driver could provide when it last refused an allocation, or
                        LEDGER_NO_LIMIT. */
    uint64_t tight_until_ms; /**< Set and ended by the caller: the ledger reads no clock. */
    uint64_t reserved; /**< By all entries, including the memory kept for moves to this device. */
    uint64_t held;
    uint64_t reserved_peak, held_peak;
    uint32_t accounts;    /**< Number of entries on it. */
    uint64_t link;        /**< Bytes a millisecond of its link, as measured; 0: not known. */
    uint64_t link_due_ms; /**< When that is read again, by the caller's clock. */
    uint64_t used_ms;     /**< When a program was last on it, likewise. */
    bool listed;          /**< The last listing shows it. */
    bool drains;
    bool cordoned; /**< New programs are kept away; those that are there stay. */
    uint64_t
        /** When its announced drain begins, by the caller's clock; 0: none is announced. */
        drains_ms;
    bool lost;             /**< A program lost it, and it has not answered since. */
    bool lost_asked;       /**< A listing that will show whether it answers is in progress. */
    uint64_t lost_ask_ms;  /**< When to ask whether it answers, by the caller's clock. */
    uint64_t lost_wait_ms; /**< Delay before that; 0: a program has come there since. */
    uint64_t
        /** Sequence number of its last announcement, among the events since the agent started. */
        announced;
};

/** True where no new program may come: it drains, will be drained, or is cordoned. */
static inline bool ledger_closed(const struct ledger_device *device)
{
    return device->drains || device->drains_ms || device->cordoned;
}

struct ledger_entry {
    struct ledger_entry *next, **at; /**< `at`: what points to it; NULL: it is not open. */
    uint32_t device;                 /**< Index of its device; LEDGER_NONE: on none. */
    uint64_t granted, held;
    uint32_t target;  /**< The device on which `pending` is reserved, or LEDGER_NONE. */
    uint64_t pending; /**< Bytes granted there when the move is done. */
    uint64_t held_peak, granted_peak;
};

struct ledger {
    struct ledger_device *devices; /**< Devices are never removed, so that an index stays valid. */
    uint32_t count;
    struct ledger_entry *accounts;
};

void ledger_init(struct ledger *ret_ledger);
/** Entries belong to the callers and are not freed. */
void ledger_finish(struct ledger *ledger);

/** Find the device with that name; NULL: there is none. */
struct ledger_device *ledger_find(const struct ledger *ledger, const char *name);
/** Find the device with that name, or add it. Returns 0, -EINVAL (the name is empty) or -ENOMEM. */
MUST_CHECK int ledger_device(struct ledger *ledger, const char *name, uint32_t *ret_device);

/** Bytes that all programs together may use of the device now. */
uint64_t ledger_capacity(const struct ledger_device *device);
/** As ledger_capacity(), but without the limit of a driver that recently refused an allocation. */
uint64_t ledger_lasting(const struct ledger_device *device);
uint64_t ledger_free(const struct ledger_device *device);
/** The unit of grants. It is large, so that programs rarely have to ask. */
uint64_t ledger_step(const struct ledger_device *device);
/**
 * Bytes to grant to a program that needs @bytes more: a step where enough is free, less where that
 * would take more than a quarter of what is then free, and never less than @bytes.
 */
uint64_t ledger_round(const struct ledger_device *device, uint64_t bytes);
/** Bytes granted before a program asks: at most one step, and at most a quarter of what is free. */
uint64_t ledger_initial(const struct ledger_device *device);

/** Add @entry, which the caller owns and must close before freeing it. */
void ledger_open(struct ledger *ledger, struct ledger_entry *ret_entry);
/** Free everything that the entry reserves. An entry that was never opened is ignored. */
void ledger_close(struct ledger *ledger, struct ledger_entry *entry);

/**
 * Have the open entry @from be at @ret_to from now on: what was at @from is not used again. Entries
 * that lie side by side are moved one by one, for each has the addresses of its neighbours in the
 * list.
 */
void ledger_move(const struct ledger_entry *from, struct ledger_entry *ret_to);

/** Put the entry on @device or LEDGER_NONE. Where it was not, nothing is granted or held. */
void ledger_place(struct ledger *ledger, struct ledger_entry *entry, uint32_t device);
/** These do nothing for an entry that is on no device. */
void ledger_set_granted(struct ledger *ledger, struct ledger_entry *entry, uint64_t bytes);
void ledger_set_held(struct ledger *ledger, struct ledger_entry *entry, uint64_t bytes);
uint64_t ledger_reserved(const struct ledger_entry *entry);

/** Reserve @bytes on @target for the entry; LEDGER_NONE: release the reservation. */
void ledger_keep(struct ledger *ledger, struct ledger_entry *entry, uint32_t target,
                 uint64_t bytes);
/** The entry's move is done: put it on its target, with the memory kept there. */
void ledger_arrive(struct ledger *ledger, struct ledger_entry *entry);

/** True when every sum agrees with the entries. */
bool ledger_check(const struct ledger *ledger);

/*
 * Use over time in bounded memory. When the memory is full, adjacent spans are merged and the span
 * length is doubled. Each span keeps its maximum, so that no peak is lost. Pure.
 */

#define HISTORY_SIZE 64

struct history {
    uint64_t begin_ms; /**< Start of the first span. */
    uint64_t span_ms;  /**< Length of a span; 0: there is no sample yet. */
    uint32_t count;
    struct {
        uint64_t granted, held;
    } spans[HISTORY_SIZE];
};

/** Add a sample. @now_ms must not decrease. */
void history_add(struct history *history, uint64_t now_ms, uint64_t granted, uint64_t held);

#endif
