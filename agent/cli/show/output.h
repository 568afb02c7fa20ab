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

/* Output of the command line: text for people, or one JSON object for programs. */

#define OUTPUT_SCHEMA 1

/** Exit statuses; reseat(1) documents them. */
enum status {
    STATUS_DONE = 0,
    STATUS_ROLLED_BACK = 1, /**< Also other failures. */
    STATUS_USAGE = 2,
    STATUS_NONE = 3, /**< There is no such program, device or agent. */
    STATUS_REFUSED = 4,
    STATUS_EXPIRED = 5,
};

struct output {
    const char *command;
    bool json;
};

/** Text that is appended to; starts as "". Text that does not fit is cut. */
struct words {
    char text[4096];
    size_t used;
};
void words_add(struct words *words, const char *format, ...) PRINTF(2, 3);
/** Append a list of texts: "cpu0, cpu1". */
void words_add_names(struct words *words, const json_t *list, const char *between);

/** Create {"schema": 1, "command": ..., "status": ...}. Returns NULL without memory. */
json_t *output_object(const struct output *output, int status);
/** Create a JSON string from a text that is not ours, made safe. Returns NULL without memory. */
json_t *output_text(const char *value);
/**
 * Convert an answer to JSON, without its type, its texts made safe. Returns NULL without memory.
 */
json_t *output_answer(const struct message *message);
/**
 * Copy members of an answer to an object; a missing one becomes null.
 *
 * @names  Separated by blanks. "name[]" is a list, which becomes empty if it is missing.
 */
void output_add_members(json_t *object, const json_t *answer, const char *names);
/** Get a member of an object; "", 0 or false if it is missing. Texts are borrowed from @object. */
const char *member_text(const json_t *object, const char *name);
unsigned long long member_number(const json_t *object, const char *name);
bool member_bool(const json_t *object, const char *name);
/** Print members of @answer as JSON; names as above. Returns an exit status. */
int output_print_members(const struct output *output, const json_t *answer, const char *names);
/** Add the member "error". */
void output_add_error(json_t *object, const char *code, const char *message);
/** Print a JSON object on stdout and drop it. Returns @status, or 1 when it cannot be written. */
int output_print(json_t *object, int status);
/** Finish the output. Returns 0, or 1 if it could not be written. */
int output_done(void);

/** Print one line on stderr, made safe. Does not change the exit status. */
void output_note(const struct output *output, const char *format, ...) PRINTF(2, 3);
/** Print a note if $XDG_RUNTIME_DIR is not used, naming the folder that is. */
void output_note_paths(const struct output *output, const struct paths *paths);
/** Print an error. @code is one of ERR_* and determines the exit status returned. */
int output_fail(const struct output *output, const char *code, const char *format, ...)
    PRINTF(3, 4);
/** Print the error in a MSG_ERROR; returns an exit status. */
int output_fail_message(const struct output *output, const struct message *message);
/** Print an error of talking to the agent: @error is -errno, @what the request. */
int output_fail_agent(const struct output *output, int error, const char *what);
/** Print a usage error that refers to the command's help. */
int output_usage(const struct output *output, const char *format, ...) PRINTF(2, 3);

int output_status_of(const char *code);
/** The ERR_... that stands for the RESULT_... of a report that failed. */
const char *output_code_of(const char *result);

/** "name (pid 12)": a program, as the agent describes it. */
#define OUTPUT_PROGRAM_MAX (PROTOCOL_WORD_MAX + 32)
const char *output_program(const json_t *program, char ret[OUTPUT_PROGRAM_MAX]);
/** Append the programs in the member "apps": "a(12) b(13)". */
void output_add_users(const json_t *object, struct words *words);
/** The name of a device, or "host memory" for "". */
const char *output_place(const char *name);

/**
 * Append the progress of a program's "move": "moving to cpu1, 62%: building 3 of 9 kernels".
 * Appends nothing if @move is NULL.
 */
void output_moving(const json_t *move, struct words *words);

/** Measured speed of a server's link: "0.2 ms, 1.1 GB/s"; "" if it is not known. */
void output_link(const json_t *server, char *ret, size_t size);
/** A duration: "12.3 ms". */
void output_seconds(uint64_t nanoseconds, char *ret, size_t size);

/** Number of terminal columns that a text takes. */
int output_columns(const char *text);
/**
 * Print a text, padded with blanks to @width columns. Characters that the locale lacks become '?'.
 */
void output_padded(const char *text, int width);

/** Width of wrapped text; fits any terminal. */
#define OUTPUT_COLUMNS 79
/**
 * Print a text, wrapped between words, and end the line.
 *
 * @width   Columns of a line.
 * @used    Columns of the first line that are already used.
 * @indent  Blanks before each further line.
 */
void output_wrapped(FILE *to, int width, int used, int indent, const char *text);

/*
 * Tables of answers, with one line for each entry. On a terminal, empty columns are hidden, and
 * also optional ones if it is too narrow for all.
 */

enum table_kind {
    TABLE_TEXT,
    TABLE_NUMBER,
    TABLE_BYTES,
    TABLE_LIMIT, /**< Bytes, "-" without a limit; "drained" if it is. */
    TABLE_DATE,  /**< Milliseconds since 1970; "-" for 0. */
    TABLE_NAMES, /**< A list of texts. */
};

struct table_column {
    const char *title;
    const char *field; /**< Member of an entry; NULL: filled by table_put(). */
    enum table_kind kind;
    bool right;
    bool wrap;     /**< Text that may be wrapped on a narrow terminal. */
    bool optional; /**< Hidden on a narrow terminal, before text is wrapped. */
};

struct table;

/**
 * Create a table. @columns is borrowed. Returns NULL without memory; all functions below accept
 * NULL.
 */
struct table *table_create(const struct table_column *columns, size_t count);
/** Append a line with the members of @entry; NULL: an empty line. */
void table_add(struct table *table, const json_t *entry);
/** Put a text into a column of the last line; an empty text is shown as "-". */
void table_put(struct table *table, size_t column, const char *text);
/** Print and destroy a table. Returns an exit status. */
int table_print(struct table *table);

/**
 * Print @object and free it: as JSON, or its list @key as a table.
 *
 * Returns @status, or 1 if the output cannot be written.
 */
int output_print_list(const struct output *output, json_t *object, const char *key,
                      const struct table_column *columns, size_t count, int status);

#endif
