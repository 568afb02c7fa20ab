#ifndef RESEAT_STATE_MEMORY_DIRTY_H
#define RESEAT_STATE_MEMORY_DIRTY_H

#include <stdbool.h>
#include <stddef.h>

#include "state/base/compiler.h"

/*
 * Dirty tracking: which parts of our memory were written since they were marked clean, by threads
 * of the program or of a driver, or by the kernel for one of them (read(2)). A clean part is
 * write-protected through userfaultfd(2); the first write to it waits until a thread of ours has
 * recorded it and removed the protection. When a second part of a large page is written, the
 * protection of the whole page is removed.
 *
 * Only for private memory: writes of another process to shared memory are not seen, nor those of a
 * device to pages that it registered before. Only where the kernel reports its own writes too,
 * which would fail otherwise: for root, with CAP_SYS_PTRACE, or where vm.unprivileged_userfaultfd
 * is 1
 * (/dev/userfaultfd, Linux 6.1).
 *
 * Everything here is thread-safe. A child of a fork tracks nothing.
 */

#define DIRTY_PART ((size_t)64 << 10)

struct dirty;

/** False when there is none here. The first call asks the kernel. */
bool dirty_may(void);

/**
 * Begin to track memory of which no part is clean yet.
 *
 * @memory  Of pages_take(), at least PAGES_LEAST bytes; not to be freed before dirty_end().
 * Returns 0, -ENOTSUP (dirty_may() is false) or -ENOMEM.
 */
MUST_CHECK int dirty_begin(char *memory, size_t size, struct dirty **ret_dirty);

/**
 * Mark parts [@first, @first + @count) as clean. Bytes that are read there afterwards stay the same
 * as long as the part is clean. Blocks on the kernel, and on pages that were swapped out.
 * Returns 0, or -ENOTSUP: they are not clean.
 */
MUST_CHECK int dirty_clean(struct dirty *dirty, size_t first, size_t count);

/** True when a part was not written since it was marked clean, provided that dirty_holds() is true
 * afterwards. Wait-free. */
bool dirty_is_clean(const struct dirty *dirty, size_t part);

/** True when all writes until now were recorded. They are not once the program has closed our
 *  descriptor. */
bool dirty_holds(const struct dirty *dirty);

/** End it. Blocks for some milliseconds a GiB. */
void dirty_end(struct dirty *dirty);
/** The same in another thread; @then gets the memory and its size when it is over. */
void dirty_end_later(struct dirty *dirty, void (*then)(char *memory, size_t size));

#endif
