#ifndef RESEAT_AGENT_WIRE_CONNECT_H
#define RESEAT_AGENT_WIRE_CONNECT_H

#include "state/base/compiler.h"

/**
 * Connect to an agent that may be believed: one of this user's, or of root's. Who it is comes from
 * the kernel. Never blocks.
 *
 * Returns a descriptor that does not block, -ENOENT or -ECONNREFUSED (none listens there), -EAGAIN
 * (it has too many that it has not taken: it may be stopped), -EPERM (it is another user's),
 * -ENAMETOOLONG, or what socket() or connect() said.
 */
MUST_CHECK int agent_connect(const char *path);

#endif
