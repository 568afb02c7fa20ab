#ifndef RESEAT_REMOTE_LINK_PREAUTH_H
#define RESEAT_REMOTE_LINK_PREAUTH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "state/base/compiler.h"

/*
 * Limits the connections that are not authenticated yet, each of which has a process. A flood from
 * one source only displaces connections from the same source, and slow handshakes are dropped
 * first. Pure: the caller passes time and addresses. Not thread-safe.
 */

#define PREAUTH_MAX 32 /**< Strangers at a time. */
#define PREAUTH_SOURCE_MAX                                                                         \
    8 /**< From one source: an IPv4 address, an IPv6 /64, a CID, or this machine. */
/** A handshake that has lasted this long may be dropped to make room. */
#define PREAUTH_TURN_NS 2000000000ull

struct preauth_stranger {
    uint64_t id, since_ns;
    unsigned char source[10];
};

struct preauth {
    struct preauth_stranger strangers[PREAUTH_MAX];
    size_t count;
    uint64_t last_id;
};

/**
 * Count a new connection.
 *
 * @from        From accept4(); other families than those above count as this machine.
 * @ret_id      Of the new connection, never 0; call preauth_leave() when it was admitted, refused,
 *              or closed.
 * @ret_leaves  The connection to drop in its place, which is not counted any more; 0: none.
 * Returns 0 or -EBUSY: drop the new connection.
 */
MUST_CHECK int preauth_enter(struct preauth *preauth, const struct sockaddr *from, uint64_t now_ns,
                             uint64_t *ret_id, uint64_t *ret_leaves);

/** Stop counting a connection; unknown ids are ignored. */
void preauth_leave(struct preauth *preauth, uint64_t id);

#endif
