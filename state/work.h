#ifndef RESEAT_STATE_WORK_H
#define RESEAT_STATE_WORK_H

#include <pthread.h>
#include <stdbool.h>

#include "state/compiler.h"

/*
 * What threads of ours (movers, callbacks, control) do to drivers, and the end of the process.
 *
 * exit() runs the drivers' own handlers, which take apart what their code stands on, while all
 * threads run on. The program knows what it does then; our threads must not be in a driver. So they
 * do everything that may reach one between work_begin and work_end, and a handler of ours, which
 * runs before the drivers' do, waits for what is under way. From then on nothing moves; the
 * program's own calls, from handlers and destructors that come later, go on as ever, and what they
 * wait for (a callback, a resume) still comes.
 */

/** False when the process ends: then only what the program may wait for is done. Nests; work_end
 * follows in either case. */
bool work_begin(void);
void work_end(void);
/** True once the process ends: what takes long (a move) gives up. */
bool work_is_over(void);

/**
 * Have the handler run before those registered so far. Handlers run last registered first, and
 * drivers register theirs when they are opened or first used: call it after that.
 */
void work_arm(void);

/**
 * Around a first use of a driver beside the running program. Drivers register handlers in the
 * middle of it (a compiler's statics, within the first build): from begin to end another thread
 * calls work_arm again and again, so that exit() meets ours first but for a moment. Without a
 * thread, nothing.
 */
struct work_arming {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool started, ended;
};
void work_arming_begin(struct work_arming *arming);
void work_arming_end(struct work_arming *arming);

/** Around a fork: the child gets the C library's list of handlers as it is, its lock included. */
void work_before_fork(void);
void work_after_fork(void);
/** And in the child, instead: it has none of our threads. */
void work_in_child(void);

#endif
