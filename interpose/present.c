#include "interpose/present.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interpose/draft.h"
#include "interpose/info.h"
#include "interpose/meet.h"
#include "interpose/reply.h"

#define PRODUCT        "reseat"
#define VERSION_1_2    CL_MAKE_VERSION(1, 2, 0)
#define VERSION_2      CL_MAKE_VERSION(2, 0, 0)
#define VERSION_3      CL_MAKE_VERSION(3, 0, 0)
#define NOT_CONFORMANT "v0000-00-00-00"
#define PLATFORM_ICD   "cl_khr_icd"

static void free_pointer(void *pointer)
{
    free(*(void **)pointer);
}

/* See present_build: what 2.x adds and requires is not carried. */
static cl_version carried_version(cl_version version)
{
    if (version >= VERSION_3)
        return VERSION_3;
    return version >= VERSION_2 ? VERSION_1_2 : version;
}

static cl_version c_version(const struct devinfo *device)
{
    unsigned major, minor;

    if (sscanf(devinfo_string(device, CL_DEVICE_OPENCL_C_VERSION), "OpenCL C %3u.%3u", &major,
               &minor) == 2 &&
        major)
        return CL_MAKE_VERSION(major, minor, 0);
    return CL_MAKE_VERSION(1, 0, 0);
}

static void draft_versions(struct draft *draft)
{
    draft->version = carried_version(devinfo_version(draft->devices[0]));
    draft->c_version = carried_version(c_version(draft->devices[0]));
    for (size_t i = 1; i < draft->count; i++) {
        cl_version version = carried_version(devinfo_version(draft->devices[i]));
        cl_version c = carried_version(c_version(draft->devices[i]));

        draft->version = version < draft->version ? version : draft->version;
        draft->c_version = c < draft->c_version ? c : draft->c_version;
    }
    if (draft->c_version > draft->version)
        draft->c_version = draft->version;
}

static void draft_names(struct draft *draft)
{
    for (size_t i = 0; i < allow_extension_count; i++) {
        size_t have = 0;

        while (have < draft->count &&
               devinfo_has_extension(draft->devices[have], allow_extensions[i]))
            have++;
        draft->extensions[i] = have == draft->count;
    }
    for (size_t i = 0; i < allow_feature_count; i++)
        meet_name_version(draft->devices, draft->count, CL_DEVICE_OPENCL_C_FEATURES,
                          allow_features[i], &draft->features[i]);
}

/* The names that are left, with the least version that some device gives, or @fallback. */
static int write_versioned(struct draft *draft, cl_device_info list, const char *const *names,
                           const bool *has, size_t count, cl_version fallback)
{
    cl_name_version entries[ALLOW_MAX] = {0};
    size_t used = 0;

    for (size_t i = 0; i < count; i++) {
        bool in_all;
        cl_version version;

        if (!has[i])
            continue;
        version = meet_name_version(draft->devices, draft->count, list, names[i], &in_all);
        entries[used].version = version ? version : fallback;
        snprintf(entries[used].name, sizeof(entries[used].name), "%s", names[i]);
        used++;
    }
    return reply_set(&draft->answers, list, entries, used * sizeof(entries[0]));
}

static int write_names(struct draft *draft)
{
    char text[ALLOW_MAX * CL_NAME_VERSION_MAX_NAME_SIZE] = "";
    int err;

    for (size_t i = 0; i < allow_extension_count; i++) {
        if (!draft->extensions[i])
            continue;
        if (text[0])
            strcat(text, " ");
        strcat(text, allow_extensions[i]);
    }
    err = reply_set_string(&draft->answers, CL_DEVICE_EXTENSIONS, text);
    if (!err)
        err = write_versioned(draft, CL_DEVICE_EXTENSIONS_WITH_VERSION, allow_extensions,
                              draft->extensions, allow_extension_count, CL_MAKE_VERSION(1, 0, 0));
    if (!err)
        err = write_versioned(draft, CL_DEVICE_OPENCL_C_FEATURES, allow_features, draft->features,
                              allow_feature_count, VERSION_3);
    return err;
}

