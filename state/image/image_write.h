#ifndef RESEAT_STATE_IMAGE_IMAGE_WRITE_H
#define RESEAT_STATE_IMAGE_IMAGE_WRITE_H

#include "state/image/image_folder.h"

/*
 * Writes an image: it is either complete, and on the disk, or absent, whatever happens in between.
 * Existing images are not touched.
 */

/** One object's bytes. */
struct image_source {
    uint64_t id;   /**< As in the record IMAGE_MEMORY. */
    uint64_t size; /**< IMAGE_SIZE_MAX at most. */
    bool written;  /**< False: never written, so its bytes are not read. */
    /**
     * Returns the bytes [@at, @at + @size), which must not change until the image is written: their
     * address, or @room, which has @size bytes. NULL: they cannot be read. Called by several
     * threads at once.
     */
    const void *(*look)(const struct image_source *source, uint64_t at, size_t size, void *room);
    void *data; /**< For `look`. */
    /** For each part (image_part_total) a number that changes whenever the bytes differ from those
     * of the previous image; 0: unknown. Or NULL. */
    const uint64_t *stamps;
};

/** Stamps and digests of the previous image, so that unchanged parts are neither read nor written
 * again. Zeroed at first; for one folder. */
struct image_known {
    struct image_known_chunks *objects; /**< By id. */
    size_t count;
};
void image_known_finish(struct image_known *known);

enum image_packing {
    IMAGE_PACKS_IF_FASTER, /**< If compressing is faster than writing plain bytes, as measured
                              meanwhile. */
    IMAGE_PACKS,
    IMAGE_PACKS_NOT,
};

struct image_plan {
    /** IMAGE_ABOUT first; the contents are added. Owned by the caller. */
    struct image_manifest *manifest;
    const struct image_source *sources;
    size_t count;
    struct image_known *known; /**< Or NULL. Updated to this image once it is written. */
    enum image_packing packing;
    /** Called by several threads with the bytes done and in all. Returns 0, or the error to give up
     * with. Or NULL. */
    int (*check)(void *data, uint64_t done, uint64_t total);
    void *data;
};

struct image_written {
    char name[IMAGE_NAME_MAX];
    uint64_t bytes;  /**< Bytes of the program's objects. */
    uint64_t stored; /**< Bytes of new files, without the manifest. */
    uint64_t chunks; /**< Chunks that are not zero. */
    uint64_t shared; /**< Chunks that the folder had already. */
};

/**
 * Write an image into a folder that is open for writing. Several threads read, compress and write.
 *
 * @ret_problem  One line, on failure.
 * Blocks on the disk. Returns 0, -ENOSPC, -EFBIG, -EFAULT (bytes cannot be read), -ENOMEM, the
 * error of check(), or -errno.
 */
MUST_CHECK int image_write(struct image_folder *folder, const struct image_plan *plan,
                           struct image_written *ret_written, char ret_problem[IMAGE_PROBLEM_MAX]);

#endif
