#ifndef RESEAT_STATE_IMAGE_IMAGE_READ_H
#define RESEAT_STATE_IMAGE_IMAGE_READ_H

#include "state/image/image_folder.h"

/* Reads an image: all bytes of it, or some, or only to check them. */

/** The destination of an object's bytes. */
struct image_sink {
    const struct image_contents *contents;
    char *bytes; /**< Room for all of its bytes; NULL: they are only compared with their digests. */
    bool zero;   /**< @bytes are zero, so that zeros need not be written. */
};

struct image_reading {
    const struct image_sink *sinks;
    size_t count;
    /** As in struct image_plan. */
    int (*check)(void *data, uint64_t done, uint64_t total);
    void *data;
};

/**
 * Read the bytes for all sinks, with several threads. On failure the bytes are undefined.
 *
 * @ret_problem  Which chunk of which object is wrong, and why.
 * Blocks on the disk. Returns 0, -EBADMSG, -ENOMEM, what check() says, or -errno.
 */
MUST_CHECK int image_read(const struct image_folder *folder, const struct image_reading *reading,
                          char ret_problem[IMAGE_PROBLEM_MAX]);

/** Compare all bytes of an image with their digests. As image_read(). */
MUST_CHECK int image_verify(const struct image_folder *folder,
                            const struct image_manifest *manifest,
                            int (*check)(void *data, uint64_t done, uint64_t total), void *data,
                            char ret_problem[IMAGE_PROBLEM_MAX]);

#endif
