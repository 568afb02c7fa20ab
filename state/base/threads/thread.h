#ifndef RESEAT_STATE_BASE_THREADS_THREAD_H
#define RESEAT_STATE_BASE_THREADS_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "state/base/compiler.h"

/*
 * No thread of ours is ever canceled by us. The program may cancel its own (pthread_cancel), which
 * then end at the next call that waits, reads or writes: within a call of OpenCL, that may be ours
 * or its driver's, with our locks held. So whatever of a program's thread may wait in a driver,
 * read or write runs between cancel_hold() and cancel_allow(); clock_wait() needs neither. What
 * nothing but the program ends, the wait for a user event, can be canceled, and cleans up after
 * itself.
 */

/** What cancel_hold() returns where there is nothing to be undone. */
#define CANCEL_NOT_HELD 1

/** A thread that is canceled goes on until cancel_allow(), which wants the result. Nests. The type
 * is set too: the C library (2.36) may cancel a thread right after that refused, unless the thread
 * is deferred. */
static inline int cancel_hold(void)
{
    int state, type;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
    return (state == PTHREAD_CANCEL_DISABLE ? CANCEL_NOT_HELD : 0) |
           (type == PTHREAD_CANCEL_ASYNCHRONOUS ? 2 : 0);
}

/**
 * False while no thread was canceled: then a thread that is inside the gate (gate.h), and stays
 * there for a moment, needs no cancel_hold(), whose locked instructions are a quarter of what a
 * launch costs us. Read inside the gate. Where nobody says when the first thread is canceled it is
 * true from the beginning.
 */
extern atomic_bool cancel_is_used;
/** True when every pthread_cancel() of the process comes with a cancel_begin() before it. Called
 *  before the first thread enters the gate. */
void cancel_is_announced(bool announced);
/** The program is about to cancel a thread: returns when all that entered the gate without
 *  cancel_hold() have left it, or after a second. */
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
 * Start a thread of ours in the program. Signals are the program's: none is delivered to it, nor to
 * what a driver starts from it, but those of faults, which the program's handlers may mend.
 *
 * @name   What debuggers show; at most 15 characters.
 * @stack  Bytes; 0: the default.
 * @ret_thread  To be joined; NULL: it is detached.
 * Returns 0 or -errno.
 */
MUST_CHECK int thread_start(const char *name, size_t stack, void *(*run)(void *), void *data,
                            pthread_t *ret_thread);

#endif
