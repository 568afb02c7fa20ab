#ifndef RESEAT_REMOTE_SERVER_LISTENER_SPAWN_H
#define RESEAT_REMOTE_SERVER_LISTENER_SPAWN_H

#include <signal.h>

#include "remote/server/session/bequest.h"

/**
 * Execute this program once more, as the process of a connection (bequest.h): in a terminal session
 * of its own, with the descriptors that it is given and no others.
 *
 * @connection, @channel  Become its own as well; the caller keeps its copies. @channel: -1: none.
 * @log                   What it writes its log to; the caller's, as the others.
 * @stranger              It is for somebody who is not this user: of the environment it gets what
 *                        drivers read, and nothing else.
 * @mask                  The signals that it blocks.
 * Returns its number, or -errno.
 */
MUST_CHECK pid_t spawn_session(const struct bequest *bequest, int connection, int channel, int log,
                               bool stranger, const sigset_t *mask);

#endif
