#include <ctype.h>
#include <libsmartcols.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "agent/cli/show/output.h"

struct table {
    const struct table_column *columns;
    size_t count;
    struct libscols_table *lines;
    uint32_t said; /* A bit for each column in which a line has text. */
    bool whole;    /* No column is hidden: they were asked for. */
};

struct table *table_create(const struct table_column *columns)
{
    struct table *table = malloc(sizeof(*table));

    if (!table)
        return NULL;
    *table = (struct table){.columns = columns, .lines = scols_new_table()};
    for (; columns[table->count].title; table->count++) {
        const struct table_column *column = &columns[table->count];
        if (table->lines)
            scols_table_new_column(table->lines, column->title, 0,
                                   column->flags & TABLE_RIGHT  ? SCOLS_FL_RIGHT
                                   : column->flags & TABLE_WRAP ? SCOLS_FL_WRAP
                                                                : 0);
    }
    return table;
}

/** Remove the blank between a number and its unit: "1.5 GiB" is one word. */
static void table_join_unit(char *text)
{
    for (char *at = strchr(text, ' '); at; at = strchr(at + 1, ' '))
        if (at > text && isdigit((unsigned char)at[-1]) && isalpha((unsigned char)at[1]))
            memmove(at, at + 1, strlen(at));
}

static void table_put(struct table *table, struct libscols_line *line, size_t column,
                      const char *text)
{
    scols_line_set_data(line, column, *text ? text : "-");
    if (*text)
        table->said |= 1u << column;
}

static void table_say(const struct table_column *column, const json_t *entry, struct words *words)
{
    if (column->template)
        words_say(words, entry, column->template);
    else
        column->say(entry, words);
}

void table_add(struct table *table, const json_t *entry)
{
    if (!table || !table->lines)
        return;
    struct libscols_line *line = scols_table_new_line(table->lines, NULL);
    for (size_t i = 0; i < table->count; i++) {
        struct words words = {.used = 0};
        table_say(&table->columns[i], entry, &words);
        if (table->columns[i].flags & TABLE_RIGHT)
            table_join_unit(words.text);
        table_put(table, line, i, words.text);
    }
}

void table_add_line(struct table *table, const char *format, ...)
{
    struct libscols_line *line = table ? scols_table_new_line(table->lines, NULL) : NULL;
    char text[512], *rest = text;
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    for (size_t i = 0; rest && i < (table ? table->count : 0); i++) {
        const char *cell = strsep(&rest, "\t");
        table_put(table, line, i, *cell ? cell : " ");
    }
}

/* Width of the longest text in a column, including its title. */
static size_t table_width(struct table *table, size_t column)
{
    size_t width = strlen(table->columns[column].title);

    for (size_t i = 0; i < scols_table_get_nlines(table->lines); i++) {
        struct libscols_line *line = scols_table_get_line(table->lines, i);
        const char *text = scols_cell_get_data(scols_line_get_cell(line, column));
        size_t length = text ? (size_t)say_columns(text) : 0;
        width = length > width ? length : width;
    }
    return width;
}

static void table_hide(struct table *table, size_t column)
{
    scols_column_set_flags(scols_table_get_column(table->lines, column), SCOLS_FL_HIDDEN);
}

static void table_fit_terminal(struct table *table)
{
    struct winsize size = {0};
    size_t width = 0;

    for (size_t i = 0; i < table->count; i++)
        if (i > 0 && !(table->said & 1u << i))
            table_hide(table, i);
        else
            width += table_width(table, i) + 1;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_col)
        return;
    for (size_t i = table->count; width > size.ws_col + 1u && i-- > 1;) {
        if (table->columns[i].flags & TABLE_OPTIONAL && table->said & 1u << i) {
            table_hide(table, i);
            width -= table_width(table, i) + 1;
        }
    }
}

int table_print(struct table *table)
{
    bool failed = !table || !table->lines;

    if (!failed && !table->whole && isatty(STDOUT_FILENO))
        table_fit_terminal(table);
    failed = failed || scols_print_table(table->lines);
    scols_unref_table(table ? table->lines : NULL);
    free(table);
    return failed ? STATUS_ROLLED_BACK : output_done();
}

int table_print_list(const json_t *list, const struct table_column *columns)
{
    struct table *table = table_create(columns);
    const json_t *entry;
    size_t i;

    json_array_foreach(list, i, entry)
    {
        table_add(table, entry);
    }
    return table_print(table);
}

