#include <libsmartcols.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "agent/cli/presented.h"
#include "agent/cli/presented_print.h"
#include "agent/config/paths.h"
#include "agent/wire/size.h"

/* reseat devices --presented: what a program is told of its device, and why. */

/* Lists that have a part of their own. */
static bool has_own_part(cl_device_info name)
{
    return name == CL_DEVICE_EXTENSIONS || name == CL_DEVICE_EXTENSIONS_WITH_VERSION ||
           name == CL_DEVICE_OPENCL_C_FEATURES;
}

/* Queries that the program's version has not do not need an excuse. */
static bool is_asked(const struct presented *presented, const struct devinfo_param *param)
{
    return param->since && param->since <= presented->present.version;
}

static cl_version listed_version(const struct presented *presented, cl_device_info list,
                                 const char *name)
{
    const struct devinfo_value *value = devinfo_find(&presented->present.device, list);

    for (size_t i = 0; value && i < value->size / sizeof(cl_name_version); i++) {
        cl_name_version entry;
        memcpy(&entry, value->bytes + i * sizeof(entry), sizeof(entry));
        if (strncmp(entry.name, name, sizeof(entry.name)) == 0) {
            return entry.version;
        }
    }
    return 0;
}

/* One that no device has says nothing. */
static bool is_told_of(const struct presented *presented, const struct reason *reason)
{
    for (size_t i = 0; i < presented->count; i++) {
        if (!reason->by[i]) {
            return true;
        }
    }
    return reason->rule != REASON_MISSING;
}

/* ---- a table ---- */

enum { NAME, TOLD, WHY, COLUMNS };

/* On a terminal no line is longer than it is wide: what is told takes this much at most... */
#define TOLD_MAX 22
/* ...and why, at least. */
#define WHY_MIN 24

static struct libscols_table *make_table(const char *what)
{
    const char *titles[COLUMNS] = {what, "TOLD", "WHY"};
    struct libscols_table *table = scols_new_table();

    for (size_t i = 0; table && i < COLUMNS; i++) {
        struct libscols_column *column =
            scols_table_new_column(table, titles[i], 0, i == NAME ? 0 : SCOLS_FL_WRAP);
        if (column && i != NAME) {
            scols_column_set_safechars(column, "\n");
            scols_column_set_wrapfunc(column, scols_wrapnl_chunksize, scols_wrapnl_nextchunk, NULL);
        }
    }
    return table;
}

/* Break lines between words. */
static void wrap(char *text, size_t width)
{
    char *begin = text, *space = NULL;

    for (char *at = text; *at; at++) {
        if (*at == ' ') {
            space = at;
        }
        if (space && (size_t)(at - begin) >= width) {
            *space = '\n';
            begin = space + 1;
            space = NULL;
        }
    }
}

static size_t widest(struct libscols_table *table, size_t column)
{
    size_t most = 0;

    for (size_t i = 0; i < scols_table_get_nlines(table); i++) {
        const char *text =
            scols_cell_get_data(scols_line_get_cell(scols_table_get_line(table, i), column));
        most = text && strlen(text) > most ? strlen(text) : most;
    }
    return most;
}

static void wrap_column(struct libscols_table *table, size_t column, size_t width)
{
    for (size_t i = 0; i < scols_table_get_nlines(table); i++) {
        struct libscols_line *line = scols_table_get_line(table, i);
        const char *text = scols_cell_get_data(scols_line_get_cell(line, column));
        struct words copy = {0};
        words_add(&copy, "%s", text ? text : "");
        wrap(copy.text, width);
        scols_line_set_data(line, column, copy.text);
    }
}

static void fit(struct libscols_table *table)
{
    struct winsize size;

    if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_col) {
        return;
    }
    size_t told = widest(table, TOLD) < TOLD_MAX ? widest(table, TOLD) : TOLD_MAX;
    size_t before = widest(table, NAME) + (told < 4 ? 4 : told) + 3;
    wrap_column(table, TOLD, TOLD_MAX);
    wrap_column(table, WHY, size.ws_col > before + WHY_MIN ? size.ws_col - before : WHY_MIN);
}

