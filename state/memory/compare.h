#ifndef RESEAT_STATE_MEMORY_COMPARE_H
#define RESEAT_STATE_MEMORY_COMPARE_H

#include "state/memory/digest.h"
#include "state/memory/memory.h"

/*
 * Which chunks of a buffer differ between a replica that has the latest bytes and one that is
 * stale: what a kernel wrote into a large buffer nobody else can say. Both are digested where they
 * are, and those chunks are copied whose digests differ. Nothing is assumed of what the stale one
 * has, but that it is worth asking. Only what cannot change while it is compared and copied is up
 * to date then; who copies knows that by versions, compared or not.
 *
 * The digests of what only movers write are kept with the root, so that they are ready before the
 * program is paused, or when the same host memory is written again. They are thrown away where
 * anybody else may have written there.
 */

/** One way that bytes go, of a batch. */
struct compare_way {
    struct context *context;
    uint8_t from, to; /**< Residence indices; RESIDENCE_HOST is host memory. */
    uint8_t target;   /**< Where the batch goes at last: `to`, or it lies on the way. */
    bool used;        /**< The program runs at `target`. */
    bool quiet;       /**< Nothing of it changes meanwhile. */
    bool busy;        /**< Kernels of ours would wait for the program's: nothing is compared. */
    const struct transfer_limits *limits; /**< Or NULL. */
};

/** What was found of one range of a root. */
struct comparison {
    struct memory *root;
    struct range range;
    size_t first, count;   /**< Chunks. */
    struct digest *source; /**< Owned; NULL: it was not compared. */
    struct known *target;  /**< Owned. */
    bool compared;         /**< The target had something; else it is looked at for zeroes alone. */
    bool fills;            /**< Zeroes need not be sent. */
    struct digest zero;    /**< Of a chunk of zeroes, */
    struct digest last;    /**< and of as many bytes of them as the last chunk has. */
};

/** When replicas are compared. For tests: it is where that pays. */
enum compare_when { COMPARE_WHERE_IT_PAYS, COMPARE_ALWAYS, COMPARE_NEVER };
extern _Atomic int compare_when;

/**
 * True when comparing is expected to make a pause shorter: then what the program keeps writing to
 * @range of @root is worth copying while it does, though it has to be compared afterwards. Blocks
 * on a build and a few ms of measuring the first time.
 */
bool compare_helps(const struct compare_way *way, struct memory *root, struct range range);

/**
 * Compare @range of @root, where that is possible and expected to take less time than the copying
 * that it saves. Where a device has nothing to compare with it is looked at for zeroes, if another
 * device finds those many times sooner than it copies. Nobody else copies to way->to meanwhile.
 *
 * Blocks on the devices and on digesting host memory. Returns 0, -ETIMEDOUT or -ECANCELED.
 *
 * @ret  With `source` NULL where it is not compared. To be ended, unless this failed.
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
 * What differs was copied or filled, if @copied. While the program runs what the target has now is
 * digested for the next time. Blocks as compare_begin.
 */
void compare_end(const struct compare_way *way, struct comparison *comparison, bool copied);

/**
 * True when digesting @bytes of @root at way->from, a device, is expected to take less time than
 * the copying that it saves (way->to is RESIDENCE_HOST). For who keeps bytes of its own beside the
 * replicas, with their digests. Blocks as compare_helps.
 */
bool compare_pays(const struct compare_way *way, struct memory *root, size_t bytes);

/** Bytes that differed when @root was compared last for a copy to @residence_index, which lacks it
 * still; UINT64_MAX: it was not, or somebody wrote there since. */
uint64_t compare_last(struct memory *root, uint8_t residence_index);
/** Somebody else writes, or wrote, to a replica of @root whose digests are kept. */
void compare_forget(struct memory *root);
/** The same where they are kept of the replica at @residence_index. */
void compare_forget_at(struct memory *root, uint8_t residence_index);

#endif
