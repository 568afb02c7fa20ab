#ifndef RESEAT_STATE_BASE_THREADS_CALLBACK_H
#define RESEAT_STATE_BASE_THREADS_CALLBACK_H

#include <CL/cl.h>

#include "state/base/compiler.h"

/*
 * Threads of ours that run the program's callbacks (G3), because drivers call back from their own
 * threads at any time, where neither the program's code nor the gate may be waited for.
 *
 * Usually one thread runs jobs in the order in which they were posted. If a job does not end soon,
 * because it waits for another callback, the next one runs in a second thread.
 */

/** Embedded in the caller's record, so that posting cannot fail for want of memory. */
struct callback_job {
    struct callback_job *next;
    /** May free the job. Called outside the gate and every lock, as work (work.h); it calls the
     * program only through callback_program. */
    void (*run)(struct callback_job *job);
};

/** Start the thread if it does not run, before a callback is accepted. 0 or -errno. */
MUST_CHECK int callback_start(void);
/** Run @job later, in order. Any thread, inside the gate or not; never blocks on a job. */
void callback_post(struct callback_job *job);

/**
 * In a job: run @call, which calls the program and may take forever; the end of the process does
 * not wait for it. The callback may end its thread (pthread_exit, pthread_cancel): then @gone is
 * called, as work again, and another thread takes over.
 */
void callback_program(void (*call)(void *data), void (*gone)(void *data), void *data);

/** Wait until all jobs posted have run, @ms at most. Returns at once in a job. */
void callback_settle(unsigned ms);

/** A callback of the program for the end of an object (4.4, 5.5.1, 5.8.3). A list begins with the
 * callback that was registered last, which is called first. */
struct destructor {
    struct destructor *next;
    void(CL_CALLBACK *call)(void *handle, void *data);
    void *handle, *data;
};

/** Push a callback. 0 or -ENOMEM. Lock-free. */
MUST_CHECK int destructor_add(struct destructor *_Atomic *list,
                              void(CL_CALLBACK *call)(void *, void *), void *handle, void *data);
/** Call and free all: on the callback thread (callback.h) when the caller is inside the gate (G3).
 */
void destructor_run(struct destructor *_Atomic *list);
/** The same, always on the callback thread unless there is no memory for that. */
void destructor_run_later(struct destructor *_Atomic *list);

#endif
