#ifndef RESEAT_AGENT_CONFIG_PROCESS_H
#define RESEAT_AGENT_CONFIG_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "state/base/compiler.h"

/**
 * When a process started, in clock ticks since boot: with its pid, what tells it from a later one
 * with the same pid. Returns 0, or -ESRCH when it does not exist or has ended (a zombie too).
 */
MUST_CHECK int process_start_time(pid_t pid, uint64_t *ret_ticks);
/** Seconds since then, also those in which the machine slept. */
uint64_t process_age_s(uint64_t start_ticks);

/** True while the process of that pid is the one that started then. */
bool process_alive(pid_t pid, uint64_t start);

/** What this process, and a program that it becomes, may have of addresses in bytes; 0: any. */
uint64_t process_address_limit(void);

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
