#ifndef RESEAT_STATE_BASE_THREADS_THREAD_OWN_H
#define RESEAT_STATE_BASE_THREADS_THREAD_OWN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * All that the library keeps of each thread, in one place: the thread-local storage of a preloaded
 * library lies between a thread's stack and what stood behind it, so it moves every stack of the
 * process. Drivers whose kernels rely on how a worker's stack lies (POCL, for private long16)
 * compute wrong values when that changes. So it is as large as the largest alignment that OpenCL
 * has, and asks for none itself: every stack then lies as without us, modulo that. A test looks at
 * what the library was linked to (tests/interpose/entry/test_tls.py).
 */

#define THREAD_OWN_SIZE 128

/** The gate's (gate.h). */
struct gate_thread {
    _Atomic uint32_t inside;             /**< Depth: a driver may call back into an entry point. */
    bool owner;                          /**< It has the gate closed, and passes. */
    bool known;                          /**< On the list of threads. */
    int cancel;                          /**< Of the owner: what cancel_hold() gave it. */
    struct gate_thread *next, *previous; /**< Guarded by the list's lock. */
};

union thread_own {
    struct {
        struct gate_thread gate;
        unsigned work_depth; /**< work.c's. */
        bool builds;         /**< In a compiler; likewise. */
        bool in_job;         /**< A thread of callback.c's, in a job. */
        bool starting;       /**< In the first call of the library (interpose/entry/start.c). */
        uint64_t aware;      /**< Calls back a program that registered (interpose/aware/aware.c): in
                                which      process; 0: another thread. */
    };
    char all[THREAD_OWN_SIZE];
};
_Static_assert(sizeof(union thread_own) == THREAD_OWN_SIZE, "every stack moves by this");

extern _Thread_local union thread_own the_thread __attribute__((tls_model("initial-exec")));

#endif
