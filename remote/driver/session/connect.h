#ifndef RESEAT_REMOTE_DRIVER_SESSION_CONNECT_H
#define RESEAT_REMOTE_DRIVER_SESSION_CONNECT_H

#include "remote/driver/session/session.h"

/** The longest attempt to connect, and to hear from a server or session that may be busy. A server
 *  gives its side as long (GREETING_NS). */
#define CONNECT_NS (10 * NS_PER_S)

/** How many seconds the program would wait for its session, as the environment says. */
uint32_t client_wanted_patience(void);

/**
 * Connect to a client's server, and begin a session.
 *
 * Blocks until @deadline_ns. Returns 0, -ECONNREFUSED (nobody listens, or it does not want us,
 * which is said), -EPROTO, or as `connect` of link.h.
 */
MUST_CHECK int connect_first(struct client *client, uint64_t deadline_ns, struct link **ret_link);

/**
 * By the receiver, when the link is broken: connect again, to whatever address the server's names
 * have now, and go on with the session.
 *
 * Blocks as long as the session is patient, or until it is known that it is gone. Returns 0 or
 * -errno: it is over.
 */
MUST_CHECK int connect_again(struct client *client);

#endif
