#ifndef RESEAT_STATE_MEMORY_REPLICA_H
#define RESEAT_STATE_MEMORY_REPLICA_H

#include "state/transfer/transfer.h"

/*
 * Bringing replicas up to date (R1, R2, R4): the one operation under moves, suspends, resumes and
 * programs with several residences.
 */

/** A batch: roots of one context, from the place that holds their latest bytes to another. */
struct replica_batch {
    struct context *context;
    uint8_t from, to; /**< A place, or PLACE_HOST. */
    /** The gate is closed and the queues are drained: maps are looked at, and what was read cannot
     *  change any more. Otherwise roots that something maps are left for later, and the others
     *  are visited (map.h) where their copies could meet what the program does. */
    bool quiet;
    struct memory *const *roots; /**< Borrowed: held by the caller. */
    /** What the copies will be: each root's version at a moment when the gate was closed, since
     * when every command given before has ended. NULL when quiet: the current ones. */
    const uint64_t *versions;
    size_t count;
    const struct transfer_limits *limits;
};

/** True when @root has bytes that @place lacks. */
bool replica_needs(const struct memory *root, uint8_t place);

/**
 * Bring every root of the batch up to date in batch->to. Those that are already cost nothing. Every
 * root must be real in both places (windows are made here).
 *
 * Blocks on the link. Returns 0, -ENOMEM, -EIO (a driver failed a transfer: replicas not yet
 * brought up keep their old version), -ETIMEDOUT or -ECANCELED.
 *
 * @ret_bytes  Sizes of the replicas that were brought up to date.
 * @ret_error  The driver's word with -EIO.
 */
MUST_CHECK int replica_refresh(const struct replica_batch *batch, uint64_t *ret_bytes,
                               cl_int *ret_error);

#endif
