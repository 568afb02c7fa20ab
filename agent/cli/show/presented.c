#include "agent/cli/show/presented.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Most devices named in one reason. */
#define NAMED_MAX 8

static bool presented_is_gpu(const struct inventory_entry *entry)
{
    return (devinfo_scalar(&entry->info, CL_DEVICE_TYPE, 0) & CL_DEVICE_TYPE_GPU) != 0;
}

/* Order the devices: first the one that programs start on by default, then the others as listed. */
static void presented_order_rows(const struct inventory *inventory,
                                 const struct inventory_entry **ret_devices)
{
    size_t start = 0, used = 1;

    for (size_t i = inventory->count; i-- > 0;)
        if (presented_is_gpu(&inventory->entries[i]))
            start = i;
    ret_devices[0] = &inventory->entries[start];
    for (size_t i = 0; i < inventory->count; i++)
        if (i != start)
            ret_devices[used++] = &inventory->entries[i];
}

int presented_build(const struct inventory *inventory, uint64_t memory,
                    struct presented *ret_presented)
{
    const struct present_terms terms = {.profile = PRESENT_PORTABLE, .memory = memory};
    struct presented presented = {.count = inventory->count};
    const struct devinfo **infos = calloc(inventory->count, sizeof(struct devinfo *));
    int error = infos ? 0 : -ENOMEM;

    presented.devices = calloc(inventory->count, sizeof(struct inventory_entry *));
    if (!presented.devices)
        error = -ENOMEM;
    if (!error) {
        presented_order_rows(inventory, presented.devices);
        for (size_t i = 0; i < presented.count; i++)
            infos[i] = &presented.devices[i]->info;
        error =
            present_explain(infos, presented.count, &terms, &presented.present, &presented.reasons);
    }
    free(infos);
    if (error) {
        free(presented.devices);
        return error;
    }
    *ret_presented = presented;
    return 0;
}

void presented_finish(struct presented *presented)
{
    present_finish(&presented->present);
    reasons_finish(&presented->reasons);
    free(presented->devices);
    *presented = (struct presented){0};
}

void presented_version(cl_version version, struct words *words)
{
    words_add(words, "%u.%u.%u", CL_VERSION_MAJOR(version), CL_VERSION_MINOR(version),
              CL_VERSION_PATCH(version));
}

static bool presented_is_truth(const struct devinfo_param *param)
{
    return param->size == sizeof(cl_bool) && param->rule != DEVINFO_MIN &&
           (param->rule == DEVINFO_AND || param->name == CL_DEVICE_AVAILABLE ||
            param->name == CL_DEVICE_COMPILER_AVAILABLE ||
            param->name == CL_DEVICE_LINKER_AVAILABLE ||
            param->name == CL_DEVICE_PREFERRED_INTEROP_USER_SYNC ||
            param->name == CL_DEVICE_PIPE_SUPPORT);
}

static bool presented_is_version(const struct devinfo_param *param)
{
    return param->name == CL_DEVICE_NUMERIC_VERSION ||
           param->name == CL_DEVICE_OPENCL_C_NUMERIC_VERSION_KHR ||
           param->name == CL_DEVICE_CXX_FOR_OPENCL_NUMERIC_VERSION_EXT;
}

static uint64_t presented_number_at(const struct devinfo_value *value, size_t offset, size_t size)
{
    uint64_t number = 0;

    if (offset + size <= value->size && size <= sizeof(number))
        memcpy(&number, value->bytes + offset, size);
    return number;
}

static void presented_add_number(const struct devinfo_param *param, uint64_t number,
                                 struct words *words)
{
    if (presented_is_truth(param))
        words_add(words, "%s", number ? "true" : "false");
    else if (presented_is_version(param))
        presented_version((cl_version)number, words);
    else if (param->rule == DEVINFO_AND || param->name == CL_DEVICE_TYPE)
        words_add(words, "0x%llx", (unsigned long long)number);
    else
        words_add(words, "%llu", (unsigned long long)number);
}

void presented_value(const struct devinfo_param *param, const struct devinfo_value *value,
                     struct words *words)
{
    if (!value) {
        words_add(words, "no answer");
    } else if (param->size == 0) {
        words_add(words, "\"%s\"", (const char *)value->bytes);
    } else if (param->size == sizeof(cl_name_version)) {
        for (size_t i = 0; i < value->size / sizeof(cl_name_version); i++) {
            cl_name_version entry = devinfo_list_entry(value, i);
            words_add(words, "%s%s ", i ? ", " : "", entry.name);
            presented_version(entry.version, words);
        }
    } else {
        for (size_t at = 0; at + param->size <= value->size; at += param->size) {
            words_add(words, "%s", at ? " " : "");
            presented_add_number(param, presented_number_at(value, at, param->size), words);
        }
    }
}

