#ifndef RESEAT_STATE_LIBRARY_LIBRARY_ENTRY_H
#define RESEAT_STATE_LIBRARY_LIBRARY_ENTRY_H

#include "state/library/library.h"

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

#endif
