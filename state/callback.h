#ifndef RESEAT_STATE_CALLBACK_H
#define RESEAT_STATE_CALLBACK_H

#include "state/compiler.h"

/*
 * One thread of ours that runs the program's callbacks (G3): drivers call back from threads and at
 * moments of their own, where the program's code, or the gate, must not be waited for.
 */

/** Embedded in the caller's record, so that posting cannot fail for want of memory. */
struct callback_job {
    struct callback_job *next;
    void (*run)(
        struct callback_job *job); /**< May free the job. Outside the gate and every lock. */
};

/** Start the thread if it does not run. Before anything is promised. 0 or -errno. */
MUST_CHECK int callback_start(void);
/** Run @job later, in order. Any thread, inside the gate or not; never blocks on a job. */
void callback_post(struct callback_job *job);
/** In the child of a fork: the thread is gone. */
void callback_after_fork(void);

#endif
