#ifndef RESEAT_REMOTE_SERVER_LISTENER_PROCESSES_H
#define RESEAT_REMOTE_SERVER_LISTENER_PROCESSES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "state/base/compiler.h"

/*
 * Limits how many processes a session may have at once. RLIMIT_NPROC cannot do so, as it counts all
 * processes of a user, and sessions may share one. Instead the kernel asks the listening process
 * before each fork (seccomp notification, sandbox_processes()), and that counts the processes in
 * the session's group, which they cannot leave. A fork above the limit waits for others to end, and
 * is refused after a while.
 */

/** Enough for the session itself, and its compilers and linkers. */
#define PROCESSES_MAX 64

struct processes {
    int notices;           /**< The seccomp notification descriptor; -1: none. */
    uint64_t look_ns;      /**< At the limit: do not count again before this time. */
    uint64_t full_ns;      /**< Since when the limit is reached; 0: it is not. */
    bool told;             /**< The refusal was logged. */
    unsigned next_granted; /**< Index in: */
    /** When the last forks were permitted. Each counts for BEGINS_NS, as its process may not show
     * in /proc yet. */
    uint64_t granted_ns[PROCESSES_MAX];
};

#define PROCESSES_NONE ((struct processes){.notices = -1})

/** The descriptor to poll for POLLIN; -1: none now. */
int processes_poll(const struct processes *processes, uint64_t now_ns);
/** A fork waits for permission: permit or refuse it, or leave it until processes_poll() names the
 * descriptor again. @group: the session's process group. @name: for the log. */
void processes_answer(struct processes *processes, pid_t group, const char *name, uint64_t now_ns);
/** Forks are refused from now on. */
void processes_close(struct processes *processes);

#endif
