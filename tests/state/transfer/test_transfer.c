#include "tests/support/cases.h"

#include "state/base/memory/past_caches.h"
#include "tests/state/transfer/transfer_bench.h"

/* Buffers arrive whole, whatever their sizes, by every way. */

/* Sizes around chunk borders at even and odd offsets, one transfer for all. */
static void move_sizes(const struct bench *bench, const struct transfer_shape *shape,
                       uint64_t total)
{
    static const size_t offsets[] = {0, 1, 63, 4097};
    const size_t sizes[] = {0,
                            1,
                            3,
                            64,
                            4095,
                            4096,
                            CHUNK - 1,
                            CHUNK,
                            CHUNK + 1,
                            2 * CHUNK,
                            3 * CHUNK - 1,
                            3 * CHUNK + 5,
                            8 * CHUNK,
                            1u << 20,
                            99991,
                            (2u << 20) + 7};
    struct buffer buffers[ARRAY_SIZE(sizes) * ARRAY_SIZE(offsets)];
    _Atomic uint64_t done = 0;
    uint64_t sum = 0;
    unsigned count = 0;
    const struct transfer_limits limits = {.done = &done};
    struct transfer *transfer = start(bench, shape, total, &limits);
    for (size_t s = 0; s < ARRAY_SIZE(sizes); s++) {
        for (size_t o = 0; o < ARRAY_SIZE(offsets); o++) {
            buffer_init(&buffers[count], bench, count + 1, sizes[s] + offsets[o] + 5, offsets[o],
                        sizes[s]);
            count++;
        }
    }
    for (unsigned i = 0; i < count; i++) {
        struct transfer_item item = buffer_item(&buffers[i], bench);
        sum += item.size;
        cr_assert_eq(transfer_add(transfer, &item), 0);
        if (i % 20 == 19)
            cr_assert_eq(transfer_flush(transfer), 0);
    }
    cr_assert_eq(transfer_flush(transfer), 0);
    cr_assert_eq(done, sum);
    cr_assert_eq(transfer_error(transfer), 0);
    for (unsigned i = 0; i < count; i++)
        buffer_check(&buffers[i], bench);
    transfer_destroy(transfer);
    for (unsigned i = 0; i < count; i++)
        buffer_finish(&buffers[i], bench);
}

TestCall(transfer, buffers_of_all_sizes_arrive_whole_by_every_way, each_shape(move_sizes));

Test(transfer, unified_devices_go_without_a_ring)
{
    struct rig *a = rig_create(0, false), *b = rig_create(1, false);
    const struct bench benches[] = {{DOWN, a, NULL}, {UP, NULL, b}, {ACROSS, b, a}};
    for (size_t i = 0; i < ARRAY_SIZE(benches); i++) {
        move_sizes(&benches[i], NULL, 100u << 20);
        struct transfer_shape shape;
        struct transfer *transfer = start(&benches[i], NULL, 100u << 20, NULL);
        transfer_describe(transfer, &shape);
        cr_assert_eq(shape.chunk != 0, benches[i].way == ACROSS);
        cr_assert_leq(shape.threads, benches[i].way == ACROSS ? 1 : 0);
        transfer_destroy(transfer);
    }
    rig_destroy(a);
    rig_destroy(b);
}

Test(transfer, buffers_cross_to_another_vendor, .timeout = 120)
{
    struct rig *a = rig_create(0, false), *b = rig_create_named("llvmpipe", true);
    if (!b)
        cases_skip("rusticl is not installed");
    const struct transfer_shape shape = {.chunk = CHUNK, .chunks = 3};
    const struct bench benches[] = {{ACROSS, a, b}, {ACROSS, b, a}, {DOWN, b, NULL}, {UP, NULL, b}};
    for (size_t i = 0; i < ARRAY_SIZE(benches); i++) {
        move_sizes(&benches[i], &shape, 0);
        move_sizes(&benches[i], NULL, 40u << 20);
    }
    rig_destroy(a);
    rig_destroy(b);
}

/* Thousands of buffers of 0 to 96 bytes. */
static void move_many(const struct bench *bench, const struct transfer_shape *shape, uint64_t total)
{
    enum { COUNT = 3000 };
    struct buffer *buffers = calloc(COUNT, sizeof(*buffers));
    struct transfer *transfer = start(bench, shape, total, NULL);
    for (unsigned i = 0; i < COUNT; i++) {
        size_t length = i * 7 % 97;
        buffer_init(&buffers[i], bench, i + 1, length + i % 3 + 1, i % 3, length);
        struct transfer_item item = buffer_item(&buffers[i], bench);
        cr_assert_eq(transfer_add(transfer, &item), 0);
    }
    cr_assert_eq(transfer_flush(transfer), 0);
    for (unsigned i = 0; i < COUNT; i++) {
        buffer_check(&buffers[i], bench);
        buffer_finish(&buffers[i], bench);
    }
    transfer_destroy(transfer);
    free(buffers);
}

TestCall(transfer, thousands_of_small_buffers_arrive, each_shape(move_many), .timeout = 120);

Test(transfer, what_goes_past_the_caches_arrives_whole_at_any_address)
{
    enum { SIZE = 300000, MARGIN = 256 };
    static const size_t sizes[] = {0, 1, 63, 65535, 65536, 65537, 65599, 131072, 200001, SIZE};
    char *from = malloc(SIZE + MARGIN), *to = malloc(SIZE + 2 * MARGIN);
    fill(from, 3, SIZE + MARGIN);
    for (size_t s = 0; s < ARRAY_SIZE(sizes); s++)
        for (size_t at = 0; at < 67; at += 1 + (at > 3) * 12) {
            size_t shift = (at * 7 + s) % 65;
            memset(to, 0x5a, SIZE + 2 * MARGIN);
            copy_past_caches(to + MARGIN / 2 + at, from + shift, sizes[s]);
            cr_assert_eq(memcmp(to + MARGIN / 2 + at, from + shift, sizes[s]), 0);
            for (size_t i = 0; i < MARGIN / 2 + at; i++)
                cr_assert_eq(to[i], 0x5a);
            for (size_t i = MARGIN / 2 + at + sizes[s]; i < SIZE + 2 * MARGIN; i++)
                if (to[i] != 0x5a)
                    cr_assert_fail("size %zu at %zu: byte %zu behind it", sizes[s], at, i);
        }
    free(from);
    free(to);
}
