#ifndef RESEAT_STATE_BASE_FILES_FILE_H
#define RESEAT_STATE_BASE_FILES_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/files/owned.h"

/*
 * Files of ours: each is complete or absent, and is only read if it is a regular file of the user
 * that nobody else can write. Within an open folder no link is followed. Thread-safe; all block on
 * the disk.
 */

/** One of the parts that a file is made of. */
struct file_part {
    const void *bytes;
    size_t size;
};

/**
 * Create a file with the content @parts and mode 0600. When this returns it is on the disk, and
 * dropped from the kernel's page cache. On failure it does not exist.
 *
 * @folder  Or NULL: @name is a path.
 *
 * Returns 0, -EEXIST, -EFBIG (RLIMIT_FSIZE), -ENOSPC, or -errno.
 */
MUST_CHECK int file_make(const struct owned *folder, const char *name,
                         const struct file_part *parts, size_t count);

/** Remove unfinished files of file_replace that killed processes left, if older than an hour. What
 * cannot be removed stays. */
void file_sweep(const struct owned *folder);
/**
 * Replace the file @name by a new one with mode 0600: other processes see the old one or the new
 * one.
 *
 * @sync  The bytes are on the disk when this returns, and the name after file_sync(). Without it a
 * crash of the machine may cut the file short.
 *
 * Returns 0, -EFBIG (RLIMIT_FSIZE), -ENOSPC, or -errno: then all is as it was.
 */
MUST_CHECK int file_replace(const struct owned *folder, const char *name, const void *bytes,
                            size_t size, bool sync);
/** The same with a path, the folders of which may be links; synced. */
MUST_CHECK int file_replace_path(const char *path, const void *bytes, size_t size);

/**
 * Read up to @room bytes of a file, from its beginning.
 *
 * @ret_size  Of the file.
 * Returns 0, -ENOENT, -EPERM (it is not the user's own, or not a regular file), -EBADMSG (it ended
 * sooner than it said), or -errno.
 */
MUST_CHECK int file_read(const struct owned *folder, const char *name, void *bytes, size_t room,
                         uint64_t *ret_size);
/**
 * Read all of a file of at most @limit bytes.
 *
 * @ret_bytes  The caller's (free()); a NUL follows that @ret_size does not count.
 * Returns as file_read, -EFBIG or -ENOMEM.
 */
MUST_CHECK int file_read_all(const struct owned *folder, const char *name, size_t limit,
                             char **ret_bytes, size_t *ret_size);
/** The same for the open file @fd, whoever may write it; -EINVAL: it is not a regular file. */
MUST_CHECK int file_load(int fd, size_t limit, char **ret_bytes, size_t *ret_size);

/** Sync the names that were changed in @folder to the disk. 0 or -errno. */
MUST_CHECK int file_sync(const struct owned *folder);

/** Open the folder @name that is the user's alone: in @folder, or, where that is NULL, a path. 0,
 * -ENOENT, -EPERM or -errno. */
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

/**
 * Open a file that the user named, to write to it. In a shared folder (/tmp) another user may have
 * put a link, a pipe or a file of theirs in its place: so no link is followed except those of /dev
 * and /proc (/dev/stderr), and the file must belong to the user or root and have no second name.
 *
 * @flags  Of open(2), with O_WRONLY; what is made has the mode 0600. O_TRUNC happens once all this
 *         is known. O_NONBLOCK: what is written to a pipe is lost where it is full.
 *
 * Never blocks. Returns a descriptor, -ELOOP (a link), -EPERM (another user's, or it has a second
 * name), -ENXIO (a pipe that nobody reads), or -errno. Thread-safe.
 */
MUST_CHECK int file_open_named(const char *path, int flags);

/**
 * Occupy those of the descriptors 0, 1 and 2 that are closed, so that no file or connection opened
 * later gets such a number, and what is printed. Using them fails as before, and a program that is
 * executed finds them closed. For the beginning of main().
 */
void file_hold_standard(void);

#endif
