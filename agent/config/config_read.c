#include <ctype.h>
#include <errno.h>
#include <libconfig.h>
#include <stdlib.h>
#include <string.h>

#include "agent/config/config_priv.h"

/* Converts libconfig's settings. Refuses unknown ones, and values of wrong type or range. */

#define KEYS_MAX     64
#define LIKENESS_MAX 64

/** The number of letters to change, remove or add to turn one word into the other. */
static size_t config_read_distance(const char *a, const char *b)
{
    size_t row[LIKENESS_MAX + 1];
    size_t length = strnlen(b, LIKENESS_MAX);

    for (size_t j = 0; j <= length; j++)
        row[j] = j;
    for (size_t i = 0; i < LIKENESS_MAX && a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < length; j++) {
            size_t changed = diagonal + (tolower((unsigned char)a[i]) != b[j]);
            size_t shorter = (row[j] < row[j + 1] ? row[j] : row[j + 1]) + 1;
            diagonal = row[j + 1];
            row[j + 1] = changed < shorter ? changed : shorter;
        }
    }
    return row[length];
}

const char *config_nearest(const char *name, const char *const *names, size_t count, size_t most)
{
    const char *nearest = NULL;
    size_t least = most;

    for (size_t i = 0; i < count; i++) {
        size_t now = config_read_distance(name, names[i]);
        if (now < least || (!nearest && now == least)) {
            nearest = names[i];
            least = now;
        }
    }
    return nearest;
}

struct reader {
    struct config *config;
    struct config_error *error;
};

static const char *config_read_found_name(const config_setting_t *setting)
{
    switch (config_setting_type(setting)) {
    case CONFIG_TYPE_GROUP:
        return "a group in { }";
    case CONFIG_TYPE_LIST:
        return "a list in ( )";
    case CONFIG_TYPE_ARRAY:
        return "an array in [ ]";
    case CONFIG_TYPE_STRING:
        return "a text in \"quotes\"";
    case CONFIG_TYPE_BOOL:
        return "true or false";
    default:
        return "a number";
    }
}

static int config_read_wrong_type(struct reader *reader, const config_setting_t *setting,
                                  const char *wanted)
{
    return config_wrong(reader->error, config_setting_source_line(setting),
                        "\"%s\" has to be %s, not %s", config_setting_name(setting), wanted,
                        config_read_found_name(setting));
}

static int config_read_unknown(struct reader *reader, const config_setting_t *setting,
                               const char *where, const char *const *names, size_t count)
{
    return config_wrong(reader->error, config_setting_source_line(setting),
                        "there is no \"%.64s\" %s; did you mean \"%s\"?",
                        config_setting_name(setting), where,
                        config_nearest(config_setting_name(setting), names, count, SIZE_MAX));
}

/* ---- values ---- */

enum { BOOLEAN = 1, INTEGER = 2, STRING = 4 };

/** The forms that a value has in the file, and their description. */
static const struct {
    unsigned forms;
    const char *wanted;
} accepted[] = {
    [SETTING_FLAG] = {BOOLEAN, "true or false"},
    [SETTING_NUMBER] = {INTEGER, "a whole number, without quotes"},
    [SETTING_SECONDS] = {INTEGER | STRING, "a whole number of seconds, or a text such as \"10m\""},
    [SETTING_SIZE] = {STRING, "a size in quotes, such as \"100MiB\""},
    [SETTING_WAYS] = {STRING, "a text such as \"upgrade, spill\""},
    [SETTING_WORD] = {STRING, "a word in \"quotes\""},
    [SETTING_TEXT] = {STRING, "a text in \"quotes\""},
    [SETTING_KIND] = {STRING, "\"gpu\", \"accel\", \"cpu\" or \"dev\""},
    [SETTING_PROTECTION] = {BOOLEAN | INTEGER | STRING,
                            "true, false, a number of seconds or a size in quotes"},
};

