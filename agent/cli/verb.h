#ifndef RESEAT_AGENT_CLI_VERB_H
#define RESEAT_AGENT_CLI_VERB_H

#include "agent/cli/show/output.h"
#include "state/base/option_rows.h"

/*
 * The grammar of the command line: a row for each verb and for each option. Parsing, `reseat help`,
 * shell completion and the manual's section on verbs are all generated from these rows.
 *
 * The syntax of an argument: "APP[:N]"; "[DEVICE]" is optional; "DEVICE..." can be repeated;
 * "DEVICE|APP" is one of several things; "start|stop" is one of these words; "PROGRAM [ARG...]" is
 * the command line of another program. The name determines what a shell completes (completion.py).
 */

/** Size of a command's options, with the NUL. What does not fit is an error. */
#define VERB_GIVEN_MAX 8192

/** A list of names, separated by commas. */
#define NAMES_MAX PROTOCOL_VDEVS_MAX
struct names {
    const char *items[NAMES_MAX]; /**< Borrowed. */
    size_t count;
};

/* Options of several verbs, whose options begin with a struct request `asked`. */
#define TIMEOUT_MAX_MS 10000000000
#define OPTION_TIMEOUT(type, text)                                                                 \
    {                                                                                              \
        "timeout", "TIME", text, OPTION_SECONDS(type, asked.timeout_ms, 3, 1, TIMEOUT_MAX_MS)      \
    }
#define OPTION_MAX_DOWNTIME(type, text)                                                            \
    {                                                                                              \
        "max-downtime", "TIME", text, OPTION_VALUE(type, asked.max_downtime_ms),                   \
            .kind = OPTION_TIME, .unit = "milliseconds", .own_seconds = 0.001, .least = 1,         \
            .most = 3600000                                                                        \
    }
#define OPTION_BANDWIDTH(type, text)                                                               \
    {                                                                                              \
        "bandwidth", "SIZE", text, .kind = OPTION_SIZE, .least = 1,                                \
                                   OPTION_VALUE(type, asked.bandwidth)                             \
    }

/* Options of verbs that print a table with output_table(). */
#define OPTION_OF_VIEW(member) OPTION_VALUE(struct view, member), .take = verb_take_view
#define OPTION_VIEW                                                                                \
    OPTION_COLUMNS, {"no-header", NULL, "Leave the titles out.", OPTION_OF_VIEW(headless)},        \
        {"quiet", NULL, "Only the first column, without its title. Also -q.", .letter = 'q',       \
         OPTION_OF_VIEW(quiet)},                                                                   \
    {                                                                                              \
        "watch", "TIME", "Print it again and again after this time, such as 2s, until Ctrl-C.",    \
            OPTION_SECONDS(struct view, watch_ms, 3, 100, 86400000), .take = verb_take_view        \
    }
#define OPTION_COLUMNS                                                                             \
    {"columns", "NAMES",                                                                           \
     "Only these columns, in this order: their titles, with commas between and - for a blank. "    \
     "Also -o.",                                                                                   \
     .letter = 'o', OPTION_OF_VIEW(columns)},                                                      \
    {                                                                                              \
        "sort", "NAME",                                                                            \
            "Sort by this column; with - before it (--sort=-memory) the largest first.",           \
            OPTION_OF_VIEW(sort)                                                                   \
    }

struct verb {
    const char *name;      /**< "move"; or "config print", where verbs share a first word. */
    const char *arguments; /**< Separated by blanks. */
    const char *summary;   /**< One sentence. */
    const char *text;      /**< Further sentences, in paragraphs; or NULL. */
    const struct option_row *options;
    /** Takes options that have neither a function of their own nor a place in the struct. */
    int (*take)(struct call *call, const struct option_row *option, const char *text);
    const char *members; /**< Of its JSON object, as output_add_members() takes them; or NULL. */
    bool plain;          /**< It has no --json, as its output is that of another program. */
    bool users;  /**< Only asks the agent, so root may ask another user's (reseat --user). */
    bool hidden; /**< For programs: not listed by help. */

    /** Returns options that another table generates; used instead of `options`. */
    const struct option_row *(*other_options)(void);
    size_t size;                  /**< Of the options' struct, which is zeroed first. */
    void (*prepare)(void *value); /**< Sets further initial values; or NULL. */

    /** Returns an exit status. */
    int (*run)(struct call *call);
};

/** A verb and its parsed words. */
struct call {
    const struct verb *const *verbs; /**< All verbs; NULL at the end. */
    const struct verb *verb;
    struct output output;
    void *options; /**< verb->size bytes. */
    char **words;  /**< The arguments; NULL at the end. */
    size_t count;
    char given[VERB_GIVEN_MAX]; /**< The options as they were given: "--name=value", a line each. */
};

/** The rows of a verb's options. The last has no name; --json is not among them. */
const struct option_row *verb_options(const struct verb *verb);
/** True if the arguments are the command line of another program, whose options are not parsed. */
bool verb_takes_program(const struct verb *verb);

/**
 * Find the verb that @words begin with.
 *
 * @count      At least 1.
 * @ret_taken  Number of words in its name.
 * Returns NULL if there is none, after printing the error; @ret_status is then the exit status.
 */
const struct verb *verb_find(const struct verb *const *verbs, const struct output *output,
                             char **words, size_t count, size_t *ret_taken, int *ret_status);

/** Split @text at commas, in place, into @most non-empty names at most. 0 or exit status. */
MUST_CHECK int verb_take_names(const struct call *call, const char *what, char *text, size_t most,
                               struct names *ret_names);

/** True if selectors stand for the verb's first argument, APP: it is run for each program. */
bool verb_repeats(const struct call *call);
/** Result of verb_parse() for --help. */
#define VERB_HELP (-1)
/**
 * Parse the words after the verb: options into @call->options, arguments into @call->words.
 *
 * @argv  argv[0] is ignored; the words are reordered. Borrowed for as long as @call.
 * Returns 0, VERB_HELP, or an exit status after printing the error. Not thread-safe.
 */
MUST_CHECK int verb_parse(struct call *call, int argc, char **argv);

/** Of an option whose value is a struct names of at most `most` names. */
int verb_take_list(struct call *call, const struct option_row *option, const char *text);
/** Of OPTION_VIEW. */
int verb_take_view(struct call *call, const struct option_row *option, const char *text);

/* Help texts, generated from the rows. */

/** Print the list of all verbs. */
void help_print_all(const struct verb *const *verbs, FILE *to);
/** Print a verb's help; "config": of each with that first word. False: there is none. */
bool help_print(const struct verb *const *verbs, const char *name);

#endif
