#ifndef RESEAT_STATE_BASE_THREADS_WORK_H
#define RESEAT_STATE_BASE_THREADS_WORK_H

#include <stdbool.h>

/*
 * What threads of ours (movers, callbacks, control) do to drivers, and the end of the process.
 *
 * exit() runs the drivers' own handlers, which take apart what their code stands on, while all
 * threads run on. The program knows what it does then; our threads must not be in a driver. So they
 * do everything that may reach one between work_begin and work_end, and before those handlers run,
 * we wait for what is under way. From then on nothing moves; the program's own calls, from handlers
 * and destructors that come later, go on as ever, and what they wait for (a callback, a resume)
 * still comes.
 *
 * Handlers run last registered first, and a driver registers some at any time, in the middle of its
 * first build for one. What comes before all handlers is exit() itself, which we interpose
 * (interpose/entry/start.c), and, where the C library calls its own as main() returns, the end of
 * the main thread's storage, at which we register ours.
 */

/** False when the process ends: then only what the program may wait for is done. Nests; work_end
 * follows in either case. */
bool work_begin(void);
void work_end(void);
/** True once the process ends: what takes long (a move) gives up. */
bool work_is_over(void);

/**
 * A build in a thread of ours, from before its thread is started until it was withdrawn, because
 * there is no thread, or has begun and ended in it. Begin blocks while as many are in a compiler as
 * there are processors, unless its compilers are @elsewhere, in other processes. The end of the
 * process waits for all, however long they take.
 */
void work_build_announce(void);
void work_build_withdraw(void);
void work_build_begin(bool elsewhere);
void work_build_end(bool elsewhere);

/** The process ends: wait for what is under way. Once; nothing from within a driver's own call. */
void work_process_ends(void);

/**
 * Have that called by exit() also where it comes by neither way above (from within the C library,
 * in another thread): before the handlers registered so far, so after a driver is opened.
 */
void work_arm(void);

#endif
