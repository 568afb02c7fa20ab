#ifndef RESEAT_REMOTE_LINK_TLS_CONNECT_H
#define RESEAT_REMOTE_LINK_TLS_CONNECT_H

#include "remote/identity/address.h"
#include "remote/link/tls.h"

/* What the kinds of links under TLS have in common. */

/** Connect a socket to where that is. 0 or -errno. */
typedef int (*tls_dial)(const struct address *address, uint64_t deadline_ns,
                        struct owned *ret_socket);

/** `connect` of link.h: with the credentials for that address. */
MUST_CHECK int tls_connect_to(const char *scheme, const char *where, tls_dial dial,
                              uint64_t deadline_ns, struct link **ret_link);

/** `connect_ticket` of link.h. */
MUST_CHECK int tls_connect_ticket_to(const char *scheme, const char *where, tls_dial dial,
                                     const struct ticket *ticket, uint64_t deadline_ns,
                                     struct link **ret_link);

/** The address to listen at. 0, -EINVAL, or -EPERM: without an authority there is no listening. */
MUST_CHECK int tls_listen_address(const char *scheme, const char *where,
                                  struct address *ret_address);

#endif
