#include <ctype.h>
#include <libsmartcols.h>
#include <pwd.h>
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

/** Append a line with @entry, below @parent. */
static void table_add_below(struct table *table, struct libscols_line *parent, const json_t *entry)
{
    if (!table || !table->lines)
        return;
    struct libscols_line *line = scols_table_new_line(table->lines, parent);
    struct words words;
    for (size_t i = 0; i < table->count; i++) {
        words.text[words.used = 0] = '\0';
        table_say(&table->columns[i], entry, &words);
        if (table->columns[i].flags & TABLE_RIGHT)
            table_join_unit(words.text);
        table_put(table, line, i, words.text);
    }
}

void table_add(struct table *table, const json_t *entry)
{
    table_add_below(table, NULL, entry);
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

/**
 * Hide columns without text, and optional ones that do not fit.
 *
 * @room  Columns of the terminal; 0: any number.
 */
static void table_fit(struct table *table, size_t room)
{
    size_t width = 0;

    for (size_t i = 0; i < table->count; i++)
        if (i > 0 && !(table->said & 1u << i))
            table_hide(table, i);
        else
            width += table_width(table, i) + 1;
    for (size_t i = table->count; room && width > room + 1 && i-- > 1;) {
        if (table->columns[i].flags & TABLE_OPTIONAL && table->said & 1u << i) {
            table_hide(table, i);
            width -= table_width(table, i) + 1;
        }
    }
}

/** Break a text between words, and words that are longer, into lines of at most @room columns. */
static void table_break(struct libscols_cell *cell, int room)
{
    const char *text = scols_cell_get_data(cell);
    char *lines = text ? malloc(2 * strlen(text) + 1) : NULL, *to = lines;
    size_t fits, length;

    if (!lines)
        return;
    while (text[fits = say_fit(text, room)]) {
        for (length = fits; length && text[length] != ' ';)
            length--;
        length = length ? length : fits ? fits : strlen(text);
        to = mempcpy(to, text, length);
        text += length + (text[length] == ' ');
        *to++ = '\n';
    }
    memcpy(to, text, strlen(text) + 1);
    scols_cell_refer_data(cell, lines);
}

/** Wrap texts so that the table fits in @room columns: what others leave is shared evenly. */
static void table_wrap(struct table *table, size_t room)
{
    size_t free_columns = room + 1, sharing = 0, share = 0;
    uint32_t wrapped = 0;

    for (size_t i = 0; i < table->count; i++) {
        struct libscols_column *column = scols_table_get_column(table->lines, i);
        size_t width = scols_column_is_hidden(column) ? 0 : table_width(table, i) + 1;
        if (width && scols_column_is_wrap(column)) {
            wrapped |= 1u << i;
            sharing++;
        } else {
            free_columns -= width < free_columns ? width : free_columns;
        }
    }
    for (size_t i = 0; sharing && i < table->count;) {
        size_t width = table_width(table, i) + 1;
        share = free_columns / sharing;
        if (!(wrapped & 1u << i) || width > share) {
            i++;
            continue;
        }
        /* It needs less than its share, so that the others get more: look at them again. */
        wrapped &= ~(1u << i);
        free_columns -= width;
        sharing--;
        i = 0;
    }
    for (size_t i = 0; i < table->count; i++) {
        size_t title = strlen(table->columns[i].title), width = share > title ? share - 1 : title;
        if (!(wrapped & 1u << i))
            continue;
        struct libscols_column *column = scols_table_get_column(table->lines, i);
        for (size_t j = 0; j < scols_table_get_nlines(table->lines); j++)
            table_break(scols_line_get_cell(scols_table_get_line(table->lines, j), i), (int)width);
        scols_column_set_wrapfunc(column, scols_wrapnl_chunksize, scols_wrapnl_nextchunk, NULL);
        scols_column_set_safechars(column, "\n");
    }
}

int table_print(struct table *table)
{
    bool failed = !table || !table->lines, terminal = isatty(STDOUT_FILENO);
    struct winsize size = {0};

    terminal = terminal && !failed && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    if (terminal && !table->whole)
        table_fit(table, size.ws_col);
    if (terminal && size.ws_col)
        table_wrap(table, size.ws_col);
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

/** The column by which entries are sorted; NULL: they are not. Returns 0, or an exit status. */
static int table_find_order(const struct output *output, const struct table_column *columns,
                            const struct table_column **ret_by, bool *ret_down)
{
    const char *sort = output->view.sort;

    *ret_down = sort && *sort == '-';
    sort += *ret_down;
    *ret_by = sort ? table_find(output, columns, sort, strlen(sort)) : NULL;
    return sort && !*ret_by ? STATUS_USAGE : 0;
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

/** What an entry is sorted by. */
struct table_key {
    json_t *entry; /* Borrowed. */
    char *text;    /* Of the column. */
    bool is_number;
    double number;
    size_t index; /* Keeps the order of equals. */
};

static int table_compare(const void *a, const void *b, void *down)
{
    const struct table_key *one = a, *other = b;
    int order = one->is_number && other->is_number
                    ? (one->number > other->number) - (one->number < other->number)
                    : strcmp(one->text ? one->text : "", other->text ? other->text : "");

    order = *(bool *)down ? -order : order;
    return order ? order : (one->index > other->index) - (one->index < other->index);
}

static json_t *table_sorted(const json_t *list, const struct table_column *column, bool down)
{
    size_t count = column ? json_array_size(list) : 0;
    struct table_key *keys = calloc(count + 1, sizeof(*keys));
    json_t *sorted = json_array();

    for (size_t i = 0; keys && i < count; i++) {
        json_t *entry = json_array_get(list, i);
        const json_t *member = table_member(column, entry);
        struct words words = {.used = 0};
        table_say(column, entry, &words);
        keys[i] = (struct table_key){entry, strdup(words.text), json_is_number(member),
                                     json_number_value(member), i};
    }
    if (keys)
        qsort_r(keys, count, sizeof(*keys), table_compare, &down);
    for (size_t i = 0; i < json_array_size(list); i++)
        json_array_append(sorted, keys && count ? keys[i].entry : json_array_get(list, i));
    for (size_t i = 0; keys && i < count; i++)
        free(keys[i].text);
    free(keys);
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

/** Add the members that a template names. */
static void table_add_members(const char *template, json_t *members)
{
    char name[64];

    for (const char *at = template; (at = strchr(at, '{'));) {
        at += at[1] == '?' || at[1] == '!' ? 2 : 1;
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(at, "}:|"), at);
        json_object_set_new(members, name, json_true());
    }
}

int output_members(const struct output *output, const struct table_column *columns,
                   const char *more, json_t **ret_members)
{
    struct table_column chosen[COLUMNS_MAX + 1];
    const struct table_column *by;
    bool down;

    if (table_find_order(output, columns, &by, &down) || table_choose(output, columns, chosen))
        return STATUS_USAGE;
    json_t *members = json_object();
    table_add_members(more, members);
    for (const struct table_column *column = chosen; column->title; column++)
        table_add_members(column->template ? column->template : column->members, members);
    if (by)
        table_add_members(by->template ? by->template : by->members, members);
    *ret_members = members;
    return 0;
}

/** Add a line for each user, and those of the user's entries below it. */
static void table_add_users(struct table *table, const json_t *all, json_t *ret_entries)
{
    json_auto_t *users = json_object();
    json_t *entry, *other;
    char name[PROTOCOL_WORD_MAX];
    size_t i, j;

    json_array_foreach(all, i, entry)
    {
        unsigned long long uid = member_number(entry, "uid");
        const struct passwd *user = getpwuid((uid_t)uid);
        snprintf(name, sizeof(name), "%llu", uid);
        if (json_object_get(users, name) || json_object_set_new(users, name, json_true()))
            continue;
        struct libscols_line *line = scols_table_new_line(table->lines, NULL);
        table_put(table, line, 0, user ? user->pw_name : name);
        json_array_append_new(ret_entries, json_pack("{s:s}", "user", name));
        json_array_foreach(all, j, other)
        {
            if (member_number(other, "uid") != uid)
                continue;
            table_add_below(table, line, other);
            json_array_append(ret_entries, other);
        }
    }
}

/**
 * Make the table of the entries that are shown.
 *
 * @ret_chosen   Its columns, which it borrows.
 * @ret_entries  In the order of its lines; owned by the caller.
 * Returns 0, or an exit status.
 */
static int table_make(const struct output *output, const json_t *list,
                      const struct table_column *columns,
                      bool (*matches)(const struct output *output, const json_t *entry),
                      struct table_column ret_chosen[COLUMNS_MAX + 1], json_t **ret_entries,
                      struct table **ret_table)
{
    const struct table_column *by;
    json_t *entry;
    size_t i;
    bool down;

    if (table_find_order(output, columns, &by, &down) || table_choose(output, columns, ret_chosen))
        return STATUS_USAGE;
    struct table *table = table_create(ret_chosen);
    if (!table || !table->lines) {
        free(table);
        return output_fail(output, ERR_FAILED, "there is not enough memory");
    }
    json_auto_t *sorted = table_sorted(list, by, down);
    json_t *shown = json_array(), *entries = json_array();
    json_array_foreach(sorted, i, entry)
    {
        if (!matches || matches(output, entry))
            json_array_append(shown, entry);
    }
    if (output->view.tree) {
        scols_column_set_flags(scols_table_get_column(table->lines, 0), SCOLS_FL_TREE);
        table_add_users(table, shown, entries);
    } else {
        json_array_foreach(shown, i, entry)
        {
            table_add(table, entry);
        }
        json_array_extend(entries, shown);
    }
    json_decref(shown);
    table->whole = output->view.columns != NULL;
    scols_table_enable_noheadings(table->lines, output->view.headless || output->view.quiet);
    *ret_entries = entries;
    *ret_table = table;
    return 0;
}

int output_table(const struct output *output, const json_t *list,
                 const struct table_column *columns,
                 bool (*matches)(const struct output *output, const json_t *entry))
{
    struct table_column chosen[COLUMNS_MAX + 1];
    json_t *entries;
    struct table *table;
    int status = table_make(output, list, columns, matches, chosen, &entries, &table);

    if (status)
        return status;
    json_decref(entries);
    return table_print(table);
}

int output_lines(const struct output *output, const json_t *list,
                 const struct table_column *columns,
                 bool (*matches)(const struct output *output, const json_t *entry), size_t width,
                 struct table_lines *ret_lines)
{
    struct table_column chosen[COLUMNS_MAX + 1];
    struct table_lines lines = {.text = NULL};
    struct table *table;
    int status = table_make(output, list, columns, matches, chosen, &lines.entries, &table);

    if (status)
        return status;
    if (!table->whole)
        table_fit(table, width);
    for (size_t i = 0; i < table->count; i++) {
        struct libscols_column *column = scols_table_get_column(table->lines, i);
        int flags = scols_column_get_flags(column);
        if (flags & SCOLS_FL_WRAP)
            scols_column_set_flags(column, (flags & ~SCOLS_FL_WRAP) | SCOLS_FL_TRUNC);
    }
    scols_table_set_termforce(table->lines, SCOLS_TERMFORCE_ALWAYS);
    scols_table_set_termwidth(table->lines, width);
    bool failed = scols_print_table_to_string(table->lines, &lines.text);
    scols_unref_table(table->lines);
    free(table);
    if (failed) {
        table_lines_finish(&lines);
        return output_fail(output, ERR_FAILED, "there is not enough memory");
    }
    *ret_lines = lines;
    return 0;
}

void table_lines_finish(struct table_lines *lines)
{
    free(lines->text);
    json_decref(lines->entries);
    *lines = (struct table_lines){.text = NULL};
}
