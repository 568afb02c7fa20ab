#ifndef RESEAT_REMOTE_IDENTITY_REVOKED_H
#define RESEAT_REMOTE_IDENTITY_REVOKED_H

#include <stddef.h>

#include "remote/identity/certificate.h"
#include "state/base/files/folder.h"

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
