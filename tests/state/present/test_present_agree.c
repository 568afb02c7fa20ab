#include "tests/state/present/fake_device.h"
#include "tests/support/calls.h"

/* Answers of several devices agree with each other, and each has its reason. */

TestSuite(present_agree, .fini = built_end, .timeout = 60);

static const struct present_terms portable = {.profile = PRESENT_PORTABLE};

static struct present build(const struct devinfo *a, const struct devinfo *b,
                            struct reasons *ret_reasons)
{
    return build_on(&portable, a, b, ret_reasons);
}

static bool has_extension(const struct present *present, const char *name)
{
    return devinfo_has_extension(&present->device, name);
}

static bool has_feature(const struct present *present, const char *name)
{
    const struct devinfo_value *list = devinfo_find(&present->device, CL_DEVICE_OPENCL_C_FEATURES);

    for (size_t i = 0; list && i < list->size / sizeof(cl_name_version); i++)
        if (!strcmp((const char *)list->bytes + i * sizeof(cl_name_version) +
                        offsetof(cl_name_version, name),
                    name))
            return true;
    return false;
}

static cl_uint formats(const struct present *present, cl_mem_flags access, cl_mem_object_type type)
{
    cl_uint count = 0;

    OK(present_image_formats(present, access, type, 0, NULL, &count));
    return count;
}

Test(present_agree, three_is_told_only_where_all_of_its_queries_are_answered)
{
    struct devinfo a = plain("OpenCL 3.0 a"), b = plain("OpenCL 3.0 b");
    struct reasons reasons = {0};
    size_t at = 0;

    while (b.values[at].name != CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES)
        at++;
    b.value_count = at;
    struct present present = build(&a, &b, &reasons);
    cr_expect_eq(present.version, V(1, 2));
    const struct reason *reason = reasons_find_answer(&reasons, CL_DEVICE_VERSION);
    cr_assert_not_null(reason);
    cr_expect_eq(reason->rule, REASON_LEAST);
    cr_expect(!reason->by[0] && reason->by[1]);
    cr_expect_not_null(reason->because);
    reasons_finish(&reasons);
}

Test(present_agree, the_language_is_never_more_than_is_offered_of_it)
{
    struct devinfo a = plain("OpenCL 3.0 a");
    char version[64];

    put_text(&a, CL_DEVICE_OPENCL_C_VERSION, "OpenCL C 3.0 own");
    struct present present = build(&a, NULL, NULL);
    OK(present_device_info(&present, CL_DEVICE_OPENCL_C_VERSION, sizeof(version), version, NULL));
    cr_expect_str_eq(version, "OpenCL C 1.2 reseat");
}

Test(present_agree, an_ability_that_a_device_is_silent_on_is_not_there)
{
    struct devinfo a = plain("OpenCL 1.2 a"), b = plain("OpenCL 1.2 b");
    struct reasons reasons = {0};

    put_text(&a, CL_DEVICE_EXTENSIONS, "cl_khr_fp64");
    put8(&a, CL_DEVICE_DOUBLE_FP_CONFIG, 0x3f);
    struct present present = build(&a, &b, &reasons);
    cr_expect_eq(number(&present, CL_DEVICE_DOUBLE_FP_CONFIG), 0);
    cr_expect(reasons_find_answer(&reasons, CL_DEVICE_DOUBLE_FP_CONFIG)->by[1]);
    reasons_finish(&reasons);
}

Test(present_agree, a_number_that_is_too_wide_is_told_in_its_own_size)
{
    struct devinfo a = plain("OpenCL 1.2 a");
    size_t size = 0;

    put8(&a, CL_DEVICE_MAX_CONSTANT_ARGS, 8);
    struct present present = build(&a, NULL, NULL);
    cr_expect_eq(present_device_info(&present, CL_DEVICE_MAX_CONSTANT_ARGS, 0, NULL, &size),
                 CL_SUCCESS);
    cr_expect_eq(size, sizeof(cl_uint));
    cr_expect_eq(number(&present, CL_DEVICE_MAX_CONSTANT_ARGS), 8);
}

Test(present_agree, another_device_that_is_busy_does_not_make_ours_unavailable)
{
    struct devinfo a = plain("OpenCL 1.2 a"), b = plain("OpenCL 1.2 b");

    put4(&a, CL_DEVICE_AVAILABLE, CL_TRUE);
    put4(&b, CL_DEVICE_AVAILABLE, CL_FALSE);
    struct present present = build(&a, &b, NULL);
    cr_expect_eq(number(&present, CL_DEVICE_AVAILABLE), CL_TRUE);
}

