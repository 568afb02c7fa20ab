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

static void put_limit(const msgpack_object *entry, const char *field, char *ret, size_t size)
{
    if (field_bool(entry, "drained", false)) {
        snprintf(ret, size, "drained");
    } else if (field_bool(entry, "draining", false)) {
        snprintf(ret, size, "draining in %llu s",
                 (unsigned long long)(field_u64(entry, "drains_in_ns", 0) + 999999999) /
                     1000000000);
    } else if (field_bool(entry, "limited", false)) {
        bytes_text(field_u64(entry, field, 0), ret, size);
    }
}

void table_add(struct table *table, const msgpack_object *entry)
{
    if (!table || !table->lines)
        return;
    table->last = scols_table_new_line(table->lines, NULL);
    for (size_t i = 0; i < table->count; i++) {
        const char *field = table->columns[i].field;
        char text[PROTOCOL_TEXT_MAX] = "";
        if (!field)
            continue;
        switch (table->columns[i].kind) {
        case TABLE_TEXT:
            field_text(entry, field, text, sizeof(text));
            break;
        case TABLE_NUMBER:
            snprintf(text, sizeof(text), "%llu", (unsigned long long)field_u64(entry, field, 0));
            break;
        case TABLE_BYTES:
            bytes_text(field_u64(entry, field, 0), text, sizeof(text));
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
