#include "state/driver/devinfo.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/log.h"

/* Compares a name with a parameter or a value: both begin with the name. */
static int devinfo_compare(const void *key, const void *row)
{
    cl_device_info name = *(const cl_device_info *)key, other = *(const cl_device_info *)row;

    return (name > other) - (name < other);
}

const struct devinfo_param *devinfo_param_find(cl_device_info name)
{
    return bsearch(&name, devinfo_params, devinfo_param_count, sizeof(devinfo_params[0]),
                   devinfo_compare);
}

/* Query one answer; 0 with no bytes when the device refuses it. */
static int devinfo_query_value(const cl_icd_dispatch *cl, cl_device_id device, cl_device_info name,
                               struct devinfo_value *ret_value)
{
    size_t size = 0, written = 0;
    uint8_t *bytes;

    ret_value->bytes = NULL;
    if (cl->clGetDeviceInfo(device, name, 0, NULL, &size) != CL_SUCCESS)
        return 0;
    if (size > DEVINFO_VALUE_MAX) {
        log_warn("device parameter 0x%x ignored: its answer has %zu bytes", name, size);
        return 0;
    }
    bytes = calloc(1, size + 1);
    if (!bytes)
        return -ENOMEM;
    if (size && cl->clGetDeviceInfo(device, name, size, bytes, &written) != CL_SUCCESS) {
        free(bytes);
        return 0;
    }
    *ret_value = (struct devinfo_value){name, (uint32_t)size, bytes};
    return 0;
}

/* Query the two answers that tell which others the device has. */
static int devinfo_query_basics(const cl_icd_dispatch *cl, cl_device_id device,
                                struct devinfo *basics)
{
    static const cl_device_info names[] = {CL_DEVICE_VERSION, CL_DEVICE_EXTENSIONS};

    basics->values = calloc(ARRAY_SIZE(names), sizeof(*basics->values));
    if (!basics->values)
        return -ENOMEM;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        int err = devinfo_query_value(cl, device, names[i], &basics->values[i]);

        if (err)
            return err;
        if (!basics->values[i].bytes)
            return -EIO;
        basics->value_count++;
    }
    return 0;
}

int devinfo_query(const cl_icd_dispatch *cl, cl_device_id device, struct devinfo *ret_info)
{
    struct devinfo CLEANUP(devinfo_finish) basics = {0};
    struct devinfo CLEANUP(devinfo_finish) info = {0};
    cl_version version;
    int err = devinfo_query_basics(cl, device, &basics);

    if (err)
        return err;
    version = devinfo_version(&basics);
    info.values = calloc(devinfo_param_count, sizeof(*info.values));
    if (!info.values)
        return -ENOMEM;
    for (size_t i = 0; i < devinfo_param_count; i++) {
        const struct devinfo_param *param = &devinfo_params[i];
        struct devinfo_value *value = &info.values[info.value_count];

        if (!(param->since && param->since <= version) &&
            !(param->extension && devinfo_has_extension(&basics, param->extension)))
            continue;
        err = devinfo_query_value(cl, device, param->name, value);
        if (err)
            return err;
        if (value->bytes)
            info.value_count++;
        else
            log_debug("a device of OpenCL %u.%u does not answer %s", CL_VERSION_MAJOR(version),
                      CL_VERSION_MINOR(version), param->word);
    }
    *ret_info = info;
    info = (struct devinfo){0};
    return 0;
}

static int devinfo_query_formats_of(const cl_icd_dispatch *cl, cl_context context,
                                    cl_mem_flags flags, cl_mem_object_type type,
                                    struct devinfo_formats *ret_formats)
{
    cl_uint count = 0;
    cl_image_format *formats;

