#ifndef RESEAT_AGENT_DAEMON_DEVICES_LEDGER_H
#define RESEAT_AGENT_DAEMON_DEVICES_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * Who was granted how much of which device. Every virtual device of a program has an entry, on at
 * most one device; while it moves, also with what is kept for it on another. Of each device the
 * sums are kept, and the most that they ever were.
 *
 * What an entry reserves is what it was granted, or what it holds where that is more (a program
 * that ran without an agent may). Sizes are bytes. Not thread-safe; nothing blocks.
 */

#define LEDGER_NONE      UINT32_MAX
#define LEDGER_NO_LIMIT  UINT64_MAX
#define LEDGER_BYTES_MAX (1ull << 48) /**< Larger amounts are taken for this one. */

struct ledger_device {
    char name[32];
    uint64_t own;   /**< What the device has; LEDGER_BYTES_MAX where it is not known. */
    uint64_t limit; /**< What the operator set, or LEDGER_NO_LIMIT. */
    uint64_t tight; /**< What its driver could serve when it last refused, or LEDGER_NO_LIMIT. */
    uint64_t tight_until_ms; /**< Whoever sets that looks at the clock. */
    uint64_t reserved;       /**< By all entries, what is kept for those on their way among it. */
    uint64_t held;
    uint64_t reserved_peak, held_peak;
    uint32_t accounts; /**< That are on it. */
    bool listed;       /**< It is among those that there are now. */
    bool drains;
    uint64_t drains_ms; /**< When it will drain, as announced, by that clock; 0: nobody said so. */
    bool lost;          /**< A program lost it, and it has not answered since. */
    bool lost_asked;    /**< A list is made, which will tell. */
    uint64_t lost_ask_ms;  /**< When it is to be asked, by that clock; ... */
    uint64_t lost_wait_ms; /**< ...so long after; 0: a program has come there since. */
    uint64_t announced;    /**< Of what has happened since the agent began, the number of that. */
};

struct ledger_entry {
    struct ledger_entry *next;
    uint32_t device; /**< Index, or LEDGER_NONE: on none. */
    uint64_t granted, held;
    uint32_t target;  /**< Where `pending` is kept, or LEDGER_NONE. */
    uint64_t pending; /**< Granted there once the move is done. */
    uint64_t held_peak, granted_peak;
};

struct ledger {
    struct ledger_device *devices; /**< Never fewer: an index stays what it is. */
    uint32_t count;
    struct ledger_entry *accounts;
};

void ledger_init(struct ledger *ret_ledger);
/** The entries are their owners'. */
void ledger_finish(struct ledger *ledger);

/** Find the device of that name, or add it. Returns 0, -EINVAL (no name) or -ENOMEM. */
MUST_CHECK int ledger_device(struct ledger *ledger, const char *name, uint32_t *ret_device);

/** What all programs together may have of it. */
uint64_t ledger_capacity(const struct ledger_device *device);
/** The same, whatever its driver refused a moment ago. */
uint64_t ledger_lasting(const struct ledger_device *device);
uint64_t ledger_free(const struct ledger_device *device);
/** Grants are taken in steps, so that programs rarely have to ask. */
uint64_t ledger_step(const struct ledger_device *device);
/**
 * How much to grant who needs @bytes more: a step where there is plenty, less where that would take
 * more than a quarter of what is free then, and never less than @bytes.
 */
uint64_t ledger_round(const struct ledger_device *device, uint64_t bytes);
/** What a program is granted before it asks: at most a step, and a quarter of what is free. */
uint64_t ledger_initial(const struct ledger_device *device);

/** @entry is the caller's and must be closed before it goes. */
void ledger_open(struct ledger *ledger, struct ledger_entry *ret_entry);
/** Everything that it reserves is free. One that was never opened is let be. */
void ledger_close(struct ledger *ledger, struct ledger_entry *entry);

/** It is on @device (or LEDGER_NONE) now, with nothing granted and nothing held, unless it was. */
void ledger_place(struct ledger *ledger, struct ledger_entry *entry, uint32_t device);
/** On no device nothing can be granted or held: these do nothing there. */
void ledger_set_granted(struct ledger *ledger, struct ledger_entry *entry, uint64_t bytes);
void ledger_set_held(struct ledger *ledger, struct ledger_entry *entry, uint64_t bytes);
uint64_t ledger_reserved(const struct ledger_entry *entry);

/** Keep @bytes on @target for it; LEDGER_NONE: nothing any more. */
void ledger_keep(struct ledger *ledger, struct ledger_entry *entry, uint32_t target,
                 uint64_t bytes);
/** The move to where something is kept is done: it is there, with that granted. */
void ledger_arrive(struct ledger *ledger, struct ledger_entry *entry);

/** True when every sum is the sum of its entries. */
bool ledger_check(const struct ledger *ledger);

/*
 * Use over time in bounded memory: when there is no more space, neighbours become one and samples
 * are taken half as often. Of each span the most is kept, so that no peak is lost. Pure.
 */

#define HISTORY_SIZE 64

struct history {
    uint64_t begin_ms; /**< Of the first span. */
    uint64_t span_ms;  /**< 0: nothing yet. */
    uint32_t count;
    struct {
        uint64_t granted, held;
    } spans[HISTORY_SIZE];
};

/** @now_ms never decreases. */
void history_add(struct history *history, uint64_t now_ms, uint64_t granted, uint64_t held);

#endif