Test(present_agree, devices_that_nothing_moves_to_take_no_part)
{
    struct devinfo a = plain("OpenCL 3.0 a"), b = plain("OpenCL 1.1 b"), c = plain("OpenCL 1.2 c");
    const struct devinfo *devices[] = {&a, &b, &c};
    struct reasons reasons = {0};
    struct present present = {0};
    size_t left_out = 0;

    put8(&a, CL_DEVICE_MAX_WORK_GROUP_SIZE, 4096);
    put8(&b, CL_DEVICE_MAX_WORK_GROUP_SIZE, 1);
    put8(&c, CL_DEVICE_MAX_WORK_GROUP_SIZE, 1024);
    cr_assert_eq(present_explain(devices, 3, &portable, &present, &reasons), 0);
    cr_expect_eq(present.version, V(1, 2));
    cr_expect_eq(number(&present, CL_DEVICE_MAX_WORK_GROUP_SIZE), 1024);
    const struct reason *reason = reasons_find_answer(&reasons, CL_DEVICE_MAX_WORK_GROUP_SIZE);
    cr_expect(!reason->by[0] && !reason->by[1] && reason->by[2], "places are those of all three");
    for (size_t i = 0; i < reasons.count; i++)
        left_out += reasons.items[i].kind == REASON_DEVICE && reasons.items[i].by[1];
    cr_expect_eq(left_out, 1);
    present_finish(&present);
    reasons_finish(&reasons);

    devices[0] = &b;
    cr_assert_eq(present_build(devices, 1, &portable, &present), 0);
    cr_expect_eq(present.version, V(1, 1), "it is the one the program is on");
    present_finish(&present);
}

Test(present_agree, sub_groups_are_there_with_number_and_feature_or_not_at_all)
{
    struct devinfo a = plain("OpenCL 3.0 a"), b = plain("OpenCL 3.0 b");

    for (int i = 0; i < 2; i++) {
        struct devinfo *one = i ? &b : &a;

        put_text(one, CL_DEVICE_EXTENSIONS, "cl_khr_subgroups cl_khr_subgroup_ballot");
        put4(one, CL_DEVICE_MAX_NUM_SUB_GROUPS, 8);
        put4(one, CL_DEVICE_SUB_GROUP_INDEPENDENT_FORWARD_PROGRESS, CL_TRUE);
        put_versions(one, CL_DEVICE_OPENCL_C_FEATURES, "__opencl_c_subgroups", V(3, 0), NULL);
    }
    struct present present = build(&a, &b, NULL);
    cr_expect_eq(number(&present, CL_DEVICE_MAX_NUM_SUB_GROUPS), 8);
    cr_expect(has_extension(&present, "cl_khr_subgroup_ballot"));

    put_versions(&b, CL_DEVICE_OPENCL_C_FEATURES, NULL);
    present = build(&a, &b, NULL);
    cr_expect_eq(number(&present, CL_DEVICE_MAX_NUM_SUB_GROUPS), 0);
    cr_expect_eq(number(&present, CL_DEVICE_SUB_GROUP_INDEPENDENT_FORWARD_PROGRESS), 0);
    cr_expect_not(has_extension(&present, "cl_khr_subgroups"));
    cr_expect_not(has_extension(&present, "cl_khr_subgroup_ballot"));
}

static cl_image_format rgba[] = {{CL_RGBA, CL_UNORM_INT8}};
static cl_image_format depth[] = {
    {CL_RGBA, CL_UNORM_INT8}, {CL_DEPTH, CL_FLOAT}, {CL_DEPTH_STENCIL, CL_UNORM_INT24}};
static struct devinfo_formats all_lists[] = {
    {CL_MEM_READ_ONLY, CL_MEM_OBJECT_IMAGE2D, 3, depth},
    {CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE2D, 3, depth},
    {CL_MEM_READ_ONLY, CL_MEM_OBJECT_IMAGE3D, 1, rgba},
    {CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE3D, 1, rgba},
    {CL_MEM_KERNEL_READ_AND_WRITE, CL_MEM_OBJECT_IMAGE2D, 1, rgba},
};

static struct devinfo with_images(const char *version, const char *extensions)
{
    struct devinfo info = plain(version);

