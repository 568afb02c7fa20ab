#include "policy/plan.h"
#include "policy/reseat_limits.h"
#include "state/driver/offer.h"
#include "tests/support/leaks.h"

TestSuite(plan, .fini = leaks_check, .timeout = 60);

static const struct plan_offer roomy = {
    .limits =
        {
            .work_group_size = 1024,
            .work_item_sizes = {1024, 1024, 64},
            .work_dimensions = 3,
            .compute_units = 16,
            .local_memory = 49152,
            .largest_object = 1u << 30,
            .parameter_size = 1024,
            .origin_alignment = 1024,
            .images = true,
            .image2d = {8192, 4096},
            .image3d = {2048, 1024, 512},
            .image_buffer = 65536,
            .image_array = 256,
            .read_images = 128,
            .write_images = 8,
            .samplers = 16,
            .fp64 = true,
            .fp16 = true,
            .int64_atomics = true,
            .il = true,
            .non_uniform = true,
            .subgroups = true,
            .c_version = 3u << 22,
            .address_bits = 64,
        },
    .memory_available = 4ull << 30,
    .extensions = "cl_khr_fp64 cl_khr_3d_image_writes",
    .name = "gpu1",
};

static void expect_refusal(const struct plan_use *use, const char *reason)
{
    char text[256] = "untouched";

    cr_expect_not(plan_fits(use, &roomy, text, sizeof(text)));
    cr_expect_str_eq(text, reason);
}

Test(plan, program_that_used_nothing_fits_anywhere)
{
    const struct plan_offer nothing = {.name = "stone"};
    const struct plan_use use = {0};
    char text[256] = "untouched";

    cr_expect(plan_fits(&use, &nothing, text, sizeof(text)));
    cr_expect_str_eq(text, "untouched");
}

Test(plan, limits_themselves_fit)
{
    static const char *const extensions[] = {"cl_khr_3d_image_writes", "cl_khr_fp64"};
    struct plan_use use = roomy.limits;
    char text[256] = "untouched";

    use.device_memory = roomy.memory_available;
    use.extensions = extensions;
    use.extension_count = 2;
    cr_expect(plan_fits(&use, &roomy, text, sizeof(text)));
    cr_expect_str_eq(text, "untouched");
}

Test(plan, refusal_names_the_limit_and_both_values)
{
    expect_refusal(&(struct plan_use){.work_group_size = 4096},
                   "gpu1: the program has used 4096 work-items in a work-group, the device offers "
                   "1024");
    expect_refusal(&(struct plan_use){.local_memory = 65536},
                   "gpu1: the program has used 65536 bytes of local memory, the device offers "
                   "49152");
    expect_refusal(&(struct plan_use){.device_memory = (4ull << 30) + 1},
                   "gpu1: the program has used 4294967297 bytes of device memory, the device "
                   "offers 4294967296");
    expect_refusal(&(struct plan_use){.fp64 = true, .work_item_sizes = {1, 1, 65}},
                   "gpu1: the program has used 65 work-items in dimension 2, the device offers 64");
    expect_refusal(&(struct plan_use){.c_version = 3u << 22 | 1u << 12},
                   "gpu1: the program has used OpenCL C 3.1, the device offers up to 3.0");
    expect_refusal(&(struct plan_use){.address_bits = 32},
                   "gpu1: the program has used pointers of 32 bits, the device offers 64");
}

