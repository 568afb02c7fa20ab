#ifndef RESEAT_AGENT_CLI_SHOW_SAY_H
#define RESEAT_AGENT_CLI_SHOW_SAY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "agent/protocol/protocol.h"
#include "state/base/bytes/size.h"
#include "state/base/compiler.h"

/* Text for people: sentences and tables, made from templates with members of JSON objects. */

/** Text that is appended to; starts as "". Text that does not fit is cut. */
struct words {
    char text[4096];
    size_t used;
};
void words_add(struct words *words, const char *format, ...) PRINTF(2, 3);

/**
 * Append a template, in which "{name}" stands for a member of @object:
 *
 *   {app.pid}                  a member of a member
 *   {total_ns}, {left:bytes}   a number is shown by the end of its name, or of what the colon
 *                              says instead: see say_number()
 *   {to:place}                 "host memory" for ""
 *   {apps}, {apps:list}        a list, with ", " or "," between; a program is "name (pid 12)"
 *   {moved|program|programs}   "1 program", "2 programs"
 *   [; {reason}]               is left out if a member in it is missing, "", 0, false or empty
 *   [{?on}on][{!on}off]        conditions show nothing; where a part has some, only they
 *                              decide: {!on} is the contrary of {?on}
 */
void words_say(struct words *words, const json_t *object, const char *template);

/** Get a member of an object; "", 0 or false if it is missing. Texts are borrowed from @object. */
const char *member_text(const json_t *object, const char *name);
unsigned long long member_number(const json_t *object, const char *name);
bool member_bool(const json_t *object, const char *name);

/** "name (pid 12)": a program, as the agent describes it. */
#define SAY_PROGRAM_MAX (PROTOCOL_WORD_MAX + 32)
const char *say_program(const json_t *program, char ret[SAY_PROGRAM_MAX]);
/** A duration: "12.3 ms", "4.56 s", "12 min", "5.0 h". */
void say_duration(uint64_t nanoseconds, char *ret, size_t size);

/** Append the programs in the member "apps": "a(12) b(13)". */
void say_users(const json_t *object, struct words *words);
/** Append the progress of a program's "move": "moving to cpu1, 62%: building 3 of 9 programs". */
void say_moving(const json_t *app, struct words *words);
/** Append the measured speed of a server's link: "0.2 ms, 1.1 GB/s"; nothing if it is not known. */
void say_link(const json_t *server, struct words *words);

/** Number of terminal columns that a text takes. */
int say_columns(const char *text);
/** Bytes of the characters at the begin of a text that fit in so many columns. */
size_t say_fit(const char *text, int columns);

/** Width of wrapped text; fits any terminal. */
#define SAY_WIDTH 79
/**
 * Print a text, wrapped between words, and end the line.
 *
 * @used    Columns of the first line that are already used.
 * @indent  Blanks before each further line.
 */
void say_wrapped(FILE *to, int used, int indent, const char *text);

/*
 * Tables, with one line for each object of a list. On a terminal, empty columns are hidden, and
 * also optional ones if it is too narrow for all.
 */

enum table_flag {
    TABLE_RIGHT = 1,
    TABLE_WRAP = 2,     /**< Text that may be wrapped on a narrow terminal. */
    TABLE_OPTIONAL = 4, /**< Hidden on a narrow terminal, before text is wrapped. */
};

struct table_column {
    const char *title;    /**< NULL in the last row. */
    const char *template; /**< As words_say() takes it. */
    unsigned flags;
    void (*say)(const json_t *entry, struct words *words); /**< Used without a template. */
    const char *members; /**< Those that `say` reads: "{id}{vdevs.device}". */
};

struct table;

/** Borrows @columns. NULL: no memory; all functions below accept that. */
struct table *table_create(const struct table_column *columns);
/** Append a line with @entry. */
void table_add(struct table *table, const json_t *entry);
/** Append a line of texts with tabs between. */
void table_add_line(struct table *table, const char *format, ...) PRINTF(2, 3);
/** Print and destroy a table. Returns an exit status. */
int table_print(struct table *table);
/** Print a list as a table. Returns an exit status. */
int table_print_list(const json_t *list, const struct table_column *columns);

#endif
