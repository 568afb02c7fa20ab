#ifndef RESEAT_STATE_BASE_FILES_FILE_H
#define RESEAT_STATE_BASE_FILES_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "state/base/files/owned.h"

/*
 * Files of an image's folder: made whole and on the disk, or not at all; read only where they are
 * regular files of the user's that nobody else can write. No link is followed. Thread-safe; all
 * block on the disk.
 */

/** One of the parts that a file is made of. */
struct file_part {
    const void *bytes;
    size_t size;
};

/**
 * Make a file of @parts, which is on the disk when this returns, and no longer in memory that the
 * kernel keeps for files. On failure there is none.
 *
 * Returns 0, -EEXIST, -EFBIG (RLIMIT_FSIZE), -ENOSPC, or -errno.
 */
MUST_CHECK int file_make(const struct owned *folder, const char *name,
                         const struct file_part *parts, size_t count);
/**
 * Read up to @room bytes of a file, from its beginning.
 *
 * @ret_size  Of the file.
 * Returns 0, -ENOENT, -EPERM (it is not the user's own, or not a regular file), -EBADMSG (it ended
 * sooner than it said), or -errno.
 */
MUST_CHECK int file_read(const struct owned *folder, const char *name, void *bytes, size_t room,
                         uint64_t *ret_size);
/** Have what was renamed, made and removed in @folder be on the disk. 0 or -errno. */
MUST_CHECK int file_sync(const struct owned *folder);

/** Open a folder in @folder that is the user's alone. 0, -ENOENT, -EPERM or -errno. */
MUST_CHECK int file_folder(const struct owned *folder, const char *name, struct owned *ret_folder);
/** The names in @folder, in the order of bytes, without "." and "..".
 * @ret_names  The caller's (file_names_finish).
 * Returns 0, -ENOMEM or -errno. */
struct file_names {
    char **names;
    size_t count;
};
MUST_CHECK int file_names(const struct owned *folder, struct file_names *ret_names);
void file_names_finish(struct file_names *names);

#endif
