#ifndef RESEAT_STATE_BASE_BYTES_CONTENT_HASH_H
#define RESEAT_STATE_BASE_BYTES_CONTENT_HASH_H

#include <sodium/crypto_generichash.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "state/base/bytes/little_endian.h"

/*
 * A digest that names content and outlives the process: BLAKE2b, 256 bits. Sources may come from
 * other users than the one who builds them, so collisions must be infeasible. It is libsodium's,
 * linked statically and hidden, because a program may have another version. sodium_init() is not
 * called: it would only choose a faster implementation and open files needed for random numbers.
 *
 * Each item is hashed with its length, so that no two sequences of items give the same bytes.
 */

#define CONTENT_HASH_SIZE 32

struct content_hash {
    crypto_generichash_state state;
};

static inline void content_hash_begin(struct content_hash *hash)
{
    (void)crypto_generichash_init(&hash->state, NULL, 0, CONTENT_HASH_SIZE);
}

static inline void content_hash_number(struct content_hash *hash, uint64_t number)
{
    unsigned char bytes[8];
    little_endian_put(bytes, number, sizeof(bytes));
    (void)crypto_generichash_update(&hash->state, bytes, sizeof(bytes));
}

static inline void content_hash_bytes(struct content_hash *hash, const void *bytes, size_t size)
{
    content_hash_number(hash, size);
    if (size)
        (void)crypto_generichash_update(&hash->state, (const unsigned char *)bytes, size);
}

static inline void content_hash_string(struct content_hash *hash, const char *string)
{
    content_hash_bytes(hash, string, strlen(string));
}

static inline void content_hash_end(struct content_hash *hash, unsigned char ret[CONTENT_HASH_SIZE])
{
    (void)crypto_generichash_final(&hash->state, ret, CONTENT_HASH_SIZE);
}

/** Of one item. */
static inline void content_hash_of(const void *bytes, size_t size,
                                   unsigned char ret[CONTENT_HASH_SIZE])
{
    struct content_hash hash;
    content_hash_begin(&hash);
    content_hash_bytes(&hash, bytes, size);
    content_hash_end(&hash, ret);
}

#endif
