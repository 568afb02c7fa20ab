#ifndef RESEAT_STATE_IMAGE_IMAGE_WRITE_H
#define RESEAT_STATE_IMAGE_IMAGE_WRITE_H

#include "state/image/image_folder.h"

/*
 * Writing an image: it is either there whole, and on the disk, or not at all, whatever happens in
 * between. Images that were there before are not touched.
 */

/** One object's bytes. */
struct image_source {
    uint64_t id;   /**< As of the record IMAGE_MEMORY. */
    uint64_t size; /**< IMAGE_SIZE_MAX at most. */
    bool written;  /**< False: it never was, and nothing is looked at. */
    /**
     * The bytes [@at, @at + @size), which do not change until the image is written: where they are,
     * or in @room, which has as many. NULL: they cannot be had. By several threads at once.
     */
    const void *(*look)(const struct image_source *source, uint64_t at, size_t size, void *room);
    void *data; /**< For it. */
    /** Of each part (image_part_total), or NULL: a number that differs from the one it had when the
     * image before was written, unless its bytes are the same; 0: nobody knows. */
    const uint64_t *stamps;
};

/** What the image before had as stamps and digests, so that what did not change is not looked at,
 * and not written where it is beside what did. Zero at first; for one folder. */
struct image_known {
    struct image_known_chunks *objects; /**< By id. */
    size_t count;
};
void image_known_finish(struct image_known *known);

enum image_packing {
    IMAGE_PACKS_IF_FASTER, /**< Than to write what is not packed; as measured meanwhile. */
    IMAGE_PACKS,
    IMAGE_PACKS_NOT,
};

struct image_plan {
    /** IMAGE_ABOUT first; the contents are added. The caller's. */
    struct image_manifest *manifest;
    const struct image_source *sources;
    size_t count;
    struct image_known *known; /**< Or NULL. Of this image once it is written. */
    enum image_packing packing;
    /** 0, or the error to give up with; or NULL. Told how many bytes are done of how many. Called
     * by several threads. */
    int (*check)(void *data, uint64_t done, uint64_t total);
    void *data;
};

struct image_written {
    char name[IMAGE_NAME_MAX];
    uint64_t bytes;  /**< Of the program. */
    uint64_t stored; /**< In files that are new, without the manifest. */
    uint64_t chunks; /**< That are not zero. */
    uint64_t shared; /**< Of these, those that were there already. */
};

/**
 * Write an image into a folder that is open for that. Threads of its own read, pack and write.
 *
 * @ret_problem  One line, on failure.
 * Blocks on the disk. Returns 0, -ENOSPC, -EFBIG, -EFAULT (bytes cannot be had), -ENOMEM, what
 * check() says, or -errno.
 */
MUST_CHECK int image_write(struct image_folder *folder, const struct image_plan *plan,
                           struct image_written *ret_written, char ret_problem[IMAGE_PROBLEM_MAX]);

#endif
