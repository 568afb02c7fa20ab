#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "state/base/pages.h"
#include "state/base/past_caches.h"
#include "state/driver/links.h"
#include "tests/state/transfer/transfer_rig.h"
#include "tests/support/folder.h"

/* The byte that object @seed has at @index; nothing of the engine computes it. */
static uint8_t pattern(uint32_t seed, size_t index)
{
    uint64_t x = ((uint64_t)seed << 40) ^ index;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (uint8_t)(x >> 56);
}

/* The loops over bytes of one thread alone: ThreadSanitizer would take minutes for them. */
#define LOOPS_ALONE __attribute__((no_sanitize("thread")))

LOOPS_ALONE static void fill_part(char *bytes, uint32_t seed, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        bytes[i] = (char)pattern(seed, i);
}

static void fill(char *bytes, uint32_t seed, size_t size)
{
    fill_part(bytes, seed, 0, size);
}

/* Bytes [begin, end) are @seed's; those outside are @other's. */
static void check(const char *bytes, size_t size, size_t begin, size_t end, uint32_t seed,
                  uint32_t other)
{
    char *wanted = malloc(size + 1);
    fill(wanted, other, size);
    fill_part(wanted, seed, begin, end);
    if (memcmp(bytes, wanted, size) != 0) {
        size_t i = 0;
        while (bytes[i] == wanted[i])
            i++;
        cr_assert_fail("byte %zu of %zu (moved [%zu, %zu)): %d, wanted %d", i, size, begin, end,
                       (uint8_t)bytes[i], (uint8_t)wanted[i]);
    }
    free(wanted);
}

enum way { DOWN, UP, ACROSS };

struct bench {
    enum way way;
    struct rig *from, *to;
};

static struct transfer *start(const struct bench *bench, const struct transfer_shape *shape,
                              uint64_t total, const struct transfer_limits *limits)
{
    struct transfer *transfer = NULL;
    struct residence *from = bench->way == UP ? NULL : &bench->from->residence;
    struct residence *to = bench->way == DOWN ? NULL : &bench->to->residence;
    int error = shape ? transfer_create_shaped(from, to, shape, limits, &transfer)
                      : transfer_create(from, to, total, limits, &transfer);
    cr_assert_eq(error, 0, "create: %d", error);
    return transfer;
}

struct buffer {
    cl_mem from, to;
    char *host;
    size_t size, offset, length;
    uint32_t seed;
};

static void buffer_init(struct buffer *buffer, const struct bench *bench, uint32_t seed,
                        size_t size, size_t offset, size_t length)
{
    *buffer = (struct buffer){.size = size, .offset = offset, .length = length, .seed = seed};
    buffer->host = calloc(1, size);
    fill(buffer->host, seed, size);
    if (bench->way != UP)
        buffer->from = rig_buffer(bench->from, size, buffer->host);
    if (bench->way != UP)
        fill(buffer->host, ~seed, size);
    if (bench->way != DOWN) {
        char *other = calloc(1, size);
        fill(other, ~seed, size);
        buffer->to = rig_buffer(bench->to, size, other);
        free(other);
    }
}

static struct transfer_item buffer_item(const struct buffer *buffer, const struct bench *bench)
{
    return (struct transfer_item){.from = buffer->from,
                                  .to = buffer->to,
                                  .host = bench->way == ACROSS ? NULL : buffer->host,
                                  .offset = buffer->offset,
                                  .size = buffer->length};
}

static void buffer_check(struct buffer *buffer, const struct bench *bench)
{
    if (bench->way != DOWN)
        rig_read(bench->to, buffer->to, buffer->size, buffer->host);
    check(buffer->host, buffer->size, buffer->offset, buffer->offset + buffer->length, buffer->seed,
          ~buffer->seed);
}

static void buffer_finish(struct buffer *buffer, const struct bench *bench)
{
    if (buffer->from)
        bench->from->real->clReleaseMemObject(buffer->from);
    if (buffer->to)
        bench->to->real->clReleaseMemObject(buffer->to);
    free(buffer->host);
}

static const size_t chunk = 64u << 10;

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
                            chunk - 1,
                            chunk,
                            chunk + 1,
                            2 * chunk,
                            3 * chunk - 1,
                            3 * chunk + 5,
                            8 * chunk,
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

