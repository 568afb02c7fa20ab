#ifndef RESEAT_STATE_MEMORY_COMPARE_H
#define RESEAT_STATE_MEMORY_COMPARE_H

#include "state/memory/digest.h"
#include "state/memory/memory.h"

/*
 * Find the chunks of a buffer that differ between a replica with the latest bytes and a stale one,
 * since nothing else tells which parts of a large buffer a kernel wrote. Both replicas are digested
 * where they are, and chunks whose digests differ are copied. Nothing is assumed of the stale
 * replica's bytes. Whether a chunk that may change meanwhile is up to date afterwards is decided by
 * versions, as without a comparison.
 *
 * Digests of a replica that only movers write are kept with the root: then they are ready before
 * the program is paused, or when the same host memory is written again. They are discarded where
 * anything else may have written to that replica.
 */

/** One direction of copying of a batch. */
struct compare_way {
    struct context *context;
    uint8_t from, to; /**< Residence indices; RESIDENCE_HOST is host memory. */
    uint8_t target;   /**< The batch's final target: `to`, or where its bytes go after `to`. */
    bool used;        /**< The program runs at `target`. */
    bool quiet;       /**< The program is paused: nothing changes meanwhile. */
    bool busy;        /**< Kernels of ours would wait for the program's: nothing is compared. */
    const struct transfer_limits *limits; /**< Or NULL. */
};

/** The result for one range of a root. */
struct comparison {
    struct memory *root;
    struct range range;
    size_t first, count;   /**< Chunks. */
    struct digest *source; /**< Owned; NULL: it was not compared. */
    struct known *target;  /**< Owned. */
    bool compared; /**< The target had bytes to compare with; else only zeroes are looked for. */
    bool fills;    /**< The target can be filled with zeroes. */
    struct digest zero; /**< Of a whole chunk of zeroes. */
    struct digest last; /**< Of as many zeroes as the last chunk has bytes. */
};

/** When replicas are compared. Only tests change it. */
enum compare_when { COMPARE_WHERE_IT_PAYS, COMPARE_ALWAYS, COMPARE_NEVER };
extern _Atomic int compare_when;

/**
 * True when a comparison is expected to make the pause shorter. Then @range of @root is worth
 * copying ahead although the program keeps writing there. Blocks on a build and a few ms of
 * measuring the first time.
 */
bool compare_helps(const struct compare_way *way, struct memory *root, struct range range);

/**
 * Compare @range of @root, where that is possible and expected to take less time than the copying
 * that it saves. Where the target device has no bytes to compare with, only zeroes are looked for,
 * if the source device finds them in a small part of the time that copying takes. No other thread
 * may copy to way->to meanwhile.
 *
 * Blocks on the devices and on digesting host memory. Returns 0, -ETIMEDOUT or -ECANCELED.
 *
 * @ret  Its `source` is NULL where nothing was compared. To be ended by compare_end(), unless this
 *       failed.
 */
MUST_CHECK int compare_begin(const struct compare_way *way, struct memory *root, struct range range,
                             struct comparison *ret);
/** The next run of bytes at or after @at that differ; false when there are none.
 *
 * @ret_zero  All of it is zeroes in the source, which the target can be filled with.
 */
bool compare_next(const struct comparison *comparison, size_t at, struct range *ret_run,
                  bool *ret_zero);
/**
 * @copied  The chunks that differ were copied or filled. While the program runs the target is
 * digested for the next comparison. Blocks as compare_begin.
 */
void compare_end(const struct compare_way *way, struct comparison *comparison, bool copied);

/**
 * True when digesting @bytes of @root at way->from, a device, is expected to take less time than
 * the copying that it saves (way->to is RESIDENCE_HOST). For callers that keep copies of their own
 * beside the replicas, with digests. Blocks as compare_helps.
 */
bool compare_pays(const struct compare_way *way, struct memory *root, size_t bytes);

/** Bytes that differed in the last comparison of @root for a copy to @residence_index. UINT64_MAX:
 * there was none, or its digests were discarded since. */
uint64_t compare_last(struct memory *root, uint8_t residence_index);
/** Discard the digests that are kept with @root: something else writes, or wrote, to that replica.
 */
void compare_forget(struct memory *root);
/** The same, if they are of the replica at @residence_index. */
void compare_forget_at(struct memory *root, uint8_t residence_index);

#endif
