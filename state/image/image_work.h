#ifndef RESEAT_STATE_IMAGE_IMAGE_WORK_H
#define RESEAT_STATE_IMAGE_IMAGE_WORK_H

#include "state/base/compiler.h"
#include "state/image/image_chunk.h"

/** What a thread that reads or writes chunks has to itself. */
struct image_worker {
    struct image_packer *packer;
    unsigned char *room; /**< Of a chunk's file. */
    char *unpacked;      /**< Of a chunk. */
};

/**
 * Have threads of ours do @count jobs, each once, until one fails.
 *
 * @job  Returns 0 or -errno.
 * Returns 0, -ENOMEM, or what the first one that failed returned.
 */
MUST_CHECK int image_work(size_t count, int (*job)(void *data, struct image_worker *, size_t index),
                          void *data);

#endif