static void each_shape(void (*run)(const struct bench *, const struct transfer_shape *, uint64_t))
{
    struct rig *a = rig_create(0, true), *b = rig_create(1, true);
    const struct bench benches[] = {{DOWN, a, NULL}, {UP, NULL, b}, {ACROSS, a, b}};
    for (size_t i = 0; i < ARRAY_SIZE(benches); i++) {
        static const unsigned threads[] = {0, 1, 2, 5};
        for (size_t t = 0; t < ARRAY_SIZE(threads); t++) {
            struct transfer_shape shape = {.chunk = chunk, .chunks = 3, .threads = threads[t]};
            run(&benches[i], &shape, 0);
            shape.chunks = 1;
            run(&benches[i], &shape, 0);
        }
        /* Copies that several threads share, cut within rows. */
        run(&benches[i], &(struct transfer_shape){.chunk = 1u << 20, .chunks = 2, .threads = 4}, 0);
        if (benches[i].way != ACROSS)
            run(&benches[i], &(struct transfer_shape){0}, 0);
        run(&benches[i], NULL, 0);
        run(&benches[i], NULL, 1000);
        run(&benches[i], NULL, 40u << 20);
    }
    rig_destroy(a);
    rig_destroy(b);
}

Test(transfer, buffers_of_all_sizes_arrive_whole_by_every_way)
{
    each_shape(move_sizes);
}

struct tally {
    _Atomic uint64_t size, sum, calls;
};

LOOPS_ALONE static uint64_t squares(const char *bytes, size_t size)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < size; i++)
        sum += (uint8_t)bytes[i] * (uint64_t)(uint8_t)bytes[i];
    return sum;
}

static void tally_run(void *data, const char *bytes, size_t size)
{
    struct tally *tally = data;
    uint64_t sum = squares(bytes, size);
    atomic_fetch_add(&tally->sum, sum);
    atomic_fetch_add(&tally->size, size);
    atomic_fetch_add(&tally->calls, 1);
}

/* Each byte that arrives was worked on once, before it arrived, and as it is. */
static void move_with_work(const struct bench *bench, const struct transfer_shape *shape,
                           uint64_t total)
{
    enum { COUNT = 40 };
    static const size_t sizes[] = {1, 4096, 70001, (2u << 20) + 7};
    struct tally tally = {0};
    const struct transfer_work work = {tally_run, &tally, {COST_WORK, 1e-6, 2e9}};
    const struct transfer_limits limits = {.work = &work};
    struct buffer buffers[COUNT];
    uint64_t sum = 0, size = 0;
    if (shape && !shape->chunk)
        return;
    struct transfer *transfer = start(bench, shape, total, &limits);
    for (unsigned i = 0; i < COUNT; i++) {
        size_t length = sizes[i % ARRAY_SIZE(sizes)];
        buffer_init(&buffers[i], bench, i + 1, length + 3, i % 3, length);
        struct transfer_item item = buffer_item(&buffers[i], bench);
        cr_assert_eq(transfer_add(transfer, &item), 0);
        size += length;
        for (size_t at = i % 3; at < i % 3 + length; at++)
            sum += (uint64_t)pattern(i + 1, at) * pattern(i + 1, at);
    }
    cr_assert_eq(transfer_flush(transfer), 0);
    cr_assert_eq(tally.size, size);
    cr_assert_eq(tally.sum, sum);
    struct transfer_shape got;
    transfer_describe(transfer, &got);
    cr_assert_eq(got.workers > 0, got.threads + got.workers > 0);
    if (got.chunk == 1u << 20 && got.workers > 1)
        cr_assert_gt(tally.calls, size >> 20, "no chunk was shared");
    for (unsigned i = 0; i < COUNT; i++) {
        buffer_check(&buffers[i], bench);
        buffer_finish(&buffers[i], bench);
    }
    transfer_destroy(transfer);
}

Test(transfer, work_on_the_way_sees_every_byte_once, .timeout = 120)
{
    struct rig *a = rig_create(0, true), *b = rig_create(1, true);
    const struct bench benches[] = {{DOWN, a, NULL}, {UP, NULL, b}, {ACROSS, a, b}};
    static const struct transfer_shape shapes[] = {
        {.chunk = 64u << 10, .chunks = 1},
        {.chunk = 64u << 10, .chunks = 4},
        {.chunk = 64u << 10, .chunks = 4, .threads = 1, .workers = 1},
        {.chunk = 1u << 20, .chunks = 4, .threads = 2, .workers = 3},
        {.chunk = 1u << 20, .chunks = 2, .threads = 3, .workers = 1},
        {.chunk = 1u << 20, .chunks = 2, .threads = 3}, /* nobody for the work: nobody at all */
    };
    for (size_t i = 0; i < ARRAY_SIZE(benches); i++) {
        for (size_t s = 0; s < ARRAY_SIZE(shapes); s++)
            move_with_work(&benches[i], &shapes[s], 0);
        move_with_work(&benches[i], NULL, 0);
        move_with_work(&benches[i], NULL, 1000);
        move_with_work(&benches[i], NULL, 40u << 20);
    }
    rig_destroy(a);
    rig_destroy(b);
}

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
        cr_skip_test("rusticl is not installed");
    const struct transfer_shape shape = {.chunk = chunk, .chunks = 3};
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