/* Each number one over its limit, found by its place in the structure. */
Test(plan, every_number_is_compared)
{
    static const size_t places[] = {
        offsetof(struct plan_use, work_group_size),
        offsetof(struct plan_use, work_item_sizes[0]),
        offsetof(struct plan_use, work_item_sizes[1]),
        offsetof(struct plan_use, work_item_sizes[2]),
        offsetof(struct plan_use, local_memory),
        offsetof(struct plan_use, largest_object),
        offsetof(struct plan_use, parameter_size),
        offsetof(struct plan_use, image2d[0]),
        offsetof(struct plan_use, image2d[1]),
        offsetof(struct plan_use, image3d[0]),
        offsetof(struct plan_use, image3d[1]),
        offsetof(struct plan_use, image3d[2]),
        offsetof(struct plan_use, image_buffer),
        offsetof(struct plan_use, image_array),
    };
    static const size_t small[] = {
        offsetof(struct plan_use, work_dimensions), offsetof(struct plan_use, compute_units),
        offsetof(struct plan_use, read_images), offsetof(struct plan_use, write_images),
        offsetof(struct plan_use, samplers)};
    char text[256];

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        struct plan_use use = roomy.limits;

        ++*(uint64_t *)((char *)&use + places[i]);
        cr_expect_not(plan_fits(&use, &roomy, text, sizeof(text)), "field at %zu", places[i]);
    }
    for (size_t i = 0; i < sizeof(small) / sizeof(small[0]); i++) {
        struct plan_use use = roomy.limits;

        ++*(uint32_t *)((char *)&use + small[i]);
        cr_expect_not(plan_fits(&use, &roomy, text, sizeof(text)), "field at %zu", small[i]);
    }
}

Test(plan, says_of_what_is_asked_for_that_it_is_asked_for)
{
    struct plan_use use = {.compute_units = 17, .stated = true};
    char text[256];

    cr_assert_not(plan_fits(&use, &roomy, text, sizeof(text)));
    cr_assert_not_null(strstr(text, "asks for 17 compute units, the device offers 16"), "%s", text);
    use = (struct plan_use){.fp64 = true, .stated = true};
    const struct plan_offer none = {.name = "stone"};
    cr_assert_not(plan_fits(&use, &none, text, sizeof(text)));
    cr_assert_str_eq(text, "stone: the program asks for double precision (fp64), the device offers "
                           "none");
}

Test(plan, every_ability_is_compared)
{
    static const size_t places[] = {
        offsetof(struct plan_use, images),    offsetof(struct plan_use, fp64),
        offsetof(struct plan_use, fp16),      offsetof(struct plan_use, int64_atomics),
        offsetof(struct plan_use, il),        offsetof(struct plan_use, non_uniform),
        offsetof(struct plan_use, subgroups),
    };
    char text[256];

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        struct plan_offer offer = roomy;
        struct plan_use use = {0};

        *(bool *)((char *)&use + places[i]) = true;
        cr_expect(plan_fits(&use, &offer, text, sizeof(text)));
        *(bool *)((char *)&offer.limits + places[i]) = false;
        cr_expect_not(plan_fits(&use, &offer, text, sizeof(text)), "field at %zu", places[i]);
    }
}

Test(plan, extensions_are_whole_words)
{
    static const char *const extensions[] = {"cl_khr_fp"};
    struct plan_use use = {.extensions = extensions, .extension_count = 1};
    struct plan_offer offer = roomy;
    char text[256];

    expect_refusal(&use, "gpu1: the program has used cl_khr_fp, the device lacks it");
    offer.extensions = NULL;
    cr_expect_not(plan_fits(&use, &offer, text, sizeof(text)));
}

Test(plan, sub_buffers_fit_where_their_origins_are_aligned)
{
    struct plan_use use = {.origin_alignment = 4096};
    char text[256];

    cr_expect(plan_fits(&use, &roomy, text, sizeof(text)), "stricter than asked");
    use.origin_alignment = 512;
    expect_refusal(&use, "gpu1: the program has used sub-buffers aligned to 512 bits, the device "
                         "wants 1024");
}