/* ---- tables as the options of a command say ---- */

/** True if @name is the column's title, in any case and with '-' for a blank. */
static bool table_is_column(const struct table_column *column, const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        char letter = name[i] == '-' ? ' ' : (char)toupper((unsigned char)name[i]);
        if (column->title[i] != letter)
            return false;
    }
    return length && !column->title[length];
}

static const struct table_column *table_find(const struct output *output,
                                             const struct table_column *columns, const char *name,
                                             size_t length)
{
    struct words titles = {.used = 0};

    for (const struct table_column *column = columns; column->title; column++) {
        if (table_is_column(column, name, length))
            return column;
        words_add(&titles, "%s%s", column == columns ? "" : ", ", column->title);
    }
    for (char *at = titles.text; *at; at++) {
        bool inside = *at == ' ' && at > titles.text && at[-1] != ',';
        *at = inside ? '-' : (char)tolower((unsigned char)*at);
    }
    (void)output_usage(output, "there is no column \"%.*s\"; say %s", (int)length, name,
                       titles.text);
    return NULL;
}

/** The first member in a column's template, whose value counts for the order; NULL: none. */
static const json_t *table_member(const struct table_column *column, const json_t *entry)
{
    const char *at = column->template ? strchr(column->template, '{') : NULL;
    char name[64];

    while (at && (at[1] == '?' || at[1] == '!'))
        at = strchr(at + 1, '{');
    if (!at)
        return NULL;
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(at + 1, "}:|."), at + 1);
    return json_object_get(entry, name);
}

static int table_compare(const struct table_column *column, const json_t *a, const json_t *b)
{
    const json_t *one = table_member(column, a), *other = table_member(column, b);
    struct words words[2] = {{.used = 0}, {.used = 0}};

    if (json_is_number(one) && json_is_number(other))
        return (json_number_value(one) > json_number_value(other)) -
               (json_number_value(one) < json_number_value(other));
    table_say(column, a, &words[0]);
    table_say(column, b, &words[1]);
    return strcmp(words[0].text, words[1].text);
}

/** Sort by insertion, which keeps the order of equals; lists are short. */
static json_t *table_sorted(const json_t *list, const struct table_column *column, bool down)
{
    json_t *sorted = json_array(), *entry;
    size_t i;

    json_array_foreach(list, i, entry)
    {
        size_t at = json_array_size(sorted);
        while (column && at > 0 &&
               (down ? -1 : 1) * table_compare(column, json_array_get(sorted, at - 1), entry) > 0)
            at--;
        json_array_insert(sorted, at, entry);
    }
    return sorted;
}

#define COLUMNS_MAX 32

/** The columns that were asked for. Returns 0, or an exit status. */
static int table_choose(const struct output *output, const struct table_column *columns,
                        struct table_column ret_chosen[COLUMNS_MAX + 1])
{
    const char *at = output->view.columns;
    size_t count = 0;

    while (!at && columns->title && count < COLUMNS_MAX && (!output->view.quiet || !count))
        ret_chosen[count++] = *columns++;
    while (at && count < COLUMNS_MAX) {
        size_t length = strcspn(at, ",");
        const struct table_column *column = table_find(output, columns, at, length);
        if (!column)
            return STATUS_USAGE;
        ret_chosen[count++] = *column;
        at = at[length] && !output->view.quiet ? at + length + 1 : NULL;
    }
    ret_chosen[count] = (struct table_column){NULL};
    return 0;
}

int output_table(const struct output *output, const json_t *list,
                 const struct table_column *columns,
                 bool (*matches)(const struct output *output, const json_t *entry))
{
    const char *sort = output->view.sort;
    bool down = sort && *sort == '-';
    const struct table_column *by =
        sort ? table_find(output, columns, sort + down, strlen(sort + down)) : NULL;
    struct table_column chosen[COLUMNS_MAX + 1];
    const json_t *entry;
    size_t i;

    if ((sort && !by) || table_choose(output, columns, chosen))
        return STATUS_USAGE;
    json_auto_t *sorted = table_sorted(list, by, down);
    struct table *table = table_create(chosen);
    json_array_foreach(sorted, i, entry)
    {
        if (!matches || matches(output, entry))
            table_add(table, entry);
    }
    if (table && table->lines) {
        table->whole = output->view.columns != NULL;
        scols_table_enable_noheadings(table->lines, output->view.headless || output->view.quiet);
    }
    return table_print(table);
}
