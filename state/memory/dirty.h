#ifndef RESEAT_STATE_MEMORY_DIRTY_H
#define RESEAT_STATE_MEMORY_DIRTY_H

#include <stdbool.h>
#include <stddef.h>

#include "state/base/compiler.h"

/*
 * Dirty tracking: which parts of our memory were written since they were clean, whoever wrote:
 * threads of the program, of a driver, or the kernel for one of them (read(2)). A clean part is
 * write-protected through userfaultfd(2); the first write to it waits until a thread of ours has
 * noted it and taken the protection away. Where a second part of a large page is written, the page
 * is let go as a whole.
 *
 * For private memory that nobody but this process's page tables reaches: what another process
 * writes to shared memory, and a device to pages that it has registered before, is not seen. Only
 * where the kernel lets us see its own writes too: as root, with CAP_SYS_PTRACE, or where
 * vm.unprivileged_userfaultfd is 1 (/dev/userfaultfd, Linux 6.1). Otherwise they would fail.
 *
 * Everything here is thread-safe. A child of a fork tracks nothing.
 */

#define DIRTY_PART ((size_t)64 << 10)

struct dirty;

/** False when there is none here. The first call asks the kernel. */
bool dirty_may(void);

/**
 * @memory  Of pages_take(), @size of PAGES_LEAST at least; it stays until the end. No part is clean
 *          yet.
 * Returns 0 with what is to be ended, -ENOTSUP: not here, or -ENOMEM.
 */
MUST_CHECK int dirty_begin(char *memory, size_t size, struct dirty **ret_dirty);

/**
 * Parts [@first, @first + @count) are clean from now on. What is read there afterwards is what is
 * there for as long as they are. Blocks on the kernel, and on pages that have to be read back.
 * Returns 0 or -ENOTSUP, when they are not.
 */
MUST_CHECK int dirty_clean(struct dirty *dirty, size_t first, size_t count);

/** Nobody wrote to it since: if dirty_holds() afterwards. Wait-free. */
bool dirty_is_clean(const struct dirty *dirty, size_t part);

/** True when all writes until now were seen: a program can close descriptors that it does not know,
 *  and ours with them. */
bool dirty_holds(const struct dirty *dirty);

/** Blocks for some milliseconds a GiB. */
void dirty_end(struct dirty *dirty);
/** The same in another thread; @then gets the memory and its size when it is over. */
void dirty_end_later(struct dirty *dirty, void (*then)(char *memory, size_t size));

#endif