Test(transfer, thousands_of_small_buffers_arrive, .timeout = 120)
{
    each_shape(move_many);
}

struct image_case {
    cl_mem_object_type type;
    size_t dims[3];
    cl_channel_order order;
    cl_channel_type channel;
    size_t element;
    size_t row_more, slice_more; /* padding of the host's layout */
};

static const struct image_case image_cases[] = {
    {CL_MEM_OBJECT_IMAGE1D, {1, 1, 1}, CL_RGBA, CL_UNSIGNED_INT8, 4, 0, 0},
    {CL_MEM_OBJECT_IMAGE1D, {8191, 1, 1}, CL_RGBA, CL_FLOAT, 16, 0, 0},
    {CL_MEM_OBJECT_IMAGE1D_ARRAY, {33, 7, 1}, CL_RGBA, CL_UNSIGNED_INT8, 4, 0, 0},
    {CL_MEM_OBJECT_IMAGE1D_ARRAY, {500, 60, 1}, CL_RGBA, CL_UNSIGNED_INT8, 4, 8, 24},
    {CL_MEM_OBJECT_IMAGE2D, {1, 1, 1}, CL_R, CL_UNSIGNED_INT8, 1, 0, 0},
    {CL_MEM_OBJECT_IMAGE2D, {257, 131, 1}, CL_RGBA, CL_UNSIGNED_INT8, 4, 0, 0},
    {CL_MEM_OBJECT_IMAGE2D, {257, 131, 1}, CL_RGBA, CL_UNSIGNED_INT16, 8, 40, 0},
    {CL_MEM_OBJECT_IMAGE2D, {5000, 3, 1}, CL_RGBA, CL_FLOAT, 16, 16, 0},
    {CL_MEM_OBJECT_IMAGE2D_ARRAY, {64, 64, 9}, CL_RGBA, CL_UNSIGNED_INT8, 4, 0, 0},
    {CL_MEM_OBJECT_IMAGE2D_ARRAY, {127, 200, 3}, CL_RGBA, CL_UNSIGNED_INT8, 4, 12, 1000},
    {CL_MEM_OBJECT_IMAGE3D, {17, 13, 11}, CL_RGBA, CL_UNSIGNED_INT8, 4, 0, 0},
    {CL_MEM_OBJECT_IMAGE3D, {100, 50, 20}, CL_RGBA, CL_UNSIGNED_INT16, 8, 8, 840},
};

static void shape_init(struct image_shape *shape, const struct image_case *c)
{
    *shape = (struct image_shape){
        .format = {c->order, c->channel},
        .desc = {.image_type = c->type, .image_width = c->dims[0]},
        .element_size = c->element,
        .row_pitch = c->dims[0] * c->element + c->row_more,
    };
    memcpy(shape->dims, c->dims, sizeof(shape->dims));
    switch (c->type) {
    case CL_MEM_OBJECT_IMAGE1D_ARRAY:
        shape->desc.image_array_size = c->dims[1];
        shape->slice_pitch = shape->row_pitch + c->slice_more;
        break;
    case CL_MEM_OBJECT_IMAGE2D_ARRAY:
        shape->desc.image_array_size = c->dims[2];
        break;
    case CL_MEM_OBJECT_IMAGE3D:
        shape->desc.image_depth = c->dims[2];
        break;
    default:
        break;
    }
    if (c->type != CL_MEM_OBJECT_IMAGE1D && c->type != CL_MEM_OBJECT_IMAGE1D_ARRAY)
        shape->desc.image_height = c->dims[1];
    if (c->type == CL_MEM_OBJECT_IMAGE2D_ARRAY || c->type == CL_MEM_OBJECT_IMAGE3D)
        shape->slice_pitch = shape->row_pitch * c->dims[1] + c->slice_more;
}

/* Where row @y of slice @z is in the host's layout. */
static size_t row_at(const struct image_shape *shape, size_t y, size_t z)
{
    if (shape->desc.image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY)
        return y * shape->slice_pitch;
    return z * shape->slice_pitch + y * shape->row_pitch;
}

