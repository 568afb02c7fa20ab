#include "state/image/image_manifest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/sha.h>

#include "state/base/array.h"
#include "state/base/bytes/little_endian.h"

#define VERSION 1u

static const unsigned char magic[8] = {'R', 'E', 'S', 'E', 'A', 'T', 'I', '\n'};

enum { VERSION_OFFSET = 8, COUNT_OFFSET = 12, SIZE_OFFSET = 16, DIGEST_OFFSET = 24 };
/* In front of each record: its length. */
#define LENGTH 4

_Static_assert(DIGEST_OFFSET + IMAGE_DIGEST == IMAGE_MANIFEST_HEADER, "the digest ends the header");

struct image_record *image_manifest_add(struct image_manifest *manifest,
                                        enum image_record_kind kind)
{
    if (!array_make_room(&manifest->records, manifest->count, sizeof(*manifest->records)) ||
        image_record_init(&manifest->records[manifest->count], kind) != 0)
        return NULL;
    return &manifest->records[manifest->count++];
}

const struct image_about *image_manifest_about(const struct image_manifest *manifest)
{
    return manifest->count && manifest->records[0].kind == IMAGE_ABOUT ? manifest->records[0].about
                                                                       : NULL;
}

const struct image_record *image_manifest_find(const struct image_manifest *manifest,
                                               enum image_record_kind kind)
{
    for (size_t i = 0; i < manifest->count; i++)
        if (manifest->records[i].kind == kind)
            return &manifest->records[i];
    return NULL;
}

const struct image_contents *image_manifest_contents(const struct image_manifest *manifest,
                                                     uint64_t id)
{
    for (size_t i = 0; i < manifest->count; i++)
        if (manifest->records[i].kind == IMAGE_CONTENTS && manifest->records[i].contents->id == id)
            return manifest->records[i].contents;
    return NULL;
}

void image_manifest_finish(struct image_manifest *manifest)
{
    for (size_t i = 0; i < manifest->count; i++)
        image_record_finish(&manifest->records[i]);
    free(manifest->records);
    *manifest = (struct image_manifest){0};
}

/* Digest of everything except the digest itself. */
static struct image_digest image_manifest_digest_of(const unsigned char *bytes, size_t size)
{
    struct image_digest digest;
    SHA256_CTX context;
    SHA256_Init(&context);
    SHA256_Update(&context, bytes, DIGEST_OFFSET);
    SHA256_Update(&context, bytes + IMAGE_MANIFEST_HEADER, size - IMAGE_MANIFEST_HEADER);
    SHA256_Final(digest.bytes, &context);
    return digest;
}

static int image_manifest_pack(const struct image_manifest *manifest, msgpack_sbuffer *buffer)
{
    static const char nothing[IMAGE_MANIFEST_HEADER];
    if (msgpack_sbuffer_write(buffer, nothing, sizeof(nothing)) != 0)
        return -ENOMEM;
    for (size_t i = 0; i < manifest->count; i++) {
        size_t begin = buffer->size;
        if (msgpack_sbuffer_write(buffer, nothing, LENGTH) != 0)
            return -ENOMEM;
        int error = image_record_encode(&manifest->records[i], buffer);
        if (error)
            return error;
        if (buffer->size > IMAGE_MANIFEST_MAX)
            return -EFBIG;
        little_endian_put((unsigned char *)buffer->data + begin, buffer->size - begin - LENGTH,
                          LENGTH);
    }
    return 0;
}

int image_manifest_encode(const struct image_manifest *manifest, char **ret_bytes, size_t *ret_size)
{
    msgpack_sbuffer buffer;
    msgpack_sbuffer_init(&buffer);
    int error = image_manifest_pack(manifest, &buffer);
    if (error) {
        msgpack_sbuffer_destroy(&buffer);
        return error;
    }
    unsigned char *bytes = (unsigned char *)buffer.data;
    memcpy(bytes, magic, sizeof(magic));
    little_endian_put(bytes + VERSION_OFFSET, VERSION, 4);
    little_endian_put(bytes + COUNT_OFFSET, manifest->count, 4);
    little_endian_put(bytes + SIZE_OFFSET, buffer.size - IMAGE_MANIFEST_HEADER, 8);
    struct image_digest digest = image_manifest_digest_of(bytes, buffer.size);
    memcpy(bytes + DIGEST_OFFSET, &digest, sizeof(digest));
    *ret_size = buffer.size;
    *ret_bytes = msgpack_sbuffer_release(&buffer);
    return 0;
}

