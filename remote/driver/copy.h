#ifndef RESEAT_REMOTE_DRIVER_COPY_H
#define RESEAT_REMOTE_DRIVER_COPY_H

#include <stdbool.h>
#include <stddef.h>

#include "state/base/compiler.h"

/*
 * Threads that copy between the program's memory and blocks (block.h), as one thread copies at a
 * fraction of a link's speed: 8.6 GB/s beside 55 (doc/performance.md). Where there are few
 * processors there are none, and who transfers, or receives, does it all.
 */

/** Embedded in the caller's record. */
struct copy {
    struct copy *next;
    /** Does not wait; may free the copy. With no lock. */
    void (*run)(struct copy *copy);
};

/** So many at most. */
#define COPY_THREADS_MAX 7
/** What is less is not worth another thread. */
#define COPY_LEAST ((size_t)256 << 10)

/** How many there may be. */
unsigned copy_threads(void);
/** Have @copy run by one of them. False: there is none. */
MUST_CHECK bool copy_post(struct copy *copy);
/** Take back one that was posted. False: it was begun. */
MUST_CHECK bool copy_take_back(const struct copy *copy);

#endif
