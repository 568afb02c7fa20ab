#ifndef RESEAT_REMOTE_SERVER_SESSION_NEWS_H
#define RESEAT_REMOTE_SERVER_SESSION_NEWS_H

#include "remote/server/session/greeting.h"
#include "remote/server/session/server.h"

/*
 * A session's links, one after another, and what the listening process says (channel.h). A thread
 * hears that, takes the links that it brings, and looks whether the client is there still: the
 * session's own thread may be in a driver for good.
 */

/** Start the thread, once @server's stream has its first link. 0 or -errno. */
MUST_CHECK int news_hear(struct server *server, const struct guest *guest);

/**
 * By who receives, when the stream's link is broken: wait for another one, and go on with it.
 *
 * Blocks as long as the session is patient. Returns 0, -ETIMEDOUT (nobody came) or -EPIPE (nobody
 * will).
 */
MUST_CHECK int news_resume(struct server *server);

#endif
