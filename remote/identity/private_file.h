#ifndef RESEAT_REMOTE_IDENTITY_PRIVATE_FILE_H
#define RESEAT_REMOTE_IDENTITY_PRIVATE_FILE_H

#include <limits.h>
#include <stddef.h>

#include "state/base/compiler.h"
#include "state/base/files/folder.h"

/*
 * Files that nobody else may read, write, or put others in the place of (L3): keys, and the lists
 * that say whose certificates count. Thread-safe.
 */

/**
 * Read a file of this user's alone, of at most @limit bytes, with a NUL behind them.
 *
 * @path         Links are followed to where it is; that must be in folders that nobody else can
 *               change.
 * @ret_bytes    To be freed with private_file_free(), which leaves no copy in memory.
 * @ret_problem  On failure one line that names the file.
 * Returns 0, -EPERM (others may read or change it), -EFBIG, -ENOMEM, or what open() said.
 */
MUST_CHECK int private_file_read(const char *path, size_t limit, char **ret_bytes, size_t *ret_size,
                                 char ret_problem[FOLDER_PROBLEM_MAX]);
void private_file_free(char *bytes, size_t size);

#endif
