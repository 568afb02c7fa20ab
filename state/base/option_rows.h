#ifndef RESEAT_STATE_BASE_OPTION_ROWS_H
#define RESEAT_STATE_BASE_OPTION_ROWS_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * The options of our programs: a row for each, and the parser of these rows. The syntax of an
 * argument: "[FILE]" is optional; "start|stop" is one of these words; "WATT|off" is a number or
 * off.
 */

/** The type of an option's value. */
enum option_kind {
    OPTION_TEXT,   /**< A const char *; without an argument, a flag: a bool. */
    OPTION_TEXTS,  /**< Given several times: an array of const char *. */
    OPTION_NUMBER, /**< A number of 4 or 8 bytes. */
    OPTION_TIME,   /**< "20ms", "90s", "10m", "2h", "1d"; without a unit in the option's own. */
    OPTION_SIZE,   /**< A uint64_t of bytes, at least `least`: "512MiB". */
};

/** Values of a number that was not given, and that was given as "off"; larger than any other. */
#define OPTION_UNSAID UINT64_MAX
#define OPTION_OFF    (UINT64_MAX - 1)

struct call; /* What a program's own functions that parse are given. */

struct option_row {
    const char *name;     /**< Without the dashes; NULL in the last row. */
    const char *argument; /**< Syntax as above; NULL: a flag. */
    const char *help;     /**< Sentences, for --help and the manual. */
    char letter;          /**< It can be given as "-o" too; 0: it cannot. */

    enum option_kind kind;
    size_t offset, size; /**< Of the value in the options. The last one given counts. */
    size_t count;        /**< Of OPTION_TEXTS: offset of their number, a size_t. */
    bool required;

    const char *unit;     /**< Unit of a number, for messages; NULL: none. */
    unsigned places;      /**< Numbers are stored in units of 10^-places. */
    double own_seconds;   /**< Of a time: its own unit, which is `unit` too; 0: seconds. */
    uint64_t least, most; /**< Limits of a number, in these units; or the most names. */
    uint64_t initial;     /**< Value of a number that is not given. */

    /**
     * Parses a value of another type; @text is NULL if an optional one is left out. Returns 0 or an
     * exit status.
     */
    int (*take)(struct call *call, const struct option_row *option, const char *text);
};

/** Members of an option's row that locate its value. */
#define OPTION_VALUE(type, member)                                                                 \
    .offset = offsetof(type, member), .size = sizeof(((type *)0)->member)
/** A time stored in units of 10^-digits seconds, such as milliseconds or nanoseconds. */
#define OPTION_SECONDS(type, member, digits, from, to)                                             \
    .kind = OPTION_TIME, OPTION_VALUE(type, member), .unit = "seconds", .places = digits,          \
    .least = from, .most = to

#define OPTION_ROWS_MAX   128
#define OPTION_REASON_MAX 512

/** A command line that is being parsed. Zeroed but for the first three. */
struct option_rows {
    const struct option_row *rows;
    const struct option_row *more; /**< Further rows; or NULL. */
    bool leads;                    /**< Options end at the first word that is none. */

    const char *word; /**< The option as it was given. */
    bool unknown;     /**< There is no option of that name. */
    char reason[OPTION_REASON_MAX];
    const struct option_row *known[OPTION_ROWS_MAX];
    struct option getopt[OPTION_ROWS_MAX + 1];
    char letters[2 * OPTION_ROWS_MAX + 3];
};

/**
 * Find the next option of @argv, which is reordered. Abbreviations are refused: they would become
 * ambiguous when an option is added.
 *
 * @ret_text  Its argument, or NULL. Borrowed from @argv.
 * Returns 1; 0 at the end, with optind; or -EINVAL with `reason`. Not thread-safe.
 */
MUST_CHECK int option_rows_next(struct option_rows *parsed, int argc, char **argv,
                                const struct option_row **ret_row, char **ret_text);
/** Set the numbers that are not given. */
void option_rows_init(const struct option_row *rows, void *options);
/** Parse @text and store it in @options. Returns 0, or -EINVAL with @ret_reason. */
MUST_CHECK int option_row_take(const struct option_row *row, void *options, const char *text,
                               char ret_reason[OPTION_REASON_MAX]);
/** Parse and store all options, for rows without `take`. Returns 0, or -EINVAL with @ret_reason. */
MUST_CHECK int option_rows_read(const struct option_row *rows, void *options, int argc, char **argv,
                                char ret_reason[OPTION_REASON_MAX]);

/** True if an argument is one of fixed words ("start|stop"), not a name. */
bool option_is_choice(const char *argument);
/** True if @word is one of these fixed words. */
bool option_is_one_of(const char *choice, const char *word);

#endif
