#include "agent/cli/verb.h"

#include <getopt.h>
#include <string.h>

#include "agent/cli/select.h"
#include "agent/config/config.h"

#define VERBS_MAX 128
#define NEAR      2 /* Edit distance up to which a word counts as a typing error. */

const struct option_row *verb_options(const struct verb *verb)
{
    static const struct option_row none[] = {{NULL}};

    return verb->other_options ? verb->other_options() : verb->options ? verb->options : none;
}

/* ---- arguments ---- */

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
        if (option_is_choice(argument) && !option_is_one_of(argument, call->words[i])) {
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

int verb_take_list(struct call *call, const struct option_row *option, const char *text)
{
    struct names *names = (void *)((char *)call->options + option->offset);
    char name[64];

    snprintf(name, sizeof(name), "--%s", option->name);
    if (names->count)
        return output_usage(&call->output, "%s is given once: names with commas", name);
    /* argv may be modified. */
    return verb_take_names(call, name, (char *)text, (size_t)option->most, names);
}

static int verb_store(struct call *call, const struct option_row *option, void *options,
                      const char *text)
{
    char reason[OPTION_REASON_MAX];

    return option_row_take(option, options, text, reason)
               ? output_usage(&call->output, "%s", reason)
               : 0;
}

int verb_take_view(struct call *call, const struct option_row *option, const char *text)
{
    return verb_store(call, option, &call->output.view, text);
}

/* ---- options ---- */

static int verb_refuse_option(const struct call *call, const struct option_rows *parsed)
{
    const char *names[OPTION_ROWS_MAX], *nearest = NULL;
    size_t count = 0;

    for (const struct option_row *option = parsed->rows; option->name && count < ARRAY_SIZE(names);
         option++)
        names[count++] = option->name;
    if (count && parsed->unknown)
        nearest = config_nearest(parsed->word + strlen("--"), names, count, NEAR);
    return output_usage(&call->output, "%s%s%s%s", parsed->reason,
                        nearest ? "; did you mean --" : "", nearest ? nearest : "",
                        nearest ? "?" : "");
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
    static const struct option_row common[] = {
        {.name = "json"}, {.name = "help", .letter = 'h'}, {NULL}};
    const struct option_row *rows = verb_options(call->verb), *option;
    struct option_rows parsed = {
        .rows = rows, .more = common + call->verb->plain, .leads = verb_takes_program(call->verb)};
    bool given[OPTION_ROWS_MAX] = {false};
    char *text;
    int found, status = 0;

    option_rows_init(rows, call->options);
    while (!status && (found = option_rows_next(&parsed, argc, argv, &option, &text)) > 0) {
        if (option == &common[1])
            return VERB_HELP;
        if (option == &common[0])
            continue;
        given[option - rows] = true;
        status = verb_note(call, option->name, text);
        if (!status)
            status = option->take    ? option->take(call, option, text)
                     : !option->size ? call->verb->take(call, option, text)
                                     : verb_store(call, option, call->options, text);
    }
    if (status)
        return status;
    if (found)
        return verb_refuse_option(call, &parsed);
    static char each[] = "*"; /* In place of the program: the words may be changed. */
    bool selects = verb_repeats(call);
    call->words = argv + optind - selects;
    call->count = (size_t)(argc - optind) + selects;
    if (selects)
        call->words[0] = each;
    status = verb_check_arguments(call);
    for (size_t i = 0; !status && i < OPTION_ROWS_MAX && rows[i].name; i++)
        if (rows[i].required && !given[i])
            status =
                output_usage(&call->output, "--%s %s is needed", rows[i].name, rows[i].argument);
    return status;
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