/* OpenCL C 2.0 requires what is not carried, as OpenCL 2.0 does. */
static int write_c_versions(struct draft *draft)
{
    const struct devinfo_value *met =
        devinfo_find(&draft->answers, CL_DEVICE_OPENCL_C_ALL_VERSIONS);
    size_t count = met ? met->size / sizeof(cl_name_version) : 0, used = 0;
    cl_name_version CLEANUP(free_pointer) *entries = calloc(count + 1, sizeof(*entries));

    if (!entries)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        memcpy(&entries[used], met->bytes + i * sizeof(*entries), sizeof(*entries));
        if (carried_version(entries[used].version) == entries[used].version &&
            entries[used].version <= draft->version)
            used++;
    }
    return reply_set(&draft->answers, CL_DEVICE_OPENCL_C_ALL_VERSIONS, entries,
                     used * sizeof(*entries));
}

/* CL_DEVICE_IL_VERSION in the words of CL_DEVICE_ILS_WITH_VERSION, which is the finer list. */
static int write_ils(struct draft *draft)
{
    const struct devinfo_value *ils = devinfo_find(&draft->answers, CL_DEVICE_ILS_WITH_VERSION);
    char text[1024] = "";
    size_t used = 0;

    if (!ils)
        return 0;
    for (size_t i = 0; i < ils->size / sizeof(cl_name_version); i++) {
        cl_name_version entry;
        int length;

        memcpy(&entry, ils->bytes + i * sizeof(entry), sizeof(entry));
        length = snprintf(text + used, sizeof(text) - used, "%s%.*s_%u.%u", used ? " " : "",
                          (int)sizeof(entry.name) - 1, entry.name, CL_VERSION_MAJOR(entry.version),
                          CL_VERSION_MINOR(entry.version));
        if (length < 0 || (size_t)length >= sizeof(text) - used)
            break;
        used += (size_t)length;
    }
    return reply_set_string(&draft->answers, CL_DEVICE_IL_VERSION, text);
}

static const char *kind_name(cl_device_type type)
{
    if (type & CL_DEVICE_TYPE_GPU)
        return "GPU";
    if (type & CL_DEVICE_TYPE_ACCELERATOR)
        return "accelerator";
    return type & CL_DEVICE_TYPE_CPU ? "CPU" : "custom";
}

static const char *profile_name(const struct draft *draft)
{
    for (size_t i = 0; i < draft->count; i++) {
        if (!strcmp(devinfo_string(draft->devices[i], CL_DEVICE_PROFILE), "EMBEDDED_PROFILE"))
            return "EMBEDDED_PROFILE";
    }
    return "FULL_PROFILE";
}

/* Strings of our own; the first device's in the native profile, where they still tell the truth. */
static int write_strings(struct draft *draft, bool native, cl_device_type type)
{
    const struct devinfo *first = draft->devices[0];
    char name[64], version[64], c[64];
    const struct {
        cl_device_info name;
        const char *ours;
        bool own; /* The device's own holds too. */
    } strings[] = {
        {CL_DEVICE_NAME, name, true},
        {CL_DEVICE_VENDOR, PRODUCT, true},
        {CL_DRIVER_VERSION, RESEAT_VERSION, true},
        {CL_DEVICE_LATEST_CONFORMANCE_VERSION_PASSED, NOT_CONFORMANT, true},
        {CL_DEVICE_PROFILE, profile_name(draft), false},
        {CL_DEVICE_VERSION, version, devinfo_version(first) == draft->version},
        {CL_DEVICE_OPENCL_C_VERSION, c, c_version(first) == draft->c_version},
    };

    snprintf(name, sizeof(name), "%s virtual device (%s)", PRODUCT, kind_name(type));
    snprintf(version, sizeof(version), "OpenCL %u.%u %s %s", CL_VERSION_MAJOR(draft->version),
             CL_VERSION_MINOR(draft->version), PRODUCT, RESEAT_VERSION);
    snprintf(c, sizeof(c), "OpenCL C %u.%u %s", CL_VERSION_MAJOR(draft->c_version),
             CL_VERSION_MINOR(draft->c_version), PRODUCT);
    for (size_t i = 0; i < ARRAY_SIZE(strings); i++) {
        const char *own = devinfo_string(first, strings[i].name);
        int err = reply_set_string(&draft->answers, strings[i].name,
                                   native && strings[i].own && own[0] ? own : strings[i].ours);

        if (err)
            return err;
    }
    return 0;
}

