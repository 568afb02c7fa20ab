#ifndef RESEAT_INTERPOSE_CONTROL_THREAD_H
#define RESEAT_INTERPOSE_CONTROL_THREAD_H

#include <stddef.h>

#include "state/compiler.h"

/**
 * Start a detached thread that takes none of the program's signals.
 *
 * @stack  Bytes; 0: the default.
 * Returns 0 or -errno.
 */
MUST_CHECK int control_thread_start(void *(*entry)(void *), void *data, size_t stack);

#endif