static void move_image(const struct bench *bench, const struct transfer_shape *how,
                       const struct image_case *c)
{
    struct image_shape shape;
    shape_init(&shape, c);
    size_t row = c->dims[0] * c->element, rows = c->dims[1] * c->dims[2];
    size_t packed_size = row * rows, size = row_at(&shape, c->dims[1] - 1, c->dims[2] - 1) + row;
    char *packed = calloc(1, packed_size), *host = calloc(1, size);
    _Atomic uint64_t done = 0;
    const struct transfer_limits limits = {.done = &done};
    fill(packed, 5, packed_size);
    struct transfer_item item = {.image = &shape, .size = size};
    if (bench->way != UP)
        item.from = rig_image(bench->from, &shape, packed);
    if (bench->way != DOWN)
        item.to = rig_image(bench->to, &shape, NULL);
    if (bench->way != ACROSS)
        item.host = host;
    memset(host, 0x5a, size);
    for (size_t y = 0; y < rows && bench->way == UP; y++)
        memcpy(host + row_at(&shape, y % c->dims[1], y / c->dims[1]), packed + y * row, row);

    struct transfer *transfer = start(bench, how, 0, &limits);
    cr_assert_eq(transfer_add(transfer, &item), 0);
    cr_assert_eq(transfer_flush(transfer), 0);
    cr_assert_eq(done, size, "type %x: %zu of %zu", c->type, (size_t)done, size);
    transfer_destroy(transfer);

    char *got = calloc(1, packed_size);
    if (bench->way == DOWN) {
        for (size_t y = 0; y < rows; y++) {
            char *at = host + row_at(&shape, y % c->dims[1], y / c->dims[1]);
            memcpy(got + y * row, at, row);
            memset(at, 0x5a, row);
        }
        for (size_t i = 0; i < size; i++)
            cr_assert_eq(host[i], 0x5a, "padding at %zu was written", i);
    } else {
        rig_read_image(bench->to, item.to, &shape, got);
    }
    check(got, packed_size, 0, packed_size, 5, 0);
    if (item.from)
        bench->from->real->clReleaseMemObject(item.from);
    if (item.to)
        bench->to->real->clReleaseMemObject(item.to);
    free(got);
    free(host);
    free(packed);
}

static void move_images(const struct bench *bench, const struct transfer_shape *how, uint64_t total)
{
    (void)total;
    for (size_t i = 0; i < ARRAY_SIZE(image_cases); i++)
        move_image(bench, how, &image_cases[i]);
}

Test(transfer, images_of_all_types_arrive_whole_by_every_way, .timeout = 120)
{
    each_shape(move_images);
}

Test(transfer, images_cross_to_another_vendor, .timeout = 120)
{
    struct rig *a = rig_create(0, true), *b = rig_create_named("llvmpipe", true);
    if (!b)
        cr_skip_test("rusticl is not installed");
    const struct transfer_shape shape = {.chunk = chunk, .chunks = 3};
    const struct bench benches[] = {{ACROSS, a, b}, {ACROSS, b, a}, {DOWN, b, NULL}, {UP, NULL, b}};
    for (size_t i = 0; i < ARRAY_SIZE(benches); i++)
        move_images(&benches[i], &shape, 0);
    rig_destroy(a);
    rig_destroy(b);
}

/* A few large and small buffers and an image, with every kind of call failing at the n-th. */
static bool move_with_failure(const struct bench *bench, const struct transfer_shape *how,
                              enum rig_call call, int n)
{
    static const size_t sizes[] = {5, 3 * 64 << 10, 17, 100000, 64 << 10};
    struct buffer buffers[ARRAY_SIZE(sizes)];
    struct image_shape image;
    struct transfer *transfer = NULL;
    _Atomic uint64_t done = 0;
    uint64_t total = 0;
    const struct transfer_limits limits = {.done = &done};
    shape_init(&image, &image_cases[5]);
    struct transfer_item picture = {.image = &image, .size = image.row_pitch * image.dims[1]};
    char *pixels = calloc(1, picture.size);
    if (bench->way != ACROSS)
        picture.host = pixels;
    if (bench->way != UP)
        picture.from = rig_image(bench->from, &image, pixels);
    if (bench->way != DOWN)
        picture.to = rig_image(bench->to, &image, NULL);
    for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++)
        buffer_init(&buffers[i], bench, i + 1, sizes[i], 0, sizes[i]);

    rig_arm(call, n);
    transfer = start(bench, how, 0, &limits);
    int error = 0;
    for (unsigned i = 0; i < ARRAY_SIZE(sizes) && error == 0; i++) {
        struct transfer_item item = buffer_item(&buffers[i], bench);
        error = transfer_add(transfer, &item);
        total += item.size;
    }
    if (error == 0)
        error = transfer_add(transfer, &picture);
    total += picture.size;
    int flushed = transfer_flush(transfer);
    cr_assert(error == 0 || flushed == error, "flush %d after %d", flushed, error);
    cl_int reason = transfer_error(transfer);
    transfer_destroy(transfer);
    bool fired = rig_disarm();
    bool setting_up = call == RIG_CREATE_BUFFER || call == RIG_MAP || call == RIG_UNMAP;
    if (fired && !setting_up) {
        cr_assert_eq(flushed, -EIO, "call %d: %d", call, flushed);
        cr_assert_eq(reason, RIG_ERROR, "call %d: %d", call, reason);
        cr_assert_lt(done, total);
    } else {
        cr_assert_eq(flushed, 0, "call %d: %d", call, flushed);
        cr_assert_eq(done, total);
        for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++)
            buffer_check(&buffers[i], bench);
    }
    cr_assert_eq(rig_live_events(), 0);
    cr_assert_eq(rig_live_buffers(), 0);
    for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++)
        buffer_finish(&buffers[i], bench);
    if (picture.from)
        bench->from->real->clReleaseMemObject(picture.from);
    if (picture.to)
        bench->to->real->clReleaseMemObject(picture.to);
    free(pixels);
    return fired;
}

