#ifndef RESEAT_STATE_DRIVER_ANSWERS_H
#define RESEAT_STATE_DRIVER_ANSWERS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * Answers that a driver gave once are kept with the object and given again wherever it lives later,
 * so that what the program was told stays true (M3).
 */

struct answer {
    struct answer *next;
    uint32_t query;    /**< The cl_*_info, and whatever else the caller adds to it. */
    uint32_t key_size; /**< Size of the input that the answer depends on, which is at the start of
                          bytes. */
    size_t size;       /**< Size of the answer, which is aligned behind the key. */
    unsigned char bytes[];
};

/** Zeroed is empty. Only ever grows, so that readers need no lock. */
struct answers {
    struct answer *_Atomic first;
};

/**
 * The answer that was given before, or NULL. Valid until answers_finish. Wait-free.
 * @ret_size  Its size; untouched when there is none.
 */
const void *answers_find(const struct answers *answers, uint32_t query, const void *key,
                         size_t key_size, size_t *ret_size);
/**
 * Keep a copy of an answer. If two threads add the same one, the first stays and both get it.
 * Returns the answer that counts from now on, or NULL without memory. Lock-free.
 * @ret_size  Its size.
 */
const void *answers_add(struct answers *answers, uint32_t query, const void *key, size_t key_size,
                        const void *value, size_t size, size_t *ret_size);
void answers_finish(struct answers *answers);

#endif