    info.formats = all_lists;
    info.format_count = ARRAY_SIZE(all_lists);
    put_text(&info, CL_DEVICE_EXTENSIONS, extensions);
    put4(&info, CL_DEVICE_MAX_READ_WRITE_IMAGE_ARGS, 64);
    if (devinfo_version(&info) >= V(3, 0))
        put_versions(&info, CL_DEVICE_OPENCL_C_FEATURES, "__opencl_c_images", V(3, 0),
                     "__opencl_c_read_write_images", V(3, 0), "__opencl_c_3d_image_writes", V(3, 0),
                     NULL);
    return info;
}

Test(present_agree, image_formats_say_what_extensions_and_limits_say)
{
    struct devinfo a = with_images("OpenCL 3.0 a", "cl_khr_depth_images cl_khr_3d_image_writes");
    struct devinfo b = with_images("OpenCL 3.0 b", "");
    struct present present = build(&a, NULL, NULL);

    cr_expect_eq(formats(&present, CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE2D), 2,
                 "depth, but no depth and stencil: that is OpenGL's");
    cr_expect_eq(formats(&present, CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE3D), 1);
    cr_expect_eq(formats(&present, CL_MEM_KERNEL_READ_AND_WRITE, CL_MEM_OBJECT_IMAGE2D), 1);
    cr_expect_eq(number(&present, CL_DEVICE_MAX_READ_WRITE_IMAGE_ARGS), 64);

    put4(&b, CL_DEVICE_MAX_READ_WRITE_IMAGE_ARGS, 0);
    present = build(&a, &b, NULL);
    cr_expect_not(has_extension(&present, "cl_khr_depth_images"));
    cr_expect_eq(formats(&present, CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE2D), 1);
    cr_expect_eq(formats(&present, CL_MEM_READ_ONLY, CL_MEM_OBJECT_IMAGE2D), 1);
    cr_expect_eq(formats(&present, CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE3D), 0);
    cr_expect_eq(formats(&present, CL_MEM_READ_ONLY, CL_MEM_OBJECT_IMAGE3D), 1);
    cr_expect_eq(formats(&present, CL_MEM_KERNEL_READ_AND_WRITE, CL_MEM_OBJECT_IMAGE2D), 0);
    cr_expect_not(has_feature(&present, "__opencl_c_read_write_images"));

    /* And the other way: extensions and limits without formats. */
    b = with_images("OpenCL 3.0 b", "cl_khr_depth_images cl_khr_3d_image_writes");
    b.format_count = 1;
    present = build(&b, NULL, NULL);
    cr_expect_not(has_extension(&present, "cl_khr_depth_images"));
    cr_expect_not(has_extension(&present, "cl_khr_3d_image_writes"));
    cr_expect_eq(number(&present, CL_DEVICE_MAX_READ_WRITE_IMAGE_ARGS), 0);
    cr_expect_not(has_feature(&present, "__opencl_c_3d_image_writes"));
}

Test(present_agree, before_3_a_3d_image_may_be_read_write_without_being_written)
{
    struct devinfo a = with_images("OpenCL 1.2 a", "");
    struct present present = build(&a, NULL, NULL);
    cl_uint count = 7;

    cr_expect_eq(formats(&present, CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE3D), 1);
    cr_expect_eq(present_image_formats(&present, CL_MEM_KERNEL_READ_AND_WRITE,
                                       CL_MEM_OBJECT_IMAGE2D, 0, NULL, &count),
                 CL_INVALID_VALUE, "a flag of 2.0");
}

Test(present_agree, orders_of_atomics_build_on_each_other)
{
    struct devinfo a = plain("OpenCL 3.0 a"), b = plain("OpenCL 3.0 b");

    for (int i = 0; i < 2; i++) {
        struct devinfo *one = i ? &b : &a;

        put8(one, CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES, i ? 0x35 : 0x37);
        put8(one, CL_DEVICE_ATOMIC_FENCE_CAPABILITIES, 0x37);
        put_versions(one, CL_DEVICE_OPENCL_C_FEATURES, "__opencl_c_atomic_order_acq_rel", V(3, 0),
                     "__opencl_c_atomic_order_seq_cst", V(3, 0), NULL);
    }
    struct present present = build(&a, &b, NULL);
    cr_expect_eq(number(&present, CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES), 0x11,
                 "no acquire and release, so no sequential consistency");
    cr_expect_not(has_feature(&present, "__opencl_c_atomic_order_acq_rel"));
    cr_expect_not(has_feature(&present, "__opencl_c_atomic_order_seq_cst"));
    cr_expect_eq(number(&present, CL_DEVICE_ATOMIC_FENCE_CAPABILITIES), 0x13);
}

