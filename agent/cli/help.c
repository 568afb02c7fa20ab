#include "agent/cli/verb.h"

#include <string.h>

#define USAGE 7 /* Columns of "Usage: ". */
/* Columns of the label before a help text; a longer label gets a line of its own. */
#define LABEL_MAX 26

static void help_label_of(const struct option_row *option, char *ret, size_t size)
{
    snprintf(ret, size, "--%s%s%s", option->name, option->argument ? " " : "",
             option->argument ? option->argument : "");
}

static void help_print_usage(const struct verb *verb, bool first)
{
    char options[256] = "", line[1024], label[160];
    const char *arguments = verb->arguments ? verb->arguments : "";
    bool program = verb_takes_program(verb);

    for (const struct option_row *option = verb_options(verb); option->name; option++) {
        if (option->required) {
            help_label_of(option, label, sizeof(label));
            snprintf(options, sizeof(options), " %s", label);
        }
    }
    strcat(options, " [OPTION...]");
    snprintf(line, sizeof(line), "%sreseat %s%s%s%s%s", first ? "Usage: " : "", verb->name,
             program ? options : "", *arguments ? " " : "", arguments, program ? "" : options);
    printf("%*s", first ? 0 : USAGE, "");
    say_wrapped(stdout, first ? 0 : USAGE, 2 * USAGE, line);
}

static void help_print_labelled(FILE *to, const char *label, int width, const char *text)
{
    int length = (int)strlen(label);

    if (length > width)
        fprintf(to, "  %s\n%*s", label, width + 4, "");
    else
        fprintf(to, "  %-*s  ", width, label);
    say_wrapped(to, width + 4, width + 4, text);
}

static void help_print_paragraphs(const char *text)
{
    while (text && *text) {
        char paragraph[2048];
        size_t length = strcspn(text, "\n");
        snprintf(paragraph, sizeof(paragraph), "%.*s", (int)length, text);
        putchar('\n');
        say_wrapped(stdout, 0, 0, paragraph);
        text += length + strspn(text + length, "\n");
    }
}

/** The names of the members of the verb's JSON object. */
static json_t *help_members(const struct verb *verb)
{
    json_t *list = json_array();

    for (const char *at = verb->members; at && *at; at += strspn(at, "[]? ")) {
        size_t length = strcspn(at, "[? ");
        json_array_append_new(list, json_stringn(at, length));
        at += length;
    }
    return list;
}

static void help_print_options(const struct verb *verb)
{
    char label[160];
    int width = (int)strlen("--json");

    for (const struct option_row *option = verb_options(verb); option->name; option++) {
        help_label_of(option, label, sizeof(label));
        int length = (int)strlen(label);
        width = length > width && length <= LABEL_MAX ? length : width;
    }
    putchar('\n');
    for (const struct option_row *option = verb_options(verb); option->name; option++) {
        help_label_of(option, label, sizeof(label));
        help_print_labelled(stdout, label, width, option->help);
    }
    if (!verb->plain) {
        struct words words = {.used = 0};
        json_auto_t *members = json_pack("{s:o}", "members", help_members(verb));
        words_say(&words, members,
                  "Print one JSON object, on errors too[. Its members: {members}].");
        help_print_labelled(stdout, "--json", width, words.text);
    }
}

static bool help_begins_with(const struct verb *verb, const char *name)
{
    size_t length = strlen(name);

    return strncmp(verb->name, name, length) == 0 &&
           (verb->name[length] == ' ' || !verb->name[length]);
}

bool help_print(const struct verb *const *verbs, const char *name)
{
    bool first = true;

    for (size_t i = 0; verbs[i]; i++) {
        if (help_begins_with(verbs[i], name)) {
            help_print_usage(verbs[i], first);
            first = false;
        }
    }
    for (size_t i = 0; verbs[i]; i++) {
        if (help_begins_with(verbs[i], name)) {
            char text[256];
            bool several = strlen(verbs[i]->name) > strlen(name);
            snprintf(text, sizeof(text), "%s%s%s", several ? verbs[i]->name : "",
                     several ? ": " : "", verbs[i]->summary);
            help_print_paragraphs(text);
            help_print_paragraphs(verbs[i]->text);
            help_print_options(verbs[i]);
        }
    }
    return !first;
}

