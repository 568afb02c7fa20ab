#ifndef RESEAT_REMOTE_SERVER_SESSION_STARTUP_H
#define RESEAT_REMOTE_SERVER_SESSION_STARTUP_H

#include <limits.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

#include "remote/server/session/server.h"

/*
 * What the listening process gives to a process that it starts. That is executed, not forked, so
 * that it has nothing of the listening process's memory: what it needs is in a sealed file of
 * memory, and in the descriptors below. Standard input and output are /dev/null, standard error is
 * a pipe that the listening process reads (listener/session_log.h).
 */

enum {
    STARTUP_FD = STDERR_FILENO + 1,
    STARTUP_CONNECTION, /**< What accept4() gave; of a connector, the session's socket. */
    STARTUP_CHANNEL,    /**< To the listening process (listener/channel.h). */
};

/** The program's only argument then. */
#define STARTUP_ARGUMENT "--session"

struct startup {
    char scheme[16]; /**< "tcp:", of the address that was connected to; "": it is a connector. */
    pid_t parent;
    bool logs;                 /**< It may write to the log. */
    struct rlimit descriptors; /**< RLIMIT_NOFILE. */
    struct session_limits limits;
    /* What `limits` points to. */
    bool shares;
    struct devices known; /**< Rows alone. */
    char names[DEVICES_MAX][sizeof(((struct device_key *)0)->device)];
    char authority[PATH_MAX];
};

/** Fill in everything that is the same for all processes of a server. */
void startup_init(struct startup *startup, const struct session_limits *limits);
/** A descriptor of a copy that nobody can change; the caller's. Or -errno. */
MUST_CHECK int startup_write(const struct startup *startup);
/** In the new process: take what was given. 0 or -errno. Once a process. */
MUST_CHECK int startup_read(const struct startup **ret_startup);

#endif