/** Read the value of @setting into the struct @of. */
static int config_read_value(struct reader *reader, const config_setting_t *value,
                             const struct setting *setting, void *of)
{
    char number[32], reason[CONFIG_REASON_MAX / 2];
    const char *text = config_setting_get_string(value);
    unsigned forms = accepted[setting->type].forms, form = text ? STRING : 0;

    if (setting->type == SETTING_SIZE && !setting->min)
        forms |= INTEGER; /* So that 0 needs no quotes. */
    if (config_setting_type(value) == CONFIG_TYPE_BOOL) {
        form = BOOLEAN;
        text = config_setting_get_bool(value) ? "on" : "off";
    } else if (config_setting_type(value) == CONFIG_TYPE_INT ||
               config_setting_type(value) == CONFIG_TYPE_INT64) {
        form = INTEGER;
        snprintf(number, sizeof(number), "%lld",
                 config_setting_type(value) == CONFIG_TYPE_INT
                     ? (long long)config_setting_get_int(value)
                     : config_setting_get_int64(value));
        text = number;
    }
    if (!(forms & form))
        return config_read_wrong_type(reader, value, accepted[setting->type].wanted);
    if (setting_read(setting, text, of, reason, sizeof(reason))) {
        return config_wrong(reader->error, config_setting_source_line(value), "\"%s\": %s",
                            setting->name, reason);
    }
    return 0;
}

/* ---- entries ---- */

/**
 * Read the values of a group into the struct @of.
 *
 * @ret_lines  For each of the @count @rows the line that sets it; others are left as they are.
 */
static int config_read_group(struct reader *reader, const config_setting_t *group,
                             const char *group_name, const struct setting *rows, size_t count,
                             void *of, unsigned *ret_lines)
{
    for (int i = 0; i < config_setting_length(group); i++) {
        const config_setting_t *value = config_setting_get_elem(group, (unsigned)i);
        size_t row = 0;
        while (row < count && strcmp(rows[row].name, config_setting_name(value)) != 0)
            row++;
        if (row == count) {
            const char *names[KEYS_MAX];
            char where[64];
            for (row = 0; row < count && row < KEYS_MAX; row++)
                names[row] = rows[row].name;
            snprintf(where, sizeof(where), "in \"%s\"", group_name);
            return config_read_unknown(reader, value, where, names, row);
        }
        int error = config_read_value(reader, value, &rows[row], of);
        if (error)
            return error;
        ret_lines[row] = config_setting_source_line(value);
    }
    return 0;
}

static int config_read_policy(struct reader *reader, const config_setting_t *group)
{
    struct config *config = reader->config;

    if (config_setting_type(group) != CONFIG_TYPE_GROUP)
        return config_read_wrong_type(reader, group, "a group in { }");
    int error = config_read_group(reader, group, "policy", settings_table, settings_count,
                                  &config->policy, config->lines);
    for (size_t i = 0; i < settings_count; i++)
        config->origins[i] = config->lines[i] ? CONFIG_FILE : config->origins[i];
    return error;
}

static int config_read_entry(struct reader *reader, const config_setting_t *group,
                             const struct config_list *list, struct config_entry *entry)
{
    if (config_setting_type(group) != CONFIG_TYPE_GROUP) {
        return config_wrong(reader->error, config_setting_source_line(group),
                            "\"%s\" has to hold groups in { }, not %s", list->name,
                            config_read_found_name(group));
    }
    unsigned lines[KEYS_MAX] = {0};
    list->init(entry);
    entry->line = config_setting_source_line(group);
    int error =
        config_read_group(reader, group, list->name, list->fields, list->field_count, entry, lines);
    if (error)
        return error;
    for (unsigned i = 0; i < list->field_count; i++)
        entry->given |= lines[i] ? 1u << i : 0;
    if (!(entry->given & ((1u << list->selectors) - 1))) {
        return config_wrong(reader->error, entry->line,
                            "this entry of \"%s\" does not say for which: give it \"%s\"",
                            list->name, list->fields[0].name);
    }
    char reason[CONFIG_REASON_MAX - 64];
    if (list->is_wrong && list->is_wrong(entry, reason, sizeof(reason)))
        return config_wrong(reader->error, entry->line, "%s", reason);
    return 0;
}

