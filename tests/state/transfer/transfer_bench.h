#ifndef RESEAT_TESTS_STATE_TRANSFER_TRANSFER_BENCH_H
#define RESEAT_TESTS_STATE_TRANSFER_TRANSFER_BENCH_H

#include "tests/state/transfer/transfer_rig.h"

/* Buffers and images whose bytes are computed, and the ways that transfers take them. */

/* The loops over bytes of one thread alone: ThreadSanitizer would take minutes for them. */
#define LOOPS_ALONE __attribute__((no_sanitize("thread")))

/** The byte that object @seed has at @index; nothing of the engine computes it. */
uint8_t pattern(uint32_t seed, size_t index);
void fill(char *bytes, uint32_t seed, size_t size);
/** Bytes [begin, end) are @seed's; those outside are @other's. */
void check(const char *bytes, size_t size, size_t begin, size_t end, uint32_t seed, uint32_t other);

enum way { DOWN, UP, ACROSS };

struct bench {
    enum way way;
    struct rig *from, *to;
};

#define CHUNK ((size_t)64 << 10)

struct transfer *start(const struct bench *bench, const struct transfer_shape *shape,
                       uint64_t total, const struct transfer_limits *limits);
/** By every way, with rings of many shapes and none, and with those that are chosen for a total. */
void each_shape(void (*run)(const struct bench *, const struct transfer_shape *, uint64_t));

struct buffer {
    cl_mem from, to;
    char *host;
    size_t size, offset, length;
    uint32_t seed;
};

void buffer_init(struct buffer *buffer, const struct bench *bench, uint32_t seed, size_t size,
                 size_t offset, size_t length);
struct transfer_item buffer_item(const struct buffer *buffer, const struct bench *bench);
void buffer_check(struct buffer *buffer, const struct bench *bench);
void buffer_finish(struct buffer *buffer, const struct bench *bench);

struct image_case {
    cl_mem_object_type type;
    size_t dims[3];
    cl_channel_order order;
    cl_channel_type channel;
    size_t element;
    size_t row_more, slice_more; /* padding of the host's layout */
};

#define IMAGE_CASES 12
extern const struct image_case image_cases[IMAGE_CASES];
void shape_init(struct image_shape *shape, const struct image_case *c);

/** Threads named reseat-copy, and whether each blocks every signal that can be blocked. */
unsigned count_copy_threads(bool *ret_blocked);

#endif
