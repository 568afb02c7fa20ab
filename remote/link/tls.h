#ifndef RESEAT_REMOTE_LINK_TLS_H
#define RESEAT_REMOTE_LINK_TLS_H

#include "remote/identity/address.h"
#include "remote/identity/credentials.h"
#include "remote/identity/grant.h"
#include "remote/link/link.h"
#include "state/base/files/owned.h"

/*
 * A link of TLS over any socket of a stream: version 1.3 and no other, certificates on both sides,
 * made by one private authority (ca.h). There is no resumption: each handshake looks at the
 * certificates, the list of revoked ones, and the grant, or at a ticket (link.h). Once a client
 * is admitted, the server says so with one byte, so that who connects knows.
 *
 * Until then a stranger is read at most TLS_STRANGER_BYTES of, and kept no longer than the
 * deadline. Nobody is told by TLS that a stream ends: whoever can cut a connection can cut it
 * anywhere, and sessions count frames.
 */

#define TLS_STRANGER_BYTES (16u << 10)

/**
 * Be a server from now on, for tls_admit(): with what is in an authority's folder. Once a process,
 * before it has threads.
 *
 * @ret_problem  Written on failure only.
 * Returns 0, or as credentials_load() and revoked_check() say.
 */
MUST_CHECK int tls_server_open(const char *ca_folder, char ret_problem[FOLDER_PROBLEM_MAX]);
bool tls_server_is_open(void);
/** Forget the server's key: what serves one client does not need it once that is admitted. */
void tls_server_close(void);

/**
 * The client's end of a new connection.
 *
 * @socket  Is the link's, or closed on failure.
 * Returns 0, -ETIMEDOUT, -EPERM (the server cannot be believed), -EACCES (it does not admit us),
 * -EPROTO (it is none), -EPIPE (it went away), or -errno. tls_reason() says more.
 */
MUST_CHECK int tls_connect(struct owned *socket, const struct credentials *credentials,
                           uint64_t deadline_ns, struct link **ret_link);

/** The server's end. Returns as `admit` of link.h does. */
MUST_CHECK int tls_admit(struct owned *socket, uint64_t deadline_ns, struct link **ret_link);

/**
 * Connect with a ticket: a key that both ends have already (RFC 8446, 4.2.11) in place of
 * certificates, with a key exchange of their own. Else as tls_connect(); -EPERM: the other end does
 * not have the ticket.
 */
MUST_CHECK int tls_connect_ticket(struct owned *socket, const struct ticket *ticket,
                                  uint64_t deadline_ns, struct link **ret_link);

/** Who is asked for the key of a ticket that somebody comes with: 0, or -errno: there is none. */
typedef int (*tls_ticket_finder)(void *data, const struct ticket_name *name,
                                 unsigned char ret_key[TICKET_KEY_SIZE]);
/** Let tls_admit() admit who has a ticket, from now on. */
void tls_server_tickets(tls_ticket_finder find, void *data);
/** Was who is at the other end of an admitted link let in by a ticket? Then it may do nothing but
 *  what that is for. */
bool tls_has_ticket(const struct link *link);

/** What the client at the other end of an admitted link may do. -ENOENT: it is no such link. */
MUST_CHECK int tls_grant(const struct link *link, struct grant *ret_grant);

/** When that certificate ends, in seconds since 1970. -ENOENT: it is no such link. */
MUST_CHECK int tls_until(const struct link *link, int64_t *ret_until);

/** Why this thread's last tls_connect() or tls_admit() failed: one line, safe to print. */
const char *tls_reason(void);

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