static bool config_read_same_selection(const struct config_list *list, const struct config_entry *a,
                                       const struct config_entry *b)
{
    unsigned selectors = (1u << list->selectors) - 1;

    if ((a->given & selectors) != (b->given & selectors))
        return false;
    for (unsigned i = 0; i < list->selectors; i++) {
        const char *of_a = (const char *)a + list->fields[i].offset;
        const char *of_b = (const char *)b + list->fields[i].offset;
        if (a->given & 1u << i &&
            (list->fields[i].type == SETTING_KIND ? memcmp(of_a, of_b, sizeof(int)) != 0
                                                  : strcmp(of_a, of_b) != 0))
            return false;
    }
    return true;
}

static int config_read_list(struct reader *reader, const config_setting_t *values,
                            enum config_list_kind kind)
{
    const struct config_list *list = &config_lists[kind];
    int count = config_setting_length(values);

    if (config_setting_type(values) != CONFIG_TYPE_LIST)
        return config_read_wrong_type(reader, values, "a list of groups, ( { ... }, { ... } )");
    if (count > CONFIG_ENTRIES_MAX) {
        return config_wrong(reader->error, config_setting_source_line(values),
                            "\"%s\" has %d entries; %d are allowed, so use patterns", list->name,
                            count, CONFIG_ENTRIES_MAX);
    }
    char *entries = calloc((size_t)count + 1, list->entry_size);
    if (!entries)
        return -ENOMEM;
    reader->config->lists[kind].entries = entries;
    for (int i = 0; i < count; i++) {
        struct config_entry *entry = (void *)(entries + (size_t)i * list->entry_size);
        int error =
            config_read_entry(reader, config_setting_get_elem(values, (unsigned)i), list, entry);
        if (error)
            return error;
        for (int j = 0; j < i; j++) {
            const struct config_entry *before = (void *)(entries + (size_t)j * list->entry_size);
            if (config_read_same_selection(list, before, entry)) {
                return config_wrong(reader->error, entry->line,
                                    "this entry of \"%s\" never counts: that of line %u is for the "
                                    "same and comes first",
                                    list->name, before->line);
            }
        }
    }
    reader->config->lists[kind].count = (size_t)count;
    return 0;
}

static int config_read_root(struct reader *reader, const config_setting_t *root)
{
    const char *names[CONFIG_LISTS + 1] = {[CONFIG_LISTS] = "policy"};
    int error = 0;

    for (unsigned i = 0; i < CONFIG_LISTS; i++)
        names[i] = config_lists[i].name;
    for (int i = 0; i < config_setting_length(root) && !error; i++) {
        const config_setting_t *value = config_setting_get_elem(root, (unsigned)i);
        unsigned kind = 0;
        while (kind < ARRAY_SIZE(names) && strcmp(config_setting_name(value), names[kind]) != 0)
            kind++;
        if (kind < CONFIG_LISTS)
            error = config_read_list(reader, value, kind);
        else if (kind == CONFIG_LISTS)
            error = config_read_policy(reader, value);
        else
            error = config_read_unknown(reader, value, "at the top of a configuration", names,
                                        ARRAY_SIZE(names));
    }
    return error;
}

/** Something missing at the end of a text is reported for the last line that is not empty. */
static unsigned config_read_last_line(const char *text)
{
    unsigned line = 1, last = 1;

    for (; *text; text++) {
        line += *text == '\n';
        last = isspace((unsigned char)*text) ? last : line;
    }
    return last;
}

int config_read_text(const char *text, struct config *config, struct config_error *ret_error)
{
    struct reader reader = {config, ret_error};
    config_t parsed;
    int error;

    config_init(&parsed);
    if (config_read_string(&parsed, text)) {
        error = config_read_root(&reader, config_root_setting(&parsed));
    } else {
        const char *said = config_error_text(&parsed);
        bool twice = said && strstr(said, "duplicate");
        unsigned line = (unsigned)config_error_line(&parsed), last = config_read_last_line(text);
        error =
            config_wrong(ret_error, line < last ? line : last, "%s",
                         twice ? "this name is given a second time"
                               : "this is no NAME = VALUE; texts and sizes are in \"quotes\"; is "
                                 "a \";\" missing here or at the end of the line before?");
    }
    config_destroy(&parsed);
    return error;
}
