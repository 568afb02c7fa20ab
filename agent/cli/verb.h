#ifndef RESEAT_AGENT_CLI_VERB_H
#define RESEAT_AGENT_CLI_VERB_H

#include "agent/cli/show/output.h"

/*
 * What the command line understands: one row a verb, one row an option. What is parsed, what
 * `reseat help` says, what a shell completes and what the manual has on verbs all come from these
 * rows.
 *
 * An argument is written as people read it: "APP[:N]", "[DEVICE]" where it may be left out,
 * "DEVICE..." where there may be several, "DEVICE|APP" where it is one of several things,
 * "start|stop" where it is one of these words, "PROGRAM [ARG...]" where everything from there on is
 * another program's. What it is called decides what a shell offers for it (completion.py).
 */

struct call;

/** How the value of an option is read, and what it sets. */
enum option_kind {
    OPTION_TEXT,   /**< A const char *; without an argument a flag: a bool. */
    OPTION_NUMBER, /**< A number of 4 or 8 bytes. */
    OPTION_TIME,   /**< The same of seconds, "1.5"; or "90s", "10m", "2h", "1d". */
    OPTION_SIZE,   /**< A uint64_t, bytes, above 0: "512MiB". */
    OPTION_NAMES,  /**< A struct names. */
};

/** Of a number: nothing was given, and "none" was. No other value is as large. */
#define OPTION_UNSAID UINT64_MAX
#define OPTION_NONE   (UINT64_MAX - 1)

/** Names with commas between. */
#define NAMES_MAX 8
struct names {
    const char *items[NAMES_MAX]; /**< Borrowed. */
    size_t count;
};

struct verb_option {
    const char *name;     /**< Without the dashes; NULL ends the rows. */
    const char *argument; /**< As above; NULL: a flag. "[FILE]" may be left out. */
    const char *help;     /**< Sentences, for --help and the manual. */

    enum option_kind kind;
    size_t offset, size; /**< Of the value in the verb's options. The last one given counts. */
    bool required;

    const char *unit;     /**< Of a number, in messages; NULL: it has none. */
    unsigned places;      /**< A number is kept in units of 10^-places. */
    uint64_t least, most; /**< Of a number, in these units; most names. */
    uint64_t initial;     /**< A number that was not given. */

    /** Takes a value that is none of these, and NULL for one that is left out. 0, or an exit
     *  status. */
    int (*take)(struct call *call, const struct verb_option *option, const char *text);
};

/** Where an option's value goes, in its row. */
#define OPTION_VALUE(type, member)                                                                 \
    .offset = offsetof(type, member), .size = sizeof(((type *)0)->member)
/** A time that is kept in units of 10^-digits seconds: milliseconds or nanoseconds. */
#define OPTION_SECONDS(type, member, digits, from, to)                                             \
    .kind = OPTION_TIME, OPTION_VALUE(type, member), .unit = "seconds", .places = digits,          \
    .least = from, .most = to

/* What several verbs have, whose options begin with a struct request `asked`. */
#define TIMEOUT_MAX_MS 10000000000
#define OPTION_TIMEOUT(type, text)                                                                 \
    {                                                                                              \
        "timeout", "SECONDS", text, OPTION_SECONDS(type, asked.timeout_ms, 3, 1, TIMEOUT_MAX_MS)   \
    }
#define OPTION_MAX_DOWNTIME(type, text)                                                            \
    {                                                                                              \
        "max-downtime", "MS", text, OPTION_VALUE(type, asked.max_downtime_ms),                     \
            .kind = OPTION_NUMBER, .unit = "milliseconds", .least = 1, .most = 3600000             \
    }
#define OPTION_BANDWIDTH(type, text)                                                               \
    {                                                                                              \
        "bandwidth", "SIZE", text, .kind = OPTION_SIZE, OPTION_VALUE(type, asked.bandwidth)        \
    }

struct verb {
    const char *name;      /**< "move", or "config print" of several that begin alike. */
    const char *arguments; /**< With blanks between. */
    const char *summary;   /**< One sentence. */
    const char *text;      /**< More of them, also in paragraphs; NULL: there is no more to say. */
    const struct verb_option *options;
    bool plain;  /**< It has no --json: what it prints is not its own. */
    bool users;  /**< It only asks the agent: root may ask another user's (reseat --user). */
    bool hidden; /**< For programs: help does not list it. */

    /** For options that are in a table already; instead of `options`. */
    const struct verb_option *(*other_options)(void);
    size_t size;                  /**< Of what the options set: zero, but for initial numbers... */
    void (*prepare)(void *value); /**< ...and what this sets; or NULL. */

    /** Returns an exit status. */
    int (*run)(struct call *call);
};

/** A verb as it was called. */
struct call {
    const struct verb *const *verbs; /**< All of them, NULL at the end. */
    const struct verb *verb;
    struct output output;
    void *options; /**< verb->size bytes. */
    char **words;  /**< Its arguments, and what follows them; NULL at the end. */
    size_t count;
};

/** Its rows. The last has no name; --json is not among them. */
const struct verb_option *verb_options(const struct verb *verb);
/** Everything behind the verb's first argument that may stop options is another program's. */
bool verb_takes_program(const struct verb *verb);

/**
 * Find the verb that @words begin with.
 *
 * @count      At least 1.
 * @ret_taken  How many words name it.
 * Returns NULL where there is none; then @output tells why and @ret_status is the exit status.
 */
const struct verb *verb_find(const struct verb *const *verbs, const struct output *output,
                             char **words, size_t count, size_t *ret_taken, int *ret_status);

/** Split @text at its commas, in place: of @most names none is empty. 0, or an exit status. */
MUST_CHECK int verb_take_names(const struct call *call, const char *what, char *text, size_t most,
                               struct names *ret_names);

/** Help was asked for. */
#define VERB_HELP (-1)
/**
 * Take the words behind the verb: its options into @call->options, its arguments into
 * @call->words.
 *
 * @argv  argv[0] is not looked at; sorted anew. Borrowed for as long as the call.
 * Returns 0, VERB_HELP, or an exit status after having said what is wrong. Not thread-safe.
 */
MUST_CHECK int verb_parse(struct call *call, int argc, char **argv);

/* What verbs say of themselves, from their rows. */

/** The list of all verbs. */
void help_print_all(const struct verb *const *verbs, FILE *to);
/** A verb with its options, on stdout; "config": each that begins so. False: there is none. */
bool help_print(const struct verb *const *verbs, const char *name);
/** All rows: an array of objects. NULL without memory. */
json_t *help_json(const struct verb *const *verbs);

#endif
