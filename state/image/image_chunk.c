#include "state/image/image_chunk.h"

#include <stdlib.h>
#include <string.h>

#include <openssl/sha.h>
#include <zstd.h>

#include "state/base/little_endian.h"

#define VERSION 1u

static const unsigned char magic[8] = {'R', 'E', 'S', 'E', 'A', 'T', 'C', '\n'};

enum { VERSION_OFFSET = 8, FORM_OFFSET = 12, SIZE_OFFSET = 16 };
enum form { PLAIN, PACKED };

_Static_assert(IMAGE_DIGEST == SHA256_DIGEST_LENGTH, "a digest is SHA-256");

/* The fastest that still finds what repeats. */
#define LEVEL 1
/* So much in the middle of a chunk is looked at first: what does not get smaller there costs no
 * more than that. */
#define LOOK ((size_t)64 << 10)

struct image_packer {
    ZSTD_CCtx *pack;
    ZSTD_DCtx *unpack;
    char *packed;
    size_t size;
};

struct image_digest image_digest_of(const void *bytes, size_t size)
{
    struct image_digest digest;
    SHA256_CTX context;
    /* Without OpenSSL's providers and their configuration: they would be the program's. */
    SHA256_Init(&context);
    SHA256_Update(&context, bytes, size);
    SHA256_Final(digest.bytes, &context);
    return digest;
}

bool image_is_zero(const void *bytes, size_t size)
{
    const char *at = bytes;
    return size == 0 || (at[0] == 0 && memcmp(at, at + 1, size - 1) == 0);
}

bool image_digest_is_zero(const struct image_digest *digest)
{
    return image_is_zero(digest->bytes, sizeof(digest->bytes));
}

void image_chunk_name(const struct image_digest *digest, char ret[IMAGE_CHUNK_NAME])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < IMAGE_DIGEST; i++) {
        ret[2 * i] = digits[digest->bytes[i] >> 4];
        ret[2 * i + 1] = digits[digest->bytes[i] & 15];
    }
    ret[IMAGE_CHUNK_NAME - 1] = '\0';
}

static int digit(char character)
{
    if (character >= '0' && character <= '9')
        return character - '0';
    return character >= 'a' && character <= 'f' ? character - 'a' + 10 : -1;
}

bool image_chunk_name_read(const char *name, struct image_digest *ret_digest)
{
    struct image_digest digest;
    if (strlen(name) != IMAGE_CHUNK_NAME - 1)
        return false;
    for (size_t i = 0; i < IMAGE_DIGEST; i++) {
        int high = digit(name[2 * i]), low = digit(name[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        digest.bytes[i] = (unsigned char)(high << 4 | low);
    }
    *ret_digest = digest;
    return true;
}

void image_chunk_header(unsigned char ret[IMAGE_CHUNK_HEADER], size_t size, bool packed)
{
    memcpy(ret, magic, sizeof(magic));
    little_endian_put(ret + VERSION_OFFSET, VERSION, 4);
    little_endian_put(ret + FORM_OFFSET, packed ? PACKED : PLAIN, 4);
    little_endian_put(ret + SIZE_OFFSET, size, 8);
}

const char *image_chunk_check(const unsigned char header[IMAGE_CHUNK_HEADER], uint64_t file_size,
                              size_t size)
{
    if (file_size < IMAGE_CHUNK_HEADER)
        return "it is shorter than a chunk's header";
    uint64_t form = little_endian_get(header + FORM_OFFSET, 4);
    uint64_t there = file_size - IMAGE_CHUNK_HEADER;
    if (memcmp(header, magic, sizeof(magic)) != 0)
        return "it is no chunk of an image (byte 0)";
    if (little_endian_get(header + VERSION_OFFSET, 4) != VERSION)
        return "it is of a version that is not known (byte 8)";
    if (form != PLAIN && form != PACKED)
        return "it is packed in a way that is not known (byte 12)";
    if (little_endian_get(header + SIZE_OFFSET, 8) != size)
        return "it has another number of bytes than the image says (byte 16)";
    if (form == PLAIN ? there != size : there >= size)
        return "its file is too short or too long";
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

static size_t pack(struct image_packer *packer, const char *bytes, size_t size)
{
    size_t packed =
        ZSTD_compressCCtx(packer->pack, packer->packed, packer->size, bytes, size, LEVEL);
    return ZSTD_isError(packed) || packed > size - size / 16 ? 0 : packed;
}

size_t image_pack(struct image_packer *packer, const void *bytes, size_t size,
                  const void **ret_packed)
{
    const char *all = bytes;
    if (size > IMAGE_CHUNK || (size > 4 * LOOK && pack(packer, all + (size - LOOK) / 2, LOOK) == 0))
        return 0;
    size_t packed = pack(packer, all, size);
    if (packed >= size)
        return 0;
    *ret_packed = packer->packed;
    return packed;
}

const char *image_unpack(struct image_packer *packer, const void *file, size_t file_size,
                         const struct image_digest *digest, size_t size, void *ret)
{
    const unsigned char *bytes = file;
    const char *wrong = image_chunk_check(bytes, file_size, size);
    if (wrong)
        return wrong;
    if (little_endian_get(bytes + FORM_OFFSET, 4) == PLAIN) {
        memcpy(ret, bytes + IMAGE_CHUNK_HEADER, size);
    } else {
        size_t unpacked = ZSTD_decompressDCtx(packer->unpack, ret, size, bytes + IMAGE_CHUNK_HEADER,
                                              file_size - IMAGE_CHUNK_HEADER);
        if (ZSTD_isError(unpacked))
            return "what it has cannot be unpacked";
        if (unpacked != size)
            return "it has fewer bytes than the image says";
    }
    struct image_digest found = image_digest_of(ret, size);
    return memcmp(&found, digest, sizeof(found)) == 0 ? NULL
                                                      : "its bytes do not have the digest of its "
                                                        "name";
}
