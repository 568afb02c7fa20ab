#ifndef RESEAT_REMOTE_SERVER_SESSION_GREETING_H
#define RESEAT_REMOTE_SERVER_SESSION_GREETING_H

#include "messages.h"
#include "remote/identity/grant.h"
#include "remote/server/listener/clients.h"
#include "remote/server/session/server.h"

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
 * this process becomes the relay of that link (relay.h), and the function does not return.
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

#endif
