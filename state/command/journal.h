#ifndef RESEAT_STATE_COMMAND_JOURNAL_H
#define RESEAT_STATE_COMMAND_JOURNAL_H

#include "state/command/command.h"

/*
 * The journal: the commands that a protected program gave to its device since the last snapshot
 * (state/image/), stored like deferred commands: arguments, written bytes, and what each came
 * after. When the device is lost, the snapshot's bytes and a replay of the journal produce what the
 * device had.
 *
 * The journal's order is a possible order of execution: each entry stands behind what it waits for,
 * and behind earlier commands of its queue. Of a launch in pieces (pieces.h) each piece is an
 * entry, with the launch's event; its groups that are not given yet are in none. Objects that an
 * entry uses live as long as the entry, even if the program released them.
 *
 * A journal that lacks something (a command that cannot be replayed, or memory ran out) is broken,
 * and useless until the next snapshot: until then the program is not protected.
 */

/** Commands are recorded. Changed with the gate closed. */
extern atomic_bool journal_is_kept;

/** One recorded command. Private to the journal and the replay. */
struct journal_entry {
    struct journal_entry *next;
    struct command *command; /**< Owned: deferred. */
    struct event *event;     /**< Held; or NULL. */
    uint64_t given;          /**< Order of its queue when it was given. */
    char *bytes;   /**< Owned: the bytes that it writes, if they were in the program's memory; or
                      NULL. */
    uint64_t cost; /**< Bytes that it takes. */
    bool ended;    /**< The program may know that it ended: journal_settle. */
    cl_uint waits;
    struct event *wait_list[]; /**< Held. */
};

/** Start with an empty journal; with the gate closed, at the moment of a snapshot. Returns the
 * former entries, for journal_free with the gate open. */
struct journal_entry *journal_begin(void);
/** Stop recording; gate closed. @why: what journal_broken() says from now on; static. Returns the
 * entries, for journal_free with the gate open. */
struct journal_entry *journal_end(const char *why);
/** For it: there is no snapshot that a journal could follow. */
#define JOURNAL_NONE "no snapshot was made yet"
/** NULL is allowed. Outside the gate, or with it closed by the caller. */
void journal_free(struct journal_entry *list);
/** Mark the journal as broken. @why: static text. Any thread. */
void journal_break(const char *why);
/** Why the journal is broken, or that none is recorded; NULL: it is complete. Any thread. */
const char *journal_broken(void);

/** Number of entries, and the bytes that they take. Any thread. */
void journal_size(uint64_t *ret_count, uint64_t *ret_bytes);
/** The journal breaks when it takes this many bytes; 0: none. */
extern _Atomic uint64_t journal_limit;

/**
 * Call before a command is given to the driver, inside the gate. Until journal_add or journal_drop,
 * no other thread's command can come in between. NULL: it is not recorded (the journal is broken).
 *
 * @held  The command is deferred already.
 */
MUST_CHECK struct journal_entry *journal_prepare(const struct command *command, bool held,
                                                 cl_uint waits, struct event *const *wait_list);
/** The command was given to the driver; @event is its event, or NULL. @entry may be NULL, here and
 * below. True: the journal owns the deferred @command now. */
bool journal_add(struct journal_entry *entry, struct command *command, struct event *event);
/** The driver refused the command. */
void journal_drop(struct journal_entry *entry);
/** Digest of @bytes; never 0. */
uint64_t journal_digest(const void *bytes, size_t size);
/** Record that @root was created with content, as if it was written. Inside the gate. */
void journal_add_content(struct memory *root, const void *bytes);

/**
 * For command_ops.record: make a command that writes @range of the root of @memory again, with the
 * bytes that are at @from now. @queue may be NULL. 0 or -ENOMEM.
 */
MUST_CHECK int journal_rewrite(struct queue *queue, struct memory *memory, const size_t origin[3],
                               const size_t region[3], struct range range, const void *from,
                               struct command **ret_command, char **ret_bytes);

/** The first entry; with the gate closed. */
struct journal_entry *journal_first(void);
/** Mark the entries that have ended as far as the program may know: also those that an ended one
 * came after. Gate closed. */
void journal_settle(void);
/** Mark all entries as ended. Gate closed. */
void journal_all_ended(void);

#endif
