#ifndef RESEAT_REMOTE_WIRE_POOL_H
#define RESEAT_REMOTE_WIRE_POOL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "state/base/compiler.h"

/*
 * Memory for bytes on their way, which is used again: the kernel gives fresh pages at 3 GB/s a
 * core, and what was used a moment ago is in the caches. Several may hold the same bytes, so that
 * what came in a message is what a driver is given, and what a driver read is what is sent.
 */

struct pool;

struct pooled {
    struct pool *pool;
    struct pooled *newer, *older; /**< Of those that are free; guarded by the pool's lock. */
    atomic_uint holders;
    size_t room;
    _Alignas(64) unsigned char bytes[];
};

struct pool {
    pthread_mutex_t lock; /**< A leaf. */
    /* Guarded by lock: */
    struct pooled *newest, *oldest; /**< What is free. */
    size_t free_bytes, most;        /**< No more of it is kept. */
    bool taken;                     /**< Since pool_tidy(). */
};

/** @most  Bytes that nobody holds and are kept. */
void pool_init(struct pool *pool, size_t most);
/** Give up all that is free. What is held is given up once it is not. Nobody takes any more. */
void pool_finish(struct pool *pool);
/** Memory with room for @size bytes, of twice as many at most, for one holder. NULL: there is none.
 *  Any thread. */
struct pooled *pool_take(struct pool *pool, size_t size);
/** One holder more. */
void pooled_hold(struct pooled *memory);
/** One less; NULL: nothing. Any thread. */
void pooled_drop(struct pooled *memory);
/** Now and then: give up what is free, unless some was taken since it was called last. */
void pool_tidy(struct pool *pool);

#endif
