#include "agent/cli/output.h"

#include <libsmartcols.h>
#include <stdlib.h>

struct table {
    const struct table_column *columns;
    size_t count;
    struct libscols_table *lines;
    struct libscols_line *last;
};

struct table *table_create(const struct table_column *columns, size_t count)
{
    struct table *table = malloc(sizeof(*table));

    if (!table)
        return NULL;
    *table = (struct table){.columns = columns, .count = count, .lines = scols_new_table()};
    for (size_t i = 0; table->lines && i < count; i++) {
        scols_table_new_column(table->lines, columns[i].title, 0,
                               columns[i].right ? SCOLS_FL_RIGHT : 0);
    }
    return table;
}

void table_put(struct table *table, size_t column, const char *text)
{
    if (table && table->last)
        scols_line_set_data(table->last, column, *text ? text : "-");
}

static void put_limit(const json_t *entry, const char *field, char *ret, size_t size)
{
    if (member_bool(entry, "drained")) {
        snprintf(ret, size, "drained");
    } else if (member_bool(entry, "draining")) {
        snprintf(ret, size, "draining in %llu s",
                 (member_number(entry, "drains_in_ns") + 999999999) / 1000000000);
    } else if (member_bool(entry, "limited")) {
        bytes_text(member_number(entry, field), ret, size);
    }
}

void table_add(struct table *table, const json_t *entry)
{
    if (!table || !table->lines)
        return;
    table->last = scols_table_new_line(table->lines, NULL);
    for (size_t i = 0; i < table->count; i++) {
        const char *field = table->columns[i].field;
        char text[64] = "";
        if (!field)
            continue;
        switch (table->columns[i].kind) {
        case TABLE_TEXT:
            table_put(table, i, member_text(entry, field));
            continue;
        case TABLE_NUMBER:
            snprintf(text, sizeof(text), "%llu", member_number(entry, field));
            break;
        case TABLE_BYTES:
            bytes_text(member_number(entry, field), text, sizeof(text));
            break;
        case TABLE_LIMIT:
            put_limit(entry, field, text, sizeof(text));
            break;
        }
        table_put(table, i, text);
    }
}

int table_print(struct table *table)
{
    bool failed = !table || !table->lines || scols_print_table(table->lines);

    scols_unref_table(table ? table->lines : NULL);
    free(table);
    return failed ? STATUS_ROLLED_BACK : output_done();
}
