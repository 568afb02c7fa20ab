#include "tests/support/cases.h"
#include <jansson.h>
#include <signal.h>

#include "tests/agent/harness.h"

/* What is made from the rows of the verbs: help, completion, the manual; and words that are wrong.
 */

TestSuite(verbs, .init = harness_init, .fini = harness_finish, .timeout = 120);

static const char *text(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));

    cr_assert(value, "there is no %s", key);
    return value;
}

/** Every verb's row. */
static json_t *rows(void)
{
    json_t *verbs = json_object_get(harness_parse(RESEAT("help", "--json")->out), "verbs");

    cr_assert_gt(json_array_size(verbs), 15);
    return verbs;
}

/** "config print" with one more word behind it. */
static struct result *call(const char *verb, const char *word)
{
    char first[64];
    const char *second = strchr(verb, ' ');

    snprintf(first, sizeof(first), "%.*s", (int)strcspn(verb, " "), verb);
    return second ? RESEAT(first, second + 1, word) : RESEAT(first, word);
}

Test(verbs, help_has_every_verb_and_option)
{
    json_t *verb, *option, *verbs = rows();
    static char all[sizeof(((struct result *)0)->out)];
    char expected[128];
    size_t i, j;

    snprintf(all, sizeof(all), "%s", RESEAT("help")->out);
    json_array_foreach(verbs, i, verb)
    {
        const char *name = text(verb, "name");
        snprintf(expected, sizeof(expected), "\n  %s ", name);
        cr_expect(strstr(all, expected), "%s", name);
        cr_expect_gt(strlen(text(verb, "summary")), 10);
        struct result *result = call(name, "--help");
        cr_assert_eq(result->status, 0);
        snprintf(expected, sizeof(expected), "Usage: reseat %s", name);
        cr_expect_eq(strncmp(result->out, expected, strlen(expected)), 0, "%s", result->out);
        json_array_foreach(json_object_get(verb, "options"), j, option)
        {
            snprintf(expected, sizeof(expected), "\n  --%s", text(option, "name"));
            cr_expect(strstr(result->out, expected), "%s%s", name, expected);
            cr_expect_gt(strlen(text(option, "help")), 10);
        }
    }
}

/** What is offered for the last word of a line, one in each line, with a line break before it. */
static const char *offered(const char *line)
{
    static char all[sizeof(((struct result *)0)->out) + 1];
    char script[1024];

    snprintf(script, sizeof(script),
             ". \"$TEST_COMPLETION\"; COMP_LINE='%s' COMP_POINT=%zu; _reseat \"$TEST_RESEAT\"; "
             "printf '%%s\\n' \"${COMPREPLY[@]}\"",
             line, strlen(line));
    struct result *result = harness_ends(harness_run("/bin/bash", "-c", script, NULL), 0);
    cr_assert_str_eq(result->err, "");
    snprintf(all, sizeof(all), "\n%s", result->out);
    return all;
}

