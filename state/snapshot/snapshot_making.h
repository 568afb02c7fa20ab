#ifndef RESEAT_STATE_SNAPSHOT_SNAPSHOT_MAKING_H
#define RESEAT_STATE_SNAPSHOT_SNAPSHOT_MAKING_H

#include "state/move/move_priv.h"
#include "state/snapshot/snapshot_store.h"

/*
 * Making a snapshot: what is to be copied, and copying it.
 */

/** A chunk that was written since it was copied last. */
struct stale {
    size_t root, chunk; /**< Of making->next. */
    uint64_t version;   /**< What its bytes will be, if no command writes meanwhile. */
    uint32_t same;      /**< Bit i: part i of it, of DIGEST_CHUNK, was found to be what is kept. */
};

/** A snapshot that is being made. The mover's lock is held. */
struct making {
    const struct snapshot_request *request;
    struct snapshot_report *report;
    struct move
        move; /**< For what snapshots and moves have in common: no virtual device of it moves. */
    uint64_t serial;
    struct snapshot *base; /**< The latest snapshot, pinned; or NULL. */
    struct snapshot *next; /**< Owned. */
    struct snapshot
        *former; /**< What `next` was before the last look: goes with the gate open. Owned. */
    struct snapshot *before; /**< The one that it took the place of. Owned. */
    struct memory **roots;   /**< Those of `next`, held. */
    size_t root_count;
    struct stale *stale; /**< In the order of their roots. */
    size_t stale_count;
    uint64_t stale_bytes;
    uint64_t
        expected; /**< Of these, bytes that have to be read, as far as the last round tells... */
    uint64_t compared;            /**< ...because so many are digested. */
    uint64_t left;                /**< `expected` of the last look. */
    uint64_t digest_ns, digested; /**< What devices digested in the last round: time, and bytes. */
    uint64_t seen_same;           /**< Bytes of host memory that were what is kept. */
    double bandwidth;             /**< Bytes a second of the last round; 0: none was measured. */
    uint64_t took_ns;             /**< The last round. */
    unsigned in_vain;             /**< Rounds that did not leave less than the one before. */
    uint64_t closed_at;
    bool closed;
    bool stands;       /**< The program was asked to give nothing until the snapshot is made... */
    uint64_t stood_at; /**< ...and does so since then. */
};

/** The residences whose commands have to have ended. Inside the gate, or with it closed. */
MUST_CHECK int making_find(struct making *making);
/** All roots there are, with what is known of their bytes, and what of these is stale. Gate closed.
 *  0 or -ENOMEM. */
MUST_CHECK int making_collect(struct making *making);
/**
 * Copy what is stale. @ahead: with the gate open, and everything that was given at the last
 * making_collect ended; what cannot be copied so is left. Otherwise with the gate closed, all of
 * it.
 */
MUST_CHECK int making_copy(struct making *making, bool ahead);
/** True when @chunk, which may be NULL, is `next`'s alone. */
bool making_owns(const struct making *making, const struct chunk *chunk);
/** True when @chunk, which may be NULL, keeps what of it is the same: it is `next`'s alone, or what
 * differs becomes parts beside it. Else all of it is read. */
bool making_keeps(const struct making *making, const struct chunk *chunk,
                  const struct stale *stale);
/** Where the host copy, or what stands for it, has the latest bytes of @extent; or NULL. */
const char *making_in_host(const struct memory *root, const struct extent *extent);
/** The place of a device that has them elsewhere; or RESIDENCE_NONE. */
uint8_t making_on_device(const struct memory *root, const struct extent *extent);
/** Bytes of `next` that it shares with `base`. */
uint64_t making_shared(const struct making *making);
/** Roots are held no longer: they can go while the program runs. Gate open. */
void making_let_go(struct making *making);
void making_finish(struct making *making);

/*
 * What of a snapshot that counts as written was written: a kernel that is given a buffer may write
 * all of it, and mostly does not. What is kept of the bytes already is digested in host memory,
 * while the program runs, and what the device has is digested there (state/memory/compare.h says
 * where that pays). A chunk whose digests are all the same stays the chunk that it is, shared with
 * the snapshot before; of one that is this snapshot's alone, or of which few parts differ, those
 * are read.
 *
 * What is in host memory already is not digested: it is compared itself, as it would be copied.
 *
 * The digests are of what is kept, not of what was there when it was copied: so it makes no
 * difference what a command wrote meanwhile.
 */

/** Look at what is stale, as making_copy is going to copy it. 0, -ENOMEM, -ETIMEDOUT, -ECANCELED.
 */
MUST_CHECK int making_compare(struct making *making, bool ahead);
/** Digest what was copied ahead, where the pause can be expected to find most of it the same. Gate
 * open. As making_compare. */
MUST_CHECK int making_learn(struct making *making);

/** All of a stale chunk is what is kept. */
bool stale_is_same(const struct stale *stale, struct range chunk);
/** The end of the run of @chunk's bytes from @at on that are all the same, or all not. */
size_t stale_run(const struct stale *stale, struct range chunk, size_t at, bool *ret_same);

#endif
