#include <errno.h>

#include "tests/state/present/fake_device.h"
#include "tests/support/calls.h"

TestSuite(present, .fini = built_end, .timeout = 60);

static const struct present_terms portable = {.profile = PRESENT_PORTABLE};

static struct present build(enum present_profile profile, const struct devinfo *a,
                            const struct devinfo *b)
{
    return build_on(&(struct present_terms){.profile = profile}, a, b, NULL);
}

static const char *text(const struct present *present, cl_device_info name)
{
    static char buffer[4][4096];
    static unsigned turn;
    char *to = buffer[turn++ % 4];

    OK(present_device_info(present, name, 4096, to, NULL));
    return to;
}

static bool lists(const struct present *present, cl_device_info name, const char *word,
                  cl_version version)
{
    cl_name_version list[128];
    size_t size = 0;

    OK(present_device_info(present, name, sizeof(list), list, &size));
    for (size_t i = 0; i < size / sizeof(list[0]); i++)
        if (!strcmp(list[i].name, word) && list[i].version == version)
            return true;
    return false;
}

static bool refuses(const struct present *present, cl_device_info name)
{
    return present_device_info(present, name, 0, NULL, NULL) == CL_INVALID_VALUE;
}

Test(present, portable_limits_are_the_least_and_alignments_the_largest)
{
    struct devinfo a = plain("OpenCL 3.0 a"), b = plain("OpenCL 3.0 b");
    const size_t sizes_a[3] = {4096, 4096, 4096}, sizes_b[3] = {1024, 1024, 64};
    size_t sizes[3];

    put8(&a, CL_DEVICE_MAX_WORK_GROUP_SIZE, 4096);
    put8(&b, CL_DEVICE_MAX_WORK_GROUP_SIZE, 1024);
    put(&a, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizes_a, sizeof(sizes_a));
    put(&b, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizes_b, sizeof(sizes_b));
    put4(&a, CL_DEVICE_MEM_BASE_ADDR_ALIGN, 1024);
    put4(&b, CL_DEVICE_MEM_BASE_ADDR_ALIGN, 4096);
    put8(&a, CL_DEVICE_QUEUE_ON_HOST_PROPERTIES, 3);
    put8(&b, CL_DEVICE_QUEUE_ON_HOST_PROPERTIES, 2);
    put4(&a, CL_DEVICE_ERROR_CORRECTION_SUPPORT, CL_TRUE);
    put4(&b, CL_DEVICE_ERROR_CORRECTION_SUPPORT, CL_FALSE);
    put4(&a, CL_DEVICE_LOCAL_MEM_TYPE, CL_LOCAL);
    put4(&b, CL_DEVICE_LOCAL_MEM_TYPE, CL_GLOBAL);
    struct present present = build(PRESENT_PORTABLE, &a, &b);
    cr_expect_eq(number(&present, CL_DEVICE_MAX_WORK_GROUP_SIZE), 1024);
    OK(present_device_info(&present, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof(sizes), sizes, NULL));
    cr_expect_eq(sizes[0], 1024);
    cr_expect_eq(sizes[2], 64);
    cr_expect_eq(number(&present, CL_DEVICE_MEM_BASE_ADDR_ALIGN), 4096);
    cr_expect_eq(number(&present, CL_DEVICE_QUEUE_ON_HOST_PROPERTIES), 2);
    cr_expect_eq(number(&present, CL_DEVICE_ERROR_CORRECTION_SUPPORT), CL_FALSE);
    cr_expect_eq(number(&present, CL_DEVICE_LOCAL_MEM_TYPE), CL_GLOBAL);
}

Test(present, portable_answer_does_not_depend_on_where_it_starts)
{
    struct devinfo a = plain("OpenCL 3.0 a"), b = plain("OpenCL 1.2 b");
    struct present one, two;

    put_text(&a, CL_DEVICE_EXTENSIONS, "cl_khr_fp64 cl_khr_int64_base_atomics cl_khr_fp16");
    put_text(&b, CL_DEVICE_EXTENSIONS, "cl_khr_int64_base_atomics cl_khr_fp64");
    put8(&a, CL_DEVICE_DOUBLE_FP_CONFIG, 0xbf);
    put8(&b, CL_DEVICE_DOUBLE_FP_CONFIG, 0x3f);
    one = build(PRESENT_PORTABLE, &a, &b);
    two = build(PRESENT_PORTABLE, &b, &a);
    cr_assert_eq(one.device.value_count, two.device.value_count);
    for (size_t i = 0; i < one.device.value_count; i++) {
        cr_assert_eq(one.device.values[i].size, two.device.values[i].size);
        cr_expect_eq(memcmp(one.device.values[i].bytes, two.device.values[i].bytes,
                            one.device.values[i].size),
                     0, "0x%x", one.device.values[i].name);
    }
    cr_expect_eq(number(&one, CL_DEVICE_DOUBLE_FP_CONFIG), 0x3f);
}

