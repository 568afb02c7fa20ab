#ifndef RESEAT_REMOTE_IDENTITY_CERTIFICATE_H
#define RESEAT_REMOTE_IDENTITY_CERTIFICATE_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "remote/identity/crypto.h"
#include "remote/identity/grant.h"
#include "state/base/files/folder.h"

/*
 * Certificates of a private authority: what is in them, made and read. Keys are Ed25519: small, no
 * parameters to choose, and no random numbers needed for a signature, which a machine that has just
 * booted may not have. Thread-safe.
 *
 * A server's has its name as a DNS name, a client's its name as the common name, and its grant
 * (grant.h) as a UTF8String in an extension that is not critical, so that OpenSSL's own checks can
 * be used; a server of ours takes no client without it.
 */

/** The extension's number, made from a UUID (X.667), for which nobody has to be asked. */
#define CERTIFICATE_GRANT_OID "2.25.229027143070926975752447713416663957689"

#define CERTIFICATE_NAME_MAX   65 /**< Bytes of a client's name, with the NUL, as X.520 has it. */
#define CERTIFICATE_SERIAL_MAX 41 /**< Hex digits of any serial number, with the NUL. */

enum certificate_kind { CERTIFICATE_AUTHORITY, CERTIFICATE_SERVER, CERTIFICATE_CLIENT };

struct certificate_wish {
    enum certificate_kind kind;
    const char *name;
    const struct grant *grant; /**< Of a client. */
    time_t from, until;        /**< It ends no later than its authority's in any case. */
};

/** Letters, digits and "._-", the first no dot or dash: what a client may be called. */
bool certificate_name_is_valid(const char *name);

/** A new key. NULL: crypto_problem() says why. */
EVP_PKEY *certificate_new_key(void);

/**
 * Make a certificate for @key, with a serial number that nobody can guess.
 *
 * @authority, @authority_key  Who signs it; NULL and @key: it itself does.
 * Returns NULL when it cannot be made: crypto_problem() says why.
 */
X509 *certificate_make(const struct certificate_wish *wish, EVP_PKEY *key, X509 *authority,
                       EVP_PKEY *authority_key);

/** The common name; only one, and one that is valid. 0 or -EINVAL. */
MUST_CHECK int certificate_name(const X509 *certificate, char ret_name[CERTIFICATE_NAME_MAX]);

/** The grant. 0, -ENOENT (there is none), -EINVAL (more than one, or it cannot be read). */
MUST_CHECK int certificate_grant(const X509 *certificate, struct grant *ret_grant);

/** The serial number in hex; 0 or -EINVAL (it is longer than any may be). */
MUST_CHECK int certificate_serial(const X509 *certificate, char ret_serial[CERTIFICATE_SERIAL_MAX]);

/**
 * Read what certificate_make() and certificate_new_key() made from PEM blocks, one after the other
 * from @from. NULL: the next block that is there is none.
 */
X509 *certificate_read(BIO *from);
EVP_PKEY *certificate_read_key(BIO *from);
/** Write them. False without memory. */
bool certificate_write(BIO *to, X509 *certificate);
bool certificate_write_key(BIO *to, EVP_PKEY *key);

/*
 * Certificates that do not count any more, in a file with a line for each: "SERIAL NAME". A server
 * reads it at each handshake, once the certificate has been found to be its authority's.
 * Thread-safe.
 */

/**
 * Is the certificate of this serial number revoked?
 *
 * @path         Of the list. One that is missing, damaged, or not this user's alone revokes
 *               everybody: whoever can take the list away must not get anyone back in.
 * @ret_problem  Written where the list itself is at fault.
 * Returns 0 (it counts), -EKEYREVOKED, or why the list cannot be read.
 */
MUST_CHECK int revoked_check(const char *path, const char *serial,
                             char ret_problem[FOLDER_PROBLEM_MAX]);

/** The same in the bytes of a list. 0, -EKEYREVOKED or -EINVAL. */
MUST_CHECK int revoked_find(const char *bytes, size_t size, const char *serial);

#endif
