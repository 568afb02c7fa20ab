#ifndef RESEAT_REMOTE_SERVER_SESSION_RESUME_H
#define RESEAT_REMOTE_SERVER_SESSION_RESUME_H

#include "remote/server/session/greeting.h"
#include "remote/server/session/server.h"

/*
 * A session's links, one after another. The thread that hears the listening process (news.h) brings
 * them, and looks whether the client is there still: the session's own thread may be in a driver
 * for good.
 */

/** Once @server's stream has its first link. */
void resume_init(struct server *server, const struct guest *guest);

/* By that thread: */

/** The listening process handed a link over, which is the session's from now on. */
void resume_link(int fd, uint64_t received);
/** What hangs up when the client's process ends; -1: nothing. */
int resume_process(void);
void resume_process_ended(void);
/** Now and then: end a session that should have, and cannot. */
void resume_look(void);

/**
 * By who receives, when the stream's link is broken: wait for another one, and go on with it.
 *
 * Blocks as long as the session is patient. Returns 0, -ETIMEDOUT (nobody came) or -EPIPE (nobody
 * will).
 */
MUST_CHECK int resume_session(struct server *server);

#endif
