#include "agent/cli/show/reports.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Most devices named in one reason. */
#define NAMED_MAX 8

/* Order the devices: first the one that programs start on by default, then the others as listed. */
static void presented_order_devices(const struct inventory *inventory,
                                    const struct inventory_entry **ret_devices)
{
    size_t start = 0, used = 1;

    for (size_t i = inventory->count; i-- > 0;)
        if (devinfo_scalar(&inventory->entries[i].info, CL_DEVICE_TYPE, 0) & CL_DEVICE_TYPE_GPU)
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
        presented_order_devices(inventory, presented.devices);
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

static void presented_version(cl_version version, struct words *words)
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

static json_t *presented_json_number(const struct devinfo_param *param, uint64_t number)
{
    struct words words = {.used = 0};

    if (presented_is_truth(param))
        return json_boolean(number != 0);
    if (!presented_is_version(param))
        return json_integer((json_int_t)(number & INT64_MAX));
    presented_version((cl_version)number, &words);
    return json_string(words.text);
}

/** A value as JSON; null if there is none. Returns NULL without memory. */
static json_t *presented_json(const struct devinfo_param *param, const struct devinfo_value *value)
{
    if (!value)
        return json_null();
    if (param->size == 0)
        return output_text((const char *)value->bytes);
    if (param->size != sizeof(cl_name_version) && param->rule != DEVINFO_MIN_EACH)
        return presented_json_number(param, presented_number_at(value, 0, param->size));
    json_t *list = json_array();
    for (size_t at = 0; at + param->size <= value->size; at += param->size) {
        if (param->size == sizeof(cl_name_version)) {
            cl_name_version entry = devinfo_list_entry(value, at / param->size);
            struct words words = {.used = 0};
            presented_version(entry.version, &words);
            json_array_append_new(list, json_pack("{s:o, s:s}", "name", output_text(entry.name),
                                                  "version", words.text));
        } else {
            json_array_append_new(
                list, presented_json_number(param, presented_number_at(value, at, param->size)));
        }
    }
    return list;
}

/** Append such a value as text: "4096", "true", "0x3f", "1024 1024 64", "OpenCL C 1.2.0". */
static void presented_say(const struct devinfo_param *param, const json_t *value,
                          struct words *words)
{
    bool flags = param->rule == DEVINFO_AND || param->name == CL_DEVICE_TYPE;
    const json_t *item;
    size_t i;

    if (!value || json_is_null(value))
        words_add(words, "no answer");
    else if (json_is_boolean(value))
        words_add(words, "%s", json_is_true(value) ? "true" : "false");
    else if (json_is_integer(value))
        words_add(words, flags ? "0x%llx" : "%llu", (unsigned long long)json_integer_value(value));
    else if (json_is_string(value))
        words_add(words, presented_is_version(param) ? "%s" : "\"%s\"", json_string_value(value));
    else if (json_is_object(value))
        words_say(words, value, "{name} {version}");
    json_array_foreach(value, i, item)
    {
        words_add(words, "%s", !i ? "" : json_is_object(item) ? ", " : " ");
        presented_say(param, item, words);
    }
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
            json_auto_t *own =
                presented_json(param, devinfo_find(&presented->devices[i]->info, param->name));
            words_add(words, " ");
            presented_say(param, own, words);
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
    case REASON_LARGEST:
        words_add(words, reason->rule == REASON_LEAST ? "least of " : "largest of ");
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

/** Add a reason to an object, also as text, such as "least of cpu0 4096, gpu0 256". */
static void presented_why_json(const struct presented *presented, const struct reason *reason,
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
    json_object_update_new(object, json_pack("{s:o, s:s, s:o, s:s}", "why", output_text(why.text),
                                             "rule", rules[reason->rule], "by", by, "because",
                                             reason->because ? reason->because : ""));
}

#define ORDERS(N)                                                                                  \
    N(CL_R), N(CL_A), N(CL_RG), N(CL_RA), N(CL_RGB), N(CL_RGBA), N(CL_BGRA), N(CL_ARGB),           \
        N(CL_ABGR), N(CL_INTENSITY), N(CL_LUMINANCE), N(CL_Rx), N(CL_RGx), N(CL_RGBx),             \
        N(CL_DEPTH), N(CL_DEPTH_STENCIL), N(CL_sRGB), N(CL_sRGBx), N(CL_sRGBA), N(CL_sBGRA)
#define DATA_TYPES(N)                                                                              \
    N(CL_SNORM_INT8), N(CL_SNORM_INT16), N(CL_UNORM_INT8), N(CL_UNORM_INT16),                      \
        N(CL_UNORM_SHORT_565), N(CL_UNORM_SHORT_555), N(CL_UNORM_INT_101010),                      \
        N(CL_UNORM_INT_101010_2), N(CL_SIGNED_INT8), N(CL_SIGNED_INT16), N(CL_SIGNED_INT32),       \
        N(CL_UNSIGNED_INT8), N(CL_UNSIGNED_INT16), N(CL_UNSIGNED_INT32), N(CL_HALF_FLOAT),         \
        N(CL_FLOAT), N(CL_UNORM_INT24)
#define NAME(value)                                                                                \
    {                                                                                              \
        value, #value                                                                              \
    }

/** The name of an access, type, order or data type of images. Their values are all different. */
static const char *presented_name(uint64_t value)
{
    static const struct {
        uint64_t value;
        const char *name;
    } names[] = {{CL_MEM_READ_ONLY, "read-only"},
                 {CL_MEM_WRITE_ONLY, "write-only"},
                 {CL_MEM_READ_WRITE, "read-write"},
                 {CL_MEM_KERNEL_READ_AND_WRITE, "kernel-read-and-write"},
                 {CL_MEM_OBJECT_IMAGE1D, "1D"},
                 {CL_MEM_OBJECT_IMAGE1D_ARRAY, "1D array"},
                 {CL_MEM_OBJECT_IMAGE1D_BUFFER, "1D buffer"},
                 {CL_MEM_OBJECT_IMAGE2D, "2D"},
                 {CL_MEM_OBJECT_IMAGE2D_ARRAY, "2D array"},
                 {CL_MEM_OBJECT_IMAGE3D, "3D"},
                 ORDERS(NAME),
                 DATA_TYPES(NAME)};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (names[i].value == value)
            return names[i].name;
    return "unknown";
}

/* ---- printing ---- */

/* True for lists that are printed separately. */
static bool presented_has_own_part(cl_device_info name)
{
    return name == CL_DEVICE_EXTENSIONS || name == CL_DEVICE_EXTENSIONS_WITH_VERSION ||
           name == CL_DEVICE_OPENCL_C_FEATURES;
}

static cl_version presented_listed_version(const struct presented *presented, cl_device_info list,
                                           const char *name)
{
    const struct devinfo_value *value = devinfo_find(&presented->present.device, list);

    for (size_t i = 0; i < devinfo_list_count(value); i++) {
        const cl_name_version entry = devinfo_list_entry(value, i);
        if (strncmp(entry.name, name, sizeof(entry.name)) == 0)
            return entry.version;
    }
    return 0;
}

/* False for a reason that no device supports the feature: it is not printed. */
static bool presented_is_told_of(const struct presented *presented, const struct reason *reason)
{
    for (size_t i = 0; i < presented->count; i++)
        if (!reason->by[i])
            return true;
    return reason->rule != REASON_MISSING;
}

/* ---- as JSON, with the texts for people ---- */

static json_t *presented_json_answers(const struct presented *presented)
{
    json_t *list = json_array();

    for (size_t i = 0; i < devinfo_param_count; i++) {
        const struct devinfo_param *param = &devinfo_params[i];
        const struct devinfo_value *value = devinfo_find(&presented->present.device, param->name);
        const struct reason *reason = reasons_find_answer(&presented->reasons, param->name);
        struct words said = {.used = 0};
        /* Without a query in the programs' version, there is no reason for a missing answer. */
        bool asked = param->since && param->since <= presented->present.version;
        if (!reason || presented_has_own_part(param->name) || (!value && !asked))
            continue;
        json_t *own = json_object();
        for (size_t j = 0; j < presented->count; j++) {
            const struct inventory_entry *device = presented->devices[j];
            json_object_set_new(own, device->name,
                                presented_json(param, devinfo_find(&device->info, param->name)));
        }
        json_t *json = presented_json(param, value);
        presented_say(param, json, &said);
        json_t *answer = json_pack("{s:s, s:o, s:o, s:o}", "name", param->word, "value", json,
                                   "devices", own, "told", output_text(said.text));
        presented_why_json(presented, reason, param, answer);
        json_array_append_new(list, answer);
    }
    return list;
}

static json_t *presented_json_names(const struct presented *presented, enum reason_kind kind,
                                    cl_device_info versions)
{
    json_t *list = json_array();

    for (size_t i = 0; i < presented->reasons.count; i++) {
        const struct reason *reason = &presented->reasons.items[i];
        bool offered = reason->rule == REASON_EQUAL;
        struct words version = {0};
        if (reason->kind != kind || !presented_is_told_of(presented, reason))
            continue;
        if (offered && presented_listed_version(presented, versions, reason->name))
            presented_version(presented_listed_version(presented, versions, reason->name),
                              &version);
        json_t *entry = json_pack("{s:s, s:b, s:s, s:s}", "name", reason->name, "offered", offered,
                                  "version", version.text, "told",
                                  !offered          ? "-"
                                  : version.text[0] ? version.text
                                                    : "yes");
        presented_why_json(presented, reason, NULL, entry);
        json_array_append_new(list, entry);
    }
    return list;
}

static json_t *presented_json_left_out(const struct presented *presented, cl_mem_flags flags,
                                       cl_mem_object_type type)
{
    json_t *list = json_array();

    for (size_t i = 0; i < presented->reasons.count; i++) {
        const struct reason *reason = &presented->reasons.items[i];
        if (reason->kind != REASON_FORMAT || reason->flags != flags || reason->type != type)
            continue;
        json_t *entry =
            json_pack("{s:s, s:s}", "order", presented_name(reason->format.image_channel_order),
                      "data_type", presented_name(reason->format.image_channel_data_type));
        presented_why_json(presented, reason, NULL, entry);
        json_array_append_new(list, entry);
    }
    return list;
}

static json_t *presented_json_formats(const struct presented *presented)
{
    json_t *lists = json_array();

    for (size_t i = 0; i < presented->present.device.format_count; i++) {
        const struct devinfo_formats *list = &presented->present.device.formats[i];
        json_array_append_new(
            lists,
            json_pack("{s:s, s:s, s:I, s:o}", "type", presented_name(list->type), "access",
                      presented_name(list->flags), "count", (json_int_t)list->count, "left_out",
                      presented_json_left_out(presented, list->flags, list->type)));
    }
    return lists;
}

static json_t *presented_json_all(const struct presented *presented)
{
    json_t *devices = json_array(), *left_out = json_array();

    for (size_t i = 0; i < presented->count; i++)
        json_array_append_new(devices, json_string(presented->devices[i]->name));
    for (size_t i = 0; i < presented->reasons.count; i++) {
        const struct reason *reason = &presented->reasons.items[i];
        for (size_t j = 0; reason->kind == REASON_DEVICE && j < presented->count; j++) {
            if (reason->by[j]) {
                json_array_append_new(left_out,
                                      json_pack("{s:s, s:s}", "device", presented->devices[j]->name,
                                                "because", reason->because));
            }
        }
    }
    return json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "profile", "portable", "devices", devices,
        "left_out", left_out, "answers", presented_json_answers(presented), "extensions",
        presented_json_names(presented, REASON_EXTENSION, CL_DEVICE_EXTENSIONS_WITH_VERSION),
        "features", presented_json_names(presented, REASON_FEATURE, CL_DEVICE_OPENCL_C_FEATURES),
        "image_formats", presented_json_formats(presented));
}

/* ---- as text ---- */

/** Print rows with a name, what programs are told, and why: those that are offered first. */
static void presented_rows(const json_t *rows, const char *title)
{
    const struct table_column columns[] = {
        {title, "{name}"},
        {"TOLD", "{told}", TABLE_WRAP},
        {"WHY", "[{?offered}on all][{!offered}{why}]", TABLE_WRAP},
        {NULL},
    };
    struct table *table = table_create(columns);
    const json_t *row;
    size_t i;

    for (int left_out = 0; left_out < 2; left_out++) {
        json_array_foreach(rows, i, row)
        {
            /* Answers to queries are neither offered nor left out. */
            if (json_is_false(json_object_get(row, "offered")) == left_out)
                table_add(table, row);
        }
    }
    (void)!table_print(table);
}

/** Append the reasons why formats of a list are left out: each once, with the number of formats. */
static void presented_add_format_reasons(const json_t *left_out, struct words *words)
{
    const json_t *entry, *other;
    size_t i, j;

    if (!json_array_size(left_out))
        words_add(words, "all that any device has");
    json_array_foreach(left_out, i, entry)
    {
        size_t alike = 0, before = 0;
        json_array_foreach(left_out, j, other)
        {
            bool same = strcmp(member_text(entry, "why"), member_text(other, "why")) == 0;
            alike += same;
            before += same && j < i;
        }
        if (!before) {
            words_add(words, "%s%zu left out, %s", words->used ? "; " : "", alike,
                      member_text(entry, "why"));
        }
    }
}

static void presented_formats(const json_t *lists, cl_version version)
{
    json_t *rows = json_array();
    const json_t *list;
    size_t i;

    json_array_foreach(lists, i, list)
    {
        const char *access = member_text(list, "access");
        struct words name = {0}, count = {0}, why = {0};
        if (version >= CL_MAKE_VERSION(2, 0, 0) ||
            strcmp(access, presented_name(CL_MEM_KERNEL_READ_AND_WRITE)) != 0) {
            words_add(&name, "%s, %s", member_text(list, "type"), access);
            words_say(&count, list, "{count}");
            presented_add_format_reasons(json_object_get(list, "left_out"), &why);
            json_array_append_new(rows, json_pack("{s:s, s:s, s:s}", "name", name.text, "told",
                                                  count.text, "why", why.text));
        }
    }
    presented_rows(rows, "IMAGE FORMATS");
    json_decref(rows);
}

static int presented_text(const json_t *object, cl_version version)
{
    const char *start = json_string_value(json_array_get(json_object_get(object, "devices"), 0));
    const json_t *entry;
    struct words words = {.used = 0};
    size_t i;

    words_say(&words, object, "Told to every program of the portable profile, by {devices}");
    printf("%s (it starts on %s)\n", words.text, start);
    json_array_foreach(json_object_get(object, "left_out"), i, entry)
    {
        printf("%s takes no part: %s\n", member_text(entry, "device"),
               member_text(entry, "because"));
    }
    putchar('\n');
    presented_rows(json_object_get(object, "answers"), "ANSWER");
    putchar('\n');
    presented_rows(json_object_get(object, "extensions"), "EXTENSION");
    putchar('\n');
    if (version >= CL_MAKE_VERSION(3, 0, 0)) {
        presented_rows(json_object_get(object, "features"), "FEATURE");
        putchar('\n');
    }
    presented_formats(json_object_get(object, "image_formats"), version);
    return output_done();
}

int presented_print(const struct output *output, const char *file)
{
    const char *size = getenv("RESEAT_MEMORY");
    char reason[128] = "there has to be some";
    uint64_t memory = 0;
    CLEANUP(inventory_finish) struct inventory inventory = {0};
    CLEANUP(presented_finish) struct presented presented = {0};
    int error;

    if (size && *size && (size_parse(size, &memory, reason, sizeof(reason)) || !memory))
        return output_usage(output, "RESEAT_MEMORY: %s", reason);
    error = inventory_read(file, &inventory);
    if (!error && !inventory.count) {
        return output_fail(output, ERR_NO_DEVICE,
                           "no OpenCL driver shows a device; install one, then see reseat doctor");
    }
    if (!error)
        error = presented_build(&inventory, memory, &presented);
    if (error)
        return output_fail(output, ERR_FAILED, "the list of devices cannot be read: %s",
                           strerror(-error));
    json_auto_t *answer = output_object(output, STATUS_DONE);
    json_t *object = presented_json_all(&presented);
    json_object_set_new(answer, "presented", object);
    return output->json ? output_print(json_incref(answer), STATUS_DONE)
                        : presented_text(object, presented.present.version);
}
