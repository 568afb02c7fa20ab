#ifndef RESEAT_STATE_RECIPE_CONTAINER_H
#define RESEAT_STATE_RECIPE_CONTAINER_H

#include <stdbool.h>

#include "state/recipe/recipe.h"

/*
 * The portable container: what CL_PROGRAM_BINARIES returns and clCreateProgramWithBinary accepts,
 * on any device. Little-endian: a header (magic, version, flags, payload size, checksum of
 * everything) and the recipe, step by step; the inputs follow their step, and a step of source is
 * followed by the headers that it included.
 */

/** Largest container, in bytes. */
#define CONTAINER_SIZE_MAX ((size_t)256 << 20)
/** Most steps in one container: a library that is linked several times is written several times. */
#define CONTAINER_STEPS_MAX 65536u

/**
 * Write @recipe as a container. The same recipe always gives the same bytes.
 *
 * @ret_bytes  Owned by the caller (free()).
 * Returns 0, -ENOMEM, or -E2BIG (over a limit above).
 */
MUST_CHECK int container_write(const struct recipe *recipe, unsigned char **ret_bytes,
                               size_t *ret_size);

/**
 * Read a container. Nothing in @bytes is trusted.
 *
 * Returns 0, -EBADMSG (not a container, altered, truncated, or with something behind it), -ENOTSUP
 * (of a later version) or -ENOMEM. One of the first version lacks headers: they are read
 * from the disk, as it is now.
 */
MUST_CHECK int container_read(const void *bytes, size_t size, struct recipe **ret_recipe);

/**
 * What a binary that is not a container seems to be, for the log: "ELF for machine 190", "PTX"...
 *
 * @ret_text  Always terminated; cut where @text_size is short.
 */
void container_describe(const void *bytes, size_t size, char *ret_text, size_t text_size);

#endif
