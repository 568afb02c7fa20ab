#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <libconfig.h>
#include <stdlib.h>
#include <string.h>

#include "agent/config/config_priv.h"
#include "state/base/bytes/size.h"
#include "state/base/cleanup.h"

/*
 * Converts libconfig's settings. Unknown settings and values of a wrong type or range are refused.
 */

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

static bool config_read_is_integer(const config_setting_t *setting)
{
    return config_setting_type(setting) == CONFIG_TYPE_INT ||
           config_setting_type(setting) == CONFIG_TYPE_INT64;
}

static long long config_read_integer_of(const config_setting_t *setting)
{
    return config_setting_type(setting) == CONFIG_TYPE_INT ? config_setting_get_int(setting)
                                                           : config_setting_get_int64(setting);
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

/* ---- policy ---- */

static int config_read_text_of(struct reader *reader, const config_setting_t *value, char *ret_text,
                               size_t size)
{
    int length = snprintf(ret_text, size, "%s", config_setting_get_string(value));

    if (length < 0 || (size_t)length >= size) {
        return config_wrong(reader->error, config_setting_source_line(value),
                            "the text of \"%s\" is longer than any that it takes",
                            config_setting_name(value));
    }
    return 0;
}

/** The value of a setting as text for settings_set(). */
static int config_read_policy_text(struct reader *reader, const config_setting_t *value,
                                   const struct setting *setting, char *ret_text, size_t size)
{
    switch (setting->type) {
    case SETTING_FLAG:
        if (config_setting_type(value) != CONFIG_TYPE_BOOL)
            return config_read_wrong_type(reader, value, "true or false");
        snprintf(ret_text, size, "%s", config_setting_get_bool(value) ? "true" : "false");
        return 0;
    case SETTING_WAYS:
        if (config_setting_type(value) != CONFIG_TYPE_STRING)
            return config_read_wrong_type(reader, value, "a text such as \"upgrade, spill\"");
        return config_read_text_of(reader, value, ret_text, size);
    case SETTING_NUMBER:
    case SETTING_SECONDS:
    case SETTING_SIZE:
        break;
    }
    if (setting->type != SETTING_NUMBER && config_setting_get_string(value))
        return config_read_text_of(reader, value, ret_text, size);
    if (!config_read_is_integer(value)) {
        return config_read_wrong_type(reader, value,
                                      setting->type == SETTING_SIZE
                                          ? "a size in quotes, such as \"100MiB\""
                                      : setting->type == SETTING_SECONDS
                                          ? "a whole number of seconds, or a text such as \"10m\""
                                          : "a whole number, without quotes");
    }
    snprintf(ret_text, size, "%lld", config_read_integer_of(value));
    return 0;
}

static int config_read_policy(struct reader *reader, const config_setting_t *group)
{
    char text[CONFIG_NAME_MAX], reason[CONFIG_REASON_MAX / 2];
    struct config *config = reader->config;

    if (config_setting_type(group) != CONFIG_TYPE_GROUP)
        return config_read_wrong_type(reader, group, "a group in { }");
    for (int i = 0; i < config_setting_length(group); i++) {
        const config_setting_t *value = config_setting_get_elem(group, (unsigned)i);
        const struct setting *setting = settings_find(config_setting_name(value));
        if (!setting) {
            const char *names[KEYS_MAX];
            size_t count = settings_count < KEYS_MAX ? settings_count : KEYS_MAX;
            for (size_t j = 0; j < count; j++)
                names[j] = settings_table[j].name;
            return config_read_unknown(reader, value, "in \"policy\"", names, count);
        }
        int error = config_read_policy_text(reader, value, setting, text, sizeof(text));
        if (error)
            return error;
        if (settings_set(&config->policy, setting, text, reason, sizeof(reason))) {
            return config_wrong(reader->error, config_setting_source_line(value), "\"%s\": %s",
                                setting->name, config_settings_reason(setting, reason));
        }
        config->origins[setting - settings_table] = CONFIG_FILE;
        config->lines[setting - settings_table] = config_setting_source_line(value);
    }
    return 0;
}

/* ---- entries ---- */

static int config_read_setting_text(struct reader *reader, const config_setting_t *value,
                                    char *ret_text)
{
    const char *text = config_setting_get_string(value);
    size_t length = text ? strlen(text) : 0;

    if (!text)
        return config_read_wrong_type(reader, value, "a text in \"quotes\"");
    for (size_t i = 0; i < length; i++) {
        if (iscntrl((unsigned char)text[i])) {
            return config_wrong(reader->error, config_setting_source_line(value),
                                "\"%s\" has a control character in it", config_setting_name(value));
        }
    }
    if (!length || length >= CONFIG_NAME_MAX) {
        return config_wrong(reader->error, config_setting_source_line(value),
                            "\"%s\" has to have 1 to %d characters, not %zu",
                            config_setting_name(value), CONFIG_NAME_MAX - 1, length);
    }
    memcpy(ret_text, text, length + 1);
    return 0;
}

static int config_read_kind(struct reader *reader, const config_setting_t *value, int *ret_kind)
{
    const char *text = config_setting_get_string(value);

    for (size_t i = 0; text && i < CONFIG_KINDS; i++) {
        if (strcmp(config_kinds[i].name, text) == 0) {
            *ret_kind = (int)config_kinds[i].kind;
            return 0;
        }
    }
    if (!text)
        return config_read_wrong_type(reader, value, "\"gpu\", \"accel\", \"cpu\" or \"dev\"");
    return config_wrong(
        reader->error, config_setting_source_line(value),
        "\"%s\" has to be \"gpu\", \"accel\", \"cpu\" or \"dev\" (as reseat devices shows it), not "
        "\"%.64s\"",
        config_setting_name(value), text);
}

static int config_read_size(struct reader *reader, const config_setting_t *value,
                            const struct config_field *field, uint64_t *ret_bytes)
{
    const char *text = config_setting_get_string(value);
    char reason[CONFIG_REASON_MAX / 2];
    uint64_t bytes = 0;

    if (!text)
        return config_read_wrong_type(reader, value, "a size in quotes, such as \"512MiB\"");
    if (size_parse(text, &bytes, reason, sizeof(reason))) {
        return config_wrong(reader->error, config_setting_source_line(value), "\"%s\": %s",
                            config_setting_name(value), reason);
    }
    if (!bytes && field->min > 0) {
        return config_wrong(reader->error, config_setting_source_line(value),
                            "\"%s\" has to be more than 0", config_setting_name(value));
    }
    *ret_bytes = bytes;
    return 0;
}

static int config_read_integer(struct reader *reader, const config_setting_t *value,
                               const struct config_field *field, int64_t *ret_integer)
{
    if (!config_read_is_integer(value))
        return config_read_wrong_type(reader, value, "a whole number, without quotes");
    if (config_read_integer_of(value) < field->min || config_read_integer_of(value) > field->max) {
        return config_wrong(reader->error, config_setting_source_line(value),
                            "\"%s\" has to be from %" PRId64 " to %" PRId64 ", not %lld",
                            field->name, field->min, field->max, config_read_integer_of(value));
    }
    *ret_integer = config_read_integer_of(value);
    return 0;
}

static int config_read_ways(struct reader *reader, const config_setting_t *value,
                            unsigned *ret_ways)
{
    const char *text = config_setting_get_string(value);
    char reason[CONFIG_REASON_MAX / 2];

    if (!text)
        return config_read_wrong_type(reader, value, "a text such as \"upgrade, spill\"");
    if (config_ways_parse(text, ret_ways, reason, sizeof(reason))) {
        return config_wrong(reader->error, config_setting_source_line(value), "\"%s\": %s",
                            config_setting_name(value), reason);
    }
    return 0;
}

/** A boolean, a number of seconds (30), or a size ("512MiB"). */
static int config_read_protection(struct reader *reader, const config_setting_t *value,
                                  struct protection *ret_protection)
{
    const char *text = config_setting_get_string(value);
    char reason[CONFIG_REASON_MAX / 2], number[32];

    if (config_setting_type(value) == CONFIG_TYPE_BOOL) {
        ret_protection->word = config_setting_get_bool(value) ? PROTECTION_ON : PROTECTION_OFF;
        return 0;
    }
    if (!text && !config_read_is_integer(value))
        return config_read_wrong_type(reader, value,
                                      "true, false, a number of seconds or a size in quotes");
    if (!text)
        snprintf(number, sizeof(number), "%lld", config_read_integer_of(value));
    if (protection_parse(text ? text : number, ret_protection, reason, sizeof(reason))) {
        return config_wrong(reader->error, config_setting_source_line(value), "\"%s\": %s",
                            config_setting_name(value), reason);
    }
    return 0;
}

static int config_read_field(struct reader *reader, const config_setting_t *value,
                             const struct config_field *field, struct config_entry *entry)
{
    void *at = config_field_at(field, entry);
    int64_t integer = 0;
    int error = 0;

    switch (field->type) {
    case CONFIG_TEXT:
        return config_read_setting_text(reader, value, at);
    case CONFIG_KIND:
        return config_read_kind(reader, value, at);
    case CONFIG_SIZE:
        return config_read_size(reader, value, field, at);
    case CONFIG_NUMBER:
        error = config_read_integer(reader, value, field, &integer);
        *(int32_t *)at = (int32_t)integer;
        return error;
    case CONFIG_WAYS:
        return config_read_ways(reader, value, at);
    case CONFIG_PROTECTION:
        return config_read_protection(reader, value, at);
    case CONFIG_TRUTH:
        if (config_setting_type(value) != CONFIG_TYPE_BOOL)
            return config_read_wrong_type(reader, value, "true or false, without quotes");
        *(bool *)at = config_setting_get_bool(value);
        return 0;
    }
    return 0;
}

static int config_read_unknown_field(struct reader *reader, const config_setting_t *value,
                                     const struct config_list *list)
{
    const char *names[KEYS_MAX];
    char where[64];
    size_t count = 0;

    for (; count < list->field_count && count < KEYS_MAX; count++)
        names[count] = list->fields[count].name;
    snprintf(where, sizeof(where), "in \"%s\"", list->name);
    return config_read_unknown(reader, value, where, names, count);
}

static int config_read_entry(struct reader *reader, const config_setting_t *group,
                             const struct config_list *list, struct config_entry *entry)
{
    if (config_setting_type(group) != CONFIG_TYPE_GROUP) {
        return config_wrong(reader->error, config_setting_source_line(group),
                            "\"%s\" has to hold groups in { }, not %s", list->name,
                            config_read_found_name(group));
    }
    list->init(entry);
    entry->line = config_setting_source_line(group);
    for (int i = 0; i < config_setting_length(group); i++) {
        const config_setting_t *value = config_setting_get_elem(group, (unsigned)i);
        unsigned field = 0;
        while (field < list->field_count &&
               strcmp(list->fields[field].name, config_setting_name(value)) != 0)
            field++;
        if (field == list->field_count)
            return config_read_unknown_field(reader, value, list);
        int error = config_read_field(reader, value, &list->fields[field], entry);
        if (error)
            return error;
        entry->given |= 1u << field;
    }
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
            (list->fields[i].type == CONFIG_KIND ? memcmp(of_a, of_b, sizeof(int)) != 0
                                                 : strcmp(of_a, of_b) != 0))
            return false;
    }
    return true;
}