Test(present, version_is_the_lowest_and_agrees_everywhere)
{
    struct devinfo a = plain("OpenCL 3.0 a"), b = plain("OpenCL 1.2 b");
    struct present present = build(PRESENT_PORTABLE, &a, &b);
    char version[64];

    cr_expect_str_eq(text(&present, CL_DEVICE_VERSION), "OpenCL 1.2 reseat " RESEAT_VERSION);
    cr_expect_eq(present.version, V(1, 2));
    cr_expect(refuses(&present, CL_DEVICE_NUMERIC_VERSION), "3.0 has it, 1.2 does not");
    cr_expect(refuses(&present, CL_DEVICE_SVM_CAPABILITIES));
    cr_expect_eq(number(&present, CL_DEVICE_PARTITION_MAX_SUB_DEVICES), 0);
    OK(present_platform_info(&present, CL_PLATFORM_VERSION, sizeof(version), version, NULL));
    cr_expect_str_eq(version, "OpenCL 1.2 reseat " RESEAT_VERSION);
    cr_expect_eq(present_platform_info(&present, CL_PLATFORM_NUMERIC_VERSION, 0, NULL, NULL),
                 CL_INVALID_VALUE);

    present = build(PRESENT_PORTABLE, &a, NULL);
    cr_expect_eq(number(&present, CL_DEVICE_NUMERIC_VERSION), V(3, 0));
    cr_expect_str_eq(text(&present, CL_DEVICE_VERSION), "OpenCL 3.0 reseat " RESEAT_VERSION);
}

Test(present, two_point_x_is_presented_as_one_point_two)
{
    struct devinfo a = plain("OpenCL 2.1 a");

    put_text(&a, CL_DEVICE_OPENCL_C_VERSION, "OpenCL C 2.0 a");
    struct present present = build(PRESENT_NATIVE, &a, NULL);
    cr_expect_str_eq(text(&present, CL_DEVICE_VERSION), "OpenCL 1.2 reseat " RESEAT_VERSION);
    cr_expect_str_eq(text(&present, CL_DEVICE_OPENCL_C_VERSION), "OpenCL C 1.2 reseat");
}

