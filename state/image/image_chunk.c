#include "state/image/image_chunk.h"

#include <stdlib.h>
#include <string.h>

#include <openssl/sha.h>
#include <zstd.h>

#include "state/base/bytes/hex.h"
#include "state/base/bytes/little_endian.h"

#define VERSION 2u

static const unsigned char magic[8] = {'R', 'E', 'S', 'E', 'A', 'T', 'C', '\n'};

enum {
    VERSION_OFFSET = 8,
    FORM_OFFSET = 12,
    SIZE_OFFSET = 16,
    PARTS_OFFSET = 24,
    BASE_OFFSET = 32
};
enum form { PLAIN, PACKED };

_Static_assert(IMAGE_DIGEST == SHA256_DIGEST_LENGTH, "a digest is SHA-256");
_Static_assert(BASE_OFFSET + IMAGE_DIGEST == IMAGE_CHUNK_HEADER, "the base ends the header");
_Static_assert(IMAGE_PARTS == 32 && IMAGE_CHUNK % IMAGE_PART == 0, "a bit is a part");

/* At most one in this many parts is in a file without the others. */
#define FEW 4

/* The fastest level that still compresses. */
#define LEVEL 1
/* Bytes in the middle of a chunk that are compressed first: if these do not get smaller, the chunk
 * is not compressed. */
#define LOOK ((size_t)64 << 10)

struct image_packer {
    ZSTD_CCtx *pack;
    ZSTD_DCtx *unpack;
    char *packed; /* also holds the own parts of a chunk until its base is read */
    size_t size;
    uint32_t parts; /* bits of those parts */
};

struct image_digest image_digest_of(const void *bytes, size_t size)
{
    struct image_digest digest;
    SHA256_CTX context;
    /* The low-level functions, because providers and their configuration would be the program's. */
    SHA256_Init(&context);
    SHA256_Update(&context, bytes, size);
    SHA256_Final(digest.bytes, &context);
    return digest;
}

static bool image_chunk_is_zero(const void *bytes, size_t size)
{
    const char *at = bytes;
    return size == 0 || (at[0] == 0 && memcmp(at, at + 1, size - 1) == 0);
}

bool image_digest_is_zero(const struct image_digest *digest)
{
    return image_chunk_is_zero(digest->bytes, sizeof(digest->bytes));
}