void help_print_all(const struct verb *const *verbs, FILE *to)
{
    fputs("Usage: reseat COMMAND [ARG...]\n\nMove a running OpenCL program between devices.\n\n",
          to);
    for (size_t i = 0; verbs[i]; i++) {
        char label[160];
        snprintf(label, sizeof(label), "%s%s%s", verbs[i]->name, verbs[i]->arguments ? " " : "",
                 verbs[i]->arguments ? verbs[i]->arguments : "");
        if (!verbs[i]->hidden)
            help_print_labelled(to, label, LABEL_MAX, verbs[i]->summary);
    }
    fputc('\n', to);
    say_wrapped(to, 0, 0,
                "reseat help COMMAND says more. Most take --json. Root asks another user's agent "
                "by reseat --user USER COMMAND.");
    say_wrapped(to, 0, 0,
                "Exit status: 0 done; 1 tried and rolled back; 2 usage; 3 no such program, device "
                "or agent; 4 refused, the device cannot run it or has no room; 5 deadline passed.");
}

static json_t *help_options_json(const struct verb *verb)
{
    json_t *list = json_array();

    for (const struct option_row *option = verb_options(verb); option->name; option++) {
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:b}", "name", option->name,
                                              "argument", option->argument ? option->argument : "",
                                              "help", option->help, "required", option->required));
    }
    return list;
}

static json_t *help_json(const struct verb *const *verbs)
{
    json_t *list = json_array();

    for (size_t i = 0; verbs[i]; i++) {
        if (!verbs[i]->hidden) {
            json_array_append_new(
                list,
                json_pack("{s:s, s:s, s:s, s:s, s:b, s:o, s:o}", "name", verbs[i]->name,
                          "arguments", verbs[i]->arguments ? verbs[i]->arguments : "", "summary",
                          verbs[i]->summary, "text", verbs[i]->text ? verbs[i]->text : "", "json",
                          !verbs[i]->plain, "members", help_members(verbs[i]), "options",
                          help_options_json(verbs[i])));
        }
    }
    return list;
}

/* ---- the verbs ---- */

static int help_run(struct call *call)
{
    size_t taken;
    char name[128];
    int status = STATUS_USAGE;

    if (call->output.json) {
        json_auto_t *answer = json_pack("{s:o}", "verbs", help_json(call->verbs));
        return output_result(&call->output, answer, NULL, NULL);
    }
    if (!call->count) {
        help_print_all(call->verbs, stdout);
        return output_done();
    }
    snprintf(name, sizeof(name), "%s%s%s", call->words[0], call->count > 1 ? " " : "",
             call->count > 1 ? call->words[1] : "");
    if (!help_print(call->verbs, name)) {
        const struct verb *verb =
            verb_find(call->verbs, &call->output, call->words, call->count, &taken, &status);
        if (!verb)
            return status;
        (void)help_print(call->verbs, verb->name);
    }
    return output_done();
}

const struct verb verb_help = {
    .name = "help",
    .arguments = "[COMMAND] [SUBCOMMAND]",
    .summary = "List the commands, or explain one.",
    .members = "verbs",
    .run = help_run,
};

static int help_run_version(struct call *call)
{
    json_auto_t *answer =
        json_pack("{s:s, s:i}", "version", RESEAT_VERSION, "protocol", PROTOCOL_VERSION);

    return output_say(&call->output, answer, "reseat {version}");
}

const struct verb verb_version = {
    .name = "version",
    .summary = "Print the version.",
    .members = "version protocol",
    .run = help_run_version,
};
