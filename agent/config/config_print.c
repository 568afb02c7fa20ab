#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "agent/config/config_priv.h"

/* Writes a configuration as a file with comments that explain it. */

#define COLUMNS 68

static const char indent[] = "    ";

/** Write a wrapped comment. @first begins the first line, @next each following one. */
static void config_print_put_wrapped(FILE *to, const char *first, const char *next,
                                     const char *text)
{
    const char *margin = first;

    for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
        size_t room = COLUMNS - strlen(margin);
        size_t length = strlen(text);
        if (length > room) {
            length = room;
            while (length && text[length] != ' ')
                length--;
            length = length ? length : room;
        }
        fprintf(to, "%s%.*s\n", margin, (int)length, text);
        text += length;
        margin = next;
    }
}

static void config_print_put_comment(FILE *to, const char *text)
{
    config_print_put_wrapped(to, "# ", "# ", text);
}

/** Write a path into a comment, with characters replaced that would end the line. */
static void config_print_put_place(FILE *to, const struct config *config, unsigned line)
{
    fputs(" # ", to);
    for (const char *at = config->path; *at; at++)
        fputc(iscntrl((unsigned char)*at) ? '?' : *at, to);
    fprintf(to, ":%u\n", line);
}

static void config_print_put_origin(FILE *to, const struct config *config, size_t index)
{
    const struct setting *setting = &settings_table[index];
    char variable[CONFIG_NAME_MAX];

    switch (config->origins[index]) {
    case CONFIG_DEFAULT:
        fputs(" # default\n", to);
        break;
    case CONFIG_FILE:
        config_print_put_place(to, config, config->lines[index]);
        break;
    case CONFIG_ENVIRONMENT:
        config_variable(setting, variable, sizeof(variable));
        fprintf(to, " # environment, %s\n", variable);
        break;
    case CONFIG_OPTION:
        fprintf(to, " # option --%s\n", setting->name);
        break;
    }
}

static void config_print_put_range(FILE *to, const struct setting *setting)
{
    const char *unit = setting->type == SETTING_SECONDS ? " seconds" : "";

    if (setting->type == SETTING_FLAG) {
        fprintf(to, "%s# true or false; default %s.\n", indent,
                setting->initial ? "true" : "false");
    } else if (setting->type == SETTING_SIZE) {
        fprintf(to, "%s# A size in quotes; default \"0\".\n", indent);
    } else if (setting->type == SETTING_WORD) {
        fprintf(to, "%s# \"%s\"", indent, setting->words[0]);
        for (size_t i = 1; setting->words[i]; i++)
            fprintf(to, ", \"%s\"", setting->words[i]);
        fprintf(to, "; default \"%s\".\n", setting->words[0]);
    } else if (setting->type == SETTING_WAYS) {
        fprintf(to, "%s# Default \"%s\".\n", indent, setting->initial_text);
    } else {
        fprintf(to, "%s# %" PRId64 " to %" PRId64 "%s; default %" PRId64 ".\n", indent,
                setting->min, setting->max, unit, setting->initial);
    }
}

/** @text in quotes, escaped for the file. Truncated at @size. */
static void config_print_quote(const char *text, char *ret, size_t size)
{
    size_t used = 1;

    ret[0] = '"';
    for (; *text && used + 4 < size; text++) {
        if (*text == '"' || *text == '\\')
            ret[used++] = '\\';
        ret[used++] = *text;
    }
    ret[used++] = '"';
    ret[used] = '\0';
}

void config_value_text(const struct setting *setting, const void *of,
                       char ret_text[CONFIG_VALUE_MAX])
{
    bool numbers = setting->type == SETTING_NUMBER || setting->type == SETTING_SECONDS;
    bool flags = setting->type == SETTING_FLAG;
    char text[CONFIG_NAME_MAX];

    setting_text(setting, of, text, sizeof(text));
    if (setting->type == SETTING_PROTECTION) {
        numbers = !text[strspn(text, "0123456789")];
        flags = strcmp(text, "on") == 0 || strcmp(text, "off") == 0;
    }
    if (flags)
        strcpy(ret_text, strcmp(text, "yes") && strcmp(text, "on") ? "false" : "true");
    else if (numbers) /* libconfig has two integer sizes, and reads the larger only with a suffix.
                       */
        snprintf(ret_text, CONFIG_VALUE_MAX, "%s%s", text,
                 strtoull(text, NULL, 10) > INT32_MAX && text[0] != '-' ? "L" : "");
    else
        config_print_quote(text, ret_text, CONFIG_VALUE_MAX);
}

static void config_print_put_policy(FILE *to, const struct config *config)
{
    char text[CONFIG_VALUE_MAX];

    fputs("policy = {\n", to);
    for (size_t i = 0; i < settings_count; i++) {
        const struct setting *setting = &settings_table[i];
        if (i)
            fputc('\n', to);
        config_print_put_wrapped(to, "    # ", "    # ", setting->help);
        config_print_put_range(to, setting);
        config_value_text(setting, &config->policy, text);
        fprintf(to, "%s%s = %s;", indent, setting->name, text);
        config_print_put_origin(to, config, i);
    }
    fputs("};\n", to);
}

static void config_print_put_help(FILE *to, const struct config_list *list)
{
    fputc('\n', to);
    config_print_put_comment(to, list->help);
    fputs("#\n", to);
    for (unsigned i = 0; i < list->field_count; i++) {
        const struct setting *field = &list->fields[i];
        char text[CONFIG_REASON_MAX], name[CONFIG_NAME_MAX];
        int length = snprintf(text, sizeof(text), "%s", field->help);
        if (field->type == SETTING_NUMBER) {
            length += snprintf(text + length, sizeof(text) - (size_t)length,
                               ", %" PRId64 " to %" PRId64, field->min, field->max);
        }
        if (field->initial_text)
            snprintf(text + length, sizeof(text) - (size_t)length, "; default: %s",
                     field->initial_text);
        snprintf(name, sizeof(name), "#   %-12s ", field->name);
        config_print_put_wrapped(to, name, "#                ", text);
    }
    fprintf(to, "#\n# For example:\n%s", list->example);
}

static void config_print_put_list(FILE *to, const struct config *config, enum config_list_kind kind)
{
    const struct config_list *list = &config_lists[kind];
    const char *entries = config->lists[kind].entries;
    size_t count = config->lists[kind].count;
    char text[CONFIG_VALUE_MAX];

    config_print_put_help(to, list);
    fprintf(to, "%s = (%s", list->name, count ? "\n" : "");
    for (size_t i = 0; i < count; i++) {
        const struct config_entry *entry = (const void *)(entries + i * list->entry_size);
        fprintf(to, "%s{", indent);
        config_print_put_place(to, config, entry->line);
        for (unsigned j = 0; j < list->field_count; j++) {
            if (entry->given & 1u << j) {
                config_value_text(&list->fields[j], entry, text);
                fprintf(to, "%s%s%s = %s;\n", indent, indent, list->fields[j].name, text);
            }
        }
        fprintf(to, "%s}%s\n", indent, i + 1 < count ? "," : "");
    }
    fputs(");\n", to);
}

int config_print(const struct config *config, FILE *to)
{
    config_print_put_comment(to,
                             "What reseat config print says is in effect, as a file for it; see "
                             "reseat.conf(5). Behind each value is where it comes from.");
    fputc('\n', to);
    config_print_put_policy(to, config);
    for (unsigned i = 0; i < CONFIG_LISTS; i++)
        config_print_put_list(to, config, i);
    return fflush(to) || ferror(to) ? -EIO : 0;
}