static void fail_everywhere(const struct bench *bench, const struct transfer_shape *shape,
                            uint64_t total)
{
    if (total || !shape || shape->threads == 5)
        return;
    for (int call = 0; call < RIG_CALLS; call++) {
        int n = 1;
        while (move_with_failure(bench, shape, call, n))
            cr_assert_lt(n++, 200);
    }
}

Test(transfer, a_failure_of_any_call_is_reported_and_leaves_nothing, .timeout = 240)
{
    each_shape(fail_everywhere);
}

Test(transfer, a_cancelled_transfer_stops, .timeout = 60)
{
    struct rig *a = rig_create(0, true), *b = rig_create(1, true);
    const struct bench benches[] = {{DOWN, a, NULL}, {UP, NULL, b}, {ACROSS, a, b}};
    for (size_t i = 0; i < ARRAY_SIZE(benches) * 3; i++) {
        const struct bench *bench = &benches[i / 3];
        const struct transfer_shape shape = {.chunk = chunk, .chunks = 3, .threads = i % 3};
        atomic_bool cancel = false;
        _Atomic uint64_t done = 0;
        const struct transfer_limits limits = {.cancel = &cancel, .done = &done};
        struct buffer buffer;
        buffer_init(&buffer, bench, 1, 4u << 20, 0, 4u << 20);
        struct transfer_item item = buffer_item(&buffer, bench);
        struct transfer *transfer = start(bench, &shape, 0, &limits);
        rig_cancel_at(&cancel, 5);
        cr_assert_eq(transfer_add(transfer, &item), -ECANCELED);
        cr_assert_eq(transfer_flush(transfer), -ECANCELED);
        rig_cancel_at(NULL, 0);
        cr_assert_lt(done, item.size / 2);
        cr_assert_eq(transfer_add(transfer, &item), -ECANCELED);
        transfer_destroy(transfer);
        cr_assert_eq(rig_live_events(), 0);
        buffer_finish(&buffer, bench);
    }
    rig_destroy(a);
    rig_destroy(b);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

Test(transfer, a_transfer_ends_at_its_deadline, .timeout = 60)
{
    struct rig *a = rig_create(0, true), *b = rig_create(1, true);
    const struct bench benches[] = {{DOWN, a, NULL}, {UP, NULL, b}, {ACROSS, a, b}};
    for (size_t i = 0; i < ARRAY_SIZE(benches) * 3; i++) {
        const struct bench *bench = &benches[i / 3];
        const struct transfer_shape shape = {.chunk = chunk, .chunks = 3, .threads = i % 3};
        struct buffer buffer;
        buffer_init(&buffer, bench, 1, 16u << 20, 0, 16u << 20);
        struct transfer_item item = buffer_item(&buffer, bench);
        const struct transfer_limits late = {.deadline_ns = 1};
        struct transfer *transfer = start(bench, &shape, 0, &late);
        cr_assert_eq(transfer_add(transfer, &item), -ETIMEDOUT);
        transfer_destroy(transfer);

        rig_slow_waits(5000); /* 256 chunks of 5 ms: over a second */
        const struct transfer_limits limits = {.deadline_ns = now_ns() + 100000000u};
        transfer = start(bench, &shape, 0, &limits);
        uint64_t begin = now_ns();
        cr_assert_eq(transfer_add(transfer, &item), -ETIMEDOUT);
        cr_assert_eq(transfer_flush(transfer), -ETIMEDOUT);
        transfer_destroy(transfer);
        cr_assert_lt(now_ns() - begin, 800000000u);
        rig_slow_waits(0);
        cr_assert_eq(rig_live_events(), 0);
        buffer_finish(&buffer, bench);
    }
    rig_destroy(a);
    rig_destroy(b);
}

Test(transfer, destroying_an_unflushed_transfer_leaves_nothing)
{
    struct rig *a = rig_create(0, true);
    const struct bench bench = {DOWN, a, NULL};
    const struct transfer_shape shape = {.chunk = chunk, .chunks = 3, .threads = 2};
    struct buffer buffer;
    buffer_init(&buffer, &bench, 1, (1u << 20) + 5, 0, (1u << 20) + 5);
    struct transfer_item item = buffer_item(&buffer, &bench);
    struct transfer *transfer = start(&bench, &shape, 0, NULL);
    cr_assert_eq(transfer_add(transfer, &item), 0);
    transfer_destroy(transfer);
    cr_assert_eq(rig_live_events(), 0);
    cr_assert_eq(rig_live_buffers(), 0);
    buffer_finish(&buffer, &bench);
    transfer_destroy(NULL);
    rig_destroy(a);
}

/* Threads named reseat-copy, and whether each blocks every signal that can be blocked. */
static unsigned count_copy_threads(bool *ret_blocked)
{
    unsigned count = 0;
    DIR *tasks = opendir("/proc/self/task");
    *ret_blocked = true;
    for (struct dirent *entry; (entry = readdir(tasks));) {
        char path[300], line[256];
        bool ours = false;
        snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
        FILE *file = fopen(path, "r");
        while (file && fgets(line, sizeof(line), file)) {
            unsigned long long mask;
            if (strcmp(line, "Name:\treseat-copy\n") == 0)
                ours = true;
            if (ours && sscanf(line, "SigBlk:\t%llx", &mask) == 1)
                *ret_blocked &= (mask & 0x7ffbfeff) == 0x7ffbfeff; /* all but KILL and STOP */
        }
        if (file)
            fclose(file);
        count += ours;
    }
    closedir(tasks);
    return count;
}

Test(transfer, threads_block_signals_and_live_as_long_as_the_transfer)
{
    struct rig *a = rig_create(0, true);
    const struct bench bench = {DOWN, a, NULL};
    const struct transfer_shape shape = {.chunk = chunk, .chunks = 3, .threads = 3};
    bool blocked;
    struct transfer *transfer = start(&bench, &shape, 0, NULL);
    for (int tried = 0; tried < 1000 && count_copy_threads(&blocked) != 3; tried++)
        usleep(1000); /* each names itself */
    cr_assert_eq(count_copy_threads(&blocked), 3);
    cr_assert(blocked);
    transfer_destroy(transfer);
    cr_assert_eq(count_copy_threads(&blocked), 0);
    rig_destroy(a);
}

/* One buffer of @size by a transfer of its own. 0 or what it ended with. */
static int move_one(const struct bench *bench, const struct transfer_limits *limits, size_t size,
                    uint32_t seed)
{
    struct buffer buffer;
    struct transfer *transfer = NULL;
    buffer_init(&buffer, bench, seed, size, 5, size - 5);
    struct transfer_item item = buffer_item(&buffer, bench);
    item.lent = limits->lent;
    int error =
        transfer_create(bench->way == UP ? NULL : &bench->from->residence,
                        bench->way == DOWN ? NULL : &bench->to->residence, size, limits, &transfer);
    if (error == 0)
        error = transfer_add(transfer, &item);
    if (error == 0)
        error = transfer_flush(transfer);
    transfer_destroy(transfer);
    if (error == 0)
        buffer_check(&buffer, bench);
    buffer_finish(&buffer, bench);
    return error;
}

static const struct transfer *kept_between(const struct transfer_series *series,
                                           const struct bench *bench)
{
    for (size_t i = 0; i < TRANSFER_SERIES_KEPT; i++)
        if (series->idle[i] &&
            series->idle[i]->from == (bench->way == UP ? NULL : &bench->from->residence) &&
            series->idle[i]->to == (bench->way == DOWN ? NULL : &bench->to->residence))
            return series->idle[i];
    return NULL;
}

/* Figures with which a ring always pays. */
static void make_ring_pay(struct rig *rig)
{
    rig->device.link = (struct link_figures){.read = {COST_LINK, 1e-5, 1e11},
                                             .write = {COST_LINK, 1e-5, 1e11},
                                             .plain_read = {COST_LINK, 1e-5, 1e8},
                                             .plain_write = {COST_LINK, 1e-5, 1e8}};
}

Test(transfer, a_series_keeps_chunks_and_threads_by_their_ends, .timeout = 120)
{
    enum { SIZE = (20u << 20) + 77 };
    struct rig *a = rig_create(0, true), *b = rig_create(1, true);
    make_ring_pay(a);
    make_ring_pay(b);
    const struct bench ways[] = {{DOWN, a, NULL}, {UP, NULL, b}, {ACROSS, a, b}};
    struct transfer_series series = {.total = 64u << 20};
    const struct transfer_limits limits = {.series = &series};
    const struct transfer *kept[ARRAY_SIZE(ways)] = {NULL};
    bool blocked;
    for (uint32_t turn = 0; turn < 3; turn++)
        for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
            cr_assert_eq(move_one(&ways[i], &limits, SIZE + turn, 10 * turn + (uint32_t)i), 0);
            const struct transfer *now = kept_between(&series, &ways[i]);
            cr_assert_not_null(now);
            cr_assert(turn == 0 || now == kept[i], "way %zu: made anew", i);
            cr_assert(now->shape.chunk != 0 && now->chosen_for == 64u << 20);
            kept[i] = now;
        }
    int buffers = rig_live_buffers();
    unsigned threads = count_copy_threads(&blocked);
    cr_assert_gt(buffers, 0, "chunks stay registered");
    cr_assert_gt(threads, 0);
    /* Few bytes, as they are in a pause, go the same way. */
    cr_assert_eq(move_one(&ways[0], &limits, 999, 90), 0);
    cr_assert_eq(kept_between(&series, &ways[0]), kept[0]);
    cr_assert_eq(rig_live_buffers(), buffers);
    /* More than it was made for do not. */
    series.total = 128u << 20;
    cr_assert_eq(move_one(&ways[0], &limits, SIZE, 91), 0);
    cr_assert_eq(kept_between(&series, &ways[0])->chosen_for, 128u << 20);
    /* A fourth way has the one go that was not used for the longest. */
    const struct bench fourth = {DOWN, b, NULL};
    cr_assert_eq(move_one(&fourth, &limits, SIZE, 92), 0);
    cr_assert_null(kept_between(&series, &ways[1]));
    cr_assert_not_null(kept_between(&series, &ways[2]));
    transfer_series_finish(&series);
    cr_assert_eq(rig_live_buffers(), 0);
    cr_assert_eq(count_copy_threads(&blocked), 0);
    transfer_series_finish(&series); /* nothing is left */
    rig_destroy(a);
    rig_destroy(b);
}

