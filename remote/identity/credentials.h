#ifndef RESEAT_REMOTE_IDENTITY_CREDENTIALS_H
#define RESEAT_REMOTE_IDENTITY_CREDENTIALS_H

#include "remote/identity/address.h"
#include "remote/identity/certificate.h"
#include "state/base/files/folder.h"

/*
 * Who one end of a link is, and whom it believes: a key, its certificate, and the certificate of
 * the private authority that made it. One file has all of it, which is all that a client's machine
 * needs: a first line "reseat-server: NAME" (the server that a client means; of a server its own
 * name), and PEM blocks of the key, its certificate and the authority's, in this order.
 */
struct credentials {
    EVP_PKEY *key;
    X509 *certificate;
    X509 *authority;
    char server[ADDRESS_HOST_MAX];
};

/**
 * Read such a file, of this user's alone (private_file.h).
 *
 * @ret_problem  Written on failure only.
 * Returns 0, -EINVAL (it is not whole, or its parts do not belong together), -EPERM, -EFBIG,
 * -ENOMEM, -ENOSYS (no OpenSSL), or what open() said. Thread-safe.
 */
MUST_CHECK int credentials_load(const char *path, struct credentials *ret_credentials,
                                char ret_problem[FOLDER_PROBLEM_MAX]);

/** The same, of bytes that were read. @name: what they are called in the problem. */
MUST_CHECK int credentials_parse(const char *name, const char *bytes, size_t size,
                                 struct credentials *ret_credentials,
                                 char ret_problem[FOLDER_PROBLEM_MAX]);

/** The bytes of such a file; private_file_free() them. 0 or -ENOMEM. */
MUST_CHECK int credentials_print(const struct credentials *credentials, char **ret_bytes,
                                 size_t *ret_size);

/** Idempotent; the key's bytes are wiped with the last who uses it. */
void credentials_finish(struct credentials *credentials);

/**
 * Look at the environment now, and not again: for a process whose other threads may change it while
 * one of ours connects. Once, before credentials_find() is called. 0 or -ENOMEM.
 */
MUST_CHECK int credentials_remember(void);

/**
 * Where a client's credentials for a server are: $RESEAT_CREDENTIALS, else in
 * $XDG_CONFIG_HOME/reseat/servers or ~/.config/reseat/servers: HOST.pem of tcp, vsock-CID.pem, else
 * the only file there is. Whom they are for is in the file: so one file will do for all addresses
 * of its server. Who runs a program with the rights of another user does not choose the variable.
 *
 * Returns 0, -ENOENT (no home, or no file), -ENOTUNIQ (several files, none called so), -EINVAL (the
 * variable is not absolute) or -ENAMETOOLONG.
 */
MUST_CHECK int credentials_find(const struct address *address, char ret_path[PATH_MAX]);

#endif
