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

/**
 * Write a file that is not there yet, mode 0600, and have it on the disk. Nothing stays of one that
 * could not be written. Returns 0, -EEXIST, or -errno.
 */
MUST_CHECK int private_file_create(const char *path, const void *bytes, size_t size);

/**
 * The same in place of one that is there, in one step: who reads it finds the old or the new one.
 * The folder must be nobody else's. Returns 0 or -errno.
 */
MUST_CHECK int private_file_replace(const char *path, const void *bytes, size_t size);

#endif