/* ---- decoding ---- */

static int image_manifest_wrong(char *ret_problem, size_t offset, const char *what)
{
    char why[IMAGE_PROBLEM_MAX];
    snprintf(why, sizeof(why), "%s", what);
    snprintf(ret_problem, IMAGE_PROBLEM_MAX, "byte %zu: %.900s", offset, why);
    return -EBADMSG;
}

static int image_manifest_check_header(const unsigned char *bytes, size_t size, char *ret_problem)
{
    if (size < IMAGE_MANIFEST_HEADER)
        return image_manifest_wrong(ret_problem, size, "it ends within its header");
    if (memcmp(bytes, magic, sizeof(magic)) != 0)
        return image_manifest_wrong(ret_problem, 0, "it is no image of reseat's");
    if (little_endian_get(bytes + VERSION_OFFSET, 4) != VERSION)
        return image_manifest_wrong(ret_problem, VERSION_OFFSET,
                                    "its version is not known: another release made it");
    if (little_endian_get(bytes + SIZE_OFFSET, 8) != size - IMAGE_MANIFEST_HEADER)
        return image_manifest_wrong(ret_problem, SIZE_OFFSET,
                                    "it is shorter or longer than it says");
    struct image_digest digest = image_manifest_digest_of(bytes, size);
    return memcmp(bytes + DIGEST_OFFSET, &digest, sizeof(digest)) == 0
               ? 0
               : image_manifest_wrong(ret_problem, DIGEST_OFFSET,
                                      "its digest is another: it is damaged");
}

static int image_manifest_take_record(const unsigned char *bytes, size_t size, size_t *offset,
                                      struct image_manifest *manifest, char *ret_problem)
{
    char why[IMAGE_PROBLEM_MAX];
    if (size - *offset < LENGTH)
        return image_manifest_wrong(ret_problem, *offset, "it ends within a record");
    uint64_t length = little_endian_get(bytes + *offset, LENGTH);
    if (length > size - *offset - LENGTH)
        return image_manifest_wrong(ret_problem, *offset, "it ends within a record");
    if (!array_make_room(&manifest->records, manifest->count, sizeof(*manifest->records)))
        return -ENOMEM;
    int error = image_record_decode(bytes + *offset + LENGTH, (size_t)length,
                                    &manifest->records[manifest->count], why);
    if (error)
        return error == -EBADMSG ? image_manifest_wrong(ret_problem, *offset, why) : error;
    bool first = manifest->count == 0;
    enum image_record_kind kind = manifest->records[manifest->count].kind;
    bool again = kind >= IMAGE_PROGRESS && image_manifest_find(manifest, kind);
    bool is_about = manifest->records[manifest->count++].kind == IMAGE_ABOUT;
    if (first != is_about)
        return image_manifest_wrong(ret_problem, *offset,
                                    "the record of what the image is of must come first, and once");
    if (again)
        return image_manifest_wrong(ret_problem, *offset,
                                    "a record is there twice that may be there once");
    *offset += LENGTH + (size_t)length;
    return 0;
}

int image_manifest_decode(const void *bytes, size_t size, struct image_manifest *ret_manifest,
                          char ret_problem[IMAGE_PROBLEM_MAX])
{
    struct image_manifest manifest = {0};
    size_t offset = IMAGE_MANIFEST_HEADER;
    int error = image_manifest_check_header(bytes, size, ret_problem);
    while (!error && offset < size)
        error = image_manifest_take_record(bytes, size, &offset, &manifest, ret_problem);
    if (!error && !image_manifest_about(&manifest))
        error = image_manifest_wrong(ret_problem, offset, "it has no records");
    if (!error &&
        little_endian_get((const unsigned char *)bytes + COUNT_OFFSET, 4) != manifest.count)
        error = image_manifest_wrong(ret_problem, COUNT_OFFSET,
                                     "it has more or fewer records than it says");
    if (error)
        image_manifest_finish(&manifest);
    else
        *ret_manifest = manifest;
    return error;
}