Test(present, what_is_not_carried_is_answered_as_unsupported)
{
    struct devinfo a = plain("OpenCL 3.0 a");
    struct present present;
    uint64_t property = 7;
    size_t size = 0;

    put8(&a, CL_DEVICE_SVM_CAPABILITIES, 0xb);
    put8(&a, CL_DEVICE_EXECUTION_CAPABILITIES, CL_EXEC_KERNEL | CL_EXEC_NATIVE_KERNEL);
    put8(&a, CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES, 3);
    put4(&a, CL_DEVICE_PIPE_SUPPORT, CL_TRUE);
    put4(&a, CL_DEVICE_MAX_PIPE_ARGS, 16);
    put8(&a, CL_DEVICE_MAX_GLOBAL_VARIABLE_SIZE, 65536);
    put_text(&a, CL_DEVICE_BUILT_IN_KERNELS, "vendor.kernel");
    put8(&a, CL_DEVICE_PARTITION_PROPERTIES, CL_DEVICE_PARTITION_EQUALLY);
    put8(&a, CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES, 0x7f);
    put_versions(&a, CL_DEVICE_OPENCL_C_FEATURES, "__opencl_c_pipes", V(3, 0), "__opencl_c_int64",
                 V(3, 0), "__opencl_c_device_enqueue", V(3, 0),
                 "__opencl_c_program_scope_global_variables", V(3, 0),
                 "__opencl_c_atomic_scope_all_devices", V(3, 0), "__opencl_c_atomic_scope_device",
                 V(3, 0), NULL);
    for (int turn = PRESENT_PORTABLE; turn <= PRESENT_NATIVE + 1; turn++) {
        /* What pins a program, and runs there all the same, but in another process. */
        bool pins = turn == PRESENT_NATIVE, isolated = turn > PRESENT_NATIVE;
        const struct present_terms terms = {
            .profile = isolated ? PRESENT_NATIVE : (enum present_profile)turn,
            .isolated = isolated,
        };
        present = build_on(&terms, &a, NULL, NULL);
        cr_expect_eq(number(&present, CL_DEVICE_SVM_CAPABILITIES), pins ? 0xb : 0);
        cr_expect_eq(number(&present, CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES), 0);
        cr_expect_eq(number(&present, CL_DEVICE_PIPE_SUPPORT), 0);
        cr_expect_eq(number(&present, CL_DEVICE_MAX_PIPE_ARGS), 0);
        cr_expect_eq(number(&present, CL_DEVICE_MAX_GLOBAL_VARIABLE_SIZE), pins ? 65536 : 0);
        cr_expect_eq(number(&present, CL_DEVICE_EXECUTION_CAPABILITIES),
                     pins ? CL_EXEC_KERNEL | CL_EXEC_NATIVE_KERNEL : CL_EXEC_KERNEL);
        cr_expect_str_eq(text(&present, CL_DEVICE_BUILT_IN_KERNELS), "");
        cr_expect_eq(
            present_device_info(&present, CL_DEVICE_BUILT_IN_KERNELS_WITH_VERSION, 0, NULL, &size),
            CL_SUCCESS);
        cr_expect_eq(size, 0);
        OK(present_device_info(&present, CL_DEVICE_PARTITION_PROPERTIES, 8, &property, &size));
        cr_expect_eq(size, 8);
        cr_expect_eq(property, pins ? CL_DEVICE_PARTITION_EQUALLY : 0);
        /* 0x40 is the scope of all devices; orders without their features go too. */
        cr_expect_eq(number(&present, CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES), 0x7f & ~0x40 & ~0x6);
        cr_expect(lists(&present, CL_DEVICE_OPENCL_C_FEATURES, "__opencl_c_int64", V(3, 0)));
        cr_expect(lists(&present, CL_DEVICE_OPENCL_C_FEATURES, "__opencl_c_atomic_scope_device",
                        V(3, 0)));
        cr_expect_not(lists(&present, CL_DEVICE_OPENCL_C_FEATURES, "__opencl_c_pipes", V(3, 0)));
        cr_expect_not(
            lists(&present, CL_DEVICE_OPENCL_C_FEATURES, "__opencl_c_device_enqueue", V(3, 0)));
        cr_expect_eq(lists(&present, CL_DEVICE_OPENCL_C_FEATURES,
                           "__opencl_c_program_scope_global_variables", V(3, 0)),
                     pins);
        cr_expect_not(lists(&present, CL_DEVICE_OPENCL_C_FEATURES,
                            "__opencl_c_atomic_scope_all_devices", V(3, 0)));
    }
}

Test(present, extensions_are_those_of_all_that_can_be_carried)
{
    struct devinfo a = plain("OpenCL 3.0 a"), b = plain("OpenCL 3.0 b");
    char platform[256];

    put_text(&a, CL_DEVICE_EXTENSIONS,
             "cl_khr_gl_sharing cl_khr_int64_base_atomics  cl_khr_command_buffer cl_khr_spir "
             "cl_khr_byte_addressable_store cl_khr_device_uuid");
    put_text(&b, CL_DEVICE_EXTENSIONS,
             "cl_khr_byte_addressable_store cl_khr_gl_sharing cl_khr_command_buffer cl_khr_spir "
             "cl_khr_device_uuid");
    put_versions(&a, CL_DEVICE_EXTENSIONS_WITH_VERSION, "cl_khr_byte_addressable_store", V(2, 0),
                 "cl_khr_gl_sharing", V(1, 0), NULL);
    put_versions(&b, CL_DEVICE_EXTENSIONS_WITH_VERSION, "cl_khr_byte_addressable_store", V(1, 5),
                 NULL);
    struct present present = build(PRESENT_PORTABLE, &a, &b);
    cr_expect_str_eq(text(&present, CL_DEVICE_EXTENSIONS), "cl_khr_byte_addressable_store");
    cr_expect(lists(&present, CL_DEVICE_EXTENSIONS_WITH_VERSION, "cl_khr_byte_addressable_store",
                    V(1, 5)));
    cr_expect_eq(devinfo_find(&present.device, CL_DEVICE_EXTENSIONS_WITH_VERSION)->size, 68);
    cr_expect(refuses(&present, CL_DEVICE_UUID_KHR));
    OK(present_platform_info(&present, CL_PLATFORM_EXTENSIONS, sizeof(platform), platform, NULL));
    cr_expect_str_eq(platform, "cl_khr_icd cl_khr_byte_addressable_store");
}