/** @words, with blanks between, and no other is offered. */
static void expect_offered(const char *line, const char *words)
{
    char copy[1024], expected[128], *rest = copy;
    const char *all = offered(line);
    size_t length = 1;

    snprintf(copy, sizeof(copy), "%s", words);
    for (char *word = strtok_r(rest, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        snprintf(expected, sizeof(expected), "\n%s\n", word);
        cr_expect(strstr(all, expected), "%s: no %s in%s", line, word, all);
        length += strlen(word) + 1;
    }
    cr_expect_eq(strlen(all), *words ? length : 2, "%s:%s", line, all);
}

Test(verbs, completion_offers_every_verb_and_option)
{
    json_t *verb, *option, *verbs = rows();
    char line[128], words[2048];
    size_t i, j;

    json_array_foreach(verbs, i, verb)
    {
        const char *name = text(verb, "name");
        snprintf(words, sizeof(words), "\n%.*s\n", (int)strcspn(name, " "), name);
        cr_expect(strstr(offered("reseat "), words), "%s", name);
        snprintf(words, sizeof(words), "--help%s",
                 json_is_true(json_object_get(verb, "json")) ? " --json" : "");
        json_array_foreach(json_object_get(verb, "options"), j, option)
        {
            strcat(strcat(words, " --"), text(option, "name"));
        }
        snprintf(line, sizeof(line), "reseat %s --", name);
        expect_offered(line, words);
    }
}

Test(verbs, completion_offers_the_words_of_an_argument)
{
    expect_offered("reseat mo", "move");
    expect_offered("reseat run --pre", "--present --preemptible");
    expect_offered("reseat run --present ", "gpu cpu accelerator native");
    expect_offered("reseat run --present=g", "gpu");
    expect_offered("reseat run --on-full spill,w", "spill,wait");
    expect_offered("reseat config ", "print validate path reload");
    expect_offered("reseat config print --minimum", "--minimum-stay");
    expect_offered("reseat notify app --in 3 p", "power");
    expect_offered("reseat limit --memory 1GiB --js", "--json");
    expect_offered("reseat agent -- s", "start stop status");
    expect_offered("reseat config validate /proc/self/oom_score_", "/proc/self/oom_score_adj");
    expect_offered("reseat run true /proc/self/oom_score_", "/proc/self/oom_score_adj");
    expect_offered("reseat run -- /proc/self/oom_score_", "/proc/self/oom_score_adj");
    expect_offered("reseat version nothing", "");
    expect_offered("reseat --", "--user");
    expect_offered("reseat --user daemo", "daemon");
    expect_offered("reseat --user daemon mo", "move");
    expect_offered("reseat --user daemon move --dr", "--dry-run");
    cr_expect(strstr(RESEAT("help")->out, "--user USER COMMAND"));
}

Test(verbs, completion_offers_devices_and_programs_and_starts_nothing)
{
    expect_offered("reseat drain ", "");
    expect_offered("reseat explain ", "");
    cr_expect_eq(RESEAT("ps")->status, 3, "it started an agent");
    pid_t pid = harness_spawn(harness_reseat(), "run", "--name", "two words", "--",
                              harness_program(), "60", NULL);
    cr_assert(harness_state("two words", "running", 10000));
    expect_offered("reseat drain ", "gpu0 cpu0 cpu1");
    expect_offered("reseat move x cpu1", "cpu1");
    expect_offered("reseat prewarm x cpu1,cpu0,gp", "cpu1,cpu0,gpu0");
    expect_offered("reseat move x cpu1 gp", "");
    expect_offered("reseat run --device cpu0,", "cpu0,gpu0 cpu0,cpu0 cpu0,cpu1");
    cr_expect_str_eq(offered("reseat explain t"), "\ntwo\\ words\n");
    cr_expect_str_eq(offered("reseat suspend --taken tw"), "\ntwo\\ words\n");
    kill(pid, SIGKILL);
    harness_wait(pid);
}

/* Whatever prints, it is told that nothing could be written. */
Test(verbs, output_that_cannot_be_written_is_an_error)
{
    static const char *const lines[] = {"version",
                                        "help",
                                        "move --help",
                                        "config print",
                                        "config path",
                                        "devices",
                                        "library list",
                                        "doctor",
                                        "doctor /bin/true",
                                        "agent status",
                                        "report",
                                        "config validate",
                                        "simulate --models",
                                        "complete devices",
                                        "devices --links",
                                        "server list",
                                        "ps --json",
                                        "doctor --json",
                                        "help --json"};
    char command[1024];

    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
        snprintf(command, sizeof(command), "%s %s >/dev/full 2>/dev/null", harness_reseat(),
                 lines[i]);
        cr_expect_eq(WEXITSTATUS(system(command)), 1, "%s", lines[i]);
        snprintf(command, sizeof(command), "%s %s 2>&1 >/dev/full | grep -q 'cannot be written'",
                 harness_reseat(), lines[i]);
        cr_expect_eq(WEXITSTATUS(system(command)), 0, "%s", lines[i]);
    }
}

Test(verbs, a_server_without_an_authority_says_how_to_make_one)
{
    harness_says(RESEAT("serve", "tcp:127.0.0.1:0", "--ca", harness_path("no-ca")), 1,
                 "no-ca/revoked cannot be read: No such file or directory; make "
                 "an authority first: reseat serve --init-ca");
}