Test(plan, what_the_device_has_served_without_offering_it_is_not_needed)
{
    static const char *const enabled[] = {"cl_khr_fp64", "cl_amd_fp64"};
    const struct plan_offer served = {.limits = {.work_group_size = 512,
                                                 .local_memory = 1 << 16,
                                                 .parameter_size = 1024,
                                                 .c_version = 1u << 22,
                                                 .fp16 = true},
                                      .extensions = "cl_khr_fp64"};
    struct plan_use use = {.parameter_size = 4096,
                           .c_version = 4u << 22,
                           .fp64 = true,
                           .extensions = enabled,
                           .extension_count = 2};
    char text[256] = "";

    cr_expect_not(plan_fits(&use, &roomy, text, sizeof(text)));
    use.served = &served;
    cr_expect(plan_fits(&use, &roomy, text, sizeof(text)), "%s", text);
    use.local_memory = 1 << 17;
    expect_refusal(&use,
                   "gpu1: the program has used 65536 bytes of local memory, the device offers "
                   "49152");
    use.local_memory = 0;
    use.largest_object = 1ull << 31; /* of host memory until then */
    cr_expect_not(plan_fits(&use, &roomy, text, sizeof(text)));
    use.largest_object = 0;
    const struct plan_offer bare = {.limits = roomy.limits, .extensions = "", .name = "gpu2"};
    cr_expect_not(plan_fits(&use, &bare, text, sizeof(text)), "it needs cl_khr_fp64");
}

Test(plan, long_reasons_are_cut)
{
    char text[16];
    struct plan_use use = {.fp64 = true};
    struct plan_offer offer = {.name = "a name longer than the reason may be"};

    cr_expect_not(plan_fits(&use, &offer, text, sizeof(text)));
    cr_expect_str_eq(text, "a name longer t");
}

Test(plan, offer_reads_what_the_device_says)
{
    uint64_t group = 256, memory = 3000, object = 2000, fp64 = 0x3f;
    uint64_t sizes[4] = {256, 128, 64, 32}, width = 77;
    uint32_t bits = 64, yes = 1, alignment = 2048;
    struct {
        cl_version version;
        char name[64];
    } versions[] = {{1u << 22, "OpenCL C"}, {3u << 22, "OpenCL C"}};
    struct devinfo_value values[] = {
        {CL_DEVICE_MAX_WORK_GROUP_SIZE, 8, (uint8_t *)&group},
        {CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof(sizes), (uint8_t *)sizes},
        {CL_DEVICE_ADDRESS_BITS, 4, (uint8_t *)&bits},
        {CL_DEVICE_MAX_MEM_ALLOC_SIZE, 8, (uint8_t *)&object},
        {CL_DEVICE_IMAGE2D_MAX_WIDTH, 8, (uint8_t *)&width},
        {CL_DEVICE_IMAGE_SUPPORT, 4, (uint8_t *)&yes},
        {CL_DEVICE_MEM_BASE_ADDR_ALIGN, 4, (uint8_t *)&alignment},
        {CL_DEVICE_GLOBAL_MEM_SIZE, 8, (uint8_t *)&memory},
        {CL_DEVICE_NAME, 5, (uint8_t *)"cpu0"},
        {CL_DEVICE_VERSION, 11, (uint8_t *)"OpenCL 3.0"},
        {CL_DEVICE_EXTENSIONS, 12, (uint8_t *)"cl_khr_fp16"},
        {CL_DEVICE_DOUBLE_FP_CONFIG, 8, (uint8_t *)&fp64},
        {CL_DEVICE_OPENCL_C_VERSION, 13, (uint8_t *)"OpenCL C 1.2"},
        {CL_DEVICE_OPENCL_C_ALL_VERSIONS, sizeof(versions), (uint8_t *)versions},
    };
    struct devinfo info = {.value_count = sizeof(values) / sizeof(values[0]), .values = values};
    struct plan_offer offer;

    offer_from_devinfo(&info, &offer);
    cr_expect_eq(offer.limits.work_group_size, 256);
    cr_expect_eq(offer.limits.work_item_sizes[2], 64);
    cr_expect_eq(offer.limits.largest_object, 2000);
    cr_expect_eq(offer.memory_available, 3000);
    cr_expect_eq(offer.limits.image2d[0], 77);
    cr_expect_eq(offer.limits.origin_alignment, 2048);
    cr_expect_eq(offer.limits.address_bits, 64);
    cr_expect_eq(offer.limits.c_version, 3u << 22);
    cr_expect(offer.limits.fp64);
    cr_expect(offer.limits.fp16);
    cr_expect_not(offer.limits.int64_atomics);
    cr_expect_not(offer.limits.non_uniform);
    cr_expect_not(offer.limits.il);
    cr_expect_str_eq(offer.name, "cpu0");
    yes = 0;
    offer_from_devinfo(&info, &offer);
    cr_expect_eq(offer.limits.image2d[0], 0, "no images, no limits of images");
}

