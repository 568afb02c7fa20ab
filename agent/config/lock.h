#ifndef RESEAT_AGENT_CONFIG_LOCK_H
#define RESEAT_AGENT_CONFIG_LOCK_H

#include <stdint.h>
#include <sys/types.h>

#include "state/base/compiler.h"

/**
 * Be the one agent of a runtime folder until this process ends, however it does. Returns 0,
 * -EALREADY (another is) or -errno.
 */
MUST_CHECK int lock_take(const char *folder);

/**
 * Who is the agent of @folder, also where it does not answer. Returns 0, or -ESRCH: nobody, as far
 * as can be told.
 */
MUST_CHECK int lock_holder(const char *folder, pid_t *ret_pid, uint64_t *ret_start);

#endif
