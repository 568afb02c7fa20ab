#ifndef RESEAT_STATE_IMAGE_IMAGE_WORK_H
#define RESEAT_STATE_IMAGE_IMAGE_WORK_H

#include "state/base/compiler.h"
#include "state/image/image_chunk.h"

/** Buffers of a thread that reads or writes chunks. */
struct image_worker {
    struct image_packer *packer;
    unsigned char *room; /**< Room for a chunk's file. */
    char *unpacked;      /**< Room for a chunk. */
};

/** A chunk of one of several objects. */
struct image_job {
    uint32_t object;
    uint64_t chunk;
};
struct image_jobs {
    struct image_job *list; /**< free() */
    size_t count;
};
/** Add one for each of @count chunks. 0 or -ENOMEM. */
MUST_CHECK int image_jobs_add(struct image_jobs *jobs, size_t object, uint64_t count);

/**
 * Do @count jobs in several threads, each once, until one fails.
 *
 * @job  Returns 0 or -errno.
 * Returns 0, -ENOMEM, or the error of the first job that failed.
 */
MUST_CHECK int image_work(size_t count, int (*job)(void *data, struct image_worker *, size_t index),
                          void *data);

#endif
