#ifndef RESEAT_STATE_RECIPE_HEADERS_H
#define RESEAT_STATE_RECIPE_HEADERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * The files that a build or compilation includes from the disk, kept as they were: nothing is read
 * again later. They are found by reading the directives, ignoring conditions, so that everything
 * that any device may include is kept.
 */

struct recipe;

#define HEADERS_MAX       4096u
#define HEADERS_BYTES_MAX ((size_t)64 << 20)
#define HEADER_PATH_MAX   4096u

struct header {
    char *path; /**< Path that the search produced, relative to the working folder of that time. */
    uint32_t same; /**< Index of the first entry that is the same file: itself or an earlier one. */
    char *bytes; /**< NULL if an earlier entry has them; a NUL follows that @size does not count. */
    size_t size;
};

struct headers {
    struct header *list;
    uint32_t count;
    bool partial; /**< Incomplete: a limit above was exceeded, or a name is ambiguous. The program
                     must then be built from the disk. */
};

void headers_free(struct headers *headers);                          /**< NULL is allowed. */
bool headers_same(const struct headers *a, const struct headers *b); /**< NULL: none. */
/** @ret_headers  Owned by the caller; NULL of NULL. 0 or -ENOMEM. */
MUST_CHECK int headers_copy(const struct headers *headers, struct headers **ret_headers);
/** Copies @bytes. @same: the list's own count, or of an earlier one; then @bytes is not read. 0,
 *  -ENOMEM, or -E2BIG (a limit above). */
MUST_CHECK int headers_add(struct headers *headers, const char *path, uint32_t same,
                           const void *bytes, size_t size);

/**
 * Read what @recipe's step includes, as the disk and the working folder are now.
 * @ret_headers  Owned by the caller; NULL: nothing.
 * 0 or -ENOMEM. Blocks on the disk.
 */
MUST_CHECK int headers_read(const struct recipe *recipe, struct headers **ret_headers);

/** A recipe that a driver can build although the disk has changed. */
struct staged {
    struct recipe *recipe; /**< A reference; includes only files from the folder. */
    char **paths;          /**< Files and folders made for it, in this order. */
    size_t count;
};
/**
 * Write what @recipe keeps into a folder that is the user's alone.
 * 0, -ENOMEM, or -errno where no folder could be made.
 */
MUST_CHECK int headers_stage(const struct recipe *recipe, struct staged *ret_staged);
void headers_unstage(struct staged *staged);

#endif
