#include "tests/support/cases.h"
#include <stdint.h>

#include "state/opencl/box.h"
#include "state/opencl/create.h"
#include "state/opencl/image.h"

Test(opencl, a_format_has_a_size_only_where_order_and_type_go_together)
{
    static const struct {
        cl_image_format format;
        size_t size;
    } formats[] = {
        {{CL_R, CL_UNORM_INT8}, 1},
        {{CL_RGBA, CL_UNORM_INT8}, 4},
        {{CL_RG, CL_HALF_FLOAT}, 4},
        {{CL_RGBA, CL_FLOAT}, 16},
        {{CL_DEPTH, CL_FLOAT}, 4},
        {{CL_RGB, CL_UNORM_SHORT_565}, 2},
        {{CL_RGBA, CL_UNORM_SHORT_565}, 0},
        {{CL_R, CL_UNORM_SHORT_555}, 0},
        {{CL_RGBx, CL_UNORM_INT_101010}, 4},
        {{CL_RGBA, CL_UNORM_INT_101010}, 0},
        {{CL_RGBA, CL_UNORM_INT_101010_2}, 4},
        {{CL_RGB, CL_UNORM_INT_101010_2}, 0},
        {{CL_DEPTH_STENCIL, CL_UNORM_INT24}, 4},
        {{CL_RGBA, CL_UNORM_INT24}, 0},
        {{0, CL_UNORM_INT8}, 0},
        {{CL_R, 0}, 0},
    };
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
        cr_expect_eq(image_element_size(&formats[i].format), formats[i].size, "row %zu", i);
}

Test(opencl, a_range_that_wraps_around_does_not_fit)
{
    cr_expect(range_fits(0, 0, 0));
    cr_expect(range_fits(3, 5, 8));
    cr_expect_not(range_fits(3, 6, 8));
    cr_expect_not(range_fits(9, 0, 8));
    cr_expect_not(range_fits(8, SIZE_MAX - 4, 8));
    cr_expect_not(range_fits(SIZE_MAX, 2, SIZE_MAX));
}

Test(opencl, a_box_is_refused_that_is_empty_too_large_or_has_pitches_that_do_not_fit)
{
    const size_t none[3] = {0}, some[3] = {4, 2, 2}, huge[3] = {SIZE_MAX / 2, 3, 1};
    struct box box;
    cr_assert(box_init(&box, none, some, 0, 0));
    cr_expect_eq(box.row, 4);
    cr_expect_eq(box.slice, 8);
    cr_expect_eq(box.end, 16);
    cr_expect(box_init(&box, none, some, 6, 18));
    cr_expect_not(box_init(&box, NULL, some, 0, 0));
    cr_expect_not(box_init(&box, none, NULL, 0, 0));
    cr_expect_not(box_init(&box, none, none, 0, 0));
    cr_expect_not(box_init(&box, none, some, 3, 0), "rows overlap");
    cr_expect_not(box_init(&box, none, some, 6, 11), "slices overlap");
    cr_expect_not(box_init(&box, none, some, 6, 13), "no whole number of rows");
    cr_expect_not(box_init(&box, none, huge, 0, 0));
    cr_expect_not(box_init(&box, huge, some, 0, SIZE_MAX / 4 * 4));
}

/* Does any byte belong to both? By marking each. */
static bool share_a_byte(const struct box *a, const struct box *b, const size_t region[3])
{
    const struct box *boxes[] = {a, b};
    unsigned char marks[512] = {0};
    for (int k = 0; k < 2; k++)
        for (size_t z = 0; z < region[2]; z++)
            for (size_t y = 0; y < region[1]; y++)
                for (size_t x = 0; x < region[0]; x++)
                    marks[boxes[k]->start + z * boxes[k]->slice + y * boxes[k]->row + x] |= 1 << k;
    for (size_t i = 0; i < sizeof(marks); i++)
        if (marks[i] == 3)
            return true;
    return false;
}

/* The rule may call two boxes overlapping that interleave; it never misses a byte in common. */
Test(opencl, boxes_with_a_byte_in_common_overlap)
{
    const size_t row = 5, slice = 20, region[3] = {3, 2, 2};
    unsigned overlapping = 0, apart = 0;
    for (size_t i = 0; i < 3 * 4 * 2; i++)
        for (size_t j = 0; j < 3 * 4 * 2; j++) {
            const size_t p[3] = {i % 3, i / 3 % 3, i / 12}, q[3] = {j % 3, j / 3 % 3, j / 12};
            struct box a, b;
            cr_assert(box_init(&a, p, region, row, slice) && box_init(&b, q, region, row, slice));
            bool overlaps = box_overlaps(&a, &b, region);
            overlapping += overlaps;
            apart += !overlaps;
            if (share_a_byte(&a, &b, region))
                cr_expect(overlaps, "%zu and %zu", i, j);
        }
    cr_expect(overlapping > 0 && apart > 0);
}

/* POCL takes the first, Mesa's rusticl the last; what was built may be either. */
Test(opencl, of_several_languages_in_the_options_the_latest_counts)
{
    static const struct {
        const char *options;
        cl_version standard;
    } rows[] = {
        {NULL, 0},
        {"-w -DX", 0},
        {"-cl-std=", 0},
        {"-std=CL2.0", 0},
        {"-w -cl-std=CL1.2 -DX", CL_MAKE_VERSION(1, 2, 0)},
        {"-cl-std=CL1.2 -cl-std=CL2.0", CL_MAKE_VERSION(2, 0, 0)},
        {"-cl-std=CL2.0 -cl-std=CL1.2", CL_MAKE_VERSION(2, 0, 0)},
        {"-cl-std=cl2.0", CL_MAKE_VERSION(2, 0, 0)},
        {"-cl-std=CLC++", OPTIONS_OTHER_LANGUAGE},
        {"-cl-std=clc++2021 -cl-std=CL3.0", OPTIONS_OTHER_LANGUAGE},
        {"-cl-std=CL", OPTIONS_OTHER_LANGUAGE},
        {"-cl-std=CL9999.0", OPTIONS_OTHER_LANGUAGE},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        cr_expect_eq(options_standard(rows[i].options), rows[i].standard, "row %zu", i);
}