Test(plan, what_programs_ask_for_is_compared_with_what_they_are_told_of)
{
    /* Each alone: as many as the device has, and one more. */
    static const struct reseat_limits asked[] = {{.memory = 4ull << 30},
                                                 {.allocation = 1u << 30},
                                                 {.local_memory = 49152},
                                                 {.work_group_size = 1024},
                                                 {.compute_units = 16}};
    struct reseat_limits told;
    struct plan_use use;
    char text[256];

    reseat_limits_offered(&roomy, &told);
    for (size_t i = 0; i < sizeof(asked) / sizeof(*asked); i++) {
        struct reseat_limits more = asked[i];

        cr_expect_eq(told.memory * (i == 0), asked[i].memory);
        cr_expect_eq(told.allocation * (i == 1), asked[i].allocation);
        cr_expect_eq(told.local_memory * (i == 2), asked[i].local_memory);
        cr_expect_eq(told.work_group_size * (i == 3), asked[i].work_group_size);
        cr_expect_eq(told.compute_units * (i == 4), asked[i].compute_units);
        reseat_limits_plan(&asked[i], &use);
        cr_expect(plan_fits(&use, &roomy, text, sizeof(text)), "%zu: %s", i, text);
        more.memory += i == 0;
        more.allocation += i == 1;
        more.local_memory += i == 2;
        more.work_group_size += i == 3;
        more.compute_units += i == 4;
        reseat_limits_plan(&more, &use);
        cr_expect_not(plan_fits(&use, &roomy, text, sizeof(text)), "%zu", i);
        cr_expect(strstr(text, "asks for"), "%s", text);
    }
}

Test(plan, features_that_programs_ask_for_are_the_flags_of_their_name)
{
    const struct {
        uint32_t bit;
        const char *name;
        struct plan_offer offer;
    } all[] = {
        {RESEAT_FP64, "fp64", {.limits.fp64 = true}},
        {RESEAT_FP16, "fp16", {.limits.fp16 = true}},
        {RESEAT_IMAGES, "images", {.limits.images = true}},
        {RESEAT_INT64_ATOMICS, "int64-atomics", {.limits.int64_atomics = true}},
        {RESEAT_SUBGROUPS, "subgroups", {.limits.subgroups = true}},
        {RESEAT_IL, "il", {.limits.il = true}},
    };
    const size_t count = sizeof(all) / sizeof(*all);
    struct reseat_limits told;
    struct plan_use use;
    uint32_t bit;
    char text[256];

    for (size_t i = 0; i < count; i++) {
        reseat_limits_offered(&all[i].offer, &told);
        cr_expect_eq(told.features, all[i].bit);
        cr_expect_str_eq(reseat_limits_feature(i, &bit), all[i].name);
        cr_expect_eq(bit, all[i].bit);
        reseat_limits_plan(&(struct reseat_limits){.features = all[i].bit}, &use);
        for (size_t k = 0; k < count; k++)
            cr_expect_eq(plan_fits(&use, &all[k].offer, text, sizeof(text)), i == k);
    }
    cr_expect_null(reseat_limits_feature(count, &bit));
}