/* To register waits for what a busy device runs: what one transfer registered the next one uses. */
Test(transfer, what_is_registered_is_kept_for_the_next, .timeout = 120)
{
    enum { SIZE = (20u << 20) + 77, REGISTERED = 2 }; /* a buffer, and its map */
    struct rig *a = rig_create(1, true), *b = rig_create(1, true);
    make_ring_pay(a);
    make_ring_pay(b);
    const struct transfer_limits none = {0};
    const struct bench down = {DOWN, a, NULL}, up = {UP, NULL, a}, across = {ACROSS, a, b};
    cr_assert_eq(move_one(&down, &none, SIZE, 1), 0);
    cr_assert_eq(rig_live_buffers(), 0, "no memory is kept unless somebody says so");
    pages_set_limit(256u << 20);
    cr_assert_eq(move_one(&down, &none, SIZE, 2), 0);
    cr_assert_eq(rig_live_buffers(), REGISTERED);
    rig_arm(RIG_MAP, 1);
    for (uint32_t turn = 0; turn < 4; turn++)
        cr_assert_eq(move_one(&down, &none, SIZE, 3 + turn), 0);
    cr_assert(!rig_disarm(), "it was registered anew");
    /* The other way may need more: then that is what is kept. */
    cr_assert_eq(move_one(&up, &none, SIZE, 8), 0);
    rig_arm(RIG_MAP, 1);
    cr_assert_eq(move_one(&up, &none, SIZE, 9), 0);
    cr_assert_eq(move_one(&down, &none, SIZE, 10), 0);
    cr_assert(!rig_disarm(), "it was registered anew");
    /* Between two devices only the second one has to learn of it, and forgets it. */
    cr_assert_eq(move_one(&across, &none, SIZE, 11), 0);
    cr_assert_eq(rig_live_buffers(), REGISTERED);
    /* What needs more has its own, and leaves that; a residence keeps one. */
    cr_assert_eq(move_one(&down, &none, 3 * SIZE, 11), 0);
    cr_assert_eq(rig_live_buffers(), REGISTERED);
    cr_assert_eq(move_one(&(const struct bench){UP, NULL, b}, &none, SIZE, 12), 0);
    cr_assert_eq(rig_live_buffers(), 2 * REGISTERED);
    pinned_forget(&b->residence);
    cr_assert_eq(rig_live_buffers(), REGISTERED);
    pages_set_limit(0);
    cr_assert_eq(rig_live_buffers(), 0);
    rig_destroy(a);
    rig_destroy(b);
}

