#ifndef RESEAT_STATE_BASE_THREADS_LONG_LOCK_H
#define RESEAT_STATE_BASE_THREADS_LONG_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "state/base/clock.h"

/*
 * A lock that is held for long: during a move, or while the gate is closed. Waiting may have a
 * deadline. pthread_mutex_clocklock has one too, but ThreadSanitizer does not know it and would
 * report all data that it guards.
 */
struct long_lock {
    pthread_mutex_t lock; /**< Held for a moment only. */
    pthread_cond_t released;
    bool held; /**< Guarded by lock. */
};

#define LONG_LOCK_INITIALIZER                                                                      \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false                                 \
    }

/** Also used in a forked child, where nobody holds the lock. */
static inline void long_lock_init(struct long_lock *lock)
{
    pthread_mutex_init(&lock->lock, NULL);
    pthread_cond_init(&lock->released, NULL);
    lock->held = false;
}

/** False when others hold it until @deadline_ns (0: no deadline). */
static inline bool long_lock_take(struct long_lock *lock, uint64_t deadline_ns)
{
    int error = 0;
    pthread_mutex_lock(&lock->lock);
    while (lock->held && error == 0)
        error = clock_wait(&lock->released, &lock->lock, deadline_ns);
    bool taken = !lock->held;
    lock->held = true;
    pthread_mutex_unlock(&lock->lock);
    return taken;
}

static inline void long_lock_release(struct long_lock *lock)
{
    pthread_mutex_lock(&lock->lock);
    lock->held = false;
    pthread_cond_signal(&lock->released);
    pthread_mutex_unlock(&lock->lock);
}

#endif
