#ifndef RESEAT_REMOTE_SERVER_LISTENER_SPAWN_H
#define RESEAT_REMOTE_SERVER_LISTENER_SPAWN_H

#include <signal.h>

#include "remote/server/session/startup.h"

/**
 * Execute this program once more, as the process of a connection (startup.h): in a terminal session
 * of its own, with the descriptors that it is given and no others.
 *
 * @connection, @channel  Become its own as well; the caller keeps its copies. @channel: -1: none.
 * @log                   What it writes its log to; the caller's, as the others.
 * @drivers_alone         Of the environment it gets what drivers read, and nothing else.
 * @mask                  The signals that it blocks.
 * Returns its number, or -errno.
 */
MUST_CHECK pid_t spawn_session(const struct startup *startup, int connection, int channel, int log,
                               bool drivers_alone, const sigset_t *mask);

#endif
