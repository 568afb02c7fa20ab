#ifndef RESEAT_STATE_MEMORY_MERGE_H
#define RESEAT_STATE_MEMORY_MERGE_H

#include "state/memory/memory.h"
#include "state/transfer/transfer.h"

/*
 * Merging by difference: what some work-groups of a launch wrote in one residence into what
 * the others wrote in another.
 *
 * The work-groups of one launch are given to two residences of a context at once: `home`, where the
 * program runs, and `away`, which was brought the launch's buffers. What the share of them at
 * `away` wrote is where its replica differs from what that was when the share began, which is kept
 * there; the device finds it, and only those chunks pass through host memory to `home`. What home
 * wrote since is where its replica differs from the same; both are compared before anything of home
 * changes. Then the bytes that the share wrote, and no others, are stored at home.
 *
 * Bytes are compared by units, counted from the root's first: where both wrote into one, and have
 * not the same there, it overlaps, and nobody can say what the launch would have left. A unit is
 * what kernels write at once: with a smaller one values could be made that nobody wrote, with a
 * larger one neighbours that two work-groups write overlap as well. A write of what
 * was there before is none. What home wrote before its bytes were copied for `away` is not seen as
 * written: work-groups that write what others write have undefined results without atomic
 * functions, and launches that have these are not for sharing.
 *
 * All functions are a mover's, with the gate open, and one thread's at a time for one merge;
 * merge_fetch also a helper's of it, who alone asks anything of `away` then. The
 * device work is given to the residences' io queues. A residence that is lost ends each at once.
 */

/** One buffer's part in a share. */
struct merge;

/** True when both replicas are the same bytes, for both devices work in place over one host copy:
 *  nothing has to be merged. */
bool merge_is_shared(const struct memory *root, uint8_t home, uint8_t away);

/**
 * The replica at @away has what a share begins with in @range of @root, a buffer that is real in
 * both residences: keep a copy of that there, which the device's budget has. Of home nothing is
 * asked here, but a program is built the first time: it is busy, and what takes memory of it or
 * runs there would wait for the launch.
 *
 * Blocks on the devices, and on building a program in them the first time. Returns 0, -ENOTSUP (one
 * of them cannot compare, or it is an image), -ENOMEM (also where there is no room; nobody is
 * spilled), -EIO (a driver failed), -ETIMEDOUT or -ECANCELED.
 *
 * @root   Borrowed until merge_end. It stays real in both residences.
 * @range  Not empty; it begins and ends anywhere.
 * @unit   Bytes: 1, 2, 4 or 8.
 * @limits  Or NULL.
 * @ret_merge  For merge_end().
 */
MUST_CHECK int merge_begin(struct memory *root, struct range range, size_t unit, uint8_t home,
                           uint8_t away, const struct transfer_limits *limits,
                           struct merge **ret_merge);
/**
 * All of the share has ended: bring what it wrote to host memory. Home is asked for nothing, and
 * may be busy. Afterwards nothing more is asked of `away`, and what it had for the merge was given
 * back to it.
 *
 * Once a merge. Blocks on the device. Returns 0 or as merge_begin; then merge_end is all that is
 * left.
 *
 * @ret_bytes  That the share wrote, in whole chunks (digest.h) as far as they are of the range;
 *             eight bytes that it has a part of count as a whole.
 */
MUST_CHECK int merge_fetch(struct merge *merge, const struct transfer_limits *limits,
                           uint64_t *ret_bytes);
/**
 * After merge_fetch, and all that home was given of the launch has ended: ask home what it wrote
 * there itself. Nothing of home changes, but that some MiB of its memory are taken until merge_end.
 *
 * Once a merge. Blocks on home. Returns as merge_fetch.
 *
 * @ret_overlaps  Both wrote into one unit.
 */
MUST_CHECK int merge_find(struct merge *merge, const struct transfer_limits *limits,
                          bool *ret_overlaps);
/**
 * After a merge_find that saw no overlap: have home's replica what the share wrote. Commands of the
 * program may write other bytes meanwhile. There are no limits: half of it is no state to be in.
 *
 * Once a merge. Blocks on home. Returns 0, or -EIO: home failed, and is in no state to go on from.
 */
MUST_CHECK int merge_apply(struct merge *merge);
/** Release all that it has, at any time between the functions above. NULL is allowed. */
void merge_end(struct merge *merge);

#endif
