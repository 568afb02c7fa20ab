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

struct verb_option {
    const char *name;     /**< Without the dashes; NULL ends the rows. */
    const char *argument; /**< As above; NULL: a flag. "[FILE]" may be left out. */
    const char *help;     /**< Sentences, for --help and the manual. */

    /* Where its value goes in the verb's options: a bool, a const char *, a number of 4 or 8 bytes.
     * The last one given counts. */
    size_t offset, size;
    bool required;

    const char *number; /**< It is a number: which, "seconds, 0 to 60"; NULL: it is none. */
    unsigned places;    /**< It is kept in units of 10^-places. */
    uint64_t least, most;

    /** Takes any other value, and NULL for one that is left out. 0, or an exit status. */
    int (*take)(struct call *call, const struct verb_option *option, const char *text);
};

/** Where an option's value goes, in its row. */
#define OPTION_VALUE(type, member)                                                                 \
    .offset = offsetof(type, member), .size = sizeof(((type *)0)->member)

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
    size_t size;                  /**< Of what the options set. It is zero unless... */
    void (*prepare)(void *value); /**< ...this, which may be NULL, says otherwise. */

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

/** A number as an option's row bounds it. False: @text is none. */
bool verb_parse_number(const char *text, const struct verb_option *option, uint64_t *ret_value);

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
