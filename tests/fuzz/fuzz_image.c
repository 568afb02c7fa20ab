#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/image/image_lease.h"
#include "state/image/image_manifest.h"
#include "tests/fuzz/fuzz.h"

/*
 * What is read of an image: its manifest, whose digest a stranger can make as well, and chunks. The
 * first byte says which: a manifest as it is, one whose digest is made right, a record, a chunk, a
 * right to run.
 */

enum { MANIFEST, MANIFEST_SEALED, RECORD, CHUNK, LEASE, KINDS };

static void say(void *data, const char *member, uint64_t number, const char *text)
{
    size_t *count = data;
    (void)number;
    EXPECT(member[0]);
    *count += 1 + (text ? strlen(text) : 0);
}

/* Written again it is the same, and says something of itself. */
static void round_trip(const struct image_record *record)
{
    struct image_record again;
    char problem[IMAGE_PROBLEM_MAX];
    msgpack_sbuffer one, other;
    size_t said = 0;
    msgpack_sbuffer_init(&one);
    msgpack_sbuffer_init(&other);
    EXPECT(image_record_encode(record, &one) == 0);
    EXPECT(image_record_decode(one.data, one.size, &again, problem) == 0);
    EXPECT(image_record_encode(&again, &other) == 0);
    EXPECT(one.size == other.size && memcmp(one.data, other.data, one.size) == 0);
    image_record_describe(&again, say, &said);
    EXPECT(said != 0);
    image_record_finish(&again);
    msgpack_sbuffer_destroy(&one);
    msgpack_sbuffer_destroy(&other);
}

static void try_manifest(const char *bytes, size_t size)
{
    struct image_manifest manifest;
    char problem[IMAGE_PROBLEM_MAX] = "";
    int error = image_manifest_decode(bytes, size, &manifest, problem);
    EXPECT(error == 0 || (error == -EBADMSG && strncmp(problem, "byte ", 5) == 0));
    if (error)
        return;
    EXPECT(image_manifest_about(&manifest));
    for (size_t i = 0; i < manifest.count; i++)
        round_trip(&manifest.records[i]);
    image_manifest_finish(&manifest);
}

/* So that what is behind the digest is reached. */
static void seal(char *bytes, size_t size)
{
    unsigned char header[IMAGE_MANIFEST_HEADER];
    struct image_manifest manifest = {0};
    char *empty;
    size_t empty_size;
    if (size < sizeof(header))
        return;
    EXPECT(image_manifest_encode(&manifest, &empty, &empty_size) == 0);
    memcpy(bytes, empty, 12);
    free(empty);
    for (unsigned i = 0; i < 8; i++)
        bytes[16 + i] = (char)((size - sizeof(header)) >> (8 * i));
    char *hashed = malloc(size);
    EXPECT(hashed);
    memcpy(hashed, bytes, 24);
    memcpy(hashed + 24, bytes + sizeof(header), size - sizeof(header));
    struct image_digest digest = image_digest_of(hashed, size - IMAGE_DIGEST);
    memcpy(bytes + 24, &digest, sizeof(digest));
    free(hashed);
}

static void try_record(const char *bytes, size_t size)
{
    struct image_record record;
    char problem[IMAGE_PROBLEM_MAX] = "";
    int error = image_record_decode(bytes, size, &record, problem);
    EXPECT(error == 0 || (error == -EBADMSG && problem[0]));
    if (error)
        return;
    round_trip(&record);
    image_record_finish(&record);
}

static const char *unpack(struct image_packer *packer, const char *file, size_t size,
                          const struct image_digest *digest, size_t chunk, char *ret)
{
    struct image_digest base = {{0}};
    const char *wrong = image_unpack(packer, file, size, digest, chunk, ret, &base);
    if (wrong || image_digest_is_zero(&base))
        return wrong;
    /* Something that is one, and the file itself, which is not. */
    unsigned char header[IMAGE_CHUNK_HEADER];
    const struct image_form form = {.size = chunk};
    char *whole = calloc(1, sizeof(header) + chunk);
    EXPECT(whole);
    image_chunk_header(header, &form);
    memcpy(whole, header, sizeof(header));
    EXPECT(image_unpack_base(packer, file, size, digest, chunk, ret));
    wrong = image_unpack_base(packer, whole, sizeof(header) + chunk, digest, chunk, ret);
    free(whole);
    return wrong;
}

/* The size that the image says it has, in units of 8 bytes, then the file. */
static void try_chunk(struct input *input)
{
    static struct image_packer *packer;
    size_t size = (size_t)input_short(input) * 8, left;
    if (!packer)
        packer = image_packer_create();
    EXPECT(packer);
    const uint8_t *bytes = input_bytes(input, SIZE_MAX, &left);
    char *file = fuzz_copy(bytes, left), *ret = malloc(size);
    EXPECT(ret || !size);
    /* No bytes have a digest that was made up. */
    const struct image_digest none = {{1}};
    const char *wrong = unpack(packer, file, left, &none, size, ret);
    EXPECT(wrong && wrong[0]);
    if (strstr(wrong, "digest")) {
        struct image_digest digest = image_chunk_digest(ret, size);
        EXPECT(!unpack(packer, file, left, &digest, size, ret));
    }
    free(file);
    free(ret);
}

static void try_lease(struct input *input)
{
    char block[LEASE_BLOCK] = {0};
    struct lease_holder holder;
    size_t left;
    const uint8_t *bytes = input_bytes(input, sizeof(block), &left);
    if (left)
        memcpy(block, bytes, left);
    if (lease_decode(block, &holder) != 0)
        return;
    EXPECT(holder.state <= LEASE_ENDED);
    EXPECT(holder.lease_ms >= LEASE_LEAST_MS && holder.lease_ms <= LEASE_MOST_MS);
    EXPECT(strlen(holder.host) < sizeof(holder.host) && strlen(holder.boot) < sizeof(holder.boot));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    unsigned kind = input_byte(&input) % KINDS;
    if (kind == CHUNK) {
        try_chunk(&input);
        return 0;
    }
    if (kind == LEASE) {
        try_lease(&input);
        return 0;
    }
    size_t left;
    const uint8_t *bytes = input_bytes(&input, SIZE_MAX, &left);
    char *copy = fuzz_copy(bytes, left);
    if (kind == MANIFEST_SEALED)
        seal(copy, left);
    if (kind == RECORD)
        try_record(copy, left);
    else
        try_manifest(copy, left);
    free(copy);
    return 0;
}
