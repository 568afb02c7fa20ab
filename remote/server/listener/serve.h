#ifndef RESEAT_REMOTE_SERVER_LISTENER_SERVE_H
#define RESEAT_REMOTE_SERVER_LISTENER_SERVE_H

#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

#include "remote/server/listener/authority.h"
#include "remote/server/session/server.h"
#include "state/base/compiler.h"

/*
 * What the listening process passes to a process that it starts. The new process is executed, not
 * only forked, so that it has no copy of the listening process's memory. It gets its settings in a
 * sealed memory file, and the descriptors below. Its standard input and output are /dev/null; its
 * standard error is a pipe that the listening process reads.
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

/**
 * Execute this program again as the process of a connection: in a terminal session of its own,
 * with no descriptors but those given here.
 *
 * @connection, @channel  Copied to the child. @channel may be -1: none.
 * @log                   Becomes its standard error; copied as well.
 * @drivers_alone         Of the environment, pass only the variables that drivers read.
 * @mask                  The signals that the child blocks.
 * Returns its process id, or -errno.
 */
MUST_CHECK pid_t spawn_session(const struct startup *startup, int connection, int channel, int log,
                               bool drivers_alone, const sigset_t *mask);

#define LISTEN_MAX 16

/** The command line of reseat-serve. */
struct serve_options {
    const char *addresses[LISTEN_MAX];
    size_t count;
    const char *devices[DEVICES_MAX]; /**< Copied to the limits. */
    struct session_limits limits;
    uint64_t clients_max;
    uint64_t linger_s;     /**< The server ends this long after its last client left; 0: never. */
    uint64_t inherited;    /**< A Unix socket on which another process listens; 0: none. */
    uint64_t of_process;   /**< The server ends once this process has ended and no client is left;
                              0: not used. */
    const char *metrics;   /**< Path of the Unix socket of metrics; NULL: the default. */
    uint64_t metrics_port; /**< Port of the loopback address for them; 0: none. */
    bool announces;
    uint64_t reserve_bytes; /**< As in devices_list(). */
    struct authority_options authority;
};

/** Parse the command line into @options, which has the defaults. Returns false after an error; then
 * call options_usage(). */
bool options_read(int argc, char **argv, struct serve_options *options);
/** Print the usage; returns the exit status. */
int options_usage(void);

#endif
