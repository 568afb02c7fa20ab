#ifndef RESEAT_STATE_MEMORY_WRITE_TRACKED_H
#define RESEAT_STATE_MEMORY_WRITE_TRACKED_H

#include "state/memory/digest.h"
#include "state/memory/memory.h"

/*
 * Digests of the chunks of a host copy, kept while the pages are tracked for writes (dirty.h). Once
 * the program is paused only the chunks that it wrote since have to be digested again. For host
 * copies that devices work in. Used by movers.
 */

/** True when devices work in the host copy of @root, and all writes to it can be tracked. */
bool write_tracked_may(const struct memory *root);
/**
 * As digest_host() of @root's host copy, but chunks that were not written since they were last
 * digested are not digested again. While the program runs, tracking begins before the digesting,
 * where it is possible.
 *
 * @quiet  Nothing writes there meanwhile.
 */
MUST_CHECK int write_tracked_digest(struct memory *root, size_t first, size_t count, bool quiet,
                                    const struct transfer_limits *limits, struct digest *ret);
/** The number of chunks that write_tracked_digest() would have to digest. Wait-free. */
size_t write_tracked_stale(struct memory *root, size_t first, size_t count);
/** End the tracking of all host copies, after a move or when it is given up. Blocks as dirty_end().
 */
void write_tracked_end_all(void);
/** End the tracking of a host copy that is being freed, also while the program is paused: @give
 * gets its bytes later. False: it was not tracked, and the caller frees them. */
bool write_tracked_give(struct host_copy *host_copy, void (*give)(char *bytes, size_t size));

#endif
