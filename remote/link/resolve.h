#ifndef RESEAT_REMOTE_LINK_RESOLVE_H
#define RESEAT_REMOTE_LINK_RESOLVE_H

#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>

#include "remote/identity/address.h"

/**
 * Where a host of tcp is. A number is read here; for a name the C library asks whom it asks, in a
 * thread that is left behind when it takes longer than until @deadline_ns.
 *
 * @listens  An address of this machine.
 * @ret_found  freeaddrinfo() it.
 * Returns 0, -ETIMEDOUT, -ENOENT (there is no such host), -EAGAIN (it cannot be asked now) or
 * -ENOMEM. Thread-safe.
 */
MUST_CHECK int resolve(const struct address *address, bool listens, uint64_t deadline_ns,
                       struct addrinfo **ret_found);

#endif
