#ifndef RESEAT_REMOTE_LINK_TLS_PRIV_H
#define RESEAT_REMOTE_LINK_TLS_PRIV_H

#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "remote/link/tls.h"

#define TLS_REASON_MAX 256

/* Plain bytes that are encrypted and given to the kernel at a time. */
#define TLS_PLAIN_MAX (64u << 10)
/* Room for their records, and for OpenSSL's own messages between them. */
#define TLS_OUT_MAX (96u << 10)
/* Small pieces are gathered into records of this size. */
#define TLS_STAGING 16384u

struct tls_link {
    struct link link;
    struct owned socket;
    pid_t maker;
    atomic_bool down;

    pthread_mutex_t lock; /**< Held only to encrypt, decrypt or copy; never while waiting. */
    SSL *ssl; /**< Guarded by the lock, as is `out`: what OpenSSL has written and the kernel does
                 not have yet. */
    unsigned char *out;
    size_t out_used;
    uint64_t records;     /**< Sent with the current key. */
    uint64_t records_max; /**< After so many, a new key is used. */

    unsigned char *sending; /**< The sender's: swapped with `out`, and being sent. */
    unsigned char *staging; /**< The sender's: small pieces, gathered. */
    int send_error;         /**< The sender's: why nothing can be sent any more; 0 at first. */
    int receive_error;      /**< The receiver's: why nothing more is received; 0 at first. */

    size_t budget; /**< Bytes that may still be read from the peer; SIZE_MAX once it is admitted. */
    int ended; /**< Guarded by the lock: why the last read of the socket failed, as -errno; or 0. */

    const struct ticket *ticket; /**< The client's, borrowed during the handshake; or NULL. */
    bool ticketed;               /**< The handshake used a ticket. */
    tls_ticket_finder find;      /**< The server's; or NULL. */
    void *find_data;
    bool serves;         /**< This is the server's end. */
    const char *revoked; /**< The server's list of revoked certificates; borrowed. */
    int refusal; /**< During the handshake: why our own checks refuse the certificate, as -errno; or
                    0. */
    char serial[CERTIFICATE_SERIAL_MAX]; /**< Of the admitted client's certificate, as are the next
                                            fields. */
    time_t until;
    struct grant grant;
    char reason[TLS_REASON_MAX];
};

/* The handshake and what it needs: tls_handshake.c. */

/**
 * Make @tls->ssl, which uses @tls's socket.
 *
 * 0 or -errno; @tls->reason says why.
 */
MUST_CHECK int tls_prepare(struct tls_link *tls, const struct credentials *credentials);

/* Tickets: tls_ticket.c. */

/** Let @tls->ssl offer its ticket, or accept those of clients. False: out of memory. */
bool tls_ticket_prepare(struct tls_link *tls);

/** Do the handshake, which authenticates both ends. Returns as tls_connect() and tls_admit() do. */
MUST_CHECK int tls_handshake(struct tls_link *tls, uint64_t deadline_ns);

/* The stream: tls_stream.c. */

extern const struct link_ops tls_ops;

/** Give the kernel what OpenSSL has written. By the sending thread, or during the handshake. 0 or
 * as `send` returns. */
MUST_CHECK int tls_flush(struct tls_link *tls, uint64_t deadline_ns);

/** Translate the @result of OpenSSL's last call on @tls->ssl. -EAGAIN: it needs more bytes. */
int tls_outcome(struct tls_link *tls, int result);

#endif