Test(transfer, of_a_series_each_has_its_own_limits, .timeout = 120)
{
    enum { SIZE = (18u << 20) + 3 };
    struct rig *a = rig_create(0, true), *b = rig_create(1, true);
    make_ring_pay(a);
    make_ring_pay(b);
    const struct bench down = {DOWN, a, NULL}, up = {UP, NULL, b};
    struct transfer_series series = {.total = SIZE};
    _Atomic uint64_t done = 0, none = 0;
    atomic_bool cancel = false;
    const struct transfer_limits first = {.series = &series, .done = &none, .cancel = &cancel};
    cr_assert_eq(move_one(&down, &first, SIZE, 1), 0);
    const struct transfer *kept = kept_between(&series, &down);
    cr_assert_not_null(kept);
    atomic_store(&none, 0);
    atomic_store(&cancel, true); /* the first one's: it has ended */
    const struct transfer_limits second = {.series = &series, .done = &done};
    cr_assert_eq(move_one(&down, &second, SIZE, 2), 0);
    cr_assert_eq(kept_between(&series, &down), kept);
    cr_assert_eq(done, SIZE - 5);
    cr_assert_eq(none, 0);
    /* One that failed leaves nothing to the next. */
    cr_assert_eq(move_one(&down, &first, SIZE, 3), -ECANCELED);
    cr_assert_null(kept_between(&series, &down));
    rig_arm(RIG_READ_BUFFER, 2);
    cr_assert_eq(move_one(&down, &second, SIZE, 4), -EIO);
    cr_assert(rig_disarm());
    cr_assert_null(kept_between(&series, &down));
    cr_assert_eq(rig_live_buffers(), 0);
    cr_assert_eq(move_one(&down, &second, SIZE, 5), 0);

    /* What goes straight from host memory is not for memory that the program lent. */
    b->device.link.plain_write.bandwidth = 1e12;
    cr_assert_eq(move_one(&up, &second, SIZE, 6), 0);
    cr_assert_eq(kept_between(&series, &up)->shape.chunk, 0);
    const struct transfer_limits lent = {.series = &series, .lent = true};
    cr_assert_eq(move_one(&up, &lent, SIZE, 7), 0);
    cr_assert_neq(kept_between(&series, &up)->shape.chunk, 0);
    transfer_series_finish(&series);
    cr_assert_eq(rig_live_buffers(), 0);
    cr_assert_eq(rig_live_events(), 0);
    rig_destroy(a);
    rig_destroy(b);
}

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

