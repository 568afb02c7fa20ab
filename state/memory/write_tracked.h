#ifndef RESEAT_STATE_MEMORY_WRITE_TRACKED_H
#define RESEAT_STATE_MEMORY_WRITE_TRACKED_H

#include "state/memory/digest.h"
#include "state/memory/memory.h"

/*
 * Digests of the chunks of a host copy that are right as long as nobody writes there, which is seen
 * (dirty.h): what devices that work in a host copy are still to be asked of, once the program
 * stops, are the chunks that it wrote since. For movers.
 */

/** True when devices work in the host copy of @root, and whoever writes there would be seen. */
bool write_tracked_may(const struct memory *root);
/**
 * As digest_host() of @root's host copy, but of what nobody wrote to since it was digested. What is
 * digested while the program runs is watched from before, where that is possible.
 *
 * @quiet  Nothing writes there meanwhile.
 */
MUST_CHECK int write_tracked_digest(struct memory *root, size_t first, size_t count, bool quiet,
                                    const struct transfer_limits *limits, struct digest *ret);
/** Chunks of those that write_tracked_digest() would have to digest. Wait-free. */
size_t write_tracked_stale(struct memory *root, size_t first, size_t count);
/** No host copy is watched any more: for who has moved, or will not. Blocks as dirty_end(). */
void write_tracked_end_all(void);
/** One goes, also while the program is stopped: its bytes come to @give, later. False: it was not
 *  watched, and they do not. */
bool write_tracked_give(struct host_copy *host_copy, void (*give)(char *bytes, size_t size));

#endif
