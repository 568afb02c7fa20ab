#ifndef RESEAT_REMOTE_SERVER_SESSION_BEQUEST_H
#define RESEAT_REMOTE_SERVER_SESSION_BEQUEST_H

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
    BEQUEST_FD = STDERR_FILENO + 1,
    BEQUEST_CONNECTION, /**< What accept4() gave; of a connector, the session's socket. */
    BEQUEST_CHANNEL,    /**< To the listening process (listener/channel.h). */
};

/** The program's only argument then. */
#define BEQUEST_ARGUMENT "--session"

struct bequest {
    char scheme[16]; /**< "tcp:", of the address that was connected to. */
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
void bequest_init(struct bequest *bequest, const struct session_limits *limits);
/** A descriptor of a copy that nobody can change; the caller's. Or -errno. */
MUST_CHECK int bequest_write(const struct bequest *bequest);
/** In the new process: take what was given. 0 or -errno. Once a process. */
MUST_CHECK int bequest_read(const struct bequest **ret_bequest);

#endif