Test(transfer, what_was_measured_once_is_not_measured_again)
{
    enum { TOTAL = 40u << 20 };
    char folder[SCRATCH_MAX];
    struct link_figures figures;
    struct host_figures host;
    struct transfer_shape shape;
    struct cost_choice choice;
    struct cost_places places;
    folder_make(folder);
    snprintf(the_links.folder, sizeof(the_links.folder), "%s/links", folder);
    struct rig *a = rig_create(0, true);
    const struct device *device = &a->device;
    cr_assert_eq(links_find(&the_links, &device->key, &device->info, &figures, NULL), -ENOENT);
    transfer_destroy(start(&(struct bench){DOWN, a, NULL}, NULL, TOTAL, NULL));
    cr_assert_eq(links_find(&the_links, &device->key, &device->info, &figures, NULL), 0);
    cr_assert_eq(links_find_host(&the_links, &host, NULL), 0);
    cr_assert_eq(memcmp(&figures, &device->link, sizeof(figures)), 0);

    figures.plain_read.bandwidth = 1.5e6; /* no real one */
    figures.read.bandwidth = 2.5e9;
    links_keep(&the_links, &device->key, &device->info, &figures);
    const struct cost_way way = {
        .from = &figures, .host = &host, .total = TOTAL, .cores = host_cores(), .link = true};
    cost_route(&way, &choice, &places);
    struct rig *b = rig_create(0, true); /* as another process would */
    struct transfer *transfer = start(&(struct bench){DOWN, b, NULL}, NULL, TOTAL, NULL);
    transfer_describe(transfer, &shape);
    cr_assert_lt(shape.predicted, choice.seconds * (1 + 1e-9));
    cr_assert_gt(shape.predicted, choice.seconds * (1 - 1e-9));
    transfer_destroy(transfer);
    the_links.folder[0] = '\0';
    rig_destroy(a);
    rig_destroy(b);
}