static int write_numbers(struct draft *draft, bool native, cl_device_type type)
{
    const struct devinfo *first = draft->devices[0];
    struct devinfo *answers = &draft->answers;
    /* 0 is no vendor's, so that a program takes no vendor's path. */
    uint64_t vendor = native ? devinfo_scalar(first, CL_DEVICE_VENDOR_ID, 0) : 0;
    int err = reply_set_scalar(answers, CL_DEVICE_TYPE, type, sizeof(cl_device_type));

    if (!err)
        err = reply_set_scalar(answers, CL_DEVICE_VENDOR_ID, vendor, sizeof(cl_uint));
    if (!err)
        err = reply_set_scalar(answers, CL_DEVICE_NUMERIC_VERSION, draft->version,
                               sizeof(cl_version));
    if (!err)
        err = reply_set_scalar(answers, CL_DEVICE_OPENCL_C_NUMERIC_VERSION_KHR, draft->c_version,
                               sizeof(cl_version_khr));
    return err;
}

/* Last: the answers that the presented version and extensions do not have. */
static void drop_unoffered(struct draft *draft)
{
    for (size_t i = 0; i < devinfo_param_count; i++) {
        const struct devinfo_param *param = &devinfo_params[i];

        if (param->since && param->since <= draft->version)
            continue;
        if (!param->extension || !draft_has_extension(draft, param->extension))
            reply_drop(&draft->answers, param->name);
    }
}

static int write_param(struct draft *draft, const struct devinfo_param *param)
{
    const struct devinfo_value *own = devinfo_find(draft->devices[0], param->name);

    if (!draft->native || param->meet != DEVINFO_PINS || !own)
        return meet_param(draft->devices, draft->count, param, &draft->answers);
    return reply_set(&draft->answers, param->name, own->bytes, own->size);
}

static int draft_write(struct draft *draft, bool native, cl_device_type forced_type)
{
    cl_device_type type =
        forced_type ? forced_type : devinfo_scalar(draft->devices[0], CL_DEVICE_TYPE, 0);
    int err = 0;

    draft_versions(draft);
    draft_names(draft);
    for (size_t i = 0; !err && i < devinfo_param_count; i++)
        err = write_param(draft, &devinfo_params[i]);
    if (!err)
        err = meet_formats(draft->devices, draft->count, &draft->answers);
    if (!err)
        err = write_ils(draft);
    if (err)
        return err;
    draft_agree(draft);
    err = write_names(draft);
    if (!err)
        err = write_c_versions(draft);
    if (!err)
        err = write_strings(draft, native, type);
    if (!err)
        err = write_numbers(draft, native, type);
    if (!err)
        drop_unoffered(draft);
    return err;
}

/* 4.1: what every device of the platform has, and the platform's own. */
static int platform_extensions(const struct draft *draft, struct devinfo *platform)
{
    const char *names = devinfo_string(&draft->answers, CL_DEVICE_EXTENSIONS);
    const struct devinfo_value *versions =
        devinfo_find(&draft->answers, CL_DEVICE_EXTENSIONS_WITH_VERSION);
    cl_name_version list[ALLOW_MAX + 1] = {{CL_MAKE_VERSION(1, 0, 0), PLATFORM_ICD}};
    char CLEANUP(free_pointer) *text = malloc(sizeof(PLATFORM_ICD) + strlen(names) + 2);
    int err;

    if (!text)
        return -ENOMEM;
    sprintf(text, "%s%s%s", PLATFORM_ICD, names[0] ? " " : "", names);
    err = reply_set_string(platform, CL_PLATFORM_EXTENSIONS, text);
    if (err || !versions)
        return err;
    memcpy(list + 1, versions->bytes, versions->size);
    return reply_set(platform, CL_PLATFORM_EXTENSIONS_WITH_VERSION, list,
                     sizeof(list[0]) + versions->size);
}

