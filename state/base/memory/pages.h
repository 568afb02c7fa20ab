#ifndef RESEAT_STATE_BASE_MEMORY_PAGES_H
#define RESEAT_STATE_BASE_MEMORY_PAGES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * Host memory for replicas and for the chunks of transfers, in large pages.
 *
 * The kernel zeroes a page when it is first touched, at a fraction of a link's speed, which is what
 * slows a suspend into fresh memory. So returned memory is kept, up to a limit, for the next use:
 * it is warm. Warm memory is only a cache: it is freed when the host runs short (pages_tend); a
 * program with a limited address space (ulimit -v) and a forked child have none. The limit is 0
 * until it is set.
 *
 * Everything here is thread-safe.
 */

/** Memory of at least this size is in large pages, and kept; the heap manages smaller sizes. Whole
 * large pages are kept, of which the last may be mostly unused. */
#define PAGES_LEAST ((size_t)8 << 20)

/** Properties of the memory for pages_take(); 0: bytes that are zero. */
enum pages_flags {
    /** Undefined bytes: the caller writes all before the program can see one. Only such memory may
     * be warm, because zeroing pages takes as long as making them. */
    PAGES_ANY = 1,
    /** Not inherited by forked children, so that no write copies a page that a driver has
     * registered. */
    PAGES_NO_FORK = 2,
    /** With PAGES_ANY: never warm, for measurements of fresh memory. */
    PAGES_FRESH = 4,
};

/**
 * @size   Bytes, more than 0. The memory begins on a page, on a large one where it is kept.
 * @flags  enum pages_flags.
 * Returns memory for pages_give(), or NULL: there is none, not even when all that is warm is given
 * up. Does not touch it: fresh pages come when they are populated or written.
 */
char *pages_take(size_t size, unsigned flags);
/** Give back unused memory of pages_take(@size). NULL is allowed. */
void pages_give(char *memory, size_t size);

/** More threads than this do not populate pages faster: they wait for each other in the kernel (an
 * H200's host, 1/2/4/6/8/12/16 threads: 5.9/11/19/24/25/22/19 GB/s). */
#define PAGES_THREADS 6

/** When to stop; the rest is then still fresh, which is harmless. */
struct pages_patience {
    const atomic_bool *cancel; /**< Or NULL. */
    uint64_t deadline_ns;      /**< CLOCK_MONOTONIC; 0: none. */
};

/**
 * Make the whole pages in [memory, memory + size) present, keeping their content, also under
 * concurrent writes. If the memory is not writable or not mapped, nothing happens.
 *
 * @threads  Most threads, including the caller. 1: for callers that populate parts of one range in
 *           many threads; at most PAGES_THREADS are in the kernel at a time, the others wait.
 * @patience  Or NULL. Checked every few milliseconds.
 * Blocks.
 */
void pages_populate(char *memory, size_t size, unsigned threads,
                    const struct pages_patience *patience);
/** True when the range probably needs populating, judging by its ends. */
bool pages_are_fresh(const char *memory, size_t size);

/** Keep at most @bytes warm from now on; 0: none. The excess is unmapped. */
void pages_set_limit(uint64_t bytes);
uint64_t pages_limit(void);
/**
 * Count @bytes that another module keeps ready in its own way, until pages_unkeep(), like warm
 * ones, which make room for them. False: there is no room within the limit, the host is short of
 * memory, or the address space is limited. Takes a lock, so not to be called with another one that
 * a fork takes.
 */
MUST_CHECK bool pages_keep(uint64_t bytes);
void pages_unkeep(uint64_t bytes);
/** Set the function that frees everything so kept; it may block. Called by pages_tend(), and by
 * pages_set_limit() for a lower limit. Cannot be undone. */
void pages_set_shrink(void (*shrink)(void));
/** Bytes that are warm now: never more than the limit. */
uint64_t pages_warm(void);

/**
 * Maintain warm memory: free all of it when the host is short of memory, and keep none until it is
 * not. Otherwise, when the host has free memory and idle processors, warm a little more towards
 * @wanted bytes. To be called a few times a second; reads a few files of /proc and /sys/fs/cgroup
 * if there is anything to maintain, and may block for some milliseconds.
 */
void pages_tend(uint64_t wanted);

#endif
