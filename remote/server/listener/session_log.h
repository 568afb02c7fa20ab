#ifndef RESEAT_REMOTE_SERVER_LISTENER_SESSION_LOG_H
#define RESEAT_REMOTE_SERVER_LISTENER_SESSION_LOG_H

#include <stdint.h>
#include <sys/types.h>

#include "state/base/compiler.h"

/*
 * The standard error of sessions' processes: their log, and what drivers print. Each has a pipe,
 * which the listening process reads and copies to its own log with the process id in front and
 * control characters replaced: a client's code cannot forge another's lines. Of each process,
 * SESSION_LOG_BURST lines are logged at once and one more each second; the rest is counted.
 */

#define SESSION_LOG_BURST 200

struct session_log;

struct session_logs {
    struct session_log *first;
    int poll; /**< An epoll descriptor, readable when any pipe is; -1: no pipe was made. */
};

#define SESSION_LOGS_NONE ((struct session_logs){.poll = -1})

/** Make a pipe. @ret_end: the write end, the caller's. Then call session_log_began(). 0 or -errno.
 */
MUST_CHECK int session_log_make(struct session_logs *logs, struct session_log **ret_log,
                                int *ret_end);
/** Say which process writes to the pipe; -1: none could be started, and @log is freed. */
void session_log_began(struct session_logs *logs, struct session_log *log, pid_t pid);
/** The process has ended: log what is left in its pipe, and free it. */
void session_log_ended(struct session_logs *logs, pid_t pid);
/** The server ends: log what is left in all pipes. */
void session_logs_finish(struct session_logs *logs);
/** Log what was written, a bounded part of each pipe. */
void session_logs_read(struct session_logs *logs, uint64_t now_ns);
/** Read processes again whose time of waiting is over. Returns when to call it next; UINT64_MAX:
 * not by time. */
uint64_t session_logs_tick(struct session_logs *logs, uint64_t now_ns);

#endif