bool image_digest_same(const struct image_digest *a, const struct image_digest *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

struct image_digest image_part_digest(const void *bytes, size_t size)
{
    static const struct image_digest zero;
    return image_chunk_is_zero(bytes, size) ? zero : image_digest_of(bytes, size);
}

struct image_digest image_parts_digest(const struct image_digest *parts, size_t count)
{
    return image_part_digest(parts, count * sizeof(*parts));
}

struct image_digest image_chunk_digest(const void *bytes, size_t size)
{
    struct image_digest parts[IMAGE_PARTS] = {0};
    size_t count = image_part_count(size);
    for (size_t i = 0; i < count; i++)
        parts[i] =
            image_part_digest((const char *)bytes + i * IMAGE_PART, image_part_size(size, i));
    return image_parts_digest(parts, count);
}

void image_chunk_name(const struct image_digest *digest, char ret[IMAGE_CHUNK_NAME])
{
    hex_put(ret, digest->bytes, IMAGE_DIGEST);
}

bool image_chunk_name_read(const char *name, struct image_digest *ret_digest)
{
    return hex_get(ret_digest->bytes, name, IMAGE_DIGEST);
}

bool image_parts_are_few(uint32_t parts, size_t size)
{
    return (size_t)__builtin_popcount(parts) * FEW <= image_part_count(size);
}

size_t image_parts_size(uint32_t parts, size_t size)
{
    size_t bytes = 0;
    for (size_t i = 0; i < image_part_count(size); i++)
        bytes += (parts >> i) & 1 ? image_part_size(size, i) : 0;
    return bytes;
}

void image_chunk_header(unsigned char ret[IMAGE_CHUNK_HEADER], const struct image_form *form)
{
    memcpy(ret, magic, sizeof(magic));
    little_endian_put(ret + VERSION_OFFSET, VERSION, 4);
    little_endian_put(ret + FORM_OFFSET, form->packed ? PACKED : PLAIN, 4);
    little_endian_put(ret + SIZE_OFFSET, form->size, 8);
    little_endian_put(ret + PARTS_OFFSET, form->parts, 8);
    memcpy(ret + BASE_OFFSET, &form->base, sizeof(form->base));
}

static const char *image_chunk_check_parts(const unsigned char *header, struct image_form *form)
{
    uint64_t parts = little_endian_get(header + PARTS_OFFSET, 8);
    memcpy(&form->base, header + BASE_OFFSET, sizeof(form->base));
    if (parts >> image_part_count(form->size) != 0 ||
        !image_parts_are_few((uint32_t)parts, form->size))
        return "it has other parts than it may have without the others (byte 24)";
    form->parts = (uint32_t)parts;
    return image_digest_is_zero(&form->base) == (parts == 0)
               ? NULL
               : "it has some parts and no base, or all and one (byte 32)";
}

const char *image_chunk_check(const unsigned char header[IMAGE_CHUNK_HEADER], uint64_t file_size,
                              size_t size, struct image_form *ret_form)
{
    struct image_form form = {.size = size};
    if (file_size < IMAGE_CHUNK_HEADER)
        return "it is shorter than a chunk's header";
    uint64_t packed = little_endian_get(header + FORM_OFFSET, 4);
    uint64_t there = file_size - IMAGE_CHUNK_HEADER;
    if (memcmp(header, magic, sizeof(magic)) != 0)
        return "it is no chunk of an image (byte 0)";
    if (little_endian_get(header + VERSION_OFFSET, 4) != VERSION)
        return "it is of a version that is not known (byte 8)";
    if (packed != PLAIN && packed != PACKED)
        return "it is packed in a way that is not known (byte 12)";
    if (little_endian_get(header + SIZE_OFFSET, 8) != size)
        return "it has another number of bytes than the image says (byte 16)";
    const char *wrong = image_chunk_check_parts(header, &form);
    if (wrong)
        return wrong;
    size_t has = form.parts ? image_parts_size(form.parts, size) : size;
    if (packed == PLAIN ? there != has : there >= has)
        return "its file is too short or too long";
    form.packed = packed == PACKED;
    *ret_form = form;
    return NULL;
}

struct image_packer *image_packer_create(void)
{
    struct image_packer *packer = calloc(1, sizeof(*packer));
    if (!packer)
        return NULL;
    packer->size = ZSTD_compressBound(IMAGE_CHUNK);
    packer->packed = malloc(packer->size);
    packer->pack = ZSTD_createCCtx();
    packer->unpack = ZSTD_createDCtx();
    if (packer->packed && packer->pack && packer->unpack)
        return packer;
    image_packer_destroy(packer);
    return NULL;
}

void image_packer_destroy(struct image_packer *packer)
{
    if (!packer)
        return;
    ZSTD_freeCCtx(packer->pack);
    ZSTD_freeDCtx(packer->unpack);
    free(packer->packed);
    free(packer);
}

static size_t image_chunk_pack(struct image_packer *packer, const char *bytes, size_t size)
{
    size_t packed =
        ZSTD_compressCCtx(packer->pack, packer->packed, packer->size, bytes, size, LEVEL);
    return ZSTD_isError(packed) || packed > size - size / 16 ? 0 : packed;
}

size_t image_pack(struct image_packer *packer, const void *bytes, size_t size,
                  const void **ret_packed)
{
    const char *all = bytes;
    if (size > IMAGE_CHUNK ||
        (size > 4 * LOOK && image_chunk_pack(packer, all + (size - LOOK) / 2, LOOK) == 0))
        return 0;
    size_t packed = image_chunk_pack(packer, all, size);
    if (packed >= size)
        return 0;
    *ret_packed = packer->packed;
    return packed;
}

/* Unpack the content of a file, which has @has bytes. */
static const char *image_chunk_take(struct image_packer *packer, const unsigned char *file,
                                    size_t file_size, bool packed, size_t has, void *ret)
{
    const unsigned char *bytes = file + IMAGE_CHUNK_HEADER;
    size_t there = file_size - IMAGE_CHUNK_HEADER;
    if (!packed) {
        memcpy(ret, bytes, has);
        return NULL;
    }
    size_t unpacked = ZSTD_decompressDCtx(packer->unpack, ret, has, bytes, there);
    if (ZSTD_isError(unpacked))
        return "its contents cannot be unpacked";
    return unpacked == has ? NULL : "it has fewer bytes than the image says";
}

static const char *image_chunk_compare(const void *bytes, size_t size,
                                       const struct image_digest *digest, const char *wrong)
{
    struct image_digest found = image_chunk_digest(bytes, size);
    return image_digest_same(&found, digest) ? NULL : wrong;
}

const char *image_unpack(struct image_packer *packer, const void *file, size_t file_size,
                         const struct image_digest *digest, size_t size, void *ret,
                         struct image_digest *ret_base)
{
    struct image_form form;
    const char *wrong = image_chunk_check(file, file_size, size, &form);
    if (wrong)
        return wrong;
    *ret_base = form.base;
    packer->parts = form.parts;
    if (form.parts)
        return image_chunk_take(packer, file, file_size, form.packed,
                                image_parts_size(form.parts, size), packer->packed);
    wrong = image_chunk_take(packer, file, file_size, form.packed, size, ret);
    return wrong ? wrong
                 : image_chunk_compare(ret, size, digest,
                                       "its bytes do not have the digest of its name");
}

const char *image_unpack_base(struct image_packer *packer, const void *file, size_t file_size,
                              const struct image_digest *digest, size_t size, void *ret)
{
    struct image_form form;
    const char *wrong = image_chunk_check(file, file_size, size, &form);
    if (!wrong && form.parts)
        wrong = "it has not all of its bytes itself";
    if (!wrong)
        wrong = image_chunk_take(packer, file, file_size, form.packed, size, ret);
    if (wrong)
        return wrong;
    const char *from = packer->packed;
    for (size_t i = 0; i < image_part_count(size); i++)
        if ((packer->parts >> i) & 1) {
            memcpy((char *)ret + i * IMAGE_PART, from, image_part_size(size, i));
            from += image_part_size(size, i);
        }
    return image_chunk_compare(
        ret, size, digest,
        "its bytes do not have the digest of the name of the chunk that needs them, or "
        "that one's do not");
}
