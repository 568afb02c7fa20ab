#ifndef RESEAT_STATE_BASE_THREADS_THREAD_H
#define RESEAT_STATE_BASE_THREADS_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * We never cancel a thread. The program may cancel its own (pthread_cancel); they then end at the
 * next call that waits, reads or writes, which may be inside the library or a driver, with locks
 * held. So whenever a program's thread may wait in a driver, read or write, it runs between
 * cancel_hold() and cancel_allow(); clock_wait() needs neither. Only a wait that nothing but the
 * program ends, for a user event, can be cancelled; it cleans up after itself.
 */

/** What cancel_hold() returns where there is nothing to be undone. */
#define CANCEL_NOT_HELD 1

/** Keep the thread from being cancelled until cancel_allow(), which takes the result. Nests. The
 * cancel type is set too: the C library (2.36) may cancel a thread right after cancellation was
 * disabled, unless its type is deferred. */
static inline int cancel_hold(void)
{
    int state, type;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
    return (state == PTHREAD_CANCEL_DISABLE ? CANCEL_NOT_HELD : 0) |
           (type == PTHREAD_CANCEL_ASYNCHRONOUS ? 2 : 0);
}

/**
 * False while no thread was cancelled: then a thread inside the gate (gate.h) that stays only
 * briefly needs no cancel_hold(), whose locked instructions are a quarter of the cost of a launch.
 * Read inside the gate. True from the beginning if the first cancellation would not be announced.
 */
extern atomic_bool cancel_is_used;
/** Tell whether every pthread_cancel() of the process calls cancel_begin() first. Called before the
 * first thread enters the gate. */
void cancel_is_announced(bool announced);
/** Called before the program cancels a thread: returns when all threads that entered the gate
 * without cancel_hold() have left it, or after a second. */
void cancel_begin(void);

static inline void cancel_allow(int before)
{
    int ignored;
    if (before & 2)
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &ignored);
    if (!(before & CANCEL_NOT_HELD))
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &ignored);
}

/**
 * Start a thread of ours in the program. Signals belong to the program: the thread, and what a
 * driver starts from it, gets none but those of faults, which the program's handlers may repair.
 *
 * @name   What debuggers show; at most 15 characters.
 * @stack  Bytes; 0: the default.
 * @ret_thread  Must be joined; NULL: the thread is detached.
 * Returns 0 or -errno.
 */
MUST_CHECK int thread_start(const char *name, size_t stack, void *(*run)(void *), void *data,
                            pthread_t *ret_thread);

/**
 * From now on no detached thread of ours ends that called a driver (work.h), so that no driver's
 * destructor of what it keeps for a thread is called. Waits for those that are being called, until
 * @deadline_ns: 0 or -ETIMEDOUT.
 */
int thread_stay_all(uint64_t deadline_ns);

#endif
