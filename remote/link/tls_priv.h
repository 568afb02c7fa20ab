#ifndef RESEAT_REMOTE_LINK_TLS_PRIV_H
#define RESEAT_REMOTE_LINK_TLS_PRIV_H

#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "remote/link/tls.h"

#define TLS_REASON_MAX 256

/* As many records at a time are made and given to the kernel. */
#define TLS_PLAIN_MAX (64u << 10)
/* They, and what OpenSSL has to say between. */
#define TLS_OUT_MAX (96u << 10)
/* As many bytes of small pieces go as one: a record. */
#define TLS_STAGING 16384u

struct tls_link {
    struct link link;
    struct owned socket;
    pid_t maker;
    atomic_bool down;

    pthread_mutex_t lock; /**< Held for no longer than it takes to cipher, or to copy. */
    SSL *ssl;             /**< Under it, and what OpenSSL made that the kernel was not given. */
    unsigned char *out;
    size_t out_used;
    uint64_t records;     /**< Sent with this key. */
    uint64_t records_max; /**< Then there is a new one. */

    unsigned char *sending; /**< The sender's: the other half of a pair with `out`. */
    unsigned char *staging; /**< The sender's: small pieces that go as one. */
    int send_error;         /**< The sender's, as below. */
    int receive_error;      /**< The receiver's: nothing more comes. */

    size_t budget; /**< Bytes that may still be read; SIZE_MAX once it is admitted. */
    int ended;     /**< Under the lock: what the socket said to the last read, as -errno; 0. */

    const struct ticket *ticket; /**< The client's, borrowed for the handshake; or NULL. */
    bool ticketed;               /**< It was let in, or in, by one. */
    tls_ticket_finder find;      /**< The server's; or NULL. */
    void *find_data;
    bool serves;         /**< This is the server's end... */
    const char *revoked; /**< ...and its list, borrowed for the handshake. */
    int refusal; /**< Of a handshake: what our own look at the certificate said, as -errno. */
    char serial[CERTIFICATE_SERIAL_MAX]; /**< Of the client that was admitted, as what follows. */
    time_t until;
    struct grant grant;
    char reason[TLS_REASON_MAX];
};

/* The handshake and what it needs: tls_handshake.c. */

/**
 * Prepare @tls->ssl, with @tls's socket behind it.
 *
 * 0 or -errno; @tls->reason says why.
 */
MUST_CHECK int tls_prepare(struct tls_link *tls, const struct credentials *credentials);

/* Tickets: tls_ticket.c. */

/** Have @tls->ssl come with its ticket, or look for those of others. False: out of memory. */
bool tls_ticket_prepare(struct tls_link *tls);

/** Do the handshake, by whose end both know each other. As tls_connect() and tls_admit() return. */
MUST_CHECK int tls_handshake(struct tls_link *tls, uint64_t deadline_ns);

/* The stream: tls_stream.c. */

extern const struct link_ops tls_ops;

/** Give the kernel what OpenSSL made. By the sender, or in a handshake. 0 or as `send` returns. */
MUST_CHECK int tls_flush(struct tls_link *tls, uint64_t deadline_ns);

/** What OpenSSL's last call on @tls->ssl that gave @result came to. -EAGAIN: it waits for bytes. */
int tls_outcome(struct tls_link *tls, int result);

#endif
