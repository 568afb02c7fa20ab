#ifndef RESEAT_TESTS_STATE_PRESENT_FAKE_DEVICE_H
#define RESEAT_TESTS_STATE_PRESENT_FAKE_DEVICE_H

#include <stdarg.h>

#include "state/driver/devinfo.h"
#include "state/present/present.h"
#include "tests/support/cases.h"
#include "tests/support/leaks.h"

/* A device made of what each test says of it. */
static struct devinfo_value storage[8][128];

static inline void put(struct devinfo *info, cl_device_info name, const void *bytes, size_t size)
{
    size_t at = 0;

    while (at < info->value_count && info->values[at].name < name)
        at++;
    if (at == info->value_count || info->values[at].name != name) {
        memmove(info->values + at + 1, info->values + at,
                (info->value_count - at) * sizeof(*info->values));
        info->value_count++;
        info->values[at].bytes = NULL;
    }
    free(info->values[at].bytes);
    info->values[at] = (struct devinfo_value){name, (uint32_t)size, calloc(1, size + 1)};
    memcpy(info->values[at].bytes, bytes, size);
}

static inline void put_text(struct devinfo *info, cl_device_info name, const char *text)
{
    put(info, name, text, strlen(text) + 1);
}

static inline void put4(struct devinfo *info, cl_device_info name, uint32_t value)
{
    put(info, name, &value, sizeof(value));
}

static inline void put8(struct devinfo *info, cl_device_info name, uint64_t value)
{
    put(info, name, &value, sizeof(value));
}

/* Names and versions in turn, ended by NULL. */
static inline void put_versions(struct devinfo *info, cl_device_info name, ...)
{
    cl_name_version list[32] = {0};
    size_t count = 0;
    const char *word;
    va_list args;

    va_start(args, name);
    while ((word = va_arg(args, const char *))) {
        snprintf(list[count].name, sizeof(list[count].name), "%s", word);
        list[count++].version = va_arg(args, cl_version);
    }
    va_end(args);
    put(info, name, list, count * sizeof(list[0]));
}

#define V(major, minor) CL_MAKE_VERSION(major, minor, 0)

/* What every 3.0 device answers: an empty list, 0, or "". */
static inline void put_required(struct devinfo *info)
{
    static const uint8_t zero[sizeof(cl_name_version)];

    for (size_t i = 0; i < devinfo_param_count; i++) {
        const struct devinfo_param *param = &devinfo_params[i];
        bool list = param->size == sizeof(zero);

        if (param->since > V(1, 2))
            put(info, param->name, zero, param->size ? list ? 0 : param->size : 1);
    }
}

static inline struct devinfo plain(const char *version)
{
    static size_t used;
    static cl_image_format formats[] = {{CL_RGBA, CL_UNORM_INT8}, {CL_R, CL_FLOAT}};
    static struct devinfo_formats lists[] = {
        {CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE2D, 2, formats},
        {CL_MEM_READ_ONLY, CL_MEM_OBJECT_IMAGE2D, 1, formats},
        {CL_MEM_WRITE_ONLY, CL_MEM_OBJECT_IMAGE3D, 1, formats},
    };
    struct devinfo info = {
        .values = storage[used++], .format_count = ARRAY_SIZE(lists), .formats = lists};

    put8(&info, CL_DEVICE_TYPE, CL_DEVICE_TYPE_CPU);
    put4(&info, CL_DEVICE_VENDOR_ID, 0x10de);
    put_text(&info, CL_DEVICE_NAME, "Own name");
    put_text(&info, CL_DEVICE_VENDOR, "Own vendor");
    put_text(&info, CL_DEVICE_PROFILE, "FULL_PROFILE");
    put_text(&info, CL_DEVICE_VERSION, version);
    put_text(&info, CL_DEVICE_OPENCL_C_VERSION, "OpenCL C 1.2 own");
    put_text(&info, CL_DEVICE_EXTENSIONS, "");
    put4(&info, CL_DEVICE_IMAGE_SUPPORT, CL_TRUE);
    put4(&info, CL_DEVICE_COMPILER_AVAILABLE, CL_TRUE);
    put4(&info, CL_DEVICE_LINKER_AVAILABLE, CL_TRUE);
    put8(&info, CL_DEVICE_GLOBAL_MEM_SIZE, 1000000);
    put8(&info, CL_DEVICE_MAX_MEM_ALLOC_SIZE, 500000);
    put8(&info, CL_DEVICE_IMAGE2D_MAX_WIDTH, 8192);
    put4(&info, CL_DEVICE_MAX_SAMPLERS, 16);
    if (devinfo_version(&info) >= V(3, 0))
        put_required(&info);
    return info;
}

static struct present built[512];
static size_t built_count;

/* What is told with @b, or without if NULL, until the test's end. */
static inline struct present build_on(const struct present_terms *terms, const struct devinfo *a,
                                      const struct devinfo *b, struct reasons *ret_reasons)
{
    const struct devinfo *devices[] = {a, b};

    cr_assert_lt(built_count, ARRAY_SIZE(built));
    struct present *present = &built[built_count++];
    cr_assert_eq(present_explain(devices, b ? 2 : 1, terms, present, ret_reasons), 0);
    return *present;
}

/* A suite's .fini. */
static inline void built_end(void)
{
    for (size_t i = 0; i < built_count; i++)
        present_finish(&built[i]);
    leaks_check();
}

static inline uint64_t number(const struct present *present, cl_device_info name)
{
    uint64_t value = 0;
    size_t size = 0;

    cr_assert_eq(present_device_info(present, name, sizeof(value), &value, &size), CL_SUCCESS,
                 "0x%x is not answered", name);
    cr_assert(size == 4 || size == 8, "0x%x has %zu bytes", name, size);
    return value;
}

#endif
