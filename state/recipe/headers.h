#ifndef RESEAT_STATE_RECIPE_HEADERS_H
#define RESEAT_STATE_RECIPE_HEADERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * What a build or compilation includes from the disk, kept as it was: nothing is read again later.
 * It is found by reading the directives, without their conditions, so that whatever some device may
 * include is there.
 */

struct recipe;

#define HEADERS_MAX       4096u
#define HEADERS_BYTES_MAX ((size_t)64 << 20)
#define HEADER_PATH_MAX   4096u

struct header {
    char *path;    /**< As the search made it, from the working folder of then. */
    uint32_t same; /**< The first of the list that is the same file: itself or an earlier one. */
    char
        *bytes; /**< NULL where an earlier one has them; a NUL that @size does not count follows. */
    size_t size;
};

struct headers {
    struct header *list;
    uint32_t count;
    bool partial; /**< More than the limits above, or not sure: it has to be built from the disk. */
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

/** A recipe as a driver can follow it where the disk is not what it was. */
struct staged {
    struct recipe *recipe; /**< A reference; includes what is in the folder alone. */
    char **paths;          /**< What was made for it, in that order. */
    size_t count;
};
/**
 * Write what @recipe keeps into a folder that is the user's alone.
 * 0, -ENOMEM, or -errno where no folder could be made.
 */
MUST_CHECK int headers_stage(const struct recipe *recipe, struct staged *ret_staged);
void headers_unstage(struct staged *staged);

#endif
