#ifndef RESEAT_STATE_MEMORY_MERGE_H
#define RESEAT_STATE_MEMORY_MERGE_H

#include "state/memory/memory.h"
#include "state/transfer/transfer.h"

/*
 * Merging by difference: some work-groups of a launch ran in one residence and the others in
 * another; their writes are brought together.
 *
 * The two residences are `home`, where the program runs, and `away`, which was brought the launch's
 * buffers and runs a share of the work-groups. `away` keeps a copy of each buffer from before the
 * share: the bytes that differ from it are those that the share wrote. The device finds the chunks
 * with such bytes, and only these pass through host memory to `home`. There they are compared with
 * home's replica and the same copy, before anything of home changes. Then the bytes that the share
 * wrote, and no others, are stored at home.
 *
 * Bytes are compared by units, counted from the root's first byte. Where both wrote different
 * values into one unit they overlap, and the result of the launch is unknown. A unit has the size
 * of the kernels' stores: with a smaller one the merge could make values that no work-item stored;
 * with a larger one stores to neighbouring elements would overlap. Storing the value that was there
 * counts as no write. Writes at home before its bytes were copied to `away` are not seen as writes
 * either: work-groups that write the same bytes have undefined results unless they use atomic
 * functions, and launches with these are not shared.
 *
 * All functions are called by a mover, with the gate open, by one thread at a time for one merge.
 * merge_fetch may be called by a helper, which then alone uses `away`. Devices work in the
 * residences' io queues. Each function returns at once if a residence is lost.
 */

/** One buffer's part in a share. */
struct merge;

/** True when both devices work in one host copy, so that nothing has to be merged. */
bool merge_is_shared(const struct memory *root, uint8_t home, uint8_t away);

/**
 * Before a share begins: keep a copy of @range of @root at @away, in the device's budget. The
 * latest bytes are there already. Home is busy with the launch, which commands and allocations
 * would wait for; so nothing is done there but building a program the first time.
 *
 * Blocks on the devices, and on building a program in them the first time. Returns 0, -ENOTSUP (one
 * of them cannot compare, or it is an image), -ENOMEM (also without room on the device; nothing is
 * spilled for it), -EIO (a driver failed), -ETIMEDOUT or -ECANCELED.
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
 * After the share has ended: bring the chunks that it wrote to host memory. Home is not used, and
 * may be busy. Afterwards `away` is not used any more, and its memory for the merge is released.
 *
 * Once for each merge. Blocks on the device. Returns 0, or an error as merge_begin; after an error
 * only merge_end may follow.
 *
 * @ret_bytes  The bytes of chunks (digest.h) within the range that the share wrote to; groups of
 *             eight bytes at the range's ends count as a whole.
 */
MUST_CHECK int merge_fetch(struct merge *merge, const struct transfer_limits *limits,
                           uint64_t *ret_bytes);
/**
 * After merge_fetch, when home's work-groups have ended: find out whether home wrote to the same
 * units. Home's replica does not change; some MiB of its memory are taken until merge_end.
 *
 * Once for each merge. Blocks on home. Returns as merge_fetch.
 *
 * @ret_overlaps  Both wrote into one unit.
 */
MUST_CHECK int merge_find(struct merge *merge, const struct transfer_limits *limits,
                          bool *ret_overlaps);
/**
 * After a merge_find without overlap: store at home the bytes that the share wrote. Commands of the
 * program may write other bytes meanwhile. It cannot be cancelled, because a half-applied merge
 * could not be undone.
 *
 * Once for each merge. Blocks on home. Returns 0, or -EIO: home failed, and its replica is
 * undefined.
 */
MUST_CHECK int merge_apply(struct merge *merge);
/** Release it, at any time between the functions above. NULL is allowed. */
void merge_end(struct merge *merge);

#endif
