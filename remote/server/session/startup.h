#ifndef RESEAT_REMOTE_SERVER_SESSION_STARTUP_H
#define RESEAT_REMOTE_SERVER_SESSION_STARTUP_H

#include <limits.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

#include "remote/server/session/server.h"

/*
 * What the listening process passes to a process that it starts. The new process is executed, not
 * only forked, so that it has no copy of the listening process's memory. It gets its settings in a
 * sealed memory file, and the descriptors below. Its standard input and output are /dev/null; its
 * standard error is a pipe that the listening process reads (listener/session_log.h).
 */

enum {
    STARTUP_FD = STDERR_FILENO + 1,
    STARTUP_CONNECTION, /**< The accepted connection; for a connector, the session's socket. */
    STARTUP_CHANNEL,    /**< To the listening process (listener/channel.h). */
};

/** The only argument of the program when it is started as such a process. */
#define STARTUP_ARGUMENT "--session"

struct startup {
    char scheme[16]; /**< Scheme of the address the client connected to, as "tcp:"; "" makes the
                          process a connector. */
    pid_t parent;
    bool logs;                 /**< The process may write to the log. */
    struct rlimit descriptors; /**< RLIMIT_NOFILE. */
    struct session_limits limits;
};

#endif
