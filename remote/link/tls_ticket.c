#include <openssl/crypto.h>
#include <string.h>

#include "remote/link/tls_priv.h"

/*
 * Tickets in TLS 1.3: an external pre-shared key. A Diffie-Hellman exchange is done as well, so
 * that somebody who learns the key later cannot decrypt what was recorded.
 */

static SSL_SESSION *tls_ticket_make_session(SSL *ssl, const unsigned char key[TICKET_KEY_SIZE])
{
    static const unsigned char aes_128_gcm_sha256[] = {0x13, 0x01};
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, aes_128_gcm_sha256);
    SSL_SESSION *session = SSL_SESSION_new();

    if (session && cipher && SSL_SESSION_set1_master_key(session, key, TICKET_KEY_SIZE) &&
        SSL_SESSION_set_cipher(session, cipher) &&
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION))
        return session;
    SSL_SESSION_free(session);
    return NULL;
}

/* OpenSSL's callback at the client's end. A key belongs to one hash: with another than @digest,
 * none is offered. */
static int tls_ticket_use(SSL *ssl, const EVP_MD *digest, const unsigned char **name, size_t *size,
                          SSL_SESSION **session)
{
    const struct tls_link *tls = BIO_get_data(SSL_get_rbio(ssl));

    *session = NULL;
    if (digest && !EVP_MD_is_a(digest, "SHA256"))
        return 1;
    *name = (const unsigned char *)&tls->ticket->name;
    *size = sizeof(tls->ticket->name);
    *session = tls_ticket_make_session(ssl, tls->ticket->key);
    return *session != NULL;
}

/* OpenSSL's callback at the server's end. With an unknown ticket the handshake goes on without one.
 */
static int tls_ticket_find(SSL *ssl, const unsigned char *bytes, size_t size, SSL_SESSION **session)
{
    struct tls_link *tls = BIO_get_data(SSL_get_rbio(ssl));
    unsigned char key[TICKET_KEY_SIZE];
    struct ticket_name name;

    *session = NULL;
    if (size != sizeof(name) || !tls->find)
        return 1;
    memcpy(&name, bytes, sizeof(name));
    int error = tls->find(tls->find_data, &name, key);
    tls->find = NULL; /* One attempt for each connection. */
    if (error)
        return 1;
    *session = tls_ticket_make_session(ssl, key);
    OPENSSL_cleanse(key, sizeof(key));
    return *session != NULL;
}

bool tls_ticket_prepare(struct tls_link *tls)
{
    static const unsigned char context[] = "reseat";

    if (tls->ticket)
        SSL_set_psk_use_session_callback(tls->ssl, tls_ticket_use);
    if (!tls->find)
        return true;
    SSL_set_psk_find_session_callback(tls->ssl, tls_ticket_find);
    return SSL_set_session_id_context(tls->ssl, context, sizeof(context) - 1);
}