Test(verbs, the_manual_has_every_verb_and_option)
{
    json_t *verb, *option, *verbs = rows();
    static char manual[1 << 18];
    char expected[128];
    size_t i, j;

    FILE *file = fopen(getenv("TEST_MANUAL"), "r");
    cr_assert(file);
    manual[fread(manual, 1, sizeof(manual) - 1, file)] = '\0';
    fclose(file);
    json_array_foreach(verbs, i, verb)
    {
        const char *name = text(verb, "name");
        snprintf(expected, sizeof(expected), "\n*reseat %s*", name);
        cr_expect(strstr(manual, expected), "the synopsis has no %s", name);
        snprintf(expected, sizeof(expected), "\n*%s*\n\t", name);
        const char *part = strstr(strstr(manual, "# COMMANDS"), expected);
        cr_assert(part, "%s is not there", name);
        const char *end = strstr(part + 2, "\n*");
        json_array_foreach(json_object_get(verb, "options"), j, option)
        {
            snprintf(expected, sizeof(expected), "\n\t*--%s*", text(option, "name"));
            const char *at = strstr(part, expected);
            /* The settings of the policy have a manual of their own. */
            cr_expect(strcmp(name, "config print") == 0 || (at && (!end || at < end)), "%s%s", name,
                      expected);
        }
    }
}

Test(verbs, what_is_wrong_is_named_and_what_was_meant)
{
    static const struct {
        const char *words[5], *reason;
    } cases[] = {
        {{"mvoe"}, "there is no command \"mvoe\"; did you mean move?"},
        {{"nonsense"}, "there is no command \"nonsense\"; see reseat --help"},
        {{"no\033[31m"}, "reseat no?[31m: there is no command \"no?[31m\""},
        {{"config"}, "say print|validate|path|reload"},
        {{"config", "prnt"}, "there is no \"prnt\"; say print|validate|path|reload"},
        {{"agent", "sotp"}, "there is no \"sotp\"; say start|stop|status"},
        {{"move", "app", "cpu0", "--dryrun"}, "--dryrun is unknown; did you mean --dry-run?"},
        {{"move", "app", "cpu0", "--dry"}, "option --dry is unknown"},
        {{"move", "app", "cpu0", "-nx"}, "option -n is unknown"},
        {{"move", "app", "cpu0", "--queue"}, "option --queue is unknown"},
        {{"move", "app", "cpu0", "--timeout"}, "option --timeout lacks its value"},
        {{"move", "app", "--dry-run=yes", "cpu0"}, "option --dry-run=yes takes no value"},
        {{"move", "app", "cpu0", "--json=yes"}, "option --json=yes takes no value"},
        {{"move", "app", "cpu0", "--timeout=0"}, "--timeout must be 0.001 to 10000000 seconds"},
        {{"move", "app"}, "DEVICE is missing"},
        {{"-v"}, "option -v is unknown; options follow the command"},
        {{"xy"}, "there is no command \"xy\"; see reseat --help"},
        {{"help", "library", "lst"}, "there is no \"lst\"; say list|add|verify|prune"},
        {{"move", "app", ""}, "DEVICE is empty"},
        {{"move", "app", "cpu0", "cpu1"}, "too many arguments: \"cpu1\""},
        {{"notify", "app", "nothing"}, "there is no \"nothing\"; say device-added|"},
        {{"limit", "cpu0"}, "give --memory SIZE, --power WATTS or --off"},
        {{"run", "--device=a", "--device=b", "true"}, "--device is given once: names with commas"},
        {{"run", "--present", "toaster", "true"},
         "--present must be gpu|cpu|accelerator|native, not"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const char *const *words = cases[i].words;
        struct result *result = harness_says(
            RESEAT(words[0], words[1], words[2], words[3], words[4]), 2, cases[i].reason);
        cr_expect_str_eq(result->out, "");
    }
    struct result *help =
        harness_says(RESEAT("help", "library", "list"), 0, "Usage: reseat library list");
    cr_expect(!strstr(help->out, "Usage: reseat library list [OPTION...]\n       "), "%s",
              help->out);
    struct result *result = RESEAT("move", "--wrong", "--json");
    json_t *object = harness_parse(result->out);
    cr_expect_str_eq(result->err, "");
    cr_expect(strstr(text(json_object_get(object, "error"), "message"), "--wrong is unknown"));
}
