#ifndef RESEAT_REMOTE_IDENTITY_PRIVATE_FILE_H
#define RESEAT_REMOTE_IDENTITY_PRIVATE_FILE_H

#include <limits.h>
#include <stddef.h>

#include "state/base/compiler.h"
#include "state/base/files/folder.h"

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

#endif
