#ifndef RESEAT_REMOTE_SERVER_SESSION_NEWS_H
#define RESEAT_REMOTE_SERVER_SESSION_NEWS_H

#include "remote/server/session/greeting.h"
#include "remote/server/session/server.h"

/** Hear what the listening process says (channel.h) in a thread, from now on, once @server's stream
 * has its first link. 0 or -errno. */
MUST_CHECK int news_hear(struct server *server, const struct guest *guest);

#endif
