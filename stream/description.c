#include "stream/description.h"

#include <errno.h>
#include <libconfig.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "stream/area.h"

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

static int description_wrong(char *ret_problem, const char *format, ...) PRINTF(2, 3);
static int description_wrong(char *ret_problem, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(ret_problem, STREAM_PROBLEM_MAX, format, arguments);
    va_end(arguments);
    return -EINVAL;
}

bool stream_name_is_valid(const char *name)
{
    size_t length = strlen(name);
    return length > 0 && length < STREAM_NAME_MAX && strspn(name, LETTERS "0123456789_-") == length;
}

/* A setting: a text where `size` is not 0, a number where `most` is not 0, else a list. */
struct description_row {
    const char *name;
    void *value; /* char[size] or uint32_t */
    size_t size;
    uint32_t least, most;
    bool given; /* True at first for a setting that may be left out. */
};

static int description_read(const config_setting_t *group, struct description_row *rows,
                            size_t count, char *ret_problem)
{
    for (int i = 0; i < config_setting_length(group); i++) {
        const config_setting_t *value = config_setting_get_elem(group, (unsigned)i);
        const char *name = config_setting_name(value), *text = config_setting_get_string(value);
        size_t row = 0;
        while (row < count && strcmp(rows[row].name, name) != 0)
            row++;
        unsigned line = config_setting_source_line(value);
        if (row == count)
            return description_wrong(ret_problem, "line %u: there is no setting \"%.64s\"", line,
                                     name);
        struct description_row *found = &rows[row];
        long long number = config_setting_get_int64(value);
        found->given = true;
        if (!found->size && !found->most)
            continue; /* A list, which the caller reads. */
        if (found->size && (!text || strlen(text) >= found->size))
            return description_wrong(ret_problem, "line %u: %s must be a text in \"quotes\"", line,
                                     name);
        if (!found->size &&
            (!config_setting_is_number(value) || number < found->least || number > found->most))
            return description_wrong(ret_problem, "line %u: %s must be a number from %u to %u",
                                     line, name, found->least, found->most);
        if (found->size)
            strcpy(found->value, text);
        else
            *(uint32_t *)found->value = (uint32_t)number;
    }
    for (size_t row = 0; row < count; row++)
        if (!rows[row].given)
            return description_wrong(ret_problem, "%s is missing", rows[row].name);
    return 0;
}

static int description_read_constants(const config_setting_t *list,
                                      struct stream_description *description, char *ret_problem)
{
    int count = config_setting_length(list);
    if (config_setting_type(list) != CONFIG_TYPE_LIST || count > STREAM_CONSTANTS_MAX)
        return description_wrong(ret_problem,
                                 "line %u: constants must be a list ( { name = \"...\"; bytes = "
                                 "...; } ) of at most %d",
                                 config_setting_source_line(list), STREAM_CONSTANTS_MAX);
    for (int i = 0; i < count; i++) {
        struct description_row rows[] = {
            {"name", description->constants[i].name, STREAM_NAME_MAX, 0, 0, false},
            {"bytes", &description->constants[i].bytes, 0, 0, STREAM_FRAME_MAX, false},
        };
        const config_setting_t *group = config_setting_get_elem(list, (unsigned)i);
        if (config_setting_type(group) != CONFIG_TYPE_GROUP)
            return description_wrong(ret_problem,
                                     "line %u: a constant is { name = ...; bytes = "
                                     "...; }",
                                     config_setting_source_line(group));
        int error = description_read(group, rows, ARRAY_SIZE(rows), ret_problem);
        if (error)
            return error;
    }
    description->count = (uint32_t)count;
    return 0;
}

static int description_read_root(config_t *parsed, struct stream_description *description,
                                 char *ret_problem)
{
    struct description_row rows[] = {
        {"kernel", description->kernel, STREAM_NAME_MAX, 0, 0, false},
        {"input", &description->input, 0, 1, STREAM_RECORD_MAX, false},
        {"output", &description->output, 0, 1, STREAM_RECORD_MAX, false},
        {"items", &description->items, 0, 1, STREAM_ITEMS_MAX, true},
        {"local", &description->local, 0, 0, STREAM_ITEMS_MAX, true},
        {"options", description->options, STREAM_OPTIONS_MAX, 0, 0, true},
        {"constants", NULL, 0, 0, 0, true},
    };
    const config_setting_t *list = config_lookup(parsed, "constants");
    int error = description_read(config_root_setting(parsed), rows, ARRAY_SIZE(rows), ret_problem);
    if (!error && list)
        error = description_read_constants(list, description, ret_problem);
    if (!error && !stream_name_is_valid(description->kernel))
        error = description_wrong(ret_problem, "kernel must be the name of a function");
    if (!error && description->local && description->items % description->local)
        error = description_wrong(ret_problem, "local must divide items: a work-group has the "
                                               "work-items of one record");
    return error;
}

int stream_description_parse(const char *text, struct stream_description *ret_description,
                             char ret_problem[STREAM_PROBLEM_MAX])
{
    struct stream_description description = {.items = 1};
    config_t parsed;
    int error = 0;
    config_init(&parsed);
    /* A description comes from strangers, too: it must not include files of this machine. */
    if (strstr(text, "@include"))
        error = description_wrong(ret_problem, "@include is not allowed");
    else if (!config_read_string(&parsed, text))
        error = description_wrong(ret_problem, "line %d: %s", config_error_line(&parsed),
                                  config_error_text(&parsed));
    else
        error = description_read_root(&parsed, &description, ret_problem);
    config_destroy(&parsed);
    if (!error)
        *ret_description = description;
    return error;
}

/* The first constant of this name from @from on; or @open's count, or more. */
static uint32_t description_find(const struct stream_open *open, const char *name, uint32_t from)
{
    while (from < open->count && strcmp(open->constants[from].name.bytes, name) != 0)
        from++;
    return from;
}

int stream_description_match(const struct stream_description *description,
                             const struct stream_open *open,
                             uint32_t ret_order[STREAM_CONSTANTS_MAX],
                             char ret_problem[STREAM_PROBLEM_MAX])
{
    uint32_t unnamed = 0; /* Unnamed ones before this are another constant's. */

    for (uint32_t i = 0; i < description->count; i++) {
        const char *name = description->constants[i].name;
        uint32_t bytes = description->constants[i].bytes, at = description_find(open, name, 0);
        if (at >= open->count) {
            at = description_find(open, "", unnamed);
            unnamed = at + 1;
        }
        if (at >= open->count)
            return description_wrong(ret_problem, "give the constant \"%s\"", name);
        uint32_t given = open->constants[at].value.size;
        if (!given || (bytes && given != bytes))
            return description_wrong(ret_problem, "the constant \"%s\" has %u bytes, not %u", name,
                                     given, bytes ? bytes : 1);
        ret_order[i] = at;
    }
    if (open->count != description->count)
        return description_wrong(ret_problem, "the kernel has %u constants, %u are given",
                                 description->count, open->count);
    return 0;
}