Test(present, double_precision_is_there_whole_or_not_at_all)
{
    struct devinfo a = plain("OpenCL 3.0 a"), b = plain("OpenCL 3.0 b");

    put_text(&a, CL_DEVICE_EXTENSIONS, "cl_khr_fp64");
    put8(&a, CL_DEVICE_DOUBLE_FP_CONFIG, 0x3f);
    put4(&a, CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE, 8);
    put_versions(&a, CL_DEVICE_OPENCL_C_FEATURES, "__opencl_c_fp64", V(3, 0), NULL);
    struct present present = build(PRESENT_PORTABLE, &a, NULL);
    cr_expect_str_eq(text(&present, CL_DEVICE_EXTENSIONS), "cl_khr_fp64");
    cr_expect_eq(number(&present, CL_DEVICE_DOUBLE_FP_CONFIG), 0x3f);
    cr_expect_eq(number(&present, CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE), 8);
    cr_expect(lists(&present, CL_DEVICE_OPENCL_C_FEATURES, "__opencl_c_fp64", V(3, 0)));

    /* A device that contradicts itself: the name without the numbers. */
    put_text(&b, CL_DEVICE_EXTENSIONS, "cl_khr_fp64");
    put8(&b, CL_DEVICE_DOUBLE_FP_CONFIG, 0);
    put4(&b, CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE, 8);
    put_versions(&b, CL_DEVICE_OPENCL_C_FEATURES, "__opencl_c_fp64", V(3, 0), NULL);
    present = build(PRESENT_PORTABLE, &a, &b);
    cr_expect_str_eq(text(&present, CL_DEVICE_EXTENSIONS), "");
    cr_expect_eq(number(&present, CL_DEVICE_DOUBLE_FP_CONFIG), 0);
    cr_expect_eq(number(&present, CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE), 0);
    cr_expect_not(lists(&present, CL_DEVICE_OPENCL_C_FEATURES, "__opencl_c_fp64", V(3, 0)));

    /* And the numbers without the name. */
    put_text(&b, CL_DEVICE_EXTENSIONS, "");
    put8(&b, CL_DEVICE_DOUBLE_FP_CONFIG, 0x3f);
    present = build(PRESENT_PORTABLE, &b, NULL);
    cr_expect_eq(number(&present, CL_DEVICE_DOUBLE_FP_CONFIG), 0);
}

Test(present, without_images_every_limit_of_images_is_zero)
{
    struct devinfo a = plain("OpenCL 3.0 a"), b = plain("OpenCL 3.0 b");
    cl_uint count = 9;

    put_text(&a, CL_DEVICE_EXTENSIONS, "cl_khr_3d_image_writes");
    put_text(&b, CL_DEVICE_EXTENSIONS, "cl_khr_3d_image_writes");
    struct present present = build(PRESENT_PORTABLE, &a, &b);
    cr_expect_eq(number(&present, CL_DEVICE_IMAGE2D_MAX_WIDTH), 8192);
    cr_expect_str_eq(text(&present, CL_DEVICE_EXTENSIONS), "cl_khr_3d_image_writes");

    put4(&b, CL_DEVICE_IMAGE_SUPPORT, CL_FALSE);
    present = build(PRESENT_PORTABLE, &a, &b);
    cr_expect_eq(number(&present, CL_DEVICE_IMAGE_SUPPORT), CL_FALSE);
    cr_expect_eq(number(&present, CL_DEVICE_IMAGE2D_MAX_WIDTH), 0);
    cr_expect_eq(number(&present, CL_DEVICE_MAX_SAMPLERS), 0);
    cr_expect_str_eq(text(&present, CL_DEVICE_EXTENSIONS), "");
    cr_expect_eq(
        present_image_formats(&present, CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE2D, 0, NULL, &count),
        CL_SUCCESS);
    cr_expect_eq(count, 0);

    put4(&b, CL_DEVICE_IMAGE_SUPPORT, CL_TRUE);
    b.format_count = 0;
    present = build(PRESENT_PORTABLE, &a, &b);
    cr_expect_eq(number(&present, CL_DEVICE_IMAGE_SUPPORT), CL_FALSE, "no format, no images");
}

