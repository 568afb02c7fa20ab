#ifndef RESEAT_REMOTE_DRIVER_CONNECT_H
#define RESEAT_REMOTE_DRIVER_CONNECT_H

#include "remote/driver/remote.h"

/**
 * Connect to a client's server, and greet it.
 *
 * Blocks until @deadline_ns. Returns 0, -ECONNREFUSED (it does not want us, which is said),
 * -EPROTO, or as `connect` of link.h.
 */
MUST_CHECK int client_connect(struct client *client, uint64_t deadline_ns, struct link **ret_link);

#endif
