#ifndef RESEAT_REMOTE_SERVER_RESUME_H
#define RESEAT_REMOTE_SERVER_RESUME_H

#include "remote/server/greeting.h"
#include "remote/server/server.h"

/*
 * A session's links, one after another. A thread waits for what the listening process hands over,
 * and looks whether the client is there still: the session's own thread may be in a driver for
 * good.
 */

/**
 * Watch from now on, once @server's stream has its first link.
 *
 * @channel  Where links come; this one's from now on.
 * Returns 0 or -errno.
 */
MUST_CHECK int resume_watch(struct server *server, const struct guest *guest, int channel);

/**
 * By who receives, when the stream's link is broken: wait for another one, and go on with it.
 *
 * Blocks as long as the session is patient. Returns 0, -ETIMEDOUT (nobody came) or -EPIPE (nobody
 * will).
 */
MUST_CHECK int resume_session(struct server *server);

#endif
