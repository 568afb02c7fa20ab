#ifndef RESEAT_AGENT_CLI_TABLE_H
#define RESEAT_AGENT_CLI_TABLE_H

#include "agent/cli/output.h"

/* Tables of what the agent answers, one line an entry. */

enum table_kind {
    TABLE_TEXT,
    TABLE_NUMBER,
    TABLE_BYTES,
    TABLE_LIMIT, /**< Bytes, "-" where nobody set a limit; that it is drained says more. */
};

struct table_column {
    const char *title;
    const char *field; /**< Of an entry; NULL: put by hand. */
    enum table_kind kind;
    bool right;
};

struct table;

/** @columns: borrowed. NULL without memory, which all below take. */
struct table *table_create(const struct table_column *columns, size_t count);
/** Add a line with the fields of an entry; NULL: an empty one. */
void table_add(struct table *table, const msgpack_object *entry);
/** Put a text, or "-" for an empty one, into a column of the last line. */
void table_put(struct table *table, size_t column, const char *text);
/** Print and destroy it. Returns an exit status. */
int table_print(struct table *table);

#endif
