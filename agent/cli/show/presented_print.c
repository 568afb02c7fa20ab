#include <stdlib.h>
#include <string.h>

#include "agent/cli/show/presented.h"
#include "agent/config/paths.h"

/* True for lists that are printed separately. */
static bool presented_print_has_own_part(cl_device_info name)
{
    return name == CL_DEVICE_EXTENSIONS || name == CL_DEVICE_EXTENSIONS_WITH_VERSION ||
           name == CL_DEVICE_OPENCL_C_FEATURES;
}

/*
 * True if the query exists in the version that programs see. The absence of others needs no reason.
 */
static bool presented_print_is_asked(const struct presented *presented,
                                     const struct devinfo_param *param)
{
    return param->since && param->since <= presented->present.version;
}

static cl_version presented_print_listed_version(const struct presented *presented,
                                                 cl_device_info list, const char *name)
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
static bool presented_print_is_told_of(const struct presented *presented,
                                       const struct reason *reason)
{
    for (size_t i = 0; i < presented->count; i++)
        if (!reason->by[i])
            return true;
    return reason->rule != REASON_MISSING;
}

/* ---- as JSON, with the texts for people ---- */

static json_t *presented_print_json_answers(const struct presented *presented)
{
    json_t *list = json_array();

    for (size_t i = 0; i < devinfo_param_count; i++) {
        const struct devinfo_param *param = &devinfo_params[i];
        const struct devinfo_value *value = devinfo_find(&presented->present.device, param->name);
        const struct reason *reason = reasons_find_answer(&presented->reasons, param->name);
        struct words said = {0};
        if (!reason || presented_print_has_own_part(param->name) ||
            (!value && !presented_print_is_asked(presented, param)))
            continue;
        json_t *own = json_object();
        for (size_t j = 0; j < presented->count; j++) {
            const struct inventory_entry *device = presented->devices[j];
            json_object_set_new(own, device->name,
                                presented_json(param, devinfo_find(&device->info, param->name)));
        }
        presented_value(param, value, &said);
        json_t *answer =
            json_pack("{s:s, s:o, s:o, s:o}", "name", param->word, "value",
                      presented_json(param, value), "devices", own, "told", output_text(said.text));
        presented_why_json(presented, reason, param, answer);
        json_array_append_new(list, answer);
    }
    return list;
}

static json_t *presented_print_json_names(const struct presented *presented, enum reason_kind kind,
                                          cl_device_info versions)
{
    json_t *list = json_array();

    for (size_t i = 0; i < presented->reasons.count; i++) {
        const struct reason *reason = &presented->reasons.items[i];
        bool offered = reason->rule == REASON_EQUAL;
        struct words version = {0};
        if (reason->kind != kind || !presented_print_is_told_of(presented, reason))
            continue;
        if (offered && presented_print_listed_version(presented, versions, reason->name))
            presented_version(presented_print_listed_version(presented, versions, reason->name),
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

static json_t *presented_print_json_left_out(const struct presented *presented, cl_mem_flags flags,
                                             cl_mem_object_type type)
{
    json_t *list = json_array();

    for (size_t i = 0; i < presented->reasons.count; i++) {
        const struct reason *reason = &presented->reasons.items[i];
        if (reason->kind != REASON_FORMAT || reason->flags != flags || reason->type != type)
            continue;
        json_t *entry =
            json_pack("{s:s, s:s}", "order", presented_order(reason->format.image_channel_order),
                      "data_type", presented_data_type(reason->format.image_channel_data_type));
        presented_why_json(presented, reason, NULL, entry);
        json_array_append_new(list, entry);
    }
    return list;
}

static json_t *presented_print_json_formats(const struct presented *presented)
{
    json_t *lists = json_array();

    for (size_t i = 0; i < presented->present.device.format_count; i++) {
        const struct devinfo_formats *list = &presented->present.device.formats[i];
        json_array_append_new(
            lists,
            json_pack("{s:s, s:s, s:I, s:o}", "type", presented_image_type(list->type), "access",
                      presented_access(list->flags), "count", (json_int_t)list->count, "left_out",
                      presented_print_json_left_out(presented, list->flags, list->type)));
    }
    return lists;
}

static json_t *presented_print_json_presented(const struct presented *presented)
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
        "left_out", left_out, "answers", presented_print_json_answers(presented), "extensions",
        presented_print_json_names(presented, REASON_EXTENSION, CL_DEVICE_EXTENSIONS_WITH_VERSION),
        "features",
        presented_print_json_names(presented, REASON_FEATURE, CL_DEVICE_OPENCL_C_FEATURES),
        "image_formats", presented_print_json_formats(presented));
}

/* ---- as text ---- */

/** Print rows with a name, what programs are told, and why: those that are offered first. */
static void presented_print_rows(const json_t *rows, const char *title)
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
static void presented_print_add_format_reasons(const json_t *left_out, struct words *words)
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

static void presented_print_formats(const json_t *lists, cl_version version)
{
    json_t *rows = json_array();
    const json_t *list;
    size_t i;

    json_array_foreach(lists, i, list)
    {
        const char *access = member_text(list, "access");
        struct words name = {0}, count = {0}, why = {0};
        if (version >= CL_MAKE_VERSION(2, 0, 0) ||
            strcmp(access, presented_access(CL_MEM_KERNEL_READ_AND_WRITE)) != 0) {
            words_add(&name, "%s, %s", member_text(list, "type"), access);
            words_say(&count, list, "{count}");
            presented_print_add_format_reasons(json_object_get(list, "left_out"), &why);
            json_array_append_new(rows, json_pack("{s:s, s:s, s:s}", "name", name.text, "told",
                                                  count.text, "why", why.text));
        }
    }
    presented_print_rows(rows, "IMAGE FORMATS");
    json_decref(rows);
}

static int presented_print_text(const json_t *object, cl_version version)
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
    presented_print_rows(json_object_get(object, "answers"), "ANSWER");
    putchar('\n');
    presented_print_rows(json_object_get(object, "extensions"), "EXTENSION");
    putchar('\n');
    if (version >= CL_MAKE_VERSION(3, 0, 0)) {
        presented_print_rows(json_object_get(object, "features"), "FEATURE");
        putchar('\n');
    }
    presented_print_formats(json_object_get(object, "image_formats"), version);
    return output_done();
}

int presented_print(const struct output *output, const char *file)
{
    const char *size = getenv("RESEAT_MEMORY");
    char reason[128] = "there has to be some";
    uint64_t memory = 0;
    struct inventory inventory = {0};
    struct presented presented = {0};
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
    if (error) {
        inventory_finish(&inventory);
        return output_fail(output, ERR_FAILED, "the list of devices cannot be read: %s",
                           strerror(-error));
    }
    json_auto_t *answer = output_object(output, STATUS_DONE);
    json_t *object = presented_print_json_presented(&presented);
    json_object_set_new(answer, "presented", object);
    int status = output->json ? output_print(json_incref(answer), STATUS_DONE)
                              : presented_print_text(object, presented.present.version);
    presented_finish(&presented);
    inventory_finish(&inventory);
    return status;
}
