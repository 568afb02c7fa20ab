#ifndef RESEAT_STATE_SNAPSHOT_SNAPSHOT_COMPARE_H
#define RESEAT_STATE_SNAPSHOT_SNAPSHOT_COMPARE_H

#include "state/snapshot/snapshot_making.h"

/*
 * What of a snapshot that counts as written was written: a kernel that is given a buffer may write
 * all of it, and mostly does not. What is kept of the bytes already is digested in host memory,
 * while the program runs, and what the device has is digested there (state/memory/compare.h says
 * where that pays). A chunk whose digests are all the same stays the chunk that it is, shared with
 * the point before; of one that is this point's alone, or of which few parts differ, those are
 * read.
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
