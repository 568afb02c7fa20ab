#ifndef RESEAT_AGENT_CONFIG_PROCESS_H
#define RESEAT_AGENT_CONFIG_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "state/base/compiler.h"

/**
 * The start time of a process, in clock ticks since boot. Together with the pid it distinguishes
 * the process from a later one with the same pid. Returns 0, or -ESRCH when the process does not
 * exist or has ended (also as a zombie).
 */
MUST_CHECK int process_start_time(pid_t pid, uint64_t *ret_ticks);
/** Seconds since the start time, including those in which the machine slept. */
uint64_t process_age_s(uint64_t start_ticks);

/** True while the process with that pid exists and is the one that started at that time. */
bool process_alive(pid_t pid, uint64_t start);

/** The limit of address space in bytes for this process and programs that it executes; 0: none. */
uint64_t process_address_limit(void);

/**
 * Lock @folder, so that this process is its only agent. The lock ends with the process, however it
 * ends. Returns 0, -EALREADY (another agent holds the lock) or -errno.
 */
MUST_CHECK int lock_take(const char *folder);

/** The process that is the agent of @folder, even a silent one. 0, or -ESRCH: unknown. */
MUST_CHECK int lock_holder(const char *folder, pid_t *ret_pid, uint64_t *ret_start);

#endif