Test(present_agree, a_type_that_is_there_has_a_width)
{
    struct devinfo a = plain("OpenCL 1.2 a");

    put_text(&a, CL_DEVICE_EXTENSIONS, "cl_khr_fp64");
    put8(&a, CL_DEVICE_DOUBLE_FP_CONFIG, 0x3f);
    put4(&a, CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE, 0);
    put4(&a, CL_DEVICE_PREFERRED_VECTOR_WIDTH_DOUBLE, 4);
    struct present present = build(&a, NULL, NULL);
    cr_expect_eq(number(&present, CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE), 1);
    cr_expect_eq(number(&present, CL_DEVICE_PREFERRED_VECTOR_WIDTH_DOUBLE), 4);
}

Test(present_agree, as_many_dimensions_as_sizes)
{
    struct devinfo a = plain("OpenCL 1.2 a"), b = plain("OpenCL 1.2 b");
    const size_t four[4] = {8, 8, 8, 8}, three[3] = {8, 8, 8};
    size_t size = 0;

    put4(&a, CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS, 4);
    put(&a, CL_DEVICE_MAX_WORK_ITEM_SIZES, four, sizeof(four));
    put4(&b, CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS, 3);
    put(&b, CL_DEVICE_MAX_WORK_ITEM_SIZES, four, sizeof(four));
    struct present present = build(&a, &b, NULL);
    cr_expect_eq(present_device_info(&present, CL_DEVICE_MAX_WORK_ITEM_SIZES, 0, NULL, &size),
                 CL_SUCCESS);
    cr_expect_eq(size, 3 * sizeof(size_t));

    put(&a, CL_DEVICE_MAX_WORK_ITEM_SIZES, three, sizeof(three));
    present = build(&a, NULL, NULL);
    cr_expect_eq(number(&present, CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS), 3);
}

Test(present_agree, each_answer_has_the_reason_that_decided_it)
{
    struct devinfo a = plain("OpenCL 1.2 a"), b = plain("OpenCL 1.2 b");
    struct reasons reasons = {0};

    put8(&a, CL_DEVICE_MAX_WORK_GROUP_SIZE, 4096);
    put8(&b, CL_DEVICE_MAX_WORK_GROUP_SIZE, 1024);
    put4(&a, CL_DEVICE_MEM_BASE_ADDR_ALIGN, 4096);
    put4(&b, CL_DEVICE_MEM_BASE_ADDR_ALIGN, 1024);
    put8(&a, CL_DEVICE_QUEUE_ON_HOST_PROPERTIES, 3);
    put8(&b, CL_DEVICE_QUEUE_ON_HOST_PROPERTIES, 2);
    put8(&b, CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE, 900000);
    put8(&a, CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE, 900000);
    put4(&a, CL_DEVICE_MAX_CLOCK_FREQUENCY, 1);
    put_text(&a, CL_DEVICE_EXTENSIONS, "cl_khr_fp16 cl_khr_gl_sharing cl_vendor_new");
    put_text(&b, CL_DEVICE_EXTENSIONS, "cl_khr_gl_sharing");
    build(&a, &b, &reasons);

    const struct reason *reason = reasons_find_answer(&reasons, CL_DEVICE_MAX_WORK_GROUP_SIZE);
    cr_expect(reason->rule == REASON_LEAST && !reason->by[0] && reason->by[1]);
    reason = reasons_find_answer(&reasons, CL_DEVICE_MEM_BASE_ADDR_ALIGN);
    cr_expect(reason->rule == REASON_LARGEST && reason->by[0] && !reason->by[1]);
    reason = reasons_find_answer(&reasons, CL_DEVICE_QUEUE_ON_HOST_PROPERTIES);
    cr_expect(reason->rule == REASON_COMMON && !reason->by[0] && reason->by[1]);
    reason = reasons_find_answer(&reasons, CL_DEVICE_GLOBAL_MEM_SIZE);
    cr_expect(reason->rule == REASON_EQUAL && !reason->by[0] && !reason->by[1]);
    reason = reasons_find_answer(&reasons, CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE);
    cr_expect(reason->rule == REASON_AGREES && strstr(reason->because, "MAX_MEM_ALLOC_SIZE"));
    reason = reasons_find_answer(&reasons, CL_DEVICE_MAX_CLOCK_FREQUENCY);
    cr_expect(reason->rule == REASON_MISSING && !reason->by[0] && reason->by[1]);
    reason = reasons_find_answer(&reasons, CL_DEVICE_BUILT_IN_KERNELS);
    cr_expect_eq(reason->rule, REASON_NOT_CARRIED);
    reason = reasons_find_answer(&reasons, CL_DEVICE_NAME);
    cr_expect_eq(reason->rule, REASON_OURS);
    reason = reasons_find_name(&reasons, REASON_EXTENSION, "cl_khr_fp16");
    cr_expect(reason->rule == REASON_MISSING && !reason->by[0] && reason->by[1]);
    reason = reasons_find_name(&reasons, REASON_EXTENSION, "cl_khr_gl_sharing");
    cr_expect(reason->rule == REASON_NOT_CARRIED && reason->because);
    reason = reasons_find_name(&reasons, REASON_EXTENSION, "cl_vendor_new");
    cr_expect(reason->rule == REASON_NOT_CARRIED && reason->because);
    cr_expect_null(reasons_find_name(&reasons, REASON_FEATURE, "cl_vendor_new"));
    reasons_finish(&reasons);
}

