#ifndef RESEAT_REMOTE_LINK_TLS_H
#define RESEAT_REMOTE_LINK_TLS_H

#include <time.h>

#include "remote/identity/credentials.h"
#include "remote/identity/grant.h"
#include "remote/link/link.h"
#include "state/base/files/owned.h"
#include "state/server/address.h"

/*
 * TLS 1.3 links over any stream socket. Both sides show certificates of one private authority
 * (ca.h), or, in place of certificates, prove that they have the same ticket (link.h). There is no
 * session resumption: each handshake checks the certificates, the list of revoked ones, and the
 * grant. After it has admitted a client, the server sends one byte, so that the client knows.
 *
 * Until it is admitted, at most TLS_STRANGER_BYTES are read from a client, and no longer than until
 * the deadline. The end of a TLS stream is not authenticated: an attacker can cut a connection
 * anywhere. Sessions count frames for this reason.
 */

#define TLS_STRANGER_BYTES (16u << 10)

/**
 * Load an authority's folder, for tls_admit(). Once a process, before it has threads.
 *
 * @ret_problem  Written on failure only.
 * Returns 0, or as credentials_load() and revoked_check() do.
 */
MUST_CHECK int tls_server_open(const char *ca_folder, char ret_problem[FOLDER_PROBLEM_MAX]);
/** Forget the server's private key, which a process no longer needs once its client is admitted. */
void tls_server_close(void);

/**
 * The client's end of a new connection.
 *
 * @socket       Taken, also on failure.
 * @credentials  Used without a ticket.
 * @ticket       An external pre-shared key (RFC 8446, 4.2.11) in place of certificates, with a
 *               fresh key exchange; or NULL.
 * Returns 0, -ETIMEDOUT, -EPERM (the server's certificate is not valid, or it does not have the
 * ticket), -EACCES (the server refuses us), -EPROTO (no such server), -EPIPE (the connection was
 * closed), or -errno. tls_reason() says more.
 */
MUST_CHECK int tls_connect(struct owned *socket, const struct credentials *credentials,
                           const struct ticket *ticket, uint64_t deadline_ns,
                           struct link **ret_link);

/** The server's end. Returns as `admit` of link.h does. */
MUST_CHECK int tls_admit(struct owned *socket, uint64_t deadline_ns, struct link **ret_link);

/** Finds the key of a ticket: 0, or -errno: no such ticket. */
typedef int (*tls_ticket_finder)(void *data, const struct ticket_name *name,
                                 unsigned char ret_key[TICKET_KEY_SIZE]);
/** Let tls_admit() accept tickets from now on. */
void tls_server_tickets(tls_ticket_finder find, void *data);
/** Was the peer admitted by a ticket? Then it may only do what the ticket is for. */
bool tls_has_ticket(const struct link *link);

/** The grant of an admitted client. -ENOENT: no such link. */
MUST_CHECK int tls_grant(const struct link *link, struct grant *ret_grant);

/** When the client's certificate ends, in seconds since 1970. -ENOENT: no such link. */
MUST_CHECK int tls_until(const struct link *link, int64_t *ret_until);

/**
 * Is the certificate of an admitted client still valid at @now? Also after tls_server_close().
 * Returns 0, -EKEYEXPIRED, -ENOENT (no such link), or as revoked_check().
 */
MUST_CHECK int tls_check_again(const struct link *link, time_t now);

/** Why the last tls_connect() or tls_admit() of this thread failed: one line, safe to print. */
const char *tls_reason(void);

/* Shared by the kinds of links that use TLS. */

/** Connects a socket to an address. 0 or -errno. */
typedef int (*tls_dial)(const struct address *address, uint64_t deadline_ns,
                        struct owned *ret_socket);

/** `connect` of link.h; without a ticket, with the credentials for the address. */
MUST_CHECK int tls_connect_to(const char *scheme, const char *where, tls_dial dial,
                              const struct ticket *ticket, uint64_t deadline_ns,
                              struct link **ret_link);

/** Parse an address to listen on. 0, -EINVAL, or -EPERM: tls_server_open() was not called. */
MUST_CHECK int tls_listen_address(const char *scheme, const char *where,
                                  struct address *ret_address);

#endif
