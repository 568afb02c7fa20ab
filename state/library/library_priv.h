#ifndef RESEAT_STATE_LIBRARY_LIBRARY_PRIV_H
#define RESEAT_STATE_LIBRARY_LIBRARY_PRIV_H

#include "state/base/files/folder.h"
#include "state/base/files/owned.h"
#include "state/library/library.h"

/**
 * Open the folder, made where it is missing, if it is the user's alone.
 *
 * @ret_folder   The caller's (owned_close).
 * @ret_problem  One line, on failure.
 */
MUST_CHECK int library_open(const struct library *library, struct owned *ret_folder,
                            char ret_problem[FOLDER_PROBLEM_MAX]);

/** One file of the folder, as fstatat() sees it. */
struct library_file {
    char name[LIBRARY_NAME_MAX];
    uint64_t size, used_ns;
};
/** All entries' files, those not used for the longest first; what a dead process left unfinished is
 * removed. @ret_files: the caller's (free()). Returns 0, -ENOMEM or -errno. */
MUST_CHECK int library_files(const struct owned *folder, struct library_file **ret_files,
                             size_t *ret_count);
/** Files that are written, until they are whole. */
#define LIBRARY_UNFINISHED "new-"

/** The bytes of an entry's file: free(). NULL without memory, or where it is too long. */
unsigned char *library_entry_write(const struct library_entry *entry, const struct library_key *key,
                                   size_t *ret_size);
/**
 * Read what library_entry_write() wrote; nothing in @bytes is trusted.
 *
 * @size       Of what is at @bytes.
 * @file_size  The same; more: only the front is there, so that there is no log, no binary, and no
 *             checksum to compare.
 * @ret_entry  Its strings lead into @bytes; entry.bytes is left to the caller.
 * Returns 0 or -EBADMSG.
 */
MUST_CHECK int library_entry_read(const unsigned char *bytes, size_t size, uint64_t file_size,
                                  const struct library_key *key, struct library_entry *ret_entry);
/** Of every file: enough for the front of all but those with thousands of kernels. */
#define LIBRARY_FRONT_SIZE ((size_t)256 << 10)

/**
 * Read up to @limit bytes of the file of @name, if it is the user's own and nobody else can write
 * it, and note that it was used.
 *
 * @ret_bytes  The caller's (free()).
 * Returns 0, -ENOENT, -EPERM, -EBADMSG (too short or too long for an entry), -ENOMEM or -errno.
 */
MUST_CHECK int library_read_file(const struct owned *folder, const char *name, size_t limit,
                                 bool used, unsigned char **ret_bytes, size_t *ret_size,
                                 uint64_t *ret_file_size);

#endif