Test(present_agree, compilers_are_told_what_the_device_does_not_have)
{
    struct devinfo a = plain("OpenCL 3.0 a"), b = plain("OpenCL 3.0 b"), c = plain("OpenCL 1.2 c");

    put_text(&a, CL_DEVICE_EXTENSIONS, "cl_khr_fp64 cl_khr_int64_base_atomics cl_vendor_own");
    put8(&a, CL_DEVICE_DOUBLE_FP_CONFIG, 0x3f);
    put_text(&b, CL_DEVICE_EXTENSIONS,
             "cl_khr_int64_base_atomics cl_bad\n#error cl_bad;x not_ours");
    put_versions(&a, CL_DEVICE_OPENCL_C_FEATURES, "__opencl_c_fp64", V(3, 0), "__opencl_c_images",
                 V(3, 0), NULL);
    put_versions(&b, CL_DEVICE_OPENCL_C_FEATURES, "__opencl_c_images", V(3, 0), NULL);
    struct present present = build(&a, &b, NULL);
    cr_expect_str_eq(present.prologue, "#undef cl_khr_fp64\n#undef cl_vendor_own\n"
                                       "#undef __opencl_c_fp64\n#line 1\n");

    put_text(&a, CL_DEVICE_EXTENSIONS, "cl_khr_int64_base_atomics");
    put_versions(&a, CL_DEVICE_OPENCL_C_FEATURES, "__opencl_c_images", V(3, 0), NULL);
    present = build(&a, NULL, NULL);
    cr_expect_str_eq(present.prologue, "", "it has what it is told to have");

    present = build(&a, &c, NULL);
    cr_expect_not_null(strstr(present.prologue, "#define __OPENCL_VERSION__ 120\n"));
    put4(&c, CL_DEVICE_IMAGE_SUPPORT, CL_FALSE);
    present = build(&c, NULL, NULL);
    cr_expect_str_eq(present.prologue, "#undef __IMAGE_SUPPORT__\n#line 1\n");
}

/* ---- any two devices that agree with themselves ---- */

static const char *const abilities[] = {"cl_khr_fp64", "cl_khr_fp16", "cl_khr_depth_images",
                                        "cl_khr_3d_image_writes", "cl_khr_image2d_from_buffer"};