/** @ret_entries  An array of elements of list->entry_size bytes; set on failure too. */
static int config_read_list(struct reader *reader, const config_setting_t *values,
                            const struct config_list *list, void **ret_entries, size_t *ret_count)
{
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
    *ret_entries = entries;
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
    *ret_count = (size_t)count;
    return 0;
}

static int config_read_root(struct reader *reader, const config_setting_t *root)
{
    static const char *const names[] = {"policy", "devices", "programs", "servers"};
    struct config *config = reader->config;
    void *entries = NULL;
    int error = 0;

    for (int i = 0; i < config_setting_length(root) && !error; i++) {
        const config_setting_t *value = config_setting_get_elem(root, (unsigned)i);
        const char *name = config_setting_name(value);
        entries = NULL;
        if (strcmp(name, "policy") == 0) {
            error = config_read_policy(reader, value);
        } else if (strcmp(name, "devices") == 0) {
            error = config_read_list(reader, value, &config_list_devices, &entries,
                                     &config->device_count);
            config->devices = entries;
        } else if (strcmp(name, "programs") == 0) {
            error = config_read_list(reader, value, &config_list_programs, &entries,
                                     &config->program_count);
            config->programs = entries;
        } else if (strcmp(name, "servers") == 0) {
            error = config_read_list(reader, value, &config_list_servers, &entries,
                                     &config->server_count);
            config->servers = entries;
        } else {
            error = config_read_unknown(reader, value, "at the top of a configuration", names,
                                        ARRAY_SIZE(names));
        }
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
