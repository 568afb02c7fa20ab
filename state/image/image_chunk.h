#ifndef RESEAT_STATE_IMAGE_IMAGE_CHUNK_H
#define RESEAT_STATE_IMAGE_IMAGE_CHUNK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * Contents are cut into chunks, each in a file that is named by the digest of its bytes, so that
 * unchanged bytes are in the folder once for all images. A chunk consists of parts, and its digest
 * is computed from the digests of its parts: so the new name of a chunk of which one part changed
 * is found without reading the others.
 *
 * A file is a header of fixed size, followed by the chunk's bytes, plain or compressed by zstd:
 * either all of them, or only some parts, and then the header names the chunk that has the others,
 * its base. A base has all of its bytes, so that reading a chunk takes two files at most. A chunk
 * of only zeros has no file.
 *
 * Files of version 1 have all bytes of a chunk, and are named by the SHA-256 of its plain bytes.
 *
 * Everything here is pure and thread-safe.
 */

/** Bytes of every chunk but an object's last. */
#define IMAGE_CHUNK ((size_t)2 << 20)
/** Bytes of every part but a chunk's last. */
#define IMAGE_PART  ((size_t)64 << 10)
#define IMAGE_PARTS (IMAGE_CHUNK / IMAGE_PART)
/** Size of the header of a chunk's file, and the largest size of such a file. */
#define IMAGE_CHUNK_HEADER   64
#define IMAGE_CHUNK_FILE_MAX (IMAGE_CHUNK_HEADER + IMAGE_CHUNK)

/** A SHA-256. All zeros stand for bytes that are all zero. */
#define IMAGE_DIGEST 32
struct image_digest {
    unsigned char bytes[IMAGE_DIGEST];
};
/** A chunk's name: its digest in small hexadecimal digits, with the NUL. */
#define IMAGE_CHUNK_NAME (2 * IMAGE_DIGEST + 1)

/** Digest of plain bytes. */
struct image_digest image_digest_of(const void *bytes, size_t size);
/** Digest of a part. */
struct image_digest image_part_digest(const void *bytes, size_t size);
/** Digest of a chunk, from the digests of its parts. */
struct image_digest image_parts_digest(const struct image_digest *parts, size_t count);
/** Digest of a chunk, from its bytes. */
struct image_digest image_chunk_digest(const void *bytes, size_t size);
bool image_digest_is_zero(const struct image_digest *digest);
bool image_digest_same(const struct image_digest *a, const struct image_digest *b);

/** Number of parts of a chunk of @size bytes. */
static inline size_t image_part_count(size_t size)
{
    return size / IMAGE_PART + (size % IMAGE_PART != 0);
}
/** Size of part @index of such a chunk. */
static inline size_t image_part_size(size_t size, size_t index)
{
    size_t left = size - index * IMAGE_PART;
    return left < IMAGE_PART ? left : IMAGE_PART;
}

void image_chunk_name(const struct image_digest *digest, char ret[IMAGE_CHUNK_NAME]);
/** Parse a chunk's name. False: @name is none. */
bool image_chunk_name_read(const char *name, struct image_digest *ret_digest);

/** What a chunk's file contains. */
struct image_form {
    size_t size;              /**< Size of the chunk. */
    bool packed;              /**< Compressed by zstd. */
    uint32_t parts;           /**< Bits of the parts that the file has; 0: all. */
    struct image_digest base; /**< The chunk with the other parts; zeros: none. */
};
/** True when so few parts of a chunk of @size bytes changed that they are to be written without the
 * others. Images that each change a few parts then never need much more space than whole chunks. */
bool image_parts_are_few(uint32_t parts, size_t size);
/** Size of these parts. */
size_t image_parts_size(uint32_t parts, size_t size);

void image_chunk_header(unsigned char ret[IMAGE_CHUNK_HEADER], const struct image_form *form);
/**
 * Check the header of a chunk's file. @header has the first bytes of the file, which may be shorter
 * than a header. @size: bytes of the chunk. Returns NULL, or the problem.
 */
const char *image_chunk_check(const unsigned char header[IMAGE_CHUNK_HEADER], uint64_t file_size,
                              size_t size, struct image_form *ret_form);

struct image_packer; /* used by one thread */

/** NULL without memory. */
struct image_packer *image_packer_create(void);
void image_packer_destroy(struct image_packer *packer);
/**
 * Compress @size bytes.
 *
 * @ret_packed  Owned by the packer; valid until it is used again.
 * Returns the compressed size, or 0 when compressing is not worth it (less than a sixteenth is
 * saved), which is decided from some of the bytes.
 */
size_t image_pack(struct image_packer *packer, const void *bytes, size_t size,
                  const void **ret_packed);
/**
 * Read a chunk's file.
 *
 * @file  All bytes of the file; untrusted.
 * @digest  The expected digest of the chunk.
 * @ret  Room for @size bytes, IMAGE_CHUNK at most; overwritten even on failure.
 * @ret_base  If not zeros, the chunk needs bytes of that base and @ret is not filled yet: pass the
 *            base's file to image_unpack_base next. The packer keeps the chunk's own parts until
 *            then.
 * Returns NULL, or what is wrong.
 */
const char *image_unpack(struct image_packer *packer, const void *file, size_t file_size,
                         const struct image_digest *digest, size_t size, void *ret,
                         struct image_digest *ret_base);
/** As image_unpack, with the base's file. @digest is still the chunk's: parts of the base that the
 * chunk does not use are not checked. */
const char *image_unpack_base(struct image_packer *packer, const void *file, size_t file_size,
                              const struct image_digest *digest, size_t size, void *ret);

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
