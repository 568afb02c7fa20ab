#ifndef RESEAT_STATE_MEMORY_REPLICA_H
#define RESEAT_STATE_MEMORY_REPLICA_H

#include "state/memory/memory.h"
#include "state/transfer/transfer.h"

/*
 * Bringing replicas up to date (R1, R2, R4): the one operation under moves, suspends, resumes and
 * programs with several residences.
 */

/** A batch: roots of one context, or parts of them, from one residence, or host memory, to another.
 */
struct replica_batch {
    struct context *context;
    uint8_t from, to; /**< Residence indices; RESIDENCE_HOST is host memory. */
    /** The gate is closed and the queues are drained: maps are looked at, and what was read cannot
     *  change any more. Otherwise roots that something maps are left for later, and the others
     *  are visited (mapping.h) where their copies could meet what the program does. */
    bool quiet;
    struct memory *const *roots; /**< Borrowed: held by the caller. */
    /** What is wanted of each, and where that is no whole row or slice of an image, or there is no
     * room to tell it apart, of what it lies in. NULL: all of them. */
    const struct range *ranges;
    /** What the copies will be: each root's version at a moment when the gate was closed
     * (extents_watch), since when every command given before has ended. What is newer is left for
     * later. NULL when quiet: the current ones. */
    const uint64_t *versions;
    size_t count;
    /** What is newer is copied as well, as it is at that moment, which is no version of it: who
     *  copies has its own use for such bytes. What cannot be copied now is -EBUSY. Not when quiet.
     */
    bool torn;
    /** `from` is in the middle of a long launch, which a kernel of ours would wait for: bytes are
     *  copied, not compared. */
    bool busy;
    const struct transfer_limits *limits;
    uint64_t *copied; /**< Or NULL: those bytes are added that were not found equal (compare.h). */
    uint64_t *shared; /**< Or NULL: of `copied`, those that nothing was copied for: both ends work
                           on the same host memory. */
};

/** Bytes of @root that a batch from @from to @to would copy: those that @to lacks, and @from or
 * host memory has. */
static inline uint64_t replica_lacking(const struct memory *root, uint8_t from, uint8_t to)
{
    return extents_lacking(root, to, 1u << from | 1u << RESIDENCE_HOST, replica_whole(root));
}

/** The same, less what was equal when @root was last compared for a copy to @to: about as many are
 *  copied once the program is paused. */
uint64_t replica_differing(struct memory *root, uint8_t from, uint8_t to);

/**
 * Bring what the batch wants up to date in batch->to: the extents that it lacks there, and that
 * batch->from or host memory has. Those that are there already cost nothing, and of large buffers
 * only chunks are copied that differ, where finding out pays (compare.h). Every root must be real
 * in both (host copies are made here).
 *
 * Blocks on the link. Returns 0, -ENOMEM, -EIO (a driver failed a transfer: replicas not yet
 * brought up keep their old version), -ETIMEDOUT or -ECANCELED.
 *
 * @ret_bytes  Bytes that were brought up to date.
 * @ret_error  The driver's word with -EIO.
 */
MUST_CHECK int replica_refresh(const struct replica_batch *batch, uint64_t *ret_bytes,
                               cl_int *ret_error);

#endif