static int platform_write(const struct draft *draft, struct devinfo *platform)
{
    char version[64];
    const struct {
        cl_platform_info name;
        const char *text;
    } strings[] = {
        {CL_PLATFORM_PROFILE, profile_name(draft)},
        {CL_PLATFORM_VERSION, version},
        {CL_PLATFORM_NAME, PRODUCT},
        {CL_PLATFORM_VENDOR, PRODUCT},
        {CL_PLATFORM_ICD_SUFFIX_KHR, "RESEAT"},
    };
    int err;

    snprintf(version, sizeof(version), "OpenCL %u.%u %s %s", CL_VERSION_MAJOR(draft->version),
             CL_VERSION_MINOR(draft->version), PRODUCT, RESEAT_VERSION);
    for (size_t i = 0; i < ARRAY_SIZE(strings); i++) {
        err = reply_set_string(platform, strings[i].name, strings[i].text);
        if (err)
            return err;
    }
    err = platform_extensions(draft, platform);
    /* Parallel to the device: there by version, or by cl_khr_extended_versioning. */
    if (!err && devinfo_find(&draft->answers, CL_DEVICE_NUMERIC_VERSION))
        err = reply_set_scalar(platform, CL_PLATFORM_NUMERIC_VERSION, draft->version,
                               sizeof(cl_version));
    /* 0: device and host timers are not synchronised (they would not stay so across a move). */
    if (!err && draft->version >= VERSION_3)
        err = reply_set_scalar(platform, CL_PLATFORM_HOST_TIMER_RESOLUTION, 0, sizeof(cl_ulong));
    return err;
}

int present_build(const struct devinfo *const *devices, size_t count, enum present_profile profile,
                  cl_device_type forced_type, struct present *ret)
{
    struct draft draft = {.devices = devices, .count = count, .native = profile == PRESENT_NATIVE};
    struct devinfo platform = {0};
    int err;

    if (!count)
        return -EINVAL;
    if (profile == PRESENT_NATIVE)
        draft.count = 1;
    err = draft_write(&draft, profile == PRESENT_NATIVE, forced_type);
    if (!err)
        err = platform_write(&draft, &platform);
    if (err) {
        devinfo_finish(&draft.answers);
        devinfo_finish(&platform);
        return err;
    }
    *ret = (struct present){draft.answers, platform, draft.version};
    return 0;
}

void present_finish(struct present *present)
{
    devinfo_finish(&present->device);
    devinfo_finish(&present->platform);
}

static cl_int answer(const struct devinfo *answers, cl_uint name, size_t param_value_size,
                     void *param_value, size_t *ret_size)
{
    const struct devinfo_value *value = devinfo_find(answers, name);

    if (!value)
        return CL_INVALID_VALUE;
    return info_answer(value->bytes, value->size, param_value_size, param_value, ret_size);
}

cl_int present_device_info(const struct present *present, cl_device_info name,
                           size_t param_value_size, void *param_value, size_t *ret_size)
{
    return answer(&present->device, name, param_value_size, param_value, ret_size);
}

cl_int present_platform_info(const struct present *present, cl_platform_info name,
                             size_t param_value_size, void *param_value, size_t *ret_size)
{
    return answer(&present->platform, name, param_value_size, param_value, ret_size);
}

static bool is_image_type(cl_mem_object_type type)
{
    return type >= CL_MEM_OBJECT_IMAGE2D && type <= CL_MEM_OBJECT_IMAGE1D_BUFFER;
}

cl_int present_image_formats(const struct present *present, cl_mem_flags flags,
                             cl_mem_object_type type, cl_uint num_entries,
                             cl_image_format *image_formats, cl_uint *ret_count)
{
    const cl_mem_flags accesses =
        CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY | CL_MEM_KERNEL_READ_AND_WRITE;
    const cl_mem_flags others = CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR |
                                CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_READ_ONLY |
                                CL_MEM_HOST_NO_ACCESS;
    cl_mem_flags access = flags & accesses;
    const struct devinfo_formats *list = NULL;
    cl_uint count;

    if (flags & ~(accesses | others) || !is_image_type(type) || (image_formats && !num_entries))
        return CL_INVALID_VALUE;
    /* A kernel's reading and writing of one image is more than a program's reading and writing. */
    if (access & CL_MEM_KERNEL_READ_AND_WRITE)
        access &= ~(cl_mem_flags)CL_MEM_READ_WRITE;
    if (access & (access - 1))
        return CL_INVALID_VALUE;
    if (!access)
        access = CL_MEM_READ_WRITE;
    for (size_t i = 0; !list && i < present->device.format_count; i++) {
        if (present->device.formats[i].flags == access && present->device.formats[i].type == type)
            list = &present->device.formats[i];
    }
    count = list ? list->count : 0;
    if (image_formats && count)
        memcpy(image_formats, list->formats,
               sizeof(*image_formats) * (num_entries < count ? num_entries : count));
    if (ret_count)
        *ret_count = count;
    return CL_SUCCESS;
}