static uint32_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* A device that is right, of abilities drawn at random. */
static void draw_device(struct devinfo *info, uint64_t *state)
{
    uint32_t bits = draw(state);
    uint64_t atomics = 0x11 | (bits & 32 ? 2 : 0) | ((bits & 96) == 96 ? 4 : 0);
    char extensions[256] = "";

    for (size_t i = 0; i < ARRAY_SIZE(abilities); i++)
        if (bits & 1u << i)
            strcat(strcat(extensions, extensions[0] ? " " : ""), abilities[i]);
    put_text(info, CL_DEVICE_EXTENSIONS, extensions);
    put8(info, CL_DEVICE_DOUBLE_FP_CONFIG, bits & 1 ? 0x3f : 0);
    put4(info, CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE, bits & 1 ? 1 + draw(state) % 8 : 0);
    put8(info, CL_DEVICE_HALF_FP_CONFIG, bits & 2 ? 0x6 : 0);
    put4(info, CL_DEVICE_NATIVE_VECTOR_WIDTH_HALF, bits & 2 ? 1 + draw(state) % 8 : 0);
    put4(info, CL_DEVICE_IMAGE_PITCH_ALIGNMENT, bits & 16 ? 64 : 0);
    put4(info, CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT, bits & 16 ? 64 : 0);
    put8(info, CL_DEVICE_GLOBAL_MEM_SIZE, 1u << (24 + draw(state) % 7));
    put8(info, CL_DEVICE_MAX_MEM_ALLOC_SIZE,
         devinfo_scalar(info, CL_DEVICE_GLOBAL_MEM_SIZE, 0) >> draw(state) % 3);
    put8(info, CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE,
         devinfo_scalar(info, CL_DEVICE_MAX_MEM_ALLOC_SIZE, 0) >> draw(state) % 3);
    put8(info, CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES, atomics);
    put8(info, CL_DEVICE_ATOMIC_FENCE_CAPABILITIES, atomics | 2);
    put4(info, CL_DEVICE_MAX_READ_WRITE_IMAGE_ARGS, bits & 128 ? 64 : 0);
    put_versions(info, CL_DEVICE_OPENCL_C_FEATURES, "__opencl_c_images", V(3, 0),
                 bits & 1 ? "__opencl_c_fp64" : "__opencl_c_int64", V(3, 0),
                 atomics & 2 ? "__opencl_c_atomic_order_acq_rel" : "none", V(3, 0),
                 atomics & 4 ? "__opencl_c_atomic_order_seq_cst" : "none", V(3, 0),
                 bits & 128 ? "__opencl_c_read_write_images" : "none", V(3, 0),
                 bits & 8 ? "__opencl_c_3d_image_writes" : "none", V(3, 0), NULL);
}

static void expect_agreement(const struct present *present)
{
    uint64_t atomics = number(present, CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES);
    uint64_t fences = number(present, CL_DEVICE_ATOMIC_FENCE_CAPABILITIES);
    bool fp64 = has_extension(present, "cl_khr_fp64");
    bool from_buffer = has_extension(present, "cl_khr_image2d_from_buffer");
    bool both = number(present, CL_DEVICE_MAX_READ_WRITE_IMAGE_ARGS) != 0;

    cr_expect_eq(present->version, V(3, 0));
    cr_expect_eq(fp64, number(present, CL_DEVICE_DOUBLE_FP_CONFIG) == 0x3f);
    cr_expect_eq(fp64, number(present, CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE) != 0);
    cr_expect_eq(fp64, has_feature(present, "__opencl_c_fp64"));
    cr_expect_eq(has_extension(present, "cl_khr_fp16"),
                 number(present, CL_DEVICE_NATIVE_VECTOR_WIDTH_HALF) != 0);
    cr_expect_eq(from_buffer, number(present, CL_DEVICE_IMAGE_PITCH_ALIGNMENT) != 0);
    cr_expect_eq(from_buffer, number(present, CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT) != 0);
    cr_expect_eq(has_extension(present, "cl_khr_depth_images"),
                 formats(present, CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE2D) == 2);
    cr_expect_eq(has_extension(present, "cl_khr_3d_image_writes"),
                 formats(present, CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE3D) != 0);
    cr_expect_eq(has_extension(present, "cl_khr_3d_image_writes"),
                 has_feature(present, "__opencl_c_3d_image_writes"));
    cr_expect_eq(both, formats(present, CL_MEM_KERNEL_READ_AND_WRITE, CL_MEM_OBJECT_IMAGE2D) != 0);
    cr_expect_eq(both, has_feature(present, "__opencl_c_read_write_images"));
    cr_expect_eq((atomics & 2) != 0, has_feature(present, "__opencl_c_atomic_order_acq_rel"));
    cr_expect_eq((atomics & 4) != 0, has_feature(present, "__opencl_c_atomic_order_seq_cst"));
    cr_expect(!(atomics & 4) || atomics & 2);
    cr_expect_eq(atomics & 0x11, 0x11);
    cr_expect_eq(fences & 0x13, 0x13);
    cr_expect_leq(number(present, CL_DEVICE_MAX_MEM_ALLOC_SIZE),
                  number(present, CL_DEVICE_GLOBAL_MEM_SIZE));
    cr_expect_leq(number(present, CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE),
                  number(present, CL_DEVICE_MAX_MEM_ALLOC_SIZE));
}

Test(present_agree, what_any_two_devices_have_in_common_agrees)
{
    struct devinfo a = with_images("OpenCL 3.0 a", ""), b = with_images("OpenCL 3.0 b", "");
    uint64_t state = 3;

    for (int i = 0; i < 500; i++) {
        struct present present;

        draw_device(&a, &state);
        draw_device(&b, &state);
        present = build(&a, &b, NULL);
        expect_agreement(&present);
    }
}
