#ifndef RESEAT_REMOTE_IDENTITY_CRYPTO_H
#define RESEAT_REMOTE_IDENTITY_CRYPTO_H

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "state/base/compiler.h"

/*
 * OpenSSL, as a library inside somebody else's program uses it: a context of our own, that no
 * configuration file or variable of the program's reaches, and nothing done when the program ends.
 */

/** Of what OpenSSL says went wrong; one line. */
#define CRYPTO_PROBLEM_MAX 160

/** NULL where OpenSSL cannot be had. Thread-safe. */
OSSL_LIB_CTX *crypto_context(void);

/** The first thing that OpenSSL has to say of this thread's last failure, which is forgotten. */
void crypto_problem(char ret_problem[CRYPTO_PROBLEM_MAX]);

/** A PEM block that is encrypted asks nobody for a password. For OpenSSL. */
int crypto_no_password(char *buffer, int size, int writing, void *data);

static inline void cleanup_bio(BIO **bio)
{
    BIO_free_all(*bio);
}

#endif