Test(present, images_over_buffers_need_an_alignment_from_all)
{
    struct devinfo a = plain("OpenCL 3.0 a"), b = plain("OpenCL 3.0 b");
    struct devinfo *both[] = {&a, &b};

    for (size_t i = 0; i < 2; i++) {
        put_text(both[i], CL_DEVICE_EXTENSIONS, "cl_khr_image2d_from_buffer");
        put4(both[i], CL_DEVICE_IMAGE_PITCH_ALIGNMENT, i ? 64 : 16);
        put4(both[i], CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT, 32);
    }
    struct present present = build(PRESENT_PORTABLE, &a, &b);
    cr_expect_eq(number(&present, CL_DEVICE_IMAGE_PITCH_ALIGNMENT), 64);
    cr_expect_str_eq(text(&present, CL_DEVICE_EXTENSIONS), "cl_khr_image2d_from_buffer");

    put4(&b, CL_DEVICE_IMAGE_PITCH_ALIGNMENT, 0);
    present = build(PRESENT_PORTABLE, &a, &b);
    cr_expect_eq(number(&present, CL_DEVICE_IMAGE_PITCH_ALIGNMENT), 0, "0 is unsupported");
    cr_expect_eq(number(&present, CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT), 0);
    cr_expect_str_eq(text(&present, CL_DEVICE_EXTENSIONS), "");
}

Test(present, image_formats_are_those_of_all)
{
    static cl_image_format few[] = {{CL_R, CL_FLOAT}, {CL_A, CL_UNORM_INT8}};
    static struct devinfo_formats other[] = {{CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE2D, 2, few}};
    struct devinfo a = plain("OpenCL 3.0 a"), b = plain("OpenCL 3.0 b");
    cl_image_format found[4] = {0};
    cl_uint count = 9;

    b.formats = other;
    b.format_count = 1;
    struct present present = build(PRESENT_PORTABLE, &a, &b);
    OK(present_image_formats(&present, 0, CL_MEM_OBJECT_IMAGE2D, 4, found, &count));
    cr_expect_eq(count, 1, "no access said means both ways");
    cr_expect_eq(found[0].image_channel_order, CL_R);
    cr_expect_eq(found[0].image_channel_data_type, CL_FLOAT);
    cr_expect_eq(found[1].image_channel_order, 0);
    cr_expect_eq(
        present_image_formats(&present, CL_MEM_READ_ONLY, CL_MEM_OBJECT_IMAGE2D, 0, NULL, &count),
        CL_SUCCESS);
    cr_expect_eq(count, 0, "the other device lists none");
}

Test(present, image_formats_refuse_what_the_specification_refuses)
{
    struct devinfo a = plain("OpenCL 3.0 a");
    struct present present = build(PRESENT_PORTABLE, &a, NULL);
    cl_image_format found[2];
    cl_uint count = 9;

    cr_expect_eq(present_image_formats(&present, 0, CL_MEM_OBJECT_BUFFER, 0, NULL, &count),
                 CL_INVALID_VALUE);
    cr_expect_eq(present_image_formats(&present, 0, CL_MEM_OBJECT_PIPE, 0, NULL, &count),
                 CL_INVALID_VALUE);
    cr_expect_eq(
        present_image_formats(&present, 1ull << 40, CL_MEM_OBJECT_IMAGE2D, 0, NULL, &count),
        CL_INVALID_VALUE);
    cr_expect_eq(present_image_formats(&present, CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY,
                                       CL_MEM_OBJECT_IMAGE2D, 0, NULL, &count),
                 CL_INVALID_VALUE);
    cr_expect_eq(present_image_formats(&present, 0, CL_MEM_OBJECT_IMAGE2D, 0, found, &count),
                 CL_INVALID_VALUE);
    cr_expect_eq(count, 9);
    cr_expect_eq(present_image_formats(&present, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR,
                                       CL_MEM_OBJECT_IMAGE2D, 1, found, &count),
                 CL_SUCCESS);
    cr_expect_eq(count, 2, "all are counted, as many as asked for are written");
}

