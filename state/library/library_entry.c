#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "state/base/bytes/little_endian.h"
#include "state/library/library_entry.h"

/*
 * An entry's file, little-endian: a header, then the strings, each with its NUL, then what reading
 * the source said (not in version 1), then the binary. The checksum is against damage, of which a
 * folder that is the user's alone has to fear nothing worse: it is of everything but itself.
 */

#define VERSION     2u
#define VERSION_OLD 1u

static const char magic[8] = {'R', 'E', 'S', 'E', 'A', 'T', 'B', '\n'};

enum {
    VERSION_OFFSET = 8,
    ORIGIN_OFFSET = 12,
    CHECKSUM_OFFSET = 16,
    KEY_OFFSET = 32,
    ANSWERS_OFFSET = 64,
    CREATED_OFFSET = 96,
    GLOBALS_OFFSET = 104,
    TYPE_OFFSET = 112,
    KERNEL_COUNT_OFFSET = 116,
    LENGTHS_OFFSET = 120,
    BINARY_SIZE_OFFSET = LENGTHS_OFFSET + 5 * 8,
    FACTS_SIZE_OFFSET = BINARY_SIZE_OFFSET + 8,
    HEADER_SIZE = FACTS_SIZE_OFFSET + 8,
};

static size_t library_entry_header_size(const unsigned char *bytes)
{
    return little_endian_get(bytes + VERSION_OFFSET, 4) == VERSION ? HEADER_SIZE
                                                                   : FACTS_SIZE_OFFSET;
}

/* The log is last, so that the front of a file has all other strings. */
enum { DEVICE, PLATFORM, DRIVER, KERNELS, LOG, STRINGS };

_Static_assert(sizeof(XXH128_canonical_t) == KEY_OFFSET - CHECKSUM_OFFSET, "room for a checksum");

static XXH128_canonical_t library_entry_checksum(const unsigned char *bytes, size_t size)
{
    XXH128_canonical_t canonical;
    XXH64_hash_t front = XXH64(bytes, CHECKSUM_OFFSET, 0);
    XXH128_canonicalFromHash(&canonical,
                             XXH3_128bits_withSeed(bytes + KEY_OFFSET, size - KEY_OFFSET, front));
    return canonical;
}

unsigned char *library_entry_write(const struct library_entry *entry, const struct library_key *key,
                                   size_t *ret_size)
{
    const char *const strings[STRINGS] = {entry->device, entry->platform, entry->driver,
                                          entry->kernels, entry->log};
    size_t size = HEADER_SIZE;
    if (entry->binary_size > LIBRARY_ENTRY_MAX || entry->facts_size > LIBRARY_ENTRY_MAX)
        return NULL;
    for (size_t i = 0; i < STRINGS; i++)
        size += strlen(strings[i]) + 1;
    size += entry->facts_size + entry->binary_size;
    unsigned char *bytes = size <= LIBRARY_ENTRY_MAX ? calloc(1, size) : NULL;
    if (!bytes)
        return NULL;
    memcpy(bytes, magic, sizeof(magic));
    little_endian_put(bytes + VERSION_OFFSET, VERSION, 4);
    little_endian_put(bytes + ORIGIN_OFFSET, entry->origin, 4);
    memcpy(bytes + KEY_OFFSET, key->bytes, sizeof(key->bytes));
    memcpy(bytes + ANSWERS_OFFSET, entry->answers, sizeof(entry->answers));
    little_endian_put(bytes + CREATED_OFFSET, entry->created_ms, 8);
    little_endian_put(bytes + GLOBALS_OFFSET, entry->globals, 8);
    little_endian_put(bytes + TYPE_OFFSET, entry->type, 4);
    little_endian_put(bytes + KERNEL_COUNT_OFFSET, entry->kernel_count, 4);
    little_endian_put(bytes + BINARY_SIZE_OFFSET, entry->binary_size, 8);
    little_endian_put(bytes + FACTS_SIZE_OFFSET, entry->facts_size, 8);
    unsigned char *at = bytes + HEADER_SIZE;
    for (size_t i = 0; i < STRINGS; i++) {
        size_t length = strlen(strings[i]);
        little_endian_put(bytes + LENGTHS_OFFSET + 8 * i, length, 8);
        memcpy(at, strings[i], length);
        at += length + 1;
    }
    if (entry->facts_size)
        memcpy(at, entry->facts, entry->facts_size);
    if (entry->binary_size)
        memcpy(at + entry->facts_size, entry->binary, entry->binary_size);
    XXH128_canonical_t sum = library_entry_checksum(bytes, size);
    memcpy(bytes + CHECKSUM_OFFSET, &sum, sizeof(sum));
    *ret_size = size;
    return bytes;
}