static json_t *presented_json_number(const struct devinfo_param *param, uint64_t number)
{
    struct words words = {0};

    if (presented_is_truth(param))
        return json_boolean(number != 0);
    if (presented_is_version(param)) {
        presented_version((cl_version)number, &words);
        return json_string(words.text);
    }
    return json_integer((json_int_t)(number & INT64_MAX));
}

json_t *presented_json(const struct devinfo_param *param, const struct devinfo_value *value)
{
    json_t *list;

    if (!value)
        return json_null();
    if (param->size == 0)
        return output_text((const char *)value->bytes);
    if (param->size == sizeof(cl_name_version)) {
        list = json_array();
        for (size_t i = 0; i < value->size / sizeof(cl_name_version); i++) {
            cl_name_version entry = devinfo_list_entry(value, i);
            struct words words = {0};
            presented_version(entry.version, &words);
            json_array_append_new(list, json_pack("{s:o, s:s}", "name", output_text(entry.name),
                                                  "version", words.text));
        }
        return list;
    }
    if (param->rule != DEVINFO_MIN_EACH)
        return presented_json_number(param, presented_number_at(value, 0, param->size));
    list = json_array();
    for (size_t at = 0; at + param->size <= value->size; at += param->size)
        json_array_append_new(
            list, presented_json_number(param, presented_number_at(value, at, param->size)));
    return list;
}

/* Append names of devices: "cpu0, gpu0"; with @param, each followed by the device's own answer. */
static void presented_add_devices(const struct presented *presented, const bool *only,
                                  const struct devinfo_param *param, struct words *words)
{
    size_t named = 0, left = 0;

    for (size_t i = 0; i < presented->count; i++) {
        if (only && !only[i])
            continue;
        if (named == NAMED_MAX) {
            left++;
            continue;
        }
        words_add(words, "%s%s", named++ ? ", " : "", presented->devices[i]->name);
        if (param && param->name == CL_DEVICE_VERSION) {
            cl_version version = devinfo_version(&presented->devices[i]->info);
            words_add(words, " %u.%u", CL_VERSION_MAJOR(version), CL_VERSION_MINOR(version));
        } else if (param) {
            words_add(words, " ");
            presented_value(param, devinfo_find(&presented->devices[i]->info, param->name), words);
        }
    }
    if (left)
        words_add(words, " and %zu more", left);
}

static void presented_add_why(const struct presented *presented, const struct reason *reason,
                              const struct devinfo_param *param, struct words *words)
{
    bool listed = param && (param->size == 0 || param->size == sizeof(cl_name_version)) &&
                  param->name != CL_DEVICE_VERSION;

    switch (reason->rule) {
    case REASON_EQUAL:
        words_add(words, presented->count > 1 ? "the same on all" : "as it says itself");
        break;
    case REASON_LEAST:
        words_add(words, "least of ");
        presented_add_devices(presented, NULL, listed ? NULL : param, words);
        break;
    case REASON_LARGEST:
        words_add(words, "largest of ");
        presented_add_devices(presented, NULL, listed ? NULL : param, words);
        break;
    case REASON_MOST_MEMORY:
        words_add(words, "of ");
        presented_add_devices(presented, reason->by, NULL, words);
        words_add(words, ", which has the most memory, of ");
        presented_add_devices(presented, NULL, param, words);
        break;
    case REASON_COMMON:
        words_add(words,
                  param && presented_is_truth(param) ? "true where all are: " : "common to ");
        presented_add_devices(presented, NULL, listed ? NULL : param, words);
        break;
    case REASON_FIRST:
        words_add(words, "of %s, where it starts", presented->devices[0]->name);
        break;
    case REASON_OURS:
        words_add(words, "of the virtual device");
        break;
    case REASON_MISSING:
        words_add(words, param ? "not answered by " : "not on ");
        presented_add_devices(presented, reason->by, NULL, words);
        break;
    case REASON_NOT_CARRIED:
        words_add(words, "cannot be carried");
        break;
    case REASON_AGREES:
        words_add(words, "%s", reason->because);
        return;
    }
    if (reason->because)
        words_add(words, "; %s", reason->because);
}

