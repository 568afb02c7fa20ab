#ifndef RESEAT_STATE_COMMAND_JOURNAL_H
#define RESEAT_STATE_COMMAND_JOURNAL_H

#include "state/command/command.h"

/*
 * The journal: what a protected program gave to its device since the last snapshot
 * (state/snapshot/), as deferred commands keep it: arguments, written bytes, what each came after.
 * When the device is lost, what the snapshot had and the journal, given again in its order, are
 * what the device had.
 *
 * The order is one in which the commands could have run: each stands behind what it waits for, and
 * behind what was given to its queue before it. Objects that a command names live for as long as it
 * stands here, whatever the program released.
 *
 * A journal that lacks something is not whole, and worth nothing until the next snapshot: some
 * command cannot be given again, or there is no memory. Then the program is as one that is not
 * protected.
 */

/** Commands are kept. Changed with the gate closed. */
extern atomic_bool journal_is_kept;

/** One command. The journal's own. */
struct journal_entry {
    struct journal_entry *next;
    struct command *command; /**< Owned: deferred. */
    struct event *event;     /**< Held; or NULL. */
    uint64_t given;          /**< Of its queue's order. */
    char *bytes;   /**< Owned: what it writes, if that was the program's memory; or NULL. */
    uint64_t cost; /**< Bytes that it takes. */
    bool ended;    /**< The program may know that it ended: journal_settle. */
    cl_uint waits;
    struct event *wait_list[]; /**< Held. */
};

/** Empty, whole, and kept from now on; with the gate closed, at the moment of a snapshot. Returns
 * what it had, for journal_free with the gate open. */
struct journal_entry *journal_begin(void);
/** Not kept any more; gate closed. Likewise. */
struct journal_entry *journal_end(void);
/** NULL is allowed. Outside the gate, or with it closed by the caller. */
void journal_free(struct journal_entry *list);
/** It lacks something. @why: static text. Any thread. */
void journal_break(const char *why);
/** NULL: it is whole. Else why not; also while none is kept. Any thread. */
const char *journal_broken(void);

/** Commands, and bytes that they take. Any thread. */
void journal_size(uint64_t *ret_count, uint64_t *ret_bytes);
/** With so many bytes it breaks; 0: none. */
extern _Atomic uint64_t journal_limit;

/**
 * Around giving a command to the driver, inside the gate: what is given between the two by another
 * thread comes before or after it. NULL: it is not kept (the journal broke, or never was whole).
 *
 * @held  It is deferred already.
 */
MUST_CHECK struct journal_entry *journal_prepare(const struct command *command, bool held,
                                                 cl_uint waits, struct event *const *wait_list);
/** It was given; @event is its event, or NULL. @entry: NULL is allowed, here and below. True: the
 *  journal owns @command now, which was held. */
bool journal_add(struct journal_entry *entry, struct command *command, struct event *event);
/** The driver did not take it. */
void journal_drop(struct journal_entry *entry);
/** Of what is at @bytes; never 0. */
uint64_t journal_digest(const void *bytes, size_t size);
/** @root was made with its first bytes: they are as written. Inside the gate. */
void journal_add_content(struct memory *root, const void *bytes);

/** For command_ops.record: bytes @range of the root of @memory are written again, as they are at
 * @from now. @queue may be NULL. 0 or -ENOMEM. */
MUST_CHECK int journal_rewrite(struct queue *queue, struct memory *memory, const size_t origin[3],
                               const size_t region[3], struct range range, const void *from,
                               struct command **ret_command, char **ret_bytes);

/** The first one; with the gate closed. */
struct journal_entry *journal_first(void);
/** Find out which have ended as far as the program may know: what that came after has, too. Gate
 *  closed. */
void journal_settle(void);
/** All have. Gate closed. */
void journal_all_ended(void);

#endif
