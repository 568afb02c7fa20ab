#ifndef RESEAT_REMOTE_IDENTITY_CERTIFICATE_H
#define RESEAT_REMOTE_IDENTITY_CERTIFICATE_H

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stddef.h>
#include <time.h>

#include "remote/identity/grant.h"
#include "state/base/compiler.h"
#include "state/base/files/folder.h"

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

/*
 * Makes and reads the certificates of a private authority. Keys are Ed25519: they are small, have
 * no parameters to choose, and signing needs no random numbers, which a machine that has just
 * booted may lack. Thread-safe.
 *
 * A server's certificate has the server's name as a DNS name. A client's certificate has the
 * client's name as the common name, and its grant (grant.h) as a UTF8String in an extension. The
 * extension is not critical, because OpenSSL's verification rejects critical extensions that it
 * does not know. A device server admits no client whose certificate lacks the extension.
 */

/** Object identifier of the extension. It is made from a UUID (X.667), so that it is unique without
 *  registration. */
#define CERTIFICATE_GRANT_OID "2.25.229027143070926975752447713416663957689"

#define CERTIFICATE_NAME_MAX   65 /**< Bytes of a client's name, with the NUL. X.520 allows 64. */
#define CERTIFICATE_SERIAL_MAX 41 /**< Bytes of a serial number in hex, with the NUL. */

enum certificate_kind { CERTIFICATE_AUTHORITY, CERTIFICATE_SERVER, CERTIFICATE_CLIENT };

struct certificate_wish {
    enum certificate_kind kind;
    const char *name;
    const struct grant *grant; /**< For a client; else NULL. */
    time_t from, until; /**< Validity. A later end than the authority's is shortened to that. */
};

/** Is @name a valid name of a client? It has letters, digits and "._-", and does not begin with a
 *  dot or a dash. */
bool certificate_name_is_valid(const char *name);

/** Make a new key. Returns NULL on failure; crypto_problem() then gives the reason. */
EVP_PKEY *certificate_new_key(void);

/**
 * Make a certificate for @key, with a random serial number.
 *
 * @authority, @authority_key  Sign the certificate. If @authority is NULL, it is self-signed.
 * Returns NULL on failure; crypto_problem() then gives the reason.
 */
X509 *certificate_make(const struct certificate_wish *wish, EVP_PKEY *key, X509 *authority,
                       EVP_PKEY *authority_key);

/** Get the common name. Returns 0, or -EINVAL if there is not exactly one or it is not valid. */
MUST_CHECK int certificate_name(const X509 *certificate, char ret_name[CERTIFICATE_NAME_MAX]);

/** Get the grant. Returns 0, -ENOENT (there is none), or -EINVAL (more than one, or malformed). */
MUST_CHECK int certificate_grant(const X509 *certificate, struct grant *ret_grant);

/** Get the serial number in hex. Returns 0, or -EINVAL if it is empty or too long. */
MUST_CHECK int certificate_serial(const X509 *certificate, char ret_serial[CERTIFICATE_SERIAL_MAX]);

/**
 * Read the next certificate or private key in PEM format from @from. Blocks of other types are
 * skipped. Returns NULL if there is none, or if it is malformed.
 */
X509 *certificate_read(BIO *from);
EVP_PKEY *certificate_read_key(BIO *from);
/** Write one in PEM format. Returns false if memory is exhausted. */
bool certificate_write(BIO *to, X509 *certificate);
bool certificate_write_key(BIO *to, EVP_PKEY *key);

/*
 * The list of revoked certificates: a file with a line "SERIAL NAME" for each. A server reads it at
 * each handshake, after it has verified that its authority signed the client's certificate.
 * Thread-safe.
 */

/**
 * Is the certificate with this serial number revoked?
 *
 * @path         The list's file. If it is missing, damaged, or accessible to other users, this
 *               fails and the caller admits no client: deleting the list must not restore access.
 * @ret_problem  Written if the list cannot be read or is damaged.
 * Returns 0 (not revoked), -EKEYREVOKED, -EINVAL (the list is damaged), or as private_file_read().
 */
MUST_CHECK int revoked_check(const char *path, const char *serial,
                             char ret_problem[FOLDER_PROBLEM_MAX]);

/** As revoked_check(), on a list in memory. Returns 0, -EKEYREVOKED or -EINVAL. */
MUST_CHECK int revoked_find(const char *bytes, size_t size, const char *serial);

#endif
