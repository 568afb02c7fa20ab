#ifndef RESEAT_AGENT_CLI_SHOW_OUTPUT_H
#define RESEAT_AGENT_CLI_SHOW_OUTPUT_H

#include "agent/cli/show/say.h"
#include "agent/config/paths.h"
#include "agent/protocol/json.h"

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

/** What is shown of an answer, and how: options of several verbs. Texts are borrowed. */
struct view {
    /* Which programs (select.h). */
    bool all, of_user;
    uint64_t user;
    const char *device, *name; /**< NULL: any. */
    /* How a table is printed. */
    const char *columns; /**< Titles with commas; NULL: those that fit. */
    const char *sort;    /**< A title, with '-' before it for the largest first; or NULL. */
    bool headless;       /**< No titles. */
    bool quiet;          /**< Only the first column, without its title. */
    bool tree;           /**< Below the user of each program. */
    uint64_t watch_ms;   /**< Print it again after this time; 0: do not. */
};

struct output {
    const char *command;
    const char *members; /**< Of the verb's JSON object; see output_result(). */
    bool json;
    struct view view;
    struct words *notes; /**< Notes are kept here instead of being printed; NULL: they are not. */
};

/** Create {"schema": 1, "command": ..., "status": ...}. Returns NULL without memory. */
json_t *output_object(const struct output *output, int status);
/** Create a JSON string from a text that is not ours, made safe. Returns NULL without memory. */
json_t *output_text(const char *value);
/**
 * Copy members of an answer to an object; a missing one becomes null.
 *
 * @names  Separated by blanks. If it is missing, a list "name[]" becomes empty, and "name?" is left
 *         out.
 */
void output_add_members(json_t *object, const json_t *answer, const char *names);

/**
 * Print a result: as JSON the members of @answer that the verb has, else only the error.
 *
 * @code  One of ERR_*, with its @message; NULL: the command is done.
 * Returns an exit status.
 */
int output_result(const struct output *output, const json_t *answer, const char *code,
                  const char *message);
/** Print a result as JSON or as one line, a template for words_say(). Returns an exit status. */
int output_say(const struct output *output, const json_t *answer, const char *template);
/** As output_result(), but as text print @key as a table, and of errors only the status. */
int output_list(const struct output *output, const json_t *answer, const char *key,
                const struct table_column *columns, const char *code, const char *message);
/**
 * Print a list as a table as the view says. The number and unit of a column that is TABLE_RIGHT are
 * one word. Returns an exit status.
 *
 * @matches  Which entries are printed; NULL: all.
 */
int output_table(const struct output *output, const json_t *list,
                 const struct table_column *columns,
                 bool (*matches)(const struct output *output, const json_t *entry));
/**
 * The members of an entry that such a table is made of: an object with these keys.
 *
 * @more         Others, as `members` of a column has them.
 * @ret_members  Owned by the caller.
 * Returns 0, or an exit status after printing that there is no such column.
 */
MUST_CHECK int output_members(const struct output *output, const struct table_column *columns,
                              const char *more, json_t **ret_members);
/** A list laid out as a table. */
struct table_lines {
    char *text;      /**< The titles, then a line for each entry, each with its line break. */
    json_t *entries; /**< Those that are shown, in this order, and of a tree the users: "user". */
};
/**
 * As output_table(), but lay the list out as text for a terminal of @width columns: texts that are
 * too long are cut, not wrapped. Lines may still be wider.
 *
 * @ret_lines  Owned by the caller (table_lines_finish).
 */
MUST_CHECK int output_lines(const struct output *output, const json_t *list,
                            const struct table_column *columns,
                            bool (*matches)(const struct output *output, const json_t *entry),
                            size_t width, struct table_lines *ret_lines);
void table_lines_finish(struct table_lines *lines);
/** Add the member "error". */
void output_add_error(json_t *object, const char *code, const char *message);
/** Print a JSON object on stdout and drop it. Returns @status, or 1 when it cannot be written. */
int output_print(json_t *object, int status);
/** Finish the output. Returns 0, or 1 if it could not be written. */
int output_done(void);

/** Print one line on stderr, made safe, or keep it as a note. Does not change the exit status. */
void output_note(const struct output *output, const char *format, ...) PRINTF(2, 3);
/** Print a note if $XDG_RUNTIME_DIR is not used, naming the folder that is. */
void output_note_paths(const struct output *output, const struct paths *paths);
/** Print an error. @code is one of ERR_* and determines the exit status returned. */
int output_fail(const struct output *output, const char *code, const char *format, ...)
    PRINTF(3, 4);
/** Print that an answer of the agent is not understood. */
int output_fail_answer(const struct output *output);
/** Print the error in a MSG_ERROR; returns an exit status. */
int output_fail_message(const struct output *output, const struct message *message);
/** Print an error of talking to the agent: @error is -errno, @what the request. */
int output_fail_agent(const struct output *output, int error, const char *what);
/** Print a usage error that refers to the command's help. */
int output_usage(const struct output *output, const char *format, ...) PRINTF(2, 3);

int output_status_of(const char *code);
/** The ERR_... that stands for the RESULT_... of a report that failed. */
const char *output_code_of(const char *result);

#endif
