#ifndef RESEAT_REMOTE_SERVER_SESSION_RELAY_H
#define RESEAT_REMOTE_SERVER_SESSION_RELAY_H

#include "remote/link/link.h"

/**
 * Carry bytes between an admitted link and a session's process, until either ends, with nothing
 * else to do any harm with. Ends the process.
 *
 * @fd  A socket that is connected to the session.
 */
_Noreturn void relay_run(struct link *link, int fd);

#endif
