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
 * The kernel zeroes a page when it is first touched, at a fraction of a link's speed; that is what
 * a suspend into fresh memory waits for. So what is given back is kept, up to a limit, for whoever
 * takes next: it is warm. Warm memory is a cache and nothing else: it is given up when the host
 * runs short (pages_tend), it is none in a program whose address space is limited (ulimit -v), and
 * a child of a fork has none of it. The limit is 0 until somebody sets one.
 *
 * Everything here is thread-safe.
 */

/** Memory of at least so many bytes is in large pages, and kept. Less is the heap's affair, which
 * keeps it by itself. What is kept is whole large pages, of which the last may be all but empty. */
#define PAGES_LEAST ((size_t)8 << 20)

/** What pages_take() is asked for; 0: bytes that are zero. */
enum pages_flags {
    /** Bytes that may be anything: all are written before the program can see one. Only such memory
     * is taken warm: to zero pages takes as long as to make them. */
    PAGES_ANY = 1,
    /** No child of a fork gets it, so that no write makes a copy of a page that a driver has
     * registered. */
    PAGES_NO_FORK = 2,
    /** Of PAGES_ANY: never warm, for who measures what is not. */
    PAGES_FRESH = 4,
};

/**
 * @size   Bytes, more than 0. The memory begins on a page, on a large one where it is kept.
 * @flags  enum pages_flags.
 * Returns memory for pages_give(), or NULL: there is none, not even when all that is warm is given
 * up. Does not touch it: fresh pages come when they are populated or written.
 */
char *pages_take(size_t size, unsigned flags);
/** Give back what pages_take(@size) returned. Nobody uses it any more. NULL is allowed. */
void pages_give(char *memory, size_t size);

/** More threads than these do not make pages faster: they wait for each other in the kernel (an
 * H200's host, 1/2/4/6/8/12/16 threads: 5.9/11/19/24/25/22/19 GB/s). */
#define PAGES_THREADS 6

/** When to give up: then the rest is fresh still, and nothing is wrong. */
struct pages_patience {
    const atomic_bool *cancel; /**< Or NULL. */
    uint64_t deadline_ns;      /**< CLOCK_MONOTONIC; 0: none. */
};

/**
 * Make the whole pages in [memory, memory + size) present, keeping their content, also under
 * concurrent writers. It is writable, or may be gone: then nothing happens.
 *
 * @threads   At most, the caller's among them. 1: where many threads do so for parts of one range;
 *            no more than PAGES_THREADS are in the kernel for it at a time, the others wait.
 * @patience  Or NULL. Looked at every few milliseconds.
 * Blocks.
 */
void pages_populate(char *memory, size_t size, unsigned threads,
                    const struct pages_patience *patience);
/** True when the range looks as if it were to be populated, from a look at its ends. */
bool pages_are_fresh(const char *memory, size_t size);

/** Keep at most @bytes warm from now on; 0: none. What is over it is unmapped. */
void pages_set_limit(uint64_t bytes);
uint64_t pages_limit(void);
/**
 * Somebody keeps @bytes that are ready in a way of his own, until pages_unkeep(): they count as
 * warm ones do, which make way. False: there is no room within the limit, the host is short, or the
 * program's address space is limited. Takes a lock: not under another one that a fork takes.
 */
MUST_CHECK bool pages_keep(uint64_t bytes);
void pages_unkeep(uint64_t bytes);
/** Whoever does gives all of it back in @shrink, which may block: pages_tend() calls it, and
 *  pages_set_limit() for less than before. For good. */
void pages_set_shrink(void (*shrink)(void));
/** Bytes that are warm now: never more than the limit. */
uint64_t pages_warm(void);

/**
 * Look after what is warm: all of it is unmapped when the host is short of memory, and none kept
 * until it is not. Otherwise, when the host has memory and idle processors, a little more is warmed
 * towards @wanted bytes. To be called a few times a second; reads a few files of /proc and
 * /sys/fs/cgroup where there is anything to look after, and may block for some milliseconds.
 */
void pages_tend(uint64_t wanted);

#endif