/* The strings, as far as @size goes; what is left of the file are the facts and the binary. */
static int library_entry_read_strings(const unsigned char *bytes, size_t size, uint64_t file_size,
                                      size_t count, const char **ret_strings)
{
    uint64_t at = library_entry_header_size(bytes), left;
    for (size_t i = 0; i < STRINGS; i++) {
        uint64_t length = little_endian_get(bytes + LENGTHS_OFFSET + 8 * i, 8);
        if (length >= file_size - at)
            return -EBADMSG;
        if (i < count) {
            const char *string = (const char *)bytes + at;
            if (length >= size - at || memchr(string, '\0', (size_t)length) || string[length])
                return -EBADMSG;
            ret_strings[i] = string;
        }
        at += length + 1;
    }
    left = file_size - at;
    if (library_entry_header_size(bytes) == HEADER_SIZE) {
        uint64_t facts_size = little_endian_get(bytes + FACTS_SIZE_OFFSET, 8);
        if (facts_size > left)
            return -EBADMSG;
        left -= facts_size;
    }
    return little_endian_get(bytes + BINARY_SIZE_OFFSET, 8) == left ? 0 : -EBADMSG;
}

int library_entry_read(const unsigned char *bytes, size_t size, uint64_t file_size,
                       const struct library_key *key, struct library_entry *ret_entry)
{
    const char *strings[STRINGS] = {"", "", "", "", ""};
    bool whole = size == file_size;
    uint64_t version = size < HEADER_SIZE ? 0 : little_endian_get(bytes + VERSION_OFFSET, 4);
    if ((version != VERSION && version != VERSION_OLD) || file_size > LIBRARY_ENTRY_MAX ||
        memcmp(bytes, magic, sizeof(magic)) != 0 ||
        memcmp(bytes + KEY_OFFSET, key->bytes, sizeof(key->bytes)) != 0)
        return -EBADMSG;
    if (whole) {
        XXH128_canonical_t sum = library_entry_checksum(bytes, size);
        if (memcmp(bytes + CHECKSUM_OFFSET, &sum, sizeof(sum)) != 0)
            return -EBADMSG;
    }
    struct library_entry entry = {
        .origin = (enum library_origin)little_endian_get(bytes + ORIGIN_OFFSET, 4),
        .created_ms = little_endian_get(bytes + CREATED_OFFSET, 8),
        .kernel_count = (uint32_t)little_endian_get(bytes + KERNEL_COUNT_OFFSET, 4),
        .type = (uint32_t)little_endian_get(bytes + TYPE_OFFSET, 4),
        .globals = little_endian_get(bytes + GLOBALS_OFFSET, 8),
        .binary_size = (size_t)little_endian_get(bytes + BINARY_SIZE_OFFSET, 8),
    };
    if (entry.origin < LIBRARY_BUILT || entry.origin > LIBRARY_UNFIT ||
        library_entry_read_strings(bytes, size, file_size, whole ? STRINGS : LOG, strings) != 0)
        return -EBADMSG;
    memcpy(entry.answers, bytes + ANSWERS_OFFSET, sizeof(entry.answers));
    entry.device = strings[DEVICE];
    entry.platform = strings[PLATFORM];
    entry.driver = strings[DRIVER];
    entry.kernels = strings[KERNELS];
    entry.log = strings[LOG];
    if (version == VERSION)
        entry.facts_size = (size_t)little_endian_get(bytes + FACTS_SIZE_OFFSET, 8);
    if (whole) {
        entry.binary = bytes + (size - entry.binary_size);
        entry.facts = (const unsigned char *)entry.binary - entry.facts_size;
    }
    *ret_entry = entry;
    return 0;
}

void library_entry_finish(struct library_entry *entry)
{
    free(entry->bytes);
    *entry = (struct library_entry){0};
}