Test(present, memory_limits_agree)
{
    struct devinfo a = plain("OpenCL 3.0 a"), b = plain("OpenCL 3.0 b");

    put8(&a, CL_DEVICE_GLOBAL_MEM_SIZE, 100);
    put8(&a, CL_DEVICE_MAX_MEM_ALLOC_SIZE, 100);
    put8(&b, CL_DEVICE_GLOBAL_MEM_SIZE, 400);
    put8(&b, CL_DEVICE_MAX_MEM_ALLOC_SIZE, 300);
    put8(&a, CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE, 1000);
    put8(&b, CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE, 1000);
    struct present present = build(PRESENT_PORTABLE, &a, &b);
    cr_expect_eq(number(&present, CL_DEVICE_GLOBAL_MEM_SIZE), 400);
    cr_expect_eq(number(&present, CL_DEVICE_MAX_MEM_ALLOC_SIZE), 300);
    cr_expect_eq(number(&present, CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE), 300);
    present = build(PRESENT_COMMON, &a, &b);
    cr_expect_eq(number(&present, CL_DEVICE_GLOBAL_MEM_SIZE), 100);
    cr_expect_eq(number(&present, CL_DEVICE_MAX_MEM_ALLOC_SIZE), 100);
    cr_expect_eq(number(&present, CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE), 100);

    put8(&a, CL_DEVICE_MAX_MEM_ALLOC_SIZE, 5000);
    present = build(PRESENT_NATIVE, &a, NULL);
    cr_expect_eq(number(&present, CL_DEVICE_MAX_MEM_ALLOC_SIZE), 100);
}

Test(present, versions_of_the_language_are_those_of_all)
{
    struct devinfo a = plain("OpenCL 3.0 a"), b = plain("OpenCL 3.0 b");

    put_versions(&a, CL_DEVICE_OPENCL_C_ALL_VERSIONS, "OpenCL C", V(1, 1), "OpenCL C", V(1, 2),
                 "OpenCL C", V(2, 0), "OpenCL C", V(3, 0), NULL);
    put_versions(&b, CL_DEVICE_OPENCL_C_ALL_VERSIONS, "OpenCL C", V(3, 0), "OpenCL C", V(2, 0),
                 "OpenCL C", V(1, 2), NULL);
    put_versions(&a, CL_DEVICE_ILS_WITH_VERSION, "SPIR-V", V(1, 0), "SPIR-V", V(1, 2), NULL);
    put_versions(&b, CL_DEVICE_ILS_WITH_VERSION, "SPIR-V", V(1, 2), "SPIR-V", V(1, 3), NULL);
    put_text(&a, CL_DEVICE_IL_VERSION, "SPIR-V_1.0 SPIR-V_1.2");
    put_text(&b, CL_DEVICE_IL_VERSION, "SPIR-V_1.2 SPIR-V_1.3");
    struct present present = build(PRESENT_PORTABLE, &a, &b);
    cr_expect(lists(&present, CL_DEVICE_OPENCL_C_ALL_VERSIONS, "OpenCL C", V(1, 2)));
    cr_expect(lists(&present, CL_DEVICE_OPENCL_C_ALL_VERSIONS, "OpenCL C", V(3, 0)));
    cr_expect_not(lists(&present, CL_DEVICE_OPENCL_C_ALL_VERSIONS, "OpenCL C", V(1, 1)));
    cr_expect_not(lists(&present, CL_DEVICE_OPENCL_C_ALL_VERSIONS, "OpenCL C", V(2, 0)));
    cr_expect_str_eq(text(&present, CL_DEVICE_IL_VERSION), "SPIR-V_1.2");
    cr_expect(lists(&present, CL_DEVICE_ILS_WITH_VERSION, "SPIR-V", V(1, 2)));
    cr_expect_eq(devinfo_find(&present.device, CL_DEVICE_ILS_WITH_VERSION)->size, 68);
}

Test(present, native_keeps_the_devices_own_words)
{
    struct devinfo a = plain("OpenCL 3.0 vendor's"), b = plain("OpenCL 1.2 b");

    put8(&b, CL_DEVICE_GLOBAL_MEM_SIZE, 1);
    struct present present = build(PRESENT_NATIVE, &a, &b);
    cr_expect_str_eq(text(&present, CL_DEVICE_NAME), "Own name");
    cr_expect_str_eq(text(&present, CL_DEVICE_VENDOR), "Own vendor");
    cr_expect_str_eq(text(&present, CL_DEVICE_VERSION), "OpenCL 3.0 vendor's");
    cr_expect_eq(number(&present, CL_DEVICE_VENDOR_ID), 0x10de);
    cr_expect_eq(number(&present, CL_DEVICE_GLOBAL_MEM_SIZE), 1000000, "the others do not matter");
}

