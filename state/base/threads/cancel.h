#ifndef RESEAT_STATE_BASE_THREADS_CANCEL_H
#define RESEAT_STATE_BASE_THREADS_CANCEL_H

#include <pthread.h>

/*
 * The program may cancel its threads (pthread_cancel), which then end in the next call that waits,
 * reads or writes: in the middle of ours, too, or of a driver's, with what they hold. So whatever
 * takes a lock, closes the gate or calls a driver that may wait does so between these; waits of
 * ours that nothing but the program ends (a user event) can be canceled, and clean up after
 * themselves.
 */

/** A thread that is canceled goes on until cancel_allow(), which wants the result. Nests. The C
 * library (2.36) ends a thread that is to be canceled at any point, also when it has said no since
 * the other thread looked, unless that is not its type any more either. */
static inline int cancel_hold(void)
{
    int state, type;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
    return (state == PTHREAD_CANCEL_DISABLE ? 1 : 0) |
           (type == PTHREAD_CANCEL_ASYNCHRONOUS ? 2 : 0);
}

static inline void cancel_allow(int before)
{
    int ignored;
    if (before & 2)
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &ignored);
    if (!(before & 1))
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &ignored);
}

#endif