void presented_why_json(const struct presented *presented, const struct reason *reason,
                        const struct devinfo_param *param, json_t *object)
{
    struct words why = {0};
    static const char *const rules[] = {
        [REASON_EQUAL] = "equal",     [REASON_LEAST] = "least",
        [REASON_LARGEST] = "largest", [REASON_COMMON] = "common",
        [REASON_FIRST] = "first",     [REASON_OURS] = "ours",
        [REASON_MISSING] = "missing", [REASON_NOT_CARRIED] = "not-carried",
        [REASON_AGREES] = "agrees",   [REASON_MOST_MEMORY] = "most-memory",
    };
    json_t *by = json_array();

    for (size_t i = 0; i < presented->count; i++)
        if (reason->by[i])
            json_array_append_new(by, json_string(presented->devices[i]->name));
    presented_add_why(presented, reason, param, &why);
    json_object_set_new(object, "why", output_text(why.text));
    json_object_set_new(object, "rule", json_string(rules[reason->rule]));
    json_object_set_new(object, "by", by);
    json_object_set_new(object, "because", json_string(reason->because ? reason->because : ""));
}

struct name {
    uint32_t value;
    const char *word;
};
#define NAME(value)                                                                                \
    {                                                                                              \
        value, #value                                                                              \
    }

static const char *presented_name_of(const struct name *names, size_t count, uint32_t value)
{
    for (size_t i = 0; i < count; i++)
        if (names[i].value == value)
            return names[i].word;
    return "unknown";
}

const char *presented_access(cl_mem_flags access)
{
    static const struct name names[] = {
        {CL_MEM_READ_ONLY, "read-only"},
        {CL_MEM_WRITE_ONLY, "write-only"},
        {CL_MEM_READ_WRITE, "read-write"},
        {CL_MEM_KERNEL_READ_AND_WRITE, "kernel-read-and-write"},
    };

    return presented_name_of(names, ARRAY_SIZE(names), (uint32_t)access);
}

const char *presented_image_type(cl_mem_object_type type)
{
    static const struct name names[] = {
        {CL_MEM_OBJECT_IMAGE1D, "1D"},
        {CL_MEM_OBJECT_IMAGE1D_ARRAY, "1D array"},
        {CL_MEM_OBJECT_IMAGE1D_BUFFER, "1D buffer"},
        {CL_MEM_OBJECT_IMAGE2D, "2D"},
        {CL_MEM_OBJECT_IMAGE2D_ARRAY, "2D array"},
        {CL_MEM_OBJECT_IMAGE3D, "3D"},
    };

    return presented_name_of(names, ARRAY_SIZE(names), type);
}

const char *presented_order(cl_channel_order order_of)
{
    static const struct name names[] = {
        NAME(CL_R),    NAME(CL_A),         NAME(CL_RG),        NAME(CL_RA),
        NAME(CL_RGB),  NAME(CL_RGBA),      NAME(CL_BGRA),      NAME(CL_ARGB),
        NAME(CL_ABGR), NAME(CL_INTENSITY), NAME(CL_LUMINANCE), NAME(CL_Rx),
        NAME(CL_RGx),  NAME(CL_RGBx),      NAME(CL_DEPTH),     NAME(CL_DEPTH_STENCIL),
        NAME(CL_sRGB), NAME(CL_sRGBx),     NAME(CL_sRGBA),     NAME(CL_sBGRA),
    };

    return presented_name_of(names, ARRAY_SIZE(names), order_of);
}

const char *presented_data_type(cl_channel_type type)
{
    static const struct name names[] = {
        NAME(CL_SNORM_INT8),       NAME(CL_SNORM_INT16),
        NAME(CL_UNORM_INT8),       NAME(CL_UNORM_INT16),
        NAME(CL_UNORM_SHORT_565),  NAME(CL_UNORM_SHORT_555),
        NAME(CL_UNORM_INT_101010), NAME(CL_UNORM_INT_101010_2),
        NAME(CL_SIGNED_INT8),      NAME(CL_SIGNED_INT16),
        NAME(CL_SIGNED_INT32),     NAME(CL_UNSIGNED_INT8),
        NAME(CL_UNSIGNED_INT16),   NAME(CL_UNSIGNED_INT32),
        NAME(CL_HALF_FLOAT),       NAME(CL_FLOAT),
        NAME(CL_UNORM_INT24),
    };

    return presented_name_of(names, ARRAY_SIZE(names), type);
}