    if (cl->clGetSupportedImageFormats(context, flags, type, 0, NULL, &count) != CL_SUCCESS)
        count = 0;
    if (count > DEVINFO_FORMATS_MAX)
        count = DEVINFO_FORMATS_MAX;
    formats = calloc(count ? count : 1, sizeof(*formats));
    if (!formats)
        return -ENOMEM;
    if (count && cl->clGetSupportedImageFormats(context, flags, type, count, formats, NULL))
        count = 0;
    *ret_formats = (struct devinfo_formats){flags, type, count, formats};
    return 0;
}

int devinfo_query_formats(const cl_icd_dispatch *cl, cl_platform_id platform, cl_device_id device,
                          struct devinfo *info)
{
    static const cl_mem_flags flags[] = {CL_MEM_READ_ONLY, CL_MEM_WRITE_ONLY, CL_MEM_READ_WRITE,
                                         CL_MEM_KERNEL_READ_AND_WRITE};
    static const cl_mem_object_type types[] = {
        CL_MEM_OBJECT_IMAGE2D,       CL_MEM_OBJECT_IMAGE3D, CL_MEM_OBJECT_IMAGE2D_ARRAY,
        CL_MEM_OBJECT_IMAGE1D_ARRAY, CL_MEM_OBJECT_IMAGE1D, CL_MEM_OBJECT_IMAGE1D_BUFFER};
    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                                (cl_context_properties)platform, 0};
    struct devinfo CLEANUP(devinfo_finish) asked = {0};
    cl_version version = devinfo_version(info);
    size_t flag_count = version >= CL_MAKE_VERSION(2, 0, 0) ? ARRAY_SIZE(flags) : 3;
    size_t type_count = version >= CL_MAKE_VERSION(1, 2, 0) ? ARRAY_SIZE(types) : 2;
    cl_context context;
    cl_int status = CL_SUCCESS;
    int err = 0;

    if (info->formats || !devinfo_scalar(info, CL_DEVICE_IMAGE_SUPPORT, 0))
        return 0;
    asked.formats = calloc(flag_count * type_count, sizeof(*asked.formats));
    if (!asked.formats)
        return -ENOMEM;
    context = cl->clCreateContext(properties, 1, &device, NULL, NULL, &status);
    if (!context) {
        log_warn("image formats of %s unknown: clCreateContext failed with %d",
                 devinfo_string(info, CL_DEVICE_NAME), status);
        return -EIO;
    }
    for (size_t i = 0; !err && i < flag_count * type_count; i++) {
        err = devinfo_query_formats_of(cl, context, flags[i / type_count], types[i % type_count],
                                       &asked.formats[i]);
        asked.format_count += !err;
    }
    cl->clReleaseContext(context);
    if (err)
        return err;
    info->formats = asked.formats;
    info->format_count = asked.format_count;
    asked = (struct devinfo){0};
    return 0;
}

void devinfo_finish(struct devinfo *info)
{
    for (size_t i = 0; i < info->value_count; i++)
        free(info->values[i].bytes);
    free(info->values);
    for (size_t i = 0; i < info->format_count; i++)
        free(info->formats[i].formats);
    free(info->formats);
    *info = (struct devinfo){0};
}

const struct devinfo_value *devinfo_find(const struct devinfo *info, cl_device_info name)
{
    if (!info->value_count)
        return NULL;
    return bsearch(&name, info->values, info->value_count, sizeof(*info->values), devinfo_compare);
}

size_t devinfo_list_count(const struct devinfo_value *list)
{
    return list ? list->size / sizeof(cl_name_version) : 0;
}

cl_name_version devinfo_list_entry(const struct devinfo_value *list, size_t at)
{
    cl_name_version entry;

    memcpy(&entry, list->bytes + at * sizeof(entry), sizeof(entry));
    entry.name[sizeof(entry.name) - 1] = '\0';
    return entry;
}

