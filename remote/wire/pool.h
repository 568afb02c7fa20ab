#ifndef RESEAT_REMOTE_WIRE_POOL_H
#define RESEAT_REMOTE_WIRE_POOL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "state/base/compiler.h"

/*
 * Reference-counted memory for message bodies, kept for reuse: the kernel provides fresh pages at 3
 * GB/s a core, and memory that was just used is still in the caches. Several holders may share the
 * bytes, so that a driver reads them from where they were received, and they are sent from where a
 * driver wrote them.
 */

struct pool;

struct pooled {
    struct pool *pool;
    struct pooled *newer, *older; /**< In the list of free memory; guarded by the pool's lock. */
    atomic_uint holders;
    size_t room;
    _Alignas(64) unsigned char bytes[];
};

struct pool {
    pthread_mutex_t lock; /**< No other lock is taken under it. */
    /* Guarded by lock: */
    struct pooled *newest, *oldest; /**< The list of free memory. */
    size_t free_bytes, most;        /**< At most `most` bytes of free memory are kept. */
    bool taken;                     /**< Memory was taken since the last pool_tidy(). */
};

/** @most  Bytes of free memory to keep. */
void pool_init(struct pool *pool, size_t most);
/** Free what is kept. Memory that is still held is freed when it is dropped. Nothing may be taken
 * any more. */
void pool_finish(struct pool *pool);
/** Take memory for @size bytes, or a kept piece of at most twice that, with one holder. NULL: out
 * of memory. Any thread. */
struct pooled *pool_take(struct pool *pool, size_t size);
/** Add a holder. */
void pooled_hold(struct pooled *memory);
/** Remove a holder. @memory may be NULL. Any thread. */
void pooled_drop(struct pooled *memory);
/** Call it regularly: frees what is kept if nothing was taken since the last call. */
void pool_tidy(struct pool *pool);

#endif
