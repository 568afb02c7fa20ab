#ifndef RESEAT_STATE_IMAGE_SNAPSHOT_MAKING_H
#define RESEAT_STATE_IMAGE_SNAPSHOT_MAKING_H

#include "state/image/snapshot_store.h"
#include "state/move/move_priv.h"

/* Makes a snapshot: lists what is to be copied, and copies it. */

/** A stale chunk: written since it was copied last. */
struct stale {
    size_t root, chunk; /**< Indexes in making->next. */
    uint64_t version;   /**< Version of its bytes after copying, if no command writes meanwhile. */
    uint32_t same;      /**< Bit i: part i (of DIGEST_CHUNK bytes) was found unchanged. */
};

/** A snapshot that is being made. The mover's lock is held. */
struct making {
    const struct snapshot_request *request;
    struct snapshot_report *report;
    struct move
        move; /**< Used for the parts that snapshots share with moves; no virtual device moves. */
    uint64_t serial;
    struct snapshot *base;   /**< The latest snapshot, pinned; or NULL. */
    struct snapshot *next;   /**< Owned. */
    struct snapshot *former; /**< `next` before the last look; freed with the gate open. Owned. */
    struct snapshot *before; /**< The snapshot that it replaced. Owned. */
    struct memory **roots;   /**< The roots of `next`, held. */
    size_t root_count;
    struct stale *stale; /**< Sorted by root. */
    size_t stale_count;
    uint64_t stale_bytes;
    uint64_t expected; /**< Bytes of them that will have to be read, judging by the last round... */
    uint64_t compared; /**< ...and bytes that are digested instead. */
    uint64_t left;     /**< `expected` of the last look. */
    uint64_t digest_ns, digested; /**< Digesting by devices in the last round: time, and bytes. */
    uint64_t seen_same;           /**< Bytes of host memory that were found unchanged. */
    uint64_t closed_at;
    bool closed;
    bool stands;       /**< The program gives no commands until the snapshot is made... */
    uint64_t stood_at; /**< ...since this time. */
};

/** Find the residences whose commands must have ended. Inside the gate, or with it closed. */
MUST_CHECK int making_find(struct making *making);
/** List all roots, with what is kept of their bytes, and which chunks are stale. Gate closed. 0 or
 * -ENOMEM. */
MUST_CHECK int making_collect(struct making *making);
/**
 * Copy the stale chunks. @ahead: with the gate open, when all commands given before the last
 * making_collect have ended; chunks that cannot be copied so are left. Otherwise with the gate
 * closed, all of them.
 */
MUST_CHECK int making_copy(struct making *making, bool ahead);
/** True when unchanged parts of @chunk, which may be NULL, need not be read: only `next` has it, or
 * its changed parts become chunks beside it. Else all of it is read. */
bool making_keeps(const struct making *making, const struct chunk *chunk,
                  const struct stale *stale);
/** Address of the latest bytes of @extent in the host copy, or in its substitute; or NULL. */
const char *making_in_host(const struct memory *root, const struct extent *extent);
/** Index of a residence that has them; or RESIDENCE_NONE. */
uint8_t making_on_device(const struct memory *root, const struct extent *extent);
/** Bytes of `next` that it shares with `base`. */
uint64_t making_shared(const struct making *making);
/** Release the holds on roots, so that they can be destroyed while the program runs. Gate open. */
void making_let_go(struct making *making);
void making_finish(struct making *making);

/*
 * Finds out which bytes that count as written really changed: a kernel that is given a buffer may
 * write all of it, and mostly does not. The bytes kept from before are digested in host memory
 * while the program runs, and the device's bytes are digested there (state/memory/compare.h decides
 * where that pays). A chunk whose digests are all equal stays shared with the snapshot before; of a
 * chunk that only this snapshot has, or in which few parts differ, only those parts are read.
 *
 * Bytes that are in host memory are not digested but compared directly, instead of being copied.
 *
 * Digests are computed from the kept bytes, not from the device's bytes at the time they were
 * copied; so writes in between do not matter.
 */

/** Compare the stale chunks in the same way as making_copy will copy them. 0, -ENOMEM, -ETIMEDOUT,
 * -ECANCELED. */
MUST_CHECK int making_compare(struct making *making, bool ahead);
/** Digest what was copied ahead, if the pause will probably find most of it unchanged. Gate open.
 * Returns as making_compare. */
MUST_CHECK int making_learn(struct making *making);

/** True when all of a stale chunk is unchanged. */
bool stale_is_same(const struct stale *stale, struct range chunk);
/** End of the run of @chunk's bytes from @at on that are all unchanged, or all changed. */
size_t stale_run(const struct stale *stale, struct range chunk, size_t at, bool *ret_same);

#endif
