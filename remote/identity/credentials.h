#ifndef RESEAT_REMOTE_IDENTITY_CREDENTIALS_H
#define RESEAT_REMOTE_IDENTITY_CREDENTIALS_H

#include <limits.h>
#include <stddef.h>

#include "remote/identity/certificate.h"
#include "state/base/compiler.h"
#include "state/base/files/folder.h"
#include "state/server/address.h"

/*
 * Files that no other user except root can read, write or replace: keys, and the lists of issued
 * and revoked certificates. Thread-safe.
 */

/**
 * Read a file of at most @limit bytes that only this user can access. A NUL follows the bytes.
 *
 * @path         Symbolic links are followed. No other user may be able to change the folders above
 *               the file itself.
 * @ret_bytes    The caller frees them with private_file_free(), which wipes them first.
 * @ret_problem  Written on failure: one line that names the file.
 * Returns 0, -EPERM (other users can read or change the file, or it is not a regular file), -EFBIG,
 * -ENOMEM, or the error of realpath() or open().
 */
MUST_CHECK int private_file_read(const char *path, size_t limit, char **ret_bytes, size_t *ret_size,
                                 char ret_problem[FOLDER_PROBLEM_MAX]);
void private_file_free(char *bytes, size_t size);

/*
 * The credentials of one end of a link: its private key, its certificate, and the certificate of
 * the authority that signed it, which is the only authority that this end trusts. They are in one
 * file, and a client's machine needs no other. The file's first line is "reseat-server: NAME", with
 * the name of the server: for a client the one it connects to, for a server its own. PEM blocks
 * follow: the key, its certificate and the authority's certificate, in this order.
 */
struct credentials {
    EVP_PKEY *key;
    X509 *certificate;
    X509 *authority;
    char server[ADDRESS_HOST_MAX];
};

/**
 * Read credentials from a file that only this user can access.
 *
 * @ret_problem  Written on failure only.
 * Returns 0, -EINVAL (a part is missing or malformed, or the parts do not match), -EPERM, -EFBIG,
 * -ENOMEM, -ENOSYS (OpenSSL cannot be used), or the error of open(). Thread-safe.
 */
MUST_CHECK int credentials_load(const char *path, struct credentials *ret_credentials,
                                char ret_problem[FOLDER_PROBLEM_MAX]);

/** As credentials_load(), from a file's contents. @name names them in the problem. */
MUST_CHECK int credentials_parse(const char *name, const char *bytes, size_t size,
                                 struct credentials *ret_credentials,
                                 char ret_problem[FOLDER_PROBLEM_MAX]);

/** Make the contents of a credentials file, which the caller frees with private_file_free().
 * Returns 0 or -ENOMEM. */
MUST_CHECK int credentials_print(const struct credentials *credentials, char **ret_bytes,
                                 size_t *ret_size);

/** Release credentials. May be called twice. OpenSSL wipes the key with its last reference. */
void credentials_finish(struct credentials *credentials);

/**
 * Read the environment now, and let credentials_find() use the saved values. Needed in a process
 * whose other threads may change the environment at any time. Call this once, before the first
 * credentials_find(). Returns 0 or -ENOMEM.
 */
MUST_CHECK int credentials_remember(void);

/**
 * Find a client's credentials for a server: the file $RESEAT_CREDENTIALS. Without that variable, a
 * file in $XDG_CONFIG_HOME/reseat/servers or ~/.config/reseat/servers: HOST.pem for tcp,
 * vsock-CID.pem for vsock, or else the only .pem file there. The file contains the server's name,
 * so one file serves for all addresses of a server. The variable is ignored in a set-user-ID
 * program.
 *
 * Returns 0, -ENOENT (no home folder is known, or there is no file), -ENOTUNIQ (there are several
 * files, and none is named after the address), -EINVAL (the variable is not an absolute path) or
 * -ENAMETOOLONG.
 */
MUST_CHECK int credentials_find(const struct address *address, char ret_path[PATH_MAX]);

#endif
