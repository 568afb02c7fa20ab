#include "tests/support/cases.h"

#include "tests/state/transfer/transfer_bench.h"

/* Images of every type, packed on devices and with padding in host memory. */

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

TestCall(transfer, images_of_all_types_arrive_whole_by_every_way, each_shape(move_images),
         .timeout = 120);

Test(transfer, images_cross_to_another_vendor, .timeout = 120)
{
    struct rig *a = rig_create(0, true), *b = rig_create_named("llvmpipe", true);
    if (!b)
        cases_skip("rusticl is not installed");
    const struct transfer_shape shape = {.chunk = CHUNK, .chunks = 3};
    const struct bench benches[] = {{ACROSS, a, b}, {ACROSS, b, a}, {DOWN, b, NULL}, {UP, NULL, b}};
    for (size_t i = 0; i < ARRAY_SIZE(benches); i++)
        move_images(&benches[i], &shape, 0);
    rig_destroy(a);
    rig_destroy(b);
}
