#include "state/base/bytes/msgcheck.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#define DEPTH_MAX 16

struct cursor {
    const uint8_t *at;
    size_t left;
};

static bool msgcheck_skip(struct cursor *cursor, uint64_t bytes)
{
    if (bytes > cursor->left)
        return false;
    cursor->at += bytes;
    cursor->left -= bytes;
    return true;
}

static bool msgcheck_read_length(struct cursor *cursor, unsigned bytes, uint64_t *ret_length)
{
    const uint8_t *at = cursor->at;
    uint64_t length = 0;

    if (!msgcheck_skip(cursor, bytes))
        return false;
    for (unsigned i = 0; i < bytes; i++)
        length = length << 8 | at[i];
    *ret_length = length;
    return true;
}

/* Bytes that lead each type from 0xc0 on: a length's, or -1 where a fixed payload follows. */
struct lead {
    int8_t length_bytes;
    uint8_t payload;  /* Fixed, or added to the length. */
    uint8_t children; /* Objects for each unit of the length. */
};

static const struct lead leads[] = {
    [0x00] = {-1, 0, 0},                                            /* nil */
    [0x02] = {-1, 0, 0},  [0x03] = {-1, 0, 0},                      /* false, true */
    [0x04] = {1, 0, 0},   [0x05] = {2, 0, 0},  [0x06] = {4, 0, 0},  /* bin */
    [0x07] = {1, 1, 0},   [0x08] = {2, 1, 0},  [0x09] = {4, 1, 0},  /* ext */
    [0x0a] = {-1, 4, 0},  [0x0b] = {-1, 8, 0},                      /* float, double */
    [0x0c] = {-1, 1, 0},  [0x0d] = {-1, 2, 0}, [0x0e] = {-1, 4, 0}, /* unsigned */
    [0x0f] = {-1, 8, 0},  [0x10] = {-1, 1, 0}, [0x11] = {-1, 2, 0}, /* signed */
    [0x12] = {-1, 4, 0},  [0x13] = {-1, 8, 0}, [0x14] = {-1, 2, 0}, /* fixed ext */
    [0x15] = {-1, 3, 0},  [0x16] = {-1, 5, 0}, [0x17] = {-1, 9, 0}, /* fixed ext */
    [0x18] = {-1, 17, 0},                                           /* fixed ext */
    [0x19] = {1, 0, 0},   [0x1a] = {2, 0, 0},  [0x1b] = {4, 0, 0},  /* string */
    [0x1c] = {2, 0, 1},   [0x1d] = {4, 0, 1},                       /* array */
    [0x1e] = {2, 0, 2},   [0x1f] = {4, 0, 2},                       /* map */
};

/* One object's head and payload; the objects inside it are left to the caller. */
static bool msgcheck_take(struct cursor *cursor, uint64_t *ret_children, bool *ret_nests)
{
    const struct lead *lead;
    uint64_t length = 0;
    uint8_t byte;

    *ret_children = 0;
    *ret_nests = false;
    if (!cursor->left)
        return false;
    byte = cursor->at[0];
    msgcheck_skip(cursor, 1);
    if (byte < 0x80 || byte >= 0xe0)
        return true;
    if (byte < 0xa0) {
        *ret_nests = true;
        *ret_children = (uint64_t)(byte & 0x0f) * (byte < 0x90 ? 2 : 1);
        return *ret_children <= cursor->left;
    }
    if (byte < 0xc0)
        return msgcheck_skip(cursor, byte & 0x1f);
    if (byte == 0xc1)
        return false;
    lead = &leads[byte - 0xc0];
    if (lead->length_bytes > 0 &&
        !msgcheck_read_length(cursor, (unsigned)lead->length_bytes, &length))
        return false;
    if (!lead->children)
        return msgcheck_skip(cursor, length + lead->payload);
    *ret_nests = true;
    *ret_children = length * lead->children;
    return *ret_children <= cursor->left;
}

int msgcheck(const void *data, size_t size, unsigned max_depth)
{
    struct cursor cursor = {data, size};
    uint64_t left[DEPTH_MAX + 1] = {1};
    unsigned depth = 0;

    if (max_depth > DEPTH_MAX)
        max_depth = DEPTH_MAX;
    for (;;) {
        uint64_t children;
        bool nests;

        while (!left[depth]) {
            if (!depth)
                return cursor.left ? -EPROTO : 0;
            depth--;
        }
        left[depth]--;
        if (!msgcheck_take(&cursor, &children, &nests))
            return -EPROTO;
        if (nests) {
            if (depth == max_depth)
                return -EPROTO;
            left[++depth] = children;
        }
    }
}
