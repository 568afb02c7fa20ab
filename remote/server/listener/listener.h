#ifndef RESEAT_REMOTE_SERVER_LISTENER_LISTENER_H
#define RESEAT_REMOTE_SERVER_LISTENER_LISTENER_H

#include <poll.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/un.h>

#include "remote/server/listener/clients.h"
#include "state/base/compiler.h"
#include "state/server/operator.h"

/* What the listening process has beside its clients: their log, a reaper, and operators. */

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

/*
 * A process that kills what sessions have started if the listening process is killed. Sessions die
 * with the listening process (PR_SET_PDEATHSIG), but their children, such as compilers, would run
 * on. The reaper knows the sessions' process groups, which their children cannot leave (sandbox.h).
 * It ignores signals, and has no descriptor but a socket. If it is killed, the listening process
 * starts another.
 */
struct reaper {
    pid_t pid; /**< A child; 0: none runs. */
    int tells; /**< A socket to it; -1: none. */
};

#define REAPER_NONE ((struct reaper){.tells = -1})

/** Start one that knows the processes of @clients. A failure is logged, and does not stop the
 * server. */
void reaper_start(struct reaper *reaper, const struct clients *clients);
/** Tell it that a process which leads a group was started, or has ended with its group. Never
 * blocks. */
void reaper_began(const struct reaper *reaper, pid_t pid);
void reaper_ended(const struct reaper *reaper, pid_t pid);
/** End it, after all groups have ended. */
void reaper_finish(struct reaper *reaper);

/* The server's side of state/server/operator.h. Runs in the listening process, and never blocks it.
 */

#define OPERATORS_MAX   5
#define OPERATORS_POLLS (1 + OPERATORS_MAX)

struct operators {
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    int listener; /**< -1: not listening. */
    int fds[OPERATORS_MAX];
    size_t count, lasting; /**< Of them the first do not give way to others. */
    const char *ca;        /**< The authority's folder, without symbolic links; "": none. */
    char addresses[OPERATOR_ADDRESSES_MAX];
    struct clients *clients;
};

/** Listen. 0, or -errno with the problem. @operators is zero. */
MUST_CHECK int operators_init(struct operators *operators, struct clients *clients,
                              char ret_problem[FOLDER_PROBLEM_MAX]);
void operators_finish(struct operators *operators);
/** Make the one connection that does not give way to others. @ret_end is its other end, the
 * caller's. 0, -EBUSY (there is one still, or there are too many of others) or -errno. */
MUST_CHECK int operators_add(struct operators *operators, int *ret_end);

/** Fill in what to poll. @ret_polls has room for OPERATORS_POLLS; returns how many are filled. */
size_t operators_poll(const struct operators *operators, struct pollfd *ret_polls);
/** Accept connections, and answer the requests of those that are ready. */
void operators_answer(struct operators *operators, const struct pollfd *polls, size_t count,
                      uint64_t now_ns);

#endif
