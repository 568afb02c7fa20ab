#ifndef RESEAT_STATE_BASE_THREADS_THREAD_H
#define RESEAT_STATE_BASE_THREADS_THREAD_H

#include <pthread.h>
#include <stddef.h>

#include "state/base/compiler.h"

/**
 * Start a thread of ours in the program. Signals are the program's: none is delivered to it, nor to
 * what a driver starts from it, but those of faults, which the program's handlers may mend.
 *
 * @name   What debuggers show; at most 15 characters.
 * @stack  Bytes; 0: the default.
 * @ret_thread  To be joined; NULL: it is detached.
 * Returns 0 or -errno.
 */
MUST_CHECK int thread_start(const char *name, size_t stack, void *(*run)(void *), void *data,
                            pthread_t *ret_thread);

#endif
