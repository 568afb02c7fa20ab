#ifndef RESEAT_REMOTE_SERVER_SESSION_GREETING_H
#define RESEAT_REMOTE_SERVER_SESSION_GREETING_H

#include "messages.h"
#include "remote/identity/grant.h"
#include "remote/link/link.h"
#include "remote/server/listener/clients.h"
#include "remote/server/session/server.h"
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

/** Time limit for a client's handshake, and again for its first message after that. */
#define GREETING_NS (10 * NS_PER_S)

/** A client that has a session from now on. */
struct guest {
    struct link *link;
    char peer[LINK_PEER_MAX]; /**< Safe to print. */
    struct grant grant;
    struct session_key key;
    uint64_t features;   /**< The features that both sides have. */
    uint32_t patience_s; /**< How long the session waits for another link. */
    int process;         /**< The client's process (pidfd_open()); -1: on another machine. */
};

/**
 * In the connection's own process: authenticate the client and read its request. Then welcome the
 * client, refuse it, or pass its link to the session that it wants to continue. In the last case
 * this process becomes the relay of that link, and the function does not return.
 *
 * @fd       The accepted connection. The guest owns it on success; otherwise it is closed.
 * @channel  The channel that clients_ask() uses.
 * @limits   The grant of clients that need no certificate, and the longest patience of a session.
 * Returns 0, or -errno: the client has no session, and was sent the reason if that was possible.
 */
MUST_CHECK int greeting_receive_guest(const struct link_kind *kind, int fd, int channel,
                                      const struct session_limits *limits, struct guest *ret_guest);

/** Send the welcome message to the client at the other end of @link, for a new session or for one
 *  that continues. Blocks until @deadline_ns. Returns 0 or -errno. */
MUST_CHECK int greeting_welcome(struct link *link, const struct session_key *key,
                                uint32_t patience_s, uint64_t features, uint64_t received,
                                uint64_t deadline_ns);

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
