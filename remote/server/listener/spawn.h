#ifndef RESEAT_REMOTE_SERVER_LISTENER_SPAWN_H
#define RESEAT_REMOTE_SERVER_LISTENER_SPAWN_H

#include <signal.h>

#include "remote/server/session/startup.h"

/**
 * Execute this program again as the process of a connection (startup.h): in a terminal session of
 * its own, with no descriptors but those given here.
 *
 * @connection, @channel  Copied to the child. @channel may be -1: none.
 * @log                   Becomes its standard error; copied as well.
 * @drivers_alone         Of the environment, pass only the variables that drivers read.
 * @mask                  The signals that the child blocks.
 * Returns its process id, or -errno.
 */
MUST_CHECK pid_t spawn_session(const struct startup *startup, int connection, int channel, int log,
                               bool drivers_alone, const sigset_t *mask);

#endif
