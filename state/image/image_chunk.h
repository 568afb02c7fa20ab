#ifndef RESEAT_STATE_IMAGE_IMAGE_CHUNK_H
#define RESEAT_STATE_IMAGE_IMAGE_CHUNK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * Contents are cut into chunks, each in a file of its own that is named by the digest of its bytes,
 * so that what did not change is in the folder once for all images. A chunk is parts, and its
 * digest is that of the digests of its parts: so one of which a part changed gets its new name
 * without a look at the others.
 *
 * A file is a header of fixed size, then bytes, or what zstd makes of them: all of the chunk's; or
 * those of a few parts, and the header names the chunk that has the others, its base. A base has
 * all of its bytes, so that nothing is read from more than two files. Chunks of nothing but zeros
 * have no file.
 *
 * Files of version 1 have all of a chunk, and are named by the SHA-256 of its bytes as they are.
 *
 * Everything here is pure and thread-safe.
 */

/** Bytes of every chunk but an object's last. */
#define IMAGE_CHUNK ((size_t)2 << 20)
/** Bytes of every part but a chunk's last. */
#define IMAGE_PART  ((size_t)64 << 10)
#define IMAGE_PARTS (IMAGE_CHUNK / IMAGE_PART)
/** Of the file of a chunk. */
#define IMAGE_CHUNK_HEADER   64
#define IMAGE_CHUNK_FILE_MAX (IMAGE_CHUNK_HEADER + IMAGE_CHUNK)

/** A SHA-256. All zeros: so are the bytes. */
#define IMAGE_DIGEST 32
struct image_digest {
    unsigned char bytes[IMAGE_DIGEST];
};
/** A chunk's name: its digest in small hexadecimal digits, with the NUL. */
#define IMAGE_CHUNK_NAME (2 * IMAGE_DIGEST + 1)

/** Of bytes as they are. */
struct image_digest image_digest_of(const void *bytes, size_t size);
/** Of a part. */
struct image_digest image_part_digest(const void *bytes, size_t size);
/** Of a chunk, of the digests of its parts. */
struct image_digest image_parts_digest(const struct image_digest *parts, size_t count);
/** Of a chunk, of its bytes. */
struct image_digest image_chunk_digest(const void *bytes, size_t size);
bool image_digest_is_zero(const struct image_digest *digest);
bool image_digest_same(const struct image_digest *a, const struct image_digest *b);

/** Number of parts of a chunk of @size bytes. */
static inline size_t image_part_count(size_t size)
{
    return size / IMAGE_PART + (size % IMAGE_PART != 0);
}
/** Bytes of its part @index. */
static inline size_t image_part_size(size_t size, size_t index)
{
    size_t left = size - index * IMAGE_PART;
    return left < IMAGE_PART ? left : IMAGE_PART;
}

void image_chunk_name(const struct image_digest *digest, char ret[IMAGE_CHUNK_NAME]);
/** False: @name is no chunk's. */
bool image_chunk_name_read(const char *name, struct image_digest *ret_digest);

/** What the file of a chunk has. */
struct image_form {
    size_t size;              /**< Of the chunk. */
    bool packed;              /**< By zstd. */
    uint32_t parts;           /**< Bits: it has these parts alone; 0: all. */
    struct image_digest base; /**< The chunk that has the others; zeros: none. */
};
/** True where as few parts of a chunk of @size bytes are to be in a file without the others: what
 * images of which each changes a little keep of one chunk is never much more than that chunk. */
bool image_parts_are_few(uint32_t parts, size_t size);
/** Bytes of them. */
size_t image_parts_size(uint32_t parts, size_t size);

void image_chunk_header(unsigned char ret[IMAGE_CHUNK_HEADER], const struct image_form *form);
/**
 * Is @header, of which there is as much as the file has, that of a chunk of @size bytes, in a file
 * of @file_size? Returns NULL, or what is wrong.
 */
const char *image_chunk_check(const unsigned char header[IMAGE_CHUNK_HEADER], uint64_t file_size,
                              size_t size, struct image_form *ret_form);

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
 * @file      All its bytes, nothing of which is trusted.
 * @digest    What the chunk's bytes have to have.
 * @ret       Room for exactly @size bytes, IMAGE_CHUNK at most; written in any case.
 * @ret_base  Not zeros: nothing is in @ret yet, for this chunk has bytes of that one, whose file is
 *            to be given to image_unpack_base next. Its own are the packer's until then.
 * Returns NULL, or what is wrong.
 */
const char *image_unpack(struct image_packer *packer, const void *file, size_t file_size,
                         const struct image_digest *digest, size_t size, void *ret,
                         struct image_digest *ret_base);
/** As image_unpack, of the base's file. @digest is the chunk's still: what of the base it does not
 * need is not looked at. */
const char *image_unpack_base(struct image_packer *packer, const void *file, size_t file_size,
                              const struct image_digest *digest, size_t size, void *ret);

#endif
