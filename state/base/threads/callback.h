#ifndef RESEAT_STATE_BASE_THREADS_CALLBACK_H
#define RESEAT_STATE_BASE_THREADS_CALLBACK_H

#include "state/base/compiler.h"

/*
 * Threads of ours that run the program's callbacks (G3): drivers call back from threads and at
 * moments of their own, where the program's code, or the gate, must not be waited for.
 *
 * There is one, and jobs run in the order in which they were posted, as long as each ends soon. One
 * that does not, because it waits for what another callback does, has the next run beside it.
 */

/** Embedded in the caller's record, so that posting cannot fail for want of memory. */
struct callback_job {
    struct callback_job *next;
    /** May free the job. Outside the gate and every lock, at work (work.h); what calls the program
     *  does so through callback_program. */
    void (*run)(struct callback_job *job);
};

/** Start the thread if it does not run. Before anything is promised. 0 or -errno. */
MUST_CHECK int callback_start(void);
/** Run @job later, in order. Any thread, inside the gate or not; never blocks on a job. */
void callback_post(struct callback_job *job);

/**
 * In a job: @call calls the program, which may take for ever, and is not waited for when the
 * process ends. It may also end the thread it is called in (pthread_exit, pthread_cancel): then
 * @gone is called instead of what follows, at work again, and another thread takes this one's
 * place.
 */
void callback_program(void (*call)(void *data), void (*gone)(void *data), void *data);

/** Wait until all jobs posted have run, @ms at most. Returns at once in a job. */
void callback_settle(unsigned ms);

#endif
