#ifndef RESEAT_STATE_BASE_BYTES_CONTENT_HASH_H
#define RESEAT_STATE_BASE_BYTES_CONTENT_HASH_H

#include <sodium/crypto_generichash.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "state/base/bytes/little_endian.h"

/*
 * What stands for a content, in names that outlive the process: BLAKE2b, 256 bits. Sources may come
 * from others than the user whose programs build them, so that nobody must be able to find two with
 * one name. libsodium's, linked statically and hidden: a program may have another version of its
 * own. Without sodium_init(), which would choose a faster implementation of the same function and
 * open what only random numbers need.
 *
 * Each item goes in with its length, so that no two sequences of items are the same bytes.
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

#endif
