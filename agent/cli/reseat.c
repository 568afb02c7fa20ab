#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/cli/client.h"
#include "agent/cli/select.h"
#include "state/base/clock.h"
#include "state/base/files/file.h"

/* The verbs, in the order in which the help and the manual list them. */
#define VERBS(V)                                                                                   \
    V(run)                                                                                         \
    V(devices)                                                                                     \
    V(ps)                                                                                          \
    V(top)                                                                                         \
    V(page)                                                                                        \
    V(move)                                                                                        \
    V(cancel)                                                                                      \
    V(adjust)                                                                                      \
    V(suspend)                                                                                     \
    V(resume)                                                                                      \
    V(checkpoint)                                                                                  \
    V(protect)                                                                                     \
    V(recover)                                                                                     \
    V(restore)                                                                                     \
    V(prewarm)                                                                                     \
    V(spread)                                                                                      \
    V(notify)                                                                                      \
    V(limit)                                                                                       \
    V(drain)                                                                                       \
    V(rebalance)                                                                                   \
    V(events)                                                                                      \
    V(wait)                                                                                        \
    V(explain)                                                                                     \
    V(report)                                                                                      \
    V(profile)                                                                                     \
    V(library_list)                                                                                \
    V(library_add)                                                                                 \
    V(library_verify)                                                                              \
    V(library_prune)                                                                               \
    V(image_list)                                                                                  \
    V(image_inspect)                                                                               \
    V(image_verify)                                                                                \
    V(image_diff)                                                                                  \
    V(image_prune)                                                                                 \
    V(trace)                                                                                       \
    V(doctor)                                                                                      \
    V(serve)                                                                                       \
    V(server_add)                                                                                  \
    V(server_remove)                                                                               \
    V(server_list)                                                                                 \
    V(server_sessions)                                                                             \
    V(server_kick)                                                                                 \
    V(stream_serve)                                                                                \
    V(stream_run)                                                                                  \
    V(stream_list)                                                                                 \
    V(agent)                                                                                       \
    V(config_print)                                                                                \
    V(config_validate)                                                                             \
    V(config_path)                                                                                 \
    V(config_reload)                                                                               \
    V(simulate)                                                                                    \
    V(version)                                                                                     \
    V(help)                                                                                        \
    V(complete)

#define DECLARE(name) extern const struct verb verb_##name;
#define LIST(name)    &verb_##name,
VERBS(DECLARE)
static const struct verb *const verbs[] = {VERBS(LIST) NULL};

/** Whether to print JSON, known before options are parsed. @verb: NULL: unknown yet. */
static bool reseat_wants_json(const struct verb *verb, int argc, char **argv)
{
    if (verb && verb->plain)
        return false;
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
        if (strcmp(argv[i], "--json") == 0)
            return true;
        if (verb && verb_takes_program(verb) && argv[i][0] != '-')
            return false;
    }
    return false;
}

/** Run the verb; for each selected program, or again and again, as the options say. */
static int reseat_repeat(struct call *call)
{
    uint64_t watch_ms = call->output.view.watch_ms;
    bool clears = watch_ms && !call->output.json && isatty(STDOUT_FILENO);
    int status;

    if (verb_repeats(call))
        return select_run(call);
    for (;;) {
        if (clears)
            fputs("\033[H\033[J", stdout);
        status = call->verb->run(call);
        if (status || !watch_ms)
            return status;
        clock_sleep(watch_ms * NS_PER_MS);
    }
}

static int reseat_run(struct call *call, int argc, char **argv)
{
    int status = VERB_HELP;

    call->options = calloc(1, call->verb->size + 1);
    if (!call->options)
        return output_fail(&call->output, ERR_FAILED, "there is not enough memory");
    if (call->verb->prepare)
        call->verb->prepare(call->options);
    status = verb_parse(call, argc, argv);
    if (status == VERB_HELP) {
        (void)help_print(verbs, call->verb->name);
        status = output_done();
    } else if (!status) {
        status = reseat_repeat(call);
    }
    free(call->options);
    return status;
}

static bool reseat_is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

int main(int argc, char **argv)
{
    struct call call = {.verbs = verbs};
    char help[] = "help", version[] = "version";
    const char *user = NULL;
    size_t taken;
    int status;

    file_hold_standard();
    setlocale(LC_CTYPE, "");
    if (argc > 2 && strcmp(argv[1], "--user") == 0) {
        user = argv[2];
        argv[2] = argv[0];
        argv += 2;
        argc -= 2;
    }
    if (argc < 2) {
        help_print_all(verbs, stderr);
        return STATUS_USAGE;
    }
    argv[1] = reseat_is_help(argv[1])             ? help
              : strcmp(argv[1], "--version") == 0 ? version
                                                  : argv[1];
    call.output = (struct output){.command = argv[1], .json = reseat_wants_json(NULL, argc, argv)};
    /* Also for the first word of several verbs, such as "config". */
    if (argc == 3 && reseat_is_help(argv[2]) && help_print(verbs, argv[1]))
        return output_done();
    call.verb = verb_find(verbs, &call.output, argv + 1, (size_t)argc - 1, &taken, &status);
    if (!call.verb)
        return status;
    argc -= (int)taken;
    argv += taken;
    call.output.json = reseat_wants_json(call.verb, argc, argv);
    call.output.members = call.verb->members;
    if (user && !call.verb->users)
        return output_fail(&call.output, ERR_USAGE, "--user is not for reseat %s", call.verb->name);
    status = user ? ask_for_user(&call.output, user) : 0;
    return status ? status : reseat_run(&call, argc, argv);
}