uint64_t devinfo_scalar(const struct devinfo *info, cl_device_info name, uint64_t fallback)
{
    const struct devinfo_value *value = devinfo_find(info, name);
    uint16_t two;
    uint32_t four;
    uint64_t eight;

    switch (value ? value->size : 0) {
    case sizeof(uint8_t):
        return value->bytes[0];
    case sizeof(two):
        memcpy(&two, value->bytes, sizeof(two));
        return two;
    case sizeof(four):
        memcpy(&four, value->bytes, sizeof(four));
        return four;
    case sizeof(eight):
        memcpy(&eight, value->bytes, sizeof(eight));
        return eight;
    default:
        return fallback;
    }
}

size_t devinfo_item_size(const struct devinfo *info, size_t dimension, size_t fallback)
{
    const struct devinfo_value *sizes = devinfo_find(info, CL_DEVICE_MAX_WORK_ITEM_SIZES);
    size_t size = fallback;

    if (sizes && sizes->size >= (dimension + 1) * sizeof(size))
        memcpy(&size, sizes->bytes + dimension * sizeof(size), sizeof(size));
    return size;
}

void devinfo_group_limits(const struct devinfo *info, struct group_limits *ret_limits)
{
    atomic_store(&ret_limits->items, devinfo_scalar(info, CL_DEVICE_MAX_WORK_GROUP_SIZE, SIZE_MAX));
    for (size_t i = 0; i < ARRAY_SIZE(ret_limits->sizes); i++)
        atomic_store(&ret_limits->sizes[i], devinfo_item_size(info, i, SIZE_MAX));
}

const char *devinfo_string(const struct devinfo *info, cl_device_info name)
{
    const struct devinfo_value *value = devinfo_find(info, name);

    return value ? (const char *)value->bytes : "";
}

bool devinfo_same_model(const struct devinfo *one, const struct devinfo *other)
{
    static const cl_device_info asked[] = {CL_DEVICE_NAME, CL_DEVICE_VENDOR, CL_DRIVER_VERSION};
    bool same = true;

    for (size_t i = 0; same && i < ARRAY_SIZE(asked); i++)
        same = strcmp(devinfo_string(one, asked[i]), devinfo_string(other, asked[i])) == 0;
    return same;
}

bool devinfo_names_have(const char *names, const char *name)
{
    size_t length = strlen(name);

    if (!length)
        return false;
    for (const char *word = names + strspn(names, " "); *word; word += strspn(word, " ")) {
        size_t end = strcspn(word, " ");

        if (end == length && !memcmp(word, name, length))
            return true;
        word += end;
    }
    return false;
}

bool devinfo_has_extension(const struct devinfo *info, const char *extension)
{
    return devinfo_names_have(devinfo_string(info, CL_DEVICE_EXTENSIONS), extension);
}

static cl_version devinfo_read_version(const char *text, const char *prefix)
{
    size_t length = strlen(prefix);
    unsigned major, minor;

    if (strncmp(text, prefix, length) != 0 ||
        sscanf(text + length, "%3u.%3u", &major, &minor) != 2 || !major)
        return CL_MAKE_VERSION(1, 0, 0);
    return CL_MAKE_VERSION(major, minor, 0);
}

cl_version devinfo_version(const struct devinfo *info)
{
    return devinfo_read_version(devinfo_string(info, CL_DEVICE_VERSION), "OpenCL ");
}

cl_version devinfo_c_version(const struct devinfo *info)
{
    return devinfo_read_version(devinfo_string(info, CL_DEVICE_OPENCL_C_VERSION), "OpenCL C ");
}

const struct devinfo_formats *devinfo_formats_of(const struct devinfo *info, cl_mem_flags access,
                                                 cl_mem_object_type type)
{
    for (size_t i = 0; i < info->format_count; i++)
        if (info->formats[i].flags == access && info->formats[i].type == type)
            return &info->formats[i];
    return NULL;
}

bool devinfo_formats_have(const struct devinfo_formats *list, const cl_image_format *format)
{
    for (uint32_t i = 0; list && i < list->count; i++)
        if (list->formats[i].image_channel_order == format->image_channel_order &&
            list->formats[i].image_channel_data_type == format->image_channel_data_type)
            return true;
    return false;
}
