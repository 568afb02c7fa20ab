#ifndef RESEAT_REMOTE_SERVER_SESSION_RELAY_H
#define RESEAT_REMOTE_SERVER_SESSION_RELAY_H

#include "remote/link/link.h"
#include "state/base/clock.h"

/**
 * Carry bytes between an admitted link and a session's process until either side closes. The
 * calling process gives up its privileges, enters sandbox_relay(), and ends afterwards.
 *
 * @fd  A socket that is connected to the session.
 */
_Noreturn void relay_run(struct link *link, int fd);

/*
 * A session may not create sockets. To reach another server, it asks the listening process, which
 * starts a connector: a process that connects, proves the ticket in a handshake and then carries
 * bytes. A client that takes control of its session can therefore send nothing but the beginning
 * of a handshake to the hosts that the server can reach.
 */

/** Time limit to connect to another server, for all its addresses together. */
#define CONNECT_NS (10 * NS_PER_S)

/**
 * In a session: get a link to the peer that has the ticket and listens at one of the addresses in
 * @where, which commas separate.
 *
 * @channel  To the listening process.
 * Blocks until @deadline_ns. Returns 0, -ETIMEDOUT, -ECONNREFUSED or another -errno.
 */
MUST_CHECK int connector_ask(int channel, const char *where, const struct ticket *ticket,
                             uint64_t deadline_ns, struct link **ret_link);

/** In the connector: connect and carry bytes until either side closes. @socket leads to the
 *  session. */
_Noreturn void connector_run(int socket);

#endif
