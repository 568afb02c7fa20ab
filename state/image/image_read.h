#ifndef RESEAT_STATE_IMAGE_IMAGE_READ_H
#define RESEAT_STATE_IMAGE_IMAGE_READ_H

#include "state/image/image_folder.h"

/*
 * Reading an image back: all bytes of it, or some, or only to see that they are good.
 */

/** Where an object's bytes go. */
struct image_sink {
    const struct image_contents *contents;
    char *bytes; /**< As many as it has; NULL: they are only compared with their digests. */
    bool zero;   /**< They are zero now, so that zeros need not be written. */
};

struct image_reading {
    const struct image_sink *sinks;
    size_t count;
    /** As of struct image_plan. */
    int (*check)(void *data, uint64_t done, uint64_t total);
    void *data;
};

/**
 * Read what the sinks want. Threads of its own read and unpack. On failure bytes may be anything.
 *
 * @ret_problem  Which chunk of which object, and what is wrong with it.
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
