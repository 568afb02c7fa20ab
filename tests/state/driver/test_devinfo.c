#include "state/driver/devinfo.h"
#include "state/driver/driver.h"
#include "tests/support/leaks.h"

TestSuite(devinfo, .fini = leaks_check, .timeout = 60);

static struct devinfo_value value(cl_device_info name, const void *bytes, uint32_t size)
{
    return (struct devinfo_value){name, size, (uint8_t *)bytes};
}

Test(devinfo, table_is_sorted_and_has_every_core_parameter)
{
    for (size_t i = 1; i < devinfo_param_count; i++)
        cr_expect_lt(devinfo_params[i - 1].name, devinfo_params[i].name, "%s",
                     devinfo_params[i].word);
    for (cl_device_info name = 0x1000; name <= 0x1072; name++) {
        /* The only numbers in this range that OpenCL does not use. */
        if (name == 0x106B)
            continue;
        cr_expect_not_null(devinfo_param_find(name), "0x%x is missing", name);
    }
    cr_expect_null(devinfo_param_find(0x0FFF));
    cr_expect_null(devinfo_param_find(0xFFFFFFFF));
}

Test(devinfo, table_knows_types_and_versions)
{
    static const struct {
        cl_device_info name;
        enum devinfo_rule rule;
        size_t size;
        uint32_t since;
    } expected[] = {
        {CL_DEVICE_TYPE, DEVINFO_OURS, 8, CL_MAKE_VERSION(1, 0, 0)},
        {CL_DEVICE_MAX_WORK_GROUP_SIZE, DEVINFO_MIN, 8, CL_MAKE_VERSION(1, 0, 0)},
        {CL_DEVICE_MAX_WORK_ITEM_SIZES, DEVINFO_MIN_EACH, 8, CL_MAKE_VERSION(1, 0, 0)},
        {CL_DEVICE_MEM_BASE_ADDR_ALIGN, DEVINFO_MAX, 4, CL_MAKE_VERSION(1, 0, 0)},
        {CL_DEVICE_QUEUE_ON_HOST_PROPERTIES, DEVINFO_AND, 8, CL_MAKE_VERSION(1, 0, 0)},
        {CL_DEVICE_IMAGE_SUPPORT, DEVINFO_AND, 4, CL_MAKE_VERSION(1, 0, 0)},
        {CL_DEVICE_BUILT_IN_KERNELS, DEVINFO_NONE, 0, CL_MAKE_VERSION(1, 2, 0)},
        {CL_DEVICE_PARTITION_PROPERTIES, DEVINFO_PINS, 8, CL_MAKE_VERSION(1, 2, 0)},
        {CL_DEVICE_IMAGE_PITCH_ALIGNMENT, DEVINFO_MAX_ALL, 4, CL_MAKE_VERSION(2, 0, 0)},
        {CL_DEVICE_SVM_CAPABILITIES, DEVINFO_PINS, 8, CL_MAKE_VERSION(2, 0, 0)},
        {CL_DEVICE_MAX_NUM_SUB_GROUPS, DEVINFO_MIN, 4, CL_MAKE_VERSION(2, 1, 0)},
        {CL_DEVICE_OPENCL_C_ALL_VERSIONS, DEVINFO_PAIRS, 68, CL_MAKE_VERSION(3, 0, 0)},
        {CL_DEVICE_PIPE_SUPPORT, DEVINFO_NONE, 4, CL_MAKE_VERSION(3, 0, 0)},
        {CL_DEVICE_UUID_KHR, DEVINFO_NONE, 16, 0},
    };

    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        const struct devinfo_param *param = devinfo_param_find(expected[i].name);

        cr_assert_not_null(param);
        cr_expect_eq(param->rule, expected[i].rule, "%s", param->word);
        cr_expect_eq(param->size, expected[i].size, "%s", param->word);
        cr_expect_eq(param->since, expected[i].since, "%s", param->word);
    }
}

Test(devinfo, query_asks_what_version_and_extensions_have)
{
    struct device **devices = NULL;
    size_t count = 0;

    cr_assert_eq(driver_list_library(STUB_PATH, &devices, &count), 0);
    cr_expect_not_null(devinfo_find(&devices[0]->info, CL_DEVICE_UUID_KHR));
    cr_expect_null(devinfo_find(&devices[2]->info, CL_DEVICE_UUID_KHR), "without its extension");
    cr_expect_null(devinfo_find(&devices[0]->info, CL_DEVICE_VENDOR), "refused by the device");
    cr_expect_eq(devinfo_find(&devices[0]->info, CL_DEVICE_MAX_WORK_ITEM_SIZES)->size, 24);
    free(devices);
}

Test(devinfo, scalars_are_read_by_their_size)
{
    uint8_t one = 0xfe;
    uint16_t two = 0xfedc;
    uint32_t four = 0xfedcba98;
    uint64_t eight = 0xfedcba9876543210;
    struct devinfo_value values[] = {value(1, &one, 1),     value(2, &two, 2),   value(4, &four, 4),
                                     value(6, "abcdef", 6), value(8, &eight, 8), value(9, "", 0)};
    struct devinfo info = {.value_count = 6, .values = values};

    cr_expect_eq(devinfo_scalar(&info, 1, 5), 0xfe);
    cr_expect_eq(devinfo_scalar(&info, 2, 5), 0xfedc);
    cr_expect_eq(devinfo_scalar(&info, 4, 5), 0xfedcba98);
    cr_expect_eq(devinfo_scalar(&info, 8, 5), 0xfedcba9876543210);
    cr_expect_eq(devinfo_scalar(&info, 6, 5), 5, "not a scalar");
    cr_expect_eq(devinfo_scalar(&info, 9, 5), 5, "empty");
    cr_expect_eq(devinfo_scalar(&info, 3, 5), 5, "absent");
    cr_expect_str_eq(devinfo_string(&info, 3), "");
}

Test(devinfo, extensions_are_whole_words)
{
    struct devinfo_value values[] = {value(CL_DEVICE_EXTENSIONS, "  cl_a_bc  cl_d ", 17)};
    struct devinfo info = {.value_count = 1, .values = values};

    cr_expect(devinfo_has_extension(&info, "cl_a_bc"));
    cr_expect(devinfo_has_extension(&info, "cl_d"));
    cr_expect_not(devinfo_has_extension(&info, "cl_a"));
    cr_expect_not(devinfo_has_extension(&info, "a_bc"));
    cr_expect_not(devinfo_has_extension(&info, "cl_d "));
    cr_expect_not(devinfo_has_extension(&info, ""));
}

Test(devinfo, version_comes_from_its_string)
{
    static const struct {
        const char *text;
        cl_version version;
    } expected[] = {
        {"OpenCL 3.0 PoCL", 3u << 22},
        {"OpenCL 1.2 ", 1u << 22 | 2u << 12},
        {"OpenCL 2.1", 2u << 22 | 1u << 12},
        {"OpenCL C 1.2", 1u << 22},
        {"", 1u << 22},
        {"OpenCL 0.0", 1u << 22},
    };

    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        struct devinfo_value values[] = {
            value(CL_DEVICE_VERSION, expected[i].text, (uint32_t)strlen(expected[i].text) + 1)};
        struct devinfo info = {.value_count = 1, .values = values};

        cr_expect_eq(devinfo_version(&info), expected[i].version, "\"%s\"", expected[i].text);
    }
}
