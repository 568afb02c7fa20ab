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

/*
 * Who connects with another server for a session, which makes no sockets: a process of the
 * listening one's, which proves the ticket by a handshake and carries bytes from then on.
 * So a session that a client took over can say nothing to what its server can reach but the
 * beginning of a handshake.
 */

/**
 * In a session: a link to whoever is at one of the addresses, with commas between, that @where
 * names, and has the ticket.
 *
 * @channel  To the listening process.
 * Blocks. 0, -ETIMEDOUT, -ECONNREFUSED or another -errno.
 */
MUST_CHECK int connector_ask(int channel, const char *where, const struct ticket *ticket,
                             uint64_t deadline_ns, struct link **ret_link);

/** In that process, until either side ends. @socket: to the session. */
_Noreturn void connector_run(int socket);

#endif
