#ifndef RESEAT_REMOTE_SERVER_LISTENER_SESSION_LOG_H
#define RESEAT_REMOTE_SERVER_LISTENER_SESSION_LOG_H

#include <stdint.h>
#include <sys/types.h>

#include "state/base/compiler.h"

/*
 * What sessions' processes write to standard error: their log, and what drivers say. Each has a
 * pipe of its own, which the listening process reads and writes to its own log, under the name of
 * the process: a line that a client's code writes can be taken for nobody else's, and has no
 * control characters. Of one process SESSION_LOG_BURST lines are written at once, and one more each
 * second; the rest are counted.
 */

#define SESSION_LOG_BURST 200

struct session_log;

struct session_logs {
    struct session_log *first;
    int poll; /**< Readable when any of them is; -1: none was made. */
};

#define SESSION_LOGS_NONE ((struct session_logs){.poll = -1})

/** Make a pipe. @ret_end: what is written to; the caller's. The log of @ret_log has no process yet.
 *  0 or -errno. */
MUST_CHECK int session_log_make(struct session_logs *logs, struct session_log **ret_log,
                                int *ret_end);
/** It is that process's; or, with -1, nobody's: it is freed. */
void session_log_began(struct session_logs *logs, struct session_log *log, pid_t pid);
/** That process has ended: write what is left of what it said, and forget it. */
void session_log_ended(struct session_logs *logs, pid_t pid);
/** The server ends: write what is left of all. */
void session_logs_finish(struct session_logs *logs);
/** Read what was written, a bounded part of each. */
void session_logs_read(struct session_logs *logs, uint64_t now_ns);
/** When it is to be called next; UINT64_MAX: nothing is to be done. */
uint64_t session_logs_tick(struct session_logs *logs, uint64_t now_ns);

#endif
