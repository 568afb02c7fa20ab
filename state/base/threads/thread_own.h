#ifndef RESEAT_STATE_BASE_THREADS_THREAD_OWN_H
#define RESEAT_STATE_BASE_THREADS_THREAD_OWN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * All data that the library keeps for each thread, in one place. The thread-local storage of a
 * preloaded library lies above each thread's stack, so its size shifts every stack of the process.
 * Drivers whose kernels rely on the alignment of a worker's stack (POCL, for private long16)
 * compute wrong values when that changes. So its size is that of the largest alignment in OpenCL,
 * and it requires no alignment itself: every stack then keeps its alignment. A test checks what the
 * library was linked to (tests/interpose/entry/test_tls.py).
 */

#define THREAD_OWN_SIZE 128

/** The gate's (gate.h). */
struct gate_thread {
    _Atomic uint32_t inside;             /**< Depth: a driver may call back into an entry point. */
    bool owner;                          /**< The thread has closed the gate, and passes it. */
    bool known;                          /**< The thread is on the list. */
    int cancel;                          /**< For the owner: the result of cancel_hold(). */
    struct gate_thread *next, *previous; /**< Guarded by the list's lock. */
};

union thread_own {
    struct {
        struct gate_thread gate;
        unsigned work_depth; /**< work.c's. */
        bool worked;         /**< work.c's: it may have called a driver. */
        bool builds;         /**< work.c's: it is in a compiler. */
        bool in_job;         /**< A thread of callback.c's, in a job. */
        bool starting;       /**< In the first call of the library (interpose/entry/start.c). */
        uint64_t aware;      /**< aware.process (aware_priv.h) if this thread calls the callbacks of
                                that process; 0: another thread. */
    };
    char all[THREAD_OWN_SIZE];
};
_Static_assert(sizeof(union thread_own) == THREAD_OWN_SIZE, "every stack moves by this");

extern _Thread_local union thread_own the_thread __attribute__((tls_model("initial-exec")));

#endif
