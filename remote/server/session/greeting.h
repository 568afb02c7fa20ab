#ifndef RESEAT_REMOTE_SERVER_SESSION_GREETING_H
#define RESEAT_REMOTE_SERVER_SESSION_GREETING_H

#include "messages.h"
#include "remote/identity/grant.h"
#include "remote/server/listener/clients.h"
#include "remote/server/session/server.h"

/** A client that connects has so long for its handshake, and as long to say what it wants. */
#define GREETING_NS (10 * NS_PER_S)

/** A client that has a session from now on. */
struct guest {
    struct link *link;
    char peer[LINK_PEER_MAX]; /**< Safe to print. */
    struct grant grant;
    struct session_key key;
    uint64_t features;   /**< That both have. */
    uint32_t patience_s; /**< The session waits so long for another link. */
    int process;         /**< A descriptor of the client's process (pidfd_open()); -1: elsewhere. */
};

/**
 * In a process of its own, find out who has connected and what it wants; welcome it, or refuse it,
 * or hand its link over to the session that it goes on with: then this process becomes what carries
 * that link (relay.h), and there is nobody to return to.
 *
 * @fd       What accept4() gave; is the guest's, or closed.
 * @channel  Where clients_ask() asks.
 * @limits   What those have who need no certificate, and how long sessions wait at most.
 * Returns 0, or -errno: it has no session, and was told why where it could be.
 */
MUST_CHECK int greeting_receive_guest(const struct link_kind *kind, int fd, int channel,
                                      const struct session_limits *limits, struct guest *ret_guest);

/** Welcome whoever is at the other end of @link, for the first time or again. 0 or -errno. */
MUST_CHECK int greeting_welcome(struct link *link, const struct session_key *key,
                                uint32_t patience_s, uint64_t features, uint64_t received,
                                uint64_t deadline_ns);

#endif
