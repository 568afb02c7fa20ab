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

static void table_put(struct table *table, struct libscols_line *line, size_t column,
                      const char *text)
{
    scols_line_set_data(line, column, *text ? text : "-");
    if (*text)
        table->said |= 1u << column;
}

void table_add(struct table *table, const json_t *entry)
{
    if (!table || !table->lines)
        return;
    struct libscols_line *line = scols_table_new_line(table->lines, NULL);
    for (size_t i = 0; i < table->count; i++) {
        struct words words = {.used = 0};
        if (table->columns[i].template)
            words_say(&words, entry, table->columns[i].template);
        else
            table->columns[i].say(entry, &words);
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

/* Bytes of the longest text in a column, including its title. */
static size_t table_width(struct table *table, size_t column)
{
    size_t width = strlen(table->columns[column].title);

    for (size_t i = 0; i < scols_table_get_nlines(table->lines); i++) {
        struct libscols_line *line = scols_table_get_line(table->lines, i);
        const char *text = scols_cell_get_data(scols_line_get_cell(line, column));
        size_t length = text ? strlen(text) : 0;
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

    if (!failed && isatty(STDOUT_FILENO))
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
