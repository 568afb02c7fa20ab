#ifndef RESEAT_STATE_BASE_CANCEL_H
#define RESEAT_STATE_BASE_CANCEL_H

#include <pthread.h>

/*
 * The program may cancel its threads (pthread_cancel), which then end in the next call that waits,
 * reads or writes: in the middle of ours, too, or of a driver's, with what they hold. So whatever
 * takes a lock, closes the gate or calls a driver that may wait does so between these; waits of
 * ours that nothing but the program ends (a user event) can be canceled, and clean up after
 * themselves.
 */

/** A thread that is canceled goes on until cancel_allow(), which wants the result. Nests. */
static inline int cancel_hold(void)
{
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static inline void cancel_allow(int before)
{
    pthread_setcancelstate(before, &before);
}

#endif
