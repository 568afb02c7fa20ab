#ifndef RESEAT_AGENT_CLI_SHOW_OUTPUT_H
#define RESEAT_AGENT_CLI_SHOW_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "agent/config/paths.h"
#include "agent/protocol/protocol.h"
#include "state/base/bytes/size.h"
#include "state/base/compiler.h"

/* What the command line prints: one line for a person, or one JSON object for a program. */

#define OUTPUT_SCHEMA 1

/** Exit statuses; reseat(1) documents them. */
enum status {
    STATUS_DONE = 0,
    STATUS_ROLLED_BACK = 1, /**< And other failures. */
    STATUS_USAGE = 2,
    STATUS_NONE = 3, /**< No such program, device or agent. */
    STATUS_REFUSED = 4,
    STATUS_EXPIRED = 5,
};

struct output {
    const char *command;
    bool json;
};

/** Text that grows; "" at first. What does not fit any more is left out. */
struct words {
    char text[4096];
    size_t used;
};
void words_add(struct words *words, const char *format, ...) PRINTF(2, 3);
/** "cpu0, cpu1": a list of texts. */
void words_add_names(struct words *words, const json_t *list, const char *between);

/** {"schema": 1, "command": ..., "status": ...}. NULL without memory. */
json_t *output_object(const struct output *output, int status);
/** A JSON string of a text that somebody else wrote, made safe. NULL without memory. */
json_t *output_text(const char *value);
/** A whole answer as JSON: what it says, made safe, but not its type. NULL without memory. */
json_t *output_answer(const struct message *message);
/**
 * Add members of an answer to an object, null where they are missing.
 *
 * @names  With blanks between; of "name[]", a list, an empty one where it is missing.
 */
void output_add_members(json_t *object, const json_t *answer, const char *names);
/** A member of an object; "", 0 or false where it is missing. Texts are borrowed of it. */
const char *member_text(const json_t *object, const char *name);
unsigned long long member_number(const json_t *object, const char *name);
bool member_bool(const json_t *object, const char *name);
/** Print those members of @answer as JSON. Returns an exit status. */
int output_print_members(const struct output *output, const json_t *answer, const char *names);
/** Add "error". */
void output_add_error(json_t *object, const char *code, const char *message);
/** Print a JSON object on stdout and drop it. Returns @status, or 1 when it cannot be written. */
int output_print(json_t *object, int status);
/** Everything was printed. Returns 0, or 1 when it cannot be written. */
int output_done(void);

/** One line on stderr that changes nothing. What others wrote in it is made safe. */
void output_note(const struct output *output, const char *format, ...) PRINTF(2, 3);
/** Say that $XDG_RUNTIME_DIR is not used, and what is instead, where that is so. */
void output_note_paths(const struct output *output, const struct paths *paths);
/** Report a failure. @code is one of ERR_*, which decides the status that is returned. */
int output_fail(const struct output *output, const char *code, const char *format, ...)
    PRINTF(3, 4);
/** What MSG_ERROR says. */
int output_fail_message(const struct output *output, const struct message *message);
/** Something went wrong in talking to the agent (-errno). @what it was to do. */
int output_fail_agent(const struct output *output, int error, const char *what);
/** A usage error; names the command's help. */
int output_usage(const struct output *output, const char *format, ...) PRINTF(2, 3);

int output_status_of(const char *code);
/** ERR_... for a report's RESULT_..., of something that was not done. */
const char *output_code_of(const char *result);

/** "name (pid 12)": a program, as the agent describes it. */
#define OUTPUT_PROGRAM_MAX (PROTOCOL_WORD_MAX + 32)
const char *output_program(const json_t *program, char ret[OUTPUT_PROGRAM_MAX]);
/** "a(12) b(13)": the programs of "apps". */
void output_add_users(const json_t *object, struct words *words);
/** Where something is: a device's name, or "host memory" for "". */
const char *output_place(const char *name);

/** "moving to cpu1, 62%: building 3 of 9 kernels"; "" where @move is NULL. Of an "app"'s "move". */
void output_moving(const json_t *move, struct words *words);

/** What the link of a server was measured to do: "0.2 ms, 1.1 GB/s"; "" where nobody knows. */
void output_link(const json_t *server, char *ret, size_t size);
/** "12.3 ms". */
void output_seconds(uint64_t nanoseconds, char *ret, size_t size);

/** How many columns of a terminal a text takes. */
int output_columns(const char *text);
/** Print a text and blanks up to @width columns; ? for what the locale does not have. */
void output_padded(const char *text, int width);

/** Of text: any terminal has as many. */
#define OUTPUT_COLUMNS 79
/**
 * Print a text, broken between words; ends the line.
 *
 * @width   Columns of a line.
 * @used    Columns of the line that have something in them.
 * @indent  Blanks in front of each line that follows.
 */
void output_wrapped(FILE *to, int width, int used, int indent, const char *text);

/* Tables of what the agent answers, one line an entry. On a terminal a column is left out in which
 * no line says anything, and optional ones where it is too narrow for all. */

enum table_kind {
    TABLE_TEXT,
    TABLE_NUMBER,
    TABLE_BYTES,
    TABLE_LIMIT, /**< Bytes, "-" where nobody set a limit; that it is drained says more. */
    TABLE_DATE,  /**< Milliseconds since 1970, "-" for 0. */
    TABLE_NAMES, /**< A list of texts. */
};

struct table_column {
    const char *title;
    const char *field; /**< Of an entry; NULL: put by hand. */
    enum table_kind kind;
    bool right;
    bool wrap;     /**< A text that may have several lines where a terminal is too narrow. */
    bool optional; /**< Left out before any text is wrapped. */
};

struct table;

/** @columns: borrowed. NULL without memory, which all below take. */
struct table *table_create(const struct table_column *columns, size_t count);
/** Add a line with the fields of an entry; NULL: an empty one. */
void table_add(struct table *table, const json_t *entry);
/** Put a text, or "-" for an empty one, into a column of the last line. */
void table_put(struct table *table, size_t column, const char *text);
/** Print and destroy it. Returns an exit status. */
int table_print(struct table *table);

/**
 * Print @object and drop it: as JSON, or its list @key as a table.
 *
 * Returns @status, or 1 when it cannot be written.
 */
int output_print_list(const struct output *output, json_t *object, const char *key,
                      const struct table_column *columns, size_t count, int status);

#endif
