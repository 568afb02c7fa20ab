#include "remote/wire/stream.h"

#include <stdint.h>
#include <stdlib.h>

/* Large sizes are rounded up to this, so that bodies that differ by a header use the same memory.
 */
#define ROOM_UNIT ((size_t)64 << 10)
/* How many free pieces are checked for a fit. If none of them fits, new memory is allocated, and
 * the unfit pieces age until they are freed. */
#define LOOKED_AT 16

void pool_init(struct pool *pool, size_t most)
{
    *pool = (struct pool){.lock = PTHREAD_MUTEX_INITIALIZER, .most = most};
}

/* The lock is held. */
static void pool_unlink_free(struct pool *pool, struct pooled *memory)
{
    if (memory->newer)
        memory->newer->older = memory->older;
    else
        pool->newest = memory->older;
    if (memory->older)
        memory->older->newer = memory->newer;
    else
        pool->oldest = memory->newer;
    pool->free_bytes -= memory->room;
}

/* Free the oldest until at most @most bytes are kept. The lock is held. */
static void pool_shrink(struct pool *pool, size_t most)
{
    while (pool->free_bytes > most) {
        struct pooled *memory = pool->oldest;
        pool_unlink_free(pool, memory);
        free(memory);
    }
}

/* The lock is held. */
static struct pooled *pool_find_free(struct pool *pool, size_t size)
{
    struct pooled *memory = pool->newest;
    for (unsigned i = 0; memory && i < LOOKED_AT; i++, memory = memory->older)
        if (memory->room >= size && memory->room / 2 <= size)
            return memory;
    return NULL;
}

static struct pooled *pool_allocate(size_t room)
{
    const size_t align = _Alignof(struct pooled);
    return aligned_alloc(align, (sizeof(struct pooled) + room + align - 1) / align * align);
}

static struct pooled *pool_create(struct pool *pool, size_t size)
{
    if (size > SIZE_MAX / 2)
        return NULL;
    size_t room = size > ROOM_UNIT ? (size + ROOM_UNIT - 1) / ROOM_UNIT * ROOM_UNIT : size;
    struct pooled *memory = pool_allocate(room);
    if (!memory) { /* Free what is kept, and try again. */
        pthread_mutex_lock(&pool->lock);
        pool_shrink(pool, 0);
        pthread_mutex_unlock(&pool->lock);
        memory = pool_allocate(room);
    }
    if (memory)
        *memory = (struct pooled){.pool = pool, .room = room};
    return memory;
}

struct pooled *pool_take(struct pool *pool, size_t size)
{
    pthread_mutex_lock(&pool->lock);
    struct pooled *memory = pool_find_free(pool, size);
    if (memory)
        pool_unlink_free(pool, memory);
    pool->taken = true;
    pthread_mutex_unlock(&pool->lock);
    if (!memory)
        memory = pool_create(pool, size);
    if (memory)
        atomic_init(&memory->holders, 1);
    return memory;
}

void pooled_hold(struct pooled *memory)
{
    atomic_fetch_add(&memory->holders, 1);
}

void pooled_drop(struct pooled *memory)
{
    if (!memory || atomic_fetch_sub(&memory->holders, 1) != 1)
        return;
    struct pool *pool = memory->pool;
    pthread_mutex_lock(&pool->lock);
    memory->newer = NULL;
    memory->older = pool->newest;
    if (pool->newest)
        pool->newest->newer = memory;
    else
        pool->oldest = memory;
    pool->newest = memory;
    pool->free_bytes += memory->room;
    pool_shrink(pool, pool->most);
    pthread_mutex_unlock(&pool->lock);
}

void pool_tidy(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    if (!pool->taken)
        pool_shrink(pool, 0);
    pool->taken = false;
    pthread_mutex_unlock(&pool->lock);
}

void pool_finish(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->most = 0;
    pool_shrink(pool, 0);
    pthread_mutex_unlock(&pool->lock);
}
