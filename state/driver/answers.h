#ifndef RESEAT_STATE_DRIVER_ANSWERS_H
#define RESEAT_STATE_DRIVER_ANSWERS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * What the program was told stays true (M3): answers that a driver gave once are kept with the
 * object, and given again wherever it lives later.
 */

struct answer {
    struct answer *next;
    uint32_t query;    /**< The cl_*_info, and whatever else the caller puts into it. */
    uint32_t key_size; /**< Of the input that the answer depends on; at the start of bytes. */
    size_t size;       /**< Of the answer, aligned behind the key. */
    unsigned char bytes[];
};

/** Zeroed is empty. Only ever grows, so that readers need no lock. */
struct answers {
    struct answer *_Atomic first;
};

/**
 * The answer that was given, or NULL. Valid until answers_finish. Wait-free.
 * @ret_size  Its size; untouched when there is none.
 */
const void *answers_find(const struct answers *answers, uint32_t query, const void *key,
                         size_t key_size, size_t *ret_size);
/**
 * Keep an answer, copied. Where two threads add the same one, the first stays and both are given
 * it. Returns the answer that counts from now on, or NULL without memory. Lock-free.
 * @ret_size  Its size.
 */
const void *answers_add(struct answers *answers, uint32_t query, const void *key, size_t key_size,
                        const void *value, size_t size, size_t *ret_size);
void answers_finish(struct answers *answers);

#endif
