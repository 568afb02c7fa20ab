#ifndef RESEAT_REMOTE_LINK_PREAUTH_H
#define RESEAT_REMOTE_LINK_PREAUTH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "state/base/compiler.h"

/*
 * How many strangers a server has to do with at a time: connections in their handshake, each of
 * which has a process. Whoever floods it from one place takes the room of that place only, and who
 * is slow gives way. Pure: time and addresses are given. Not thread-safe.
 */

#define PREAUTH_MAX 32 /**< Strangers at a time. */
#define PREAUTH_SOURCE_MAX                                                                         \
    8 /**< Of one source: an IPv4 address, 64 bits of IPv6, a CID, this machine. */
/** Then a handshake has had its time, and may have to make room for another. */
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
 * Somebody connected.
 *
 * @from        As accept4() says; one of another family than those above counts as this machine.
 * @ret_id      Of the newcomer, never 0; preauth_leave() it when it is admitted, refused, or gone.
 * @ret_leaves  Who has to be dropped for it, and has left the door; 0: nobody.
 * Returns 0 or -EBUSY: the newcomer is to be dropped.
 */
MUST_CHECK int preauth_enter(struct preauth *preauth, const struct sockaddr *from, uint64_t now_ns,
                             uint64_t *ret_id, uint64_t *ret_leaves);

/** An id that is not there is nobody's. */
void preauth_leave(struct preauth *preauth, uint64_t id);

#endif
