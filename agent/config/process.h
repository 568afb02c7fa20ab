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

/** True while the process of that pid is the one that started then. */
bool process_alive(pid_t pid, uint64_t start);

/** What this process, and a program that it becomes, may have of addresses in bytes; 0: any. */
uint64_t process_address_limit(void);

#endif
