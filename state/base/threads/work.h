#ifndef RESEAT_STATE_BASE_THREADS_WORK_H
#define RESEAT_STATE_BASE_THREADS_WORK_H

#include <stdbool.h>

/*
 * Keeps our own threads (movers, callbacks, control) out of drivers while the process ends.
 *
 * exit() runs the drivers' exit handlers, which destroy what their code needs, while all threads
 * run on. None of our threads may be in a driver then. So they do everything that may call one
 * between work_begin and work_end, and we wait for that work before those handlers run. From then
 * on nothing moves, and no detached thread of ours ends, because drivers have destructors for what
 * they keep for each thread (thread_stay_all). The program's own calls, from later handlers and
 * destructors, work as always, and what they wait for (a callback, a resume) still comes.
 *
 * Exit handlers run in reverse order, and drivers register theirs at any time, for example during
 * the first build. Two things come before all handlers: exit() itself, which we interpose
 * (interpose/entry/start.c); and, when main() returns and the C library calls its own exit(), the
 * destructors of the main thread's storage, where we register one.
 */

/** False when the process ends: then the caller does only what the program may wait for. Nests.
 *  work_end() follows in either case. */
bool work_begin(void);
void work_end(void);
/** True once the process ends: long work, such as a move, gives up. */
bool work_is_over(void);

/**
 * A build in a thread of ours. It is announced before the thread is started, and then either
 * withdrawn (there is no thread) or begun and ended in the thread. Begin blocks while there are as
 * many builds as processors, not counting those whose compiler is @elsewhere, in another process.
 * The end of the process waits for all announced builds, however long they take.
 */
void work_build_announce(void);
void work_build_withdraw(void);
void work_build_begin(bool elsewhere);
void work_build_end(bool elsewhere);

/** The process ends: wait for all work under way. Acts once; does nothing within a driver's call.
 */
void work_process_ends(void);

/**
 * Register an exit handler that calls work_process_ends(), for an exit() that neither way above
 * sees (one from within the C library, in another thread). It runs before the handlers registered
 * so far: call this after a driver is opened.
 */
void work_arm(void);

#endif
