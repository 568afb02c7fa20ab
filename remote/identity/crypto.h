#ifndef RESEAT_REMOTE_IDENTITY_CRYPTO_H
#define RESEAT_REMOTE_IDENTITY_CRYPTO_H

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "state/base/compiler.h"

/*
 * Access to OpenSSL from a library in another program's process. It has a library context of its
 * own, loads no configuration file, and registers no exit handler.
 */

/** Bytes of a description of an OpenSSL error: one line. */
#define CRYPTO_PROBLEM_MAX 160

/** Get the library context. NULL if OpenSSL cannot be initialised. Thread-safe. */
OSSL_LIB_CTX *crypto_context(void);

/** Describe the oldest error in this thread's OpenSSL error queue, and clear the queue. */
void crypto_problem(char ret_problem[CRYPTO_PROBLEM_MAX]);

/** Password callback for OpenSSL. It always fails: OpenSSL would otherwise ask for the password of
 * an encrypted PEM block on the terminal. */
int crypto_no_password(char *buffer, int size, int writing, void *data);

static inline void cleanup_bio(BIO **bio)
{
    BIO_free_all(*bio);
}

#endif
