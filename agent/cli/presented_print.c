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

static bool is_offered(const struct reason *reason)
{
    return reason->rule == REASON_EQUAL;
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

static bool print_answers(const struct presented *presented)
{
    struct libscols_table *table = make_table("ANSWER");

    for (size_t i = 0; i < devinfo_param_count; i++) {
        const struct devinfo_param *param = &devinfo_params[i];
        const struct devinfo_value *value = devinfo_find(&presented->present.device, param->name);
        const struct reason *reason = reasons_find_answer(&presented->reasons, param->name);
        struct words said = {0}, why = {0};
        if (!reason || has_own_part(param->name) || (!value && !is_asked(presented, param))) {
            continue;
        }
        presented_value(param, value, &said);
        presented_why(presented, reason, param, &why);
        add_line(table, param->word, said.text, why.text);
    }
    return print_table(table, "\n");
}

static bool print_names(const struct presented *presented, enum reason_kind kind,
                        cl_device_info list, const char *title)
{
    struct libscols_table *table = make_table(title);

    for (size_t i = 0; i < 2 * presented->reasons.count; i++) {
        const struct reason *reason = &presented->reasons.items[i % presented->reasons.count];
        bool offered = i < presented->reasons.count;
        struct words version = {0}, why = {0};
        if (reason->kind != kind || is_offered(reason) != offered ||
            !is_told_of(presented, reason)) {
            continue;
        }
        if (offered && listed_version(presented, list, reason->name)) {
            presented_version(listed_version(presented, list, reason->name), &version);
        }
        presented_why(presented, reason, NULL, &why);
        add_line(table, reason->name,
                 !offered          ? "-"
                 : version.text[0] ? version.text
                                   : "yes",
                 offered ? "on all" : why.text);
    }
    return print_table(table, "\n");
}

/* Why formats of one list are left out: each reason once, with how many it took. */
static void add_format_reasons(const struct presented *presented, cl_mem_flags flags,
                               cl_mem_object_type type, struct words *words)
{
    const struct reason *items = presented->reasons.items;
    size_t used = 0;

    for (size_t i = 0; i < presented->reasons.count; i++) {
        struct words why = {0};
        size_t alike = 0;
        bool seen = false;
        if (items[i].kind != REASON_FORMAT || items[i].flags != flags || items[i].type != type) {
            continue;
        }
        presented_why(presented, &items[i], NULL, &why);
        for (size_t j = 0; j < presented->reasons.count; j++) {
            struct words other = {0};
            if (items[j].kind != REASON_FORMAT || items[j].flags != flags ||
                items[j].type != type) {
                continue;
            }
            presented_why(presented, &items[j], NULL, &other);
            if (strcmp(why.text, other.text) == 0) {
                seen = seen || j < i;
                alike++;
            }
        }
        if (!seen) {
            words_add(words, "%s%zu left out, %s", used++ ? "; " : "", alike, why.text);
        }
    }
    if (!used) {
        words_add(words, "all that any device has");
    }
}

static bool print_formats(const struct presented *presented)
{
    struct libscols_table *table = make_table("IMAGE FORMATS");

    for (size_t i = 0; i < presented->present.device.format_count; i++) {
        const struct devinfo_formats *list = &presented->present.device.formats[i];
        struct words name = {0}, count = {0}, why = {0};
        if (list->flags == CL_MEM_KERNEL_READ_AND_WRITE &&
            presented->present.version < CL_MAKE_VERSION(2, 0, 0)) {
            continue;
        }
        words_add(&name, "%s, %s", presented_image_type(list->type), presented_access(list->flags));
        words_add(&count, "%u", list->count);
        add_format_reasons(presented, list->flags, list->type, &why);
        add_line(table, name.text, count.text, why.text);
    }
    return print_table(table, "");
}

static int print_text(const struct presented *presented)
{
    printf("Told to every program of the portable profile, by ");
    for (size_t i = 0; i < presented->count; i++) {
        printf("%s%s", i ? ", " : "", presented->devices[i]->name);
    }
    printf(" (it starts on %s)\n", presented->devices[0]->name);
    for (size_t i = 0; i < presented->reasons.count; i++) {
        const struct reason *reason = &presented->reasons.items[i];
        for (size_t j = 0; reason->kind == REASON_DEVICE && j < presented->count; j++) {
            if (reason->by[j]) {
                printf("%s takes no part: %s\n", presented->devices[j]->name, reason->because);
            }
        }
    }
    putchar('\n');
    bool good =
        print_answers(presented) &&
        print_names(presented, REASON_EXTENSION, CL_DEVICE_EXTENSIONS_WITH_VERSION, "EXTENSION") &&
        (presented->present.version < CL_MAKE_VERSION(3, 0, 0) ||
         print_names(presented, REASON_FEATURE, CL_DEVICE_OPENCL_C_FEATURES, "FEATURE")) &&
        print_formats(presented);
    return good && !fflush(stdout) ? STATUS_DONE : STATUS_ROLLED_BACK;
}

/* ---- JSON ---- */

static json_t *json_answers(const struct presented *presented)
{
    json_t *list = json_array();

    for (size_t i = 0; i < devinfo_param_count; i++) {
        const struct devinfo_param *param = &devinfo_params[i];
        const struct devinfo_value *value = devinfo_find(&presented->present.device, param->name);
        const struct reason *reason = reasons_find_answer(&presented->reasons, param->name);
        if (!reason || has_own_part(param->name) || (!value && !is_asked(presented, param))) {
            continue;
        }
        json_t *own = json_object(), *answer = json_object();
        for (size_t j = 0; j < presented->count; j++) {
            json_object_set_new(
                own, presented->devices[j]->name,
                presented_json(param, devinfo_find(&presented->devices[j]->info, param->name)));
        }
        json_object_set_new(answer, "name", json_string(param->word));
        json_object_set_new(answer, "value", presented_json(param, value));
        presented_why_json(presented, reason, answer);
        json_object_set_new(answer, "devices", own);
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
        struct words version = {0};
        if (reason->kind != kind || !is_told_of(presented, reason)) {
            continue;
        }
        if (is_offered(reason) && listed_version(presented, versions, reason->name)) {
            presented_version(listed_version(presented, versions, reason->name), &version);
        }
        json_t *entry = json_pack("{s:s, s:b, s:s}", "name", reason->name, "offered",
                                  is_offered(reason), "version", version.text);
        if (entry) {
            presented_why_json(presented, reason, entry);
            json_array_append_new(list, entry);
        }
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
        if (entry) {
            presented_why_json(presented, reason, entry);
            json_array_append_new(list, entry);
        }
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

static int print_json(const struct output *output, const struct presented *presented)
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
    json_t *object = output_object(output, STATUS_DONE);
    json_object_set_new(
        object, "presented",
        json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "profile", "portable", "devices", devices,
                  "left_out", left_out, "answers", json_answers(presented), "extensions",
                  json_names(presented, REASON_EXTENSION, CL_DEVICE_EXTENSIONS_WITH_VERSION),
                  "features", json_names(presented, REASON_FEATURE, CL_DEVICE_OPENCL_C_FEATURES),
                  "image_formats", json_formats(presented)));
    return output_print(object, STATUS_DONE);
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
    int status = output->json ? print_json(output, &presented) : print_text(&presented);
    presented_finish(&presented);
    inventory_finish(&inventory);
    return status;
}