static void add_line(struct libscols_table *table, const char *name, const char *value,
                     const char *why)
{
    struct libscols_line *line = table ? scols_table_new_line(table, NULL) : NULL;

    if (line) {
        scols_line_set_data(line, NAME, name);
        scols_line_set_data(line, TOLD, value);
        scols_line_set_data(line, WHY, why);
    }
}

static bool print_table(struct libscols_table *table, const char *after)
{
    if (table) {
        fit(table);
    }
    bool failed = !table || scols_print_table(table) || fputs(after, stdout) == EOF;

    scols_unref_table(table);
    return !failed;
}

/* ---- as JSON, with what people read in it ---- */

static json_t *json_answers(const struct presented *presented)
{
    json_t *list = json_array();

    for (size_t i = 0; i < devinfo_param_count; i++) {
        const struct devinfo_param *param = &devinfo_params[i];
        const struct devinfo_value *value = devinfo_find(&presented->present.device, param->name);
        const struct reason *reason = reasons_find_answer(&presented->reasons, param->name);
        struct words said = {0};
        if (!reason || has_own_part(param->name) || (!value && !is_asked(presented, param))) {
            continue;
        }
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

static json_t *json_names(const struct presented *presented, enum reason_kind kind,
                          cl_device_info versions)
{
    json_t *list = json_array();

    for (size_t i = 0; i < presented->reasons.count; i++) {
        const struct reason *reason = &presented->reasons.items[i];
        bool offered = reason->rule == REASON_EQUAL;
        struct words version = {0};
        if (reason->kind != kind || !is_told_of(presented, reason)) {
            continue;
        }
        if (offered && listed_version(presented, versions, reason->name)) {
            presented_version(listed_version(presented, versions, reason->name), &version);
        }
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

static json_t *json_left_out(const struct presented *presented, cl_mem_flags flags,
                             cl_mem_object_type type)
{
    json_t *list = json_array();

    for (size_t i = 0; i < presented->reasons.count; i++) {
        const struct reason *reason = &presented->reasons.items[i];
        if (reason->kind != REASON_FORMAT || reason->flags != flags || reason->type != type) {
            continue;
        }
        json_t *entry =
            json_pack("{s:s, s:s}", "order", presented_order(reason->format.image_channel_order),
                      "data_type", presented_data_type(reason->format.image_channel_data_type));
        presented_why_json(presented, reason, NULL, entry);
        json_array_append_new(list, entry);
    }
    return list;
}

static json_t *json_formats(const struct presented *presented)
{
    json_t *lists = json_array();

    for (size_t i = 0; i < presented->present.device.format_count; i++) {
        const struct devinfo_formats *list = &presented->present.device.formats[i];
        json_array_append_new(lists, json_pack("{s:s, s:s, s:I, s:o}", "type",
                                               presented_image_type(list->type), "access",
                                               presented_access(list->flags), "count",
                                               (json_int_t)list->count, "left_out",
                                               json_left_out(presented, list->flags, list->type)));
    }
    return lists;
}

static json_t *json_presented(const struct presented *presented)
{
    json_t *devices = json_array(), *left_out = json_array();

    for (size_t i = 0; i < presented->count; i++) {
        json_array_append_new(devices, json_string(presented->devices[i]->name));
    }
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
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "profile", "portable", "devices",
                     devices, "left_out", left_out, "answers", json_answers(presented),
                     "extensions",
                     json_names(presented, REASON_EXTENSION, CL_DEVICE_EXTENSIONS_WITH_VERSION),
                     "features", json_names(presented, REASON_FEATURE, CL_DEVICE_OPENCL_C_FEATURES),
                     "image_formats", json_formats(presented));
}

/* ---- for people ---- */

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

static bool print_entries(const json_t *list, const char *title)
{
    struct libscols_table *table = make_table(title);
    json_t *entry;
    size_t i;

    /* What is offered comes first; of an answer nothing says whether it is. */
    for (int left_out = 0; left_out < 2; left_out++) {
        json_array_foreach(list, i, entry)
        {
            const json_t *offered = json_object_get(entry, "offered");
            if (json_is_false(offered) == left_out) {
                add_line(table, text_of(entry, "name"), text_of(entry, "told"),
                         json_is_true(offered) ? "on all" : text_of(entry, "why"));
            }
        }
    }
    return print_table(table, "\n");
}

/** Why formats of one list are left out: each reason once, with how many it took. */
static void add_format_reasons(const json_t *left_out, struct words *words)
{
    const json_t *entry, *other;
    size_t i, j;

    if (!json_array_size(left_out)) {
        words_add(words, "all that any device has");
    }
    json_array_foreach(left_out, i, entry)
    {
        size_t alike = 0, before = 0;
        json_array_foreach(left_out, j, other)
        {
            bool same = strcmp(text_of(entry, "why"), text_of(other, "why")) == 0;
            alike += same;
            before += same && j < i;
        }
        if (!before) {
            words_add(words, "%s%zu left out, %s", words->used ? "; " : "", alike,
                      text_of(entry, "why"));
        }
    }
}

static bool print_formats(const json_t *lists, cl_version version)
{
    struct libscols_table *table = make_table("IMAGE FORMATS");
    const json_t *list;
    size_t i;

    json_array_foreach(lists, i, list)
    {
        const char *access = text_of(list, "access");
        struct words name = {0}, count = {0}, why = {0};
        if (version >= CL_MAKE_VERSION(2, 0, 0) ||
            strcmp(access, presented_access(CL_MEM_KERNEL_READ_AND_WRITE)) != 0) {
            words_add(&name, "%s, %s", text_of(list, "type"), access);
            words_add(&count, "%lld", json_integer_value(json_object_get(list, "count")));
            add_format_reasons(json_object_get(list, "left_out"), &why);
            add_line(table, name.text, count.text, why.text);
        }
    }
    return print_table(table, "");
}

static int print_text(const json_t *object, cl_version version)
{
    const json_t *entry;
    size_t i;

    printf("Told to every program of the portable profile, by ");
    json_array_foreach(json_object_get(object, "devices"), i, entry)
    {
        printf("%s%s", i ? ", " : "", json_string_value(entry));
    }
    printf(" (it starts on %s)\n",
           json_string_value(json_array_get(json_object_get(object, "devices"), 0)));
    json_array_foreach(json_object_get(object, "left_out"), i, entry)
    {
        printf("%s takes no part: %s\n", text_of(entry, "device"), text_of(entry, "because"));
    }
    putchar('\n');
    bool good = print_entries(json_object_get(object, "answers"), "ANSWER") &&
                print_entries(json_object_get(object, "extensions"), "EXTENSION") &&
                (version < CL_MAKE_VERSION(3, 0, 0) ||
                 print_entries(json_object_get(object, "features"), "FEATURE")) &&
                print_formats(json_object_get(object, "image_formats"), version);
    return good ? output_done() : STATUS_ROLLED_BACK;
}

int presented_print(const struct output *output, const char *file)
{
    const char *size = getenv("RESEAT_MEMORY");
    char reason[128] = "there has to be some";
    uint64_t memory = 0;
    struct inventory inventory = {0};
    struct presented presented = {0};
    int error;

    if (size && *size && (size_parse(size, &memory, reason, sizeof(reason)) || !memory)) {
        return output_usage(output, "RESEAT_MEMORY: %s", reason);
    }
    error = inventory_read(file, &inventory);
    if (!error && !inventory.count) {
        return output_fail(output, ERR_NO_DEVICE,
                           "no OpenCL driver shows a device; install one, then see reseat doctor");
    }
    if (!error) {
        error = presented_build(&inventory, memory, &presented);
    }
    if (error) {
        inventory_finish(&inventory);
        return output_fail(output, ERR_FAILED, "the list of devices cannot be read: %s",
                           strerror(-error));
    }
    json_t *object = json_presented(&presented);
    int status;
    if (output->json) {
        json_t *answer = output_object(output, STATUS_DONE);
        json_object_set_new(answer, "presented", object);
        status = output_print(answer, STATUS_DONE);
    } else {
        status = print_text(object, presented.present.version);
        json_decref(object);
    }
    presented_finish(&presented);
    inventory_finish(&inventory);
    return status;
}
