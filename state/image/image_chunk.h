#ifndef RESEAT_STATE_IMAGE_IMAGE_CHUNK_H
#define RESEAT_STATE_IMAGE_IMAGE_CHUNK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * Contents are cut into chunks, each in a file of its own that is named by the digest of its bytes,
 * so that what did not change is in the folder once for all images. A file is a header of fixed
 * size, then the bytes, or what zstd makes of them. Chunks of nothing but zeros have no file.
 *
 * Everything here is pure and thread-safe.
 */

/** Bytes of every chunk but an object's last. */
#define IMAGE_CHUNK ((size_t)2 << 20)
/** Of the file of a chunk. */
#define IMAGE_CHUNK_HEADER   24
#define IMAGE_CHUNK_FILE_MAX (IMAGE_CHUNK_HEADER + IMAGE_CHUNK)

/** SHA-256 of the bytes. All zeros: so are the bytes. */
#define IMAGE_DIGEST 32
struct image_digest {
    unsigned char bytes[IMAGE_DIGEST];
};
/** A chunk's name: its digest in small hexadecimal digits, with the NUL. */
#define IMAGE_CHUNK_NAME (2 * IMAGE_DIGEST + 1)

struct image_digest image_digest_of(const void *bytes, size_t size);
bool image_digest_is_zero(const struct image_digest *digest);
/** True when @size bytes are all zero. */
bool image_is_zero(const void *bytes, size_t size);

void image_chunk_name(const struct image_digest *digest, char ret[IMAGE_CHUNK_NAME]);
/** False: @name is no chunk's. */
bool image_chunk_name_read(const char *name, struct image_digest *ret_digest);

/** The header of a chunk of @size bytes. */
void image_chunk_header(unsigned char ret[IMAGE_CHUNK_HEADER], size_t size, bool packed);
/**
 * Is @header that of a chunk of @size bytes, in a file of @file_size? Returns NULL, or what is
 * wrong.
 */
const char *image_chunk_check(const unsigned char header[IMAGE_CHUNK_HEADER], uint64_t file_size,
                              size_t size);

struct image_packer; /* one thread's */

/** NULL without memory. */
struct image_packer *image_packer_create(void);
void image_packer_destroy(struct image_packer *packer);
/**
 * Make @size bytes smaller.
 *
 * @ret_packed  The packer's, until it is used again.
 * Returns how many bytes that are, or 0: it is not worth it (less than a sixteenth is saved), which
 * is found by a look at some of the bytes.
 */
size_t image_pack(struct image_packer *packer, const void *bytes, size_t size,
                  const void **ret_packed);
/**
 * Read a chunk's file.
 *
 * @file    All its bytes, nothing of which is trusted.
 * @digest  What its bytes have to have.
 * @ret     Room for exactly @size bytes, IMAGE_CHUNK at most; written in any case.
 * Returns NULL, or what is wrong.
 */
const char *image_unpack(struct image_packer *packer, const void *file, size_t file_size,
                         const struct image_digest *digest, size_t size, void *ret);

#endif
