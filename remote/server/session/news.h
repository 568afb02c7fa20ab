#ifndef RESEAT_REMOTE_SERVER_SESSION_NEWS_H
#define RESEAT_REMOTE_SERVER_SESSION_NEWS_H

#include "remote/server/session/greeting.h"
#include "remote/server/session/server.h"

/*
 * A session has one link at a time. When the link breaks, the client connects again and the
 * listening process passes the new link over the channel (channel.h). A thread of its own receives
 * the channel's messages and checks whether the client still exists, because the session's thread
 * may never return from a driver call.
 */

/** Start the thread. @server's stream must have its first link. Returns 0 or -errno. */
MUST_CHECK int news_hear(struct server *server, const struct guest *guest);

/**
 * Wait for a new link after the stream's link broke, and continue the session over it. Called by
 * the thread that receives the stream's messages.
 *
 * Blocks for up to the session's patience. Returns 0, -ETIMEDOUT (no link came in that time) or
 * -EPIPE (no link can come: the client's process ended, or the session does not wait for links).
 */
MUST_CHECK int news_resume(struct server *server);

#endif
