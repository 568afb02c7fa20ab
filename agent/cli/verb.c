#include "agent/cli/verb.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cli/select.h"
#include "agent/config/config.h"
#include "state/base/bytes/size.h"

#define OPTIONS_MAX 128
#define VERBS_MAX   128
#define NEAR        2   /* Edit distance up to which a word counts as a typing error. */
#define ROW         256 /* getopt_long()'s result for our options; not a character. */

const struct verb_option *verb_options(const struct verb *verb)
{
    static const struct verb_option none[] = {{NULL}};

    return verb->other_options ? verb->other_options() : verb->options ? verb->options : none;
}

/* ---- arguments ---- */

/** True if the argument is one of fixed words ("start|stop"), not a name. */
static bool verb_is_choice(const char *argument)
{
    return !argument[strcspn(argument, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")];
}

static bool verb_is_one_of(const char *choice, const char *word)
{
    size_t length = strlen(word);

    for (const char *at = choice; *at; at += strcspn(at, "|"), at += *at == '|')
        if (strcspn(at, "|") == length && strncmp(at, word, length) == 0)
            return true;
    return false;
}

bool verb_takes_program(const struct verb *verb)
{
    return verb->arguments && strstr(verb->arguments, "ARG...");
}

static int verb_check_arguments(const struct call *call)
{
    const char *at = call->verb->arguments ? call->verb->arguments : "";
    size_t i = 0;

    for (; *at; at += strspn(at, " "), i++) {
        bool optional = *at == '[', given = i < call->count;
        size_t length = strcspn(at, " ");
        char argument[80];
        snprintf(argument, sizeof(argument), "%.*s", (int)length - 2 * optional, at + optional);
        if (!given && !optional)
            return output_usage(&call->output, "%s is missing", argument);
        if (!given || verb_takes_program(call->verb))
            return 0;
        size_t end = strlen(argument);
        bool more = end > 3 && strcmp(argument + end - 3, "...") == 0 && i + 1 < call->count;
        if (!call->words[i][0])
            return output_usage(&call->output, "%s is empty", argument);
        if (verb_is_choice(argument) && !verb_is_one_of(argument, call->words[i])) {
            return output_usage(&call->output, "there is no \"%s\"; say %s", call->words[i],
                                argument);
        }
        at += more ? 0 : length;
    }
    return i < call->count
               ? output_usage(&call->output, "too many arguments: \"%s\"", call->words[i])
               : 0;
}

/* ---- values ---- */

/** Format a number: 1500 with 3 places is "1.5". */
static const char *verb_amount(uint64_t value, unsigned places, char ret[32])
{
    double unit = 1;

    for (unsigned i = 0; i < places; i++)
        unit *= 10;
    if (places)
        snprintf(ret, 32, "%.15g", (double)value / unit);
    else
        snprintf(ret, 32, "%llu", (unsigned long long)value);
    return ret;
}

/** What a number with this unit after it is multiplied by, to be in the option's own; 0: none of
 * its. */
static double verb_unit(const struct verb_option *option, const char *unit)
{
    if (option->kind != OPTION_TIME || !*unit)
        return !*unit;
    double seconds = strcmp(unit, "ms") == 0 ? 0.001 : time_unit_seconds(unit);
    return option->own_seconds ? seconds / option->own_seconds : seconds;
}

static bool verb_parse_number(const char *text, const struct verb_option *option,
                              uint64_t *ret_value)
{
    char digits[64];
    size_t length = strspn(text, "0123456789.");
    double unit = verb_unit(option, text + length);
    uint64_t value;
    char *end;

    if (!isdigit((unsigned char)*text) || !unit || length >= sizeof(digits))
        return false;
    snprintf(digits, sizeof(digits), "%.*s", (int)length, text);
    errno = 0;
    if (option->places || option->kind == OPTION_TIME) {
        double number = strtod(digits, &end) * unit;
        for (unsigned i = 0; i < option->places; i++)
            number *= 10;
        value = number < 1.8e19 ? (uint64_t)(number + 0.5) : UINT64_MAX;
        if (!option->places && fabs((double)value - number) > 1e-6)
            return false;
    } else {
        value = strtoull(digits, &end, 10);
    }
    *ret_value = value;
    return !*end && !errno && value >= option->least && value <= option->most;
}

static int verb_take_number(const struct call *call, const struct verb_option *option,
                            const char *text, uint64_t *ret_value)
{
    bool off = strstr(option->argument, "|off");
    char least[32], most[32];

    if (off && strcmp(text, "off") == 0)
        *ret_value = OPTION_OFF;
    else if (!verb_parse_number(text, option, ret_value))
        return output_usage(&call->output, "--%s must be %s to %s%s%s%s, not \"%s\"", option->name,
                            verb_amount(option->least, option->places, least),
                            verb_amount(option->most, option->places, most),
                            option->unit ? " " : "", option->unit ? option->unit : "",
                            off ? " or off" : "", text);
    return 0;
}

static int verb_take_size(const struct call *call, const struct verb_option *option,
                          const char *text, uint64_t *ret_bytes)
{
    char reason[PROTOCOL_TEXT_MAX];

    if (size_parse(text, ret_bytes, reason, sizeof(reason)))
        return output_usage(&call->output, "--%s: %s", option->name, reason);
    return *ret_bytes ? 0 : output_usage(&call->output, "--%s must be above 0", option->name);
}

int verb_take_names(const struct call *call, const char *what, char *text, size_t most,
                    struct names *ret_names)
{
    struct names names = {.count = 0};

    for (char *name = strsep(&text, ","); name; name = strsep(&text, ",")) {
        if (!*name)
            return output_usage(&call->output, "a name in the list of %s is empty", what);
        if (names.count == most)
            return output_usage(&call->output, "%s takes at most %zu names", what, most);
        names.items[names.count++] = name;
    }
    *ret_names = names;
    return 0;
}

int verb_take_view(struct call *call, const struct verb_option *option, const char *text)
{
    struct view *view = &call->output.view;

    switch (option->name[0]) {
    case 'c':
        view->columns = text;
        return 0;
    case 's':
        view->sort = text;
        return 0;
    case 'n':
        view->headless = true;
        return 0;
    case 'q':
        view->quiet = true;
        return 0;
    default:
        return verb_take_number(call, option, text, &view->watch_ms);
    }
}

static void verb_put_number(const struct verb_option *option, void *options, uint64_t number)
{
    uint32_t narrow = (uint32_t)number;
    bool small = option->size == sizeof(narrow);

    memcpy((char *)options + option->offset, small ? (void *)&narrow : &number, option->size);
}

static int verb_take(struct call *call, const struct verb_option *option, const char *text)
{
    void *field = (char *)call->options + option->offset;
    uint64_t number;
    char name[64];
    int status = 0;

    if (option->take)
        return option->take(call, option, text);
    snprintf(name, sizeof(name), "--%s", option->name);
    switch (option->kind) {
    case OPTION_NAMES:
        if (((struct names *)field)->count)
            return output_usage(&call->output, "%s is given once: names with commas", name);
        /* argv may be modified. */
        return verb_take_names(call, name, (char *)text, (size_t)option->most, field);
    case OPTION_TEXT:
        if (!option->argument)
            *(bool *)field = true;
        else if (verb_is_choice(option->argument) && !verb_is_one_of(option->argument, text))
            status = output_usage(&call->output, "%s must be %s, not \"%s\"", name,
                                  option->argument, text);
        else
            memcpy(field, &text, sizeof(text));
        return status;
    case OPTION_SIZE:
        status = verb_take_size(call, option, text, &number);
        break;
    case OPTION_NUMBER:
    case OPTION_TIME:
        status = verb_take_number(call, option, text, &number);
        break;
    }
    if (!status)
        verb_put_number(option, call->options, number);
    return status;
}

/* ---- options ---- */

/**
 * Print an error for an option that getopt_long() rejected: @result is ':' or '?', @number its
 * optopt.
 */
static int verb_refuse_option(const struct call *call, int result, int number, const char *word)
{
    const char *names[OPTIONS_MAX], *nearest = NULL;
    size_t count = 0;

    if (result == ':')
        return output_usage(&call->output, "option %s lacks its value", word);
    if (number && result == '?' && !strchr(word, '='))
        return output_usage(&call->output, "option -%c is unknown", number);
    if (number)
        return output_usage(&call->output, "option %s takes no value", word);
    for (const struct verb_option *option = verb_options(call->verb);
         option->name && count < OPTIONS_MAX; option++)
        names[count++] = option->name;
    if (count && strncmp(word, "--", 2) == 0)
        nearest = config_nearest(word + 2, names, count, NEAR);
    return output_usage(&call->output, "option %s is unknown%s%s%s", word,
                        nearest ? "; did you mean --" : "", nearest ? nearest : "",
                        nearest ? "?" : "");
}

static void verb_make_getopt(const struct verb *verb, struct option *ret_options)
{
    const struct verb_option *rows = verb_options(verb);

    for (size_t i = 0; i < OPTIONS_MAX && rows[i].name; i++) {
        const char *argument = rows[i].argument;
        int has = !argument          ? no_argument
                  : *argument == '[' ? optional_argument
                                     : required_argument;
        *ret_options++ = (struct option){rows[i].name, has, NULL, ROW};
    }
    *ret_options++ = (struct option){"help", no_argument, NULL, 'h'};
    *ret_options = (struct option){verb->plain ? NULL : "json", no_argument, NULL, 'j'};
}

/** The letters of getopt_long(): those of the rows and what every verb has. */
static void verb_make_letters(const struct verb *verb, char ret[2 * OPTIONS_MAX + 8])
{
    const struct verb_option *rows = verb_options(verb);
    size_t used = (size_t)sprintf(ret, verb_takes_program(verb) ? "+:h" : ":h");

    for (size_t i = 0; i < OPTIONS_MAX && rows[i].name; i++)
        if (rows[i].letter)
            used += (size_t)sprintf(ret + used, rows[i].argument ? "%c:" : "%c", rows[i].letter);
}

/** The row of a letter; -1: none. */
static int verb_find_letter(const struct verb *verb, int letter)
{
    const struct verb_option *rows = verb_options(verb);

    for (int i = 0; i < OPTIONS_MAX && rows[i].name; i++)
        if (rows[i].letter && rows[i].letter == letter)
            return i;
    return -1;
}

/**
 * The value of an optional argument such as `--models FILE`. getopt_long() only accepts it after
 * '='; here the next word is taken too, unless it is an option.
 */
static char *verb_optional_value(int argc, char **argv)
{
    return optarg || optind == argc || argv[optind][0] == '-' ? optarg : argv[optind++];
}

static int verb_check_required(const struct call *call, const bool *given)
{
    const struct verb_option *rows = verb_options(call->verb);

    for (size_t i = 0; i < OPTIONS_MAX && rows[i].name; i++)
        if (rows[i].required && !given[i])
            return output_usage(&call->output, "--%s %s is needed", rows[i].name, rows[i].argument);
    return 0;
}

/** Note an option before its value is cut into names. */
static int verb_note(struct call *call, const char *name, const char *value)
{
    size_t used = strlen(call->given), room = sizeof(call->given) - used;
    int size = snprintf(call->given + used, room, "--%s%s%s\n", name, value ? "=" : "",
                        value ? value : "");

    return (size_t)size < room ? 0 : output_usage(&call->output, "the options are too long");
}

bool verb_repeats(const struct call *call)
{
    const char *arguments = call->verb->arguments;

    return arguments && strncmp(arguments, "APP", 3) == 0 && select_given(&call->output);
}

int verb_parse(struct call *call, int argc, char **argv)
{
    char letters[2 * OPTIONS_MAX + 8];
    struct option options[OPTIONS_MAX + 3] = {{0}};
    bool given[OPTIONS_MAX] = {false};
    int result, index, status;

    verb_make_getopt(call->verb, options);
    verb_make_letters(call->verb, letters);
    for (const struct verb_option *option = verb_options(call->verb); option->name; option++)
        if (option->initial)
            verb_put_number(option, call->options, option->initial);
    opterr = 0;
    optind = 0;
    while ((result = getopt_long(argc, argv, letters, options, (index = -1, &index))) >= 0) {
        const char *word = argv[optind - 1 - (optarg && optarg == argv[optind - 1])];
        /* Reject abbreviations: they would become ambiguous when an option is added. */
        bool whole = index < 0 || strlen(options[index].name) == strcspn(word + 2, "=");
        if (result == ':' || result == '?' || !whole)
            return verb_refuse_option(call, result, result == '?' ? optopt : 0, word);
        if (result == 'h')
            return VERB_HELP;
        if (index < 0 && (index = verb_find_letter(call->verb, result)) >= 0)
            result = ROW;
        if (result == ROW) {
            if (options[index].has_arg == optional_argument)
                optarg = verb_optional_value(argc, argv);
            given[index] = true;
            status = verb_note(call, options[index].name, optarg);
            if (!status)
                status = verb_take(call, &verb_options(call->verb)[index], optarg);
            if (status)
                return status;
        }
    }
    static char each[] = "*"; /* In place of the program: the words may be changed. */
    bool selects = verb_repeats(call);
    call->words = argv + optind - selects;
    call->count = (size_t)(argc - optind) + selects;
    if (selects)
        call->words[0] = each;
    status = verb_check_arguments(call);
    return status ? status : verb_check_required(call, given);
}

/* ---- finding a verb ---- */

const struct verb *verb_find(const struct verb *const *verbs, const struct output *output,
                             char **words, size_t count, size_t *ret_taken, int *ret_status)
{
    const char *names[VERBS_MAX], *first = words[0], *nearest;
    char seconds[256] = "";
    size_t name_count = 0, used = 0;

    for (size_t i = 0; verbs[i] && name_count < VERBS_MAX; i++) {
        size_t length = strcspn(verbs[i]->name, " ");
        const char *second = verbs[i]->name[length] ? verbs[i]->name + length + 1 : NULL;
        if (strlen(first) != length || strncmp(verbs[i]->name, first, length)) {
            names[name_count++] = verbs[i]->name;
        } else if (!second || (count > 1 && strcmp(second, words[1]) == 0)) {
            *ret_taken = second ? 2 : 1;
            return verbs[i];
        } else {
            used += (size_t)snprintf(seconds + used, sizeof(seconds) - used, "%s%s",
                                     used ? "|" : "", second);
        }
    }
    if (used) {
        bool wrong = count > 1 && words[1][0] != '-';
        *ret_status = output_usage(output, "%s%s%ssay %s", wrong ? "there is no \"" : "",
                                   wrong ? words[1] : "", wrong ? "\"; " : "", seconds);
        return NULL;
    }
    if (*first == '-') {
        *ret_status = output_fail(output, ERR_USAGE,
                                  "option %s is unknown; options follow the command; see reseat "
                                  "--help",
                                  first);
        return NULL;
    }
    /* A word of two or three letters is within a distance of two of most others. */
    nearest = config_nearest(first, names, name_count, strlen(first) > 3 ? NEAR : 1);
    *ret_status =
        output_fail(output, ERR_USAGE, "there is no command \"%s\"%s%s%s; see reseat --help", first,
                    nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
    return NULL;
}
