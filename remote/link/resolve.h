#ifndef RESEAT_REMOTE_LINK_RESOLVE_H
#define RESEAT_REMOTE_LINK_RESOLVE_H

#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>

#include "state/server/address.h"

/**
 * Resolve the host of a tcp address. Numbers are parsed here. For names, the C library is asked in
 * a thread, which is abandoned if it takes longer than @deadline_ns.
 *
 * @listens  For an address to listen on.
 * @ret_found  For freeaddrinfo().
 * Returns 0, -ETIMEDOUT, -ENOENT (no such host), -EAGAIN (the name service cannot be reached now)
 * or -ENOMEM. Thread-safe.
 */
MUST_CHECK int resolve(const struct address *address, bool listens, uint64_t deadline_ns,
                       struct addrinfo **ret_found);

#endif
