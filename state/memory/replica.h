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
    /** The gate is closed and the queues are drained, so nothing changes while it is copied, and
     *  mapped roots are copied around their maps. Otherwise mapped roots are left for later, and
     *  others are visited (mapping.h) where the program could use them at the same time. */
    bool quiet;
    struct memory *const *roots; /**< Borrowed: held by the caller. */
    /** The range of each root to be copied; NULL: the whole roots. More is copied where a range is
     *  not whole rows or slices of an image, or the table of extents is full. */
    const struct range *ranges;
    /** The version that each root's copy is recorded as: the root's version at a moment when the
     * gate was closed (extents_watch); all commands given before then have ended. Newer extents are
     * left for later. NULL when quiet: the current versions. */
    const uint64_t *versions;
    size_t count;
    /** Copy newer extents as well. A command may be writing them, so that the copy is of no
     *  version; the caller knows how to use such bytes. -EBUSY where something cannot be copied
     *  now. Not when quiet. */
    bool torn;
    /** `from` executes a long launch, and a kernel of ours would wait for it: copy without
     *  comparing. */
    bool busy;
    const struct transfer_limits *limits;
    uint64_t
        *copied; /**< Or NULL: incremented by the bytes that were not found equal (compare.h). */
    uint64_t *shared; /**< Or NULL: incremented by those of `copied` that needed no copy, because
                           both ends work on the same host memory. */
};

/** Bytes of @root that a batch from @from to @to would copy: those that @to lacks, and @from or
 * host memory has. */
static inline uint64_t replica_lacking(const struct memory *root, uint8_t from, uint8_t to)
{
    return extents_lacking(root, to, residence_bit(from) | residence_bit(RESIDENCE_HOST),
                           replica_whole(root));
}

/** Bytes that a batch in the pause will copy, by estimate: replica_lacking(), less the bytes that
 * the last comparison for a copy to @to found equal. */
uint64_t replica_differing(struct memory *root, uint8_t from, uint8_t to);

/**
 * Bring the batch's ranges up to date in batch->to: copy the extents that it lacks, and that
 * batch->from or host memory has. Of large buffers only chunks that differ are copied, where a
 * comparison pays (compare.h). Every root must have a real object in both residences; host copies
 * are made here.
 *
 * Blocks on the link. Returns 0, -ENOMEM, -EIO (a driver failed a transfer: replicas not yet
 * brought up keep their old version), -ETIMEDOUT or -ECANCELED.
 *
 * @ret_bytes  Bytes that were brought up to date.
 * @ret_error  The driver's error with -EIO.
 */
MUST_CHECK int replica_refresh(const struct replica_batch *batch, uint64_t *ret_bytes,
                               cl_int *ret_error);

#endif