Test(present, type_can_be_forced)
{
    struct devinfo a = plain("OpenCL 3.0 a");
    const struct devinfo *devices[] = {&a};
    const struct present_terms gpu = {.type = CL_DEVICE_TYPE_GPU};
    struct present present = {0};

    cr_assert_eq(present_build(devices, 1, &gpu, &present), 0);
    cr_expect_eq(number(&present, CL_DEVICE_TYPE), CL_DEVICE_TYPE_GPU);
    cr_expect_str_eq(text(&present, CL_DEVICE_NAME), "reseat virtual device (GPU)");
    cr_expect_str_eq(text(&present, CL_DEVICE_VENDOR), "reseat");
    present_finish(&present);
    cr_assert_eq(present_build(devices, 1, &portable, &present), 0);
    cr_expect_eq(number(&present, CL_DEVICE_TYPE), CL_DEVICE_TYPE_CPU);
    present_finish(&present);
    cr_expect_eq(present_build(devices, 0, &portable, &present), -EINVAL);
}

Test(present, handles_and_unknown_parameters_are_not_answered)
{
    struct devinfo a = plain("OpenCL 3.0 a");
    uint32_t room = 5;
    size_t size = 5;

    put8(&a, CL_DEVICE_PLATFORM, 0x1234);
    put8(&a, CL_DEVICE_PARENT_DEVICE, 0);
    put4(&a, CL_DEVICE_REFERENCE_COUNT, 1);
    struct present present = build(PRESENT_NATIVE, &a, NULL);
    cr_expect(refuses(&present, CL_DEVICE_PLATFORM));
    cr_expect(refuses(&present, CL_DEVICE_PARENT_DEVICE));
    cr_expect(refuses(&present, CL_DEVICE_REFERENCE_COUNT));
    cr_expect(refuses(&present, 0));
    cr_expect(refuses(&present, 0xFFFFFFFF));
    cr_expect_eq(present_device_info(&present, CL_DEVICE_GLOBAL_MEM_SIZE, 4, &room, &size),
                 CL_INVALID_VALUE);
    cr_expect_eq(room, 5);
    cr_expect_eq(size, 5);
}

Test(present, platform_is_ours)
{
    static const struct {
        cl_platform_info name;
        const char *text;
    } expected[] = {
        {CL_PLATFORM_NAME, "reseat"},           {CL_PLATFORM_VENDOR, "reseat"},
        {CL_PLATFORM_PROFILE, "FULL_PROFILE"},  {CL_PLATFORM_ICD_SUFFIX_KHR, "RESEAT"},
        {CL_PLATFORM_EXTENSIONS, "cl_khr_icd"},
    };
    struct devinfo a = plain("OpenCL 3.0 a"), b = plain("OpenCL 3.0 b");
    struct present present = build(PRESENT_PORTABLE, &a, NULL);
    char found[128];

    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        OK(present_platform_info(&present, expected[i].name, sizeof(found), found, NULL));
        cr_expect_str_eq(found, expected[i].text);
    }
    put_text(&b, CL_DEVICE_PROFILE, "EMBEDDED_PROFILE");
    present = build(PRESENT_PORTABLE, &a, &b);
    cr_expect_str_eq(text(&present, CL_DEVICE_PROFILE), "EMBEDDED_PROFILE");
}

Test(present, answers_of_another_size_are_left_out_not_trusted)
{
    struct devinfo a = plain("OpenCL 3.0 a"), b = plain("OpenCL 3.0 b");

    put8(&a, CL_DEVICE_MAX_WORK_GROUP_SIZE, 256);
    put(&b, CL_DEVICE_MAX_WORK_GROUP_SIZE, "abc", 3);
    put4(&a, CL_DEVICE_MAX_CLOCK_FREQUENCY, 1000);
    put(&a, CL_DEVICE_OPENCL_C_FEATURES, "short", 5);
    struct present present = build(PRESENT_PORTABLE, &a, &b);
    cr_expect(refuses(&present, CL_DEVICE_MAX_WORK_GROUP_SIZE));
    cr_expect(refuses(&present, CL_DEVICE_MAX_CLOCK_FREQUENCY), "one device does not say");
    cr_expect_eq(devinfo_find(&present.device, CL_DEVICE_OPENCL_C_FEATURES)->size, 0);
}
