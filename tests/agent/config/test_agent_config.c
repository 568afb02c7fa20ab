#include "tests/support/cases.h"
#include <jansson.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/agent/harness.h"

/* The configuration, from the command line and in a running agent. */

TestSuite(config, .init = harness_init, .fini = harness_finish, .timeout = 120);

static char path[256];

/** Write the user's configuration; its path is in `path`. */
static void configure(const char *text)
{
    snprintf(path, sizeof(path), "%s/config", harness_folder());
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/config/reseat", harness_folder());
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/config/reseat/reseat.conf", harness_folder());
    harness_write(path, text);
}

static json_t *json_of(const struct result *result, int status)
{
    json_t *object = harness_parse(result->out);

    cr_assert_eq(result->status, status, "%s%s", result->out, result->err);
    cr_assert_eq(harness_number(object, "schema"), 1);
    cr_assert_eq(harness_number(object, "status"), status);
    cr_assert_str_eq(result->err, "");
    return object;
}

/** What the running agent says of its configuration. */
static void expect_agent(const char *file, const char *problem)
{
    json_t *object = json_of(RESEAT("agent", "status", "--json"), 0);
    json_t *agent = json_object_get(object, "agent");

    cr_expect_str_eq(harness_text(agent, "config"), file);
    cr_expect(problem[0] ? strstr(harness_text(agent, "config_problem"), problem) != NULL
                         : harness_text(agent, "config_problem")[0] == '\0',
              "%s", harness_text(agent, "config_problem"));
}

/** What `reseat ps` says that no program changes by itself. To be freed. */
static char *programs(void)
{
    static const char *const keys[] = {"id", "name", "pid", "uid", "state", "device", "moves"};
    json_t *object = json_of(RESEAT("ps", "--json"), 0), *kept = json_array(), *app;
    size_t i;

    json_array_foreach(json_object_get(object, "apps"), i, app)
    {
        json_t *some = json_object();
        for (size_t j = 0; j < sizeof(keys) / sizeof(keys[0]); j++) {
            cr_assert(json_object_get(app, keys[j]), "%s", keys[j]);
            json_object_set(some, keys[j], json_object_get(app, keys[j]));
        }
        json_array_append_new(kept, some);
    }
    char *text = json_dumps(kept, JSON_SORT_KEYS);
    json_decref(kept);
    return text;
}

Test(config, it_is_shown_with_its_origins)
{
    configure("policy = {\n gain = 77;\n budget = 5; };\n"
              "programs = ( { match = \"a\"; quota = \"2GiB\"; ways = \"none\"; } );\n");
    setenv("RESEAT_BUDGET", "6", 1);
    json_t *object =
        json_of(RESEAT("config", "print", "--json", "--aging", "60", "--automatic=no"), 0);
    json_t *policy = json_object_get(object, "policy");
    static const struct {
        const char *name;
        const char *origin;
        int value, line;
    } expected[] = {{"gain", "file", 77, 2},
                    {"budget", "environment", 6, 3},
                    {"aging", "option", 60, 0},
                    {"wait-deadline", "default", 0, 0}};

    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        json_t *setting = json_object_get(policy, expected[i].name);
        cr_expect_str_eq(harness_text(setting, "origin"), expected[i].origin, "%s",
                         expected[i].name);
        cr_expect_eq(harness_number(setting, "value"), expected[i].value);
        cr_expect_eq(harness_number(setting, "line"), expected[i].line);
    }
    cr_expect(json_is_false(json_object_get(json_object_get(policy, "automatic"), "value")));
    cr_expect_str_eq(harness_text(json_object_get(policy, "ways"), "value"),
                     "upgrade, spill, wait, suspend");
    cr_expect_str_eq(harness_text(object, "file"), path);
    json_t *program = json_array_get(json_object_get(object, "programs"), 0);
    cr_expect_eq(harness_number(program, "quota"), 2147483648);
    cr_expect_eq(harness_number(program, "line"), 4);
    cr_expect_str_eq(harness_text(program, "ways"), "none");
    cr_expect_eq(json_object_size(program), 4);
    cr_expect_eq(json_array_size(json_object_get(object, "devices")), 0);
}

Test(config, what_is_printed_is_a_file_that_says_the_same)
{
    configure("policy = { gain = 77; };\ndevices = ( { match = \"gpu0\"; memory = \"3GiB\"; } );");
    setenv("RESEAT_BUDGET", "6", 1);
    struct result *result =
        harness_says(RESEAT("config", "print", "--aging", "60"), 0, "# option --aging");
    configure(result->out);
    unsetenv("RESEAT_BUDGET");
    cr_assert_eq(RESEAT("config", "validate")->status, 0);
    json_t *object = json_of(RESEAT("config", "print", "--json"), 0);
    json_t *policy = json_object_get(object, "policy");
    static const struct {
        const char *name;
        int value;
    } expected[] = {{"gain", 77}, {"budget", 6}, {"aging", 60}};
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        json_t *setting = json_object_get(policy, expected[i].name);
        cr_expect_eq(harness_number(setting, "value"), expected[i].value);
        cr_expect_str_eq(harness_text(setting, "origin"), "file");
    }
    json_t *device = json_array_get(json_object_get(object, "devices"), 0);
    cr_expect_eq(harness_number(device, "memory"), 3221225472);
}

Test(config, a_file_is_checked_and_found)
{
    char expected[300];
    harness_says(RESEAT("config", "validate"), 0, "there is no such file; the defaults hold");
    struct result *result = harness_ends(RESEAT("config", "path"), 0);
    cr_expect(strstr(result->err, "the defaults hold"), "%s", result->err);
    configure("policy = { gain = 20; };");
    snprintf(expected, sizeof(expected), "%s\n", path);
    cr_expect_str_eq(result->out, expected);
    cr_expect_str_eq(RESEAT("config", "path")->out, expected);
    snprintf(expected, sizeof(expected), "%s: ok\n", path);
    cr_expect_str_eq(RESEAT("config", "validate")->out, expected);

    configure("\n\npolicy = { gian = 20; };");
    snprintf(expected, sizeof(expected), "%s:3: ", path);
    result = harness_ends(RESEAT("config", "validate"), 2);
    cr_expect_eq(strncmp(result->err, expected, strlen(expected)), 0, "%s", result->err);
    cr_expect(strstr(result->err, "\"gian\"") && strstr(result->err, "\"gain\""), "%s",
              result->err);
    cr_expect_eq(strchr(result->err, '\n'), result->err + strlen(result->err) - 1);
    cr_expect_str_eq(result->out, "");
    cr_expect_eq(RESEAT("config", "print")->status, 2);
    cr_expect_str_eq(RESEAT("config", "print")->err, result->err);
    json_t *object = json_of(RESEAT("config", "validate", path, "--json"), 2);
    json_t *error = json_object_get(object, "error");
    cr_expect_str_eq(harness_text(error, "code"), "usage");
    cr_expect_str_eq(harness_text(error, "file"), path);
    cr_expect_eq(harness_number(error, "line"), 3);

    /* One that is named is another, and has to be there. */
    setenv("RESEAT_CONFIG", "/nonexistent", 1);
    cr_expect_eq(RESEAT("config", "validate")->status, 2);
    cr_expect_eq(RESEAT("config", "print")->status, 2);
    result = RESEAT("config", "path", "--json");
    object = json_of(result, 0);
    cr_expect_str_eq(harness_text(object, "file"), "/nonexistent");
    cr_expect(json_is_false(json_object_get(object, "exists")));
}

Test(config, what_is_not_asked_right_is_a_usage_error)
{
    cr_expect_eq(RESEAT("config")->status, 2);
    cr_expect_eq(RESEAT("config", "edit")->status, 2);
    cr_expect_eq(RESEAT("config", "print", "file")->status, 2);
    cr_expect_eq(RESEAT("config", "print", "--gain")->status, 2);
    cr_expect_eq(RESEAT("config", "print", "--gain", "9")->status, 2);
    cr_expect_eq(RESEAT("config", "print", "--gai", "20")->status, 2);
    cr_expect_eq(RESEAT("config", "validate", "a", "b")->status, 2);
    cr_expect_eq(RESEAT("config", "validate", "--wrong")->status, 2);
    cr_expect_eq(RESEAT("config", "path", "a")->status, 2);
    cr_expect_eq(RESEAT("config", "reload", "a")->status, 2);
    cr_expect_eq(RESEAT("config", "reload")->status, 3);
    setenv("RESEAT_GAIN", "9", 1);
    struct result *result = harness_ends(RESEAT("config", "print"), 2);
    cr_expect_eq(strncmp(result->err, "RESEAT_GAIN in the environment: \"9\"", 35), 0, "%s",
                 result->err);
}

Test(config, another_one_changes_nothing_else_in_the_agent)
{
    harness_start("app", "done");
    pid_t agent = harness_agent();

    expect_agent("", "");
    cr_assert_eq(RESEAT("move", "app", "cpu1")->status, 0);
    cr_assert_eq(RESEAT("suspend", "app")->status, 0);
    cr_assert(harness_state("app", "suspended", 5000));
    char *before = programs();
    configure("policy = { gain = 20; };");
    harness_says(RESEAT("config", "reload"), 0, path);
    expect_agent(path, "");
    char *after = programs();
    cr_expect_str_eq(after, before);
    cr_expect_eq(harness_agent(), agent);
    cr_expect(strstr(RESEAT("resume", "app")->out, "on cpu1"));
    /* And none again. */
    unlink(path);
    cr_expect_eq(RESEAT("config", "reload")->status, 0);
    expect_agent("", "");
    free(before);
    free(after);
}

Test(config, a_wrong_one_is_refused_with_its_line_and_the_one_before_stays)
{
    char expected[600];

    configure("policy = { gain = 20; };");
    harness_start("app", "done");
    char *before = programs();
    expect_agent(path, "");
    configure("policy = {\n gain = 20;\n budget = -1;\n};");
    struct result *result = harness_ends(RESEAT("config", "reload"), 2);
    snprintf(expected, sizeof(expected), "%s:3: \"budget\": ", path);
    cr_expect(strstr(result->err, expected), "%s", result->err);
    cr_expect(strstr(result->err, "keeps its previous configuration"), "%s", result->err);
    cr_expect_eq(strchr(result->err, '\n'), result->err + strlen(result->err) - 1);
    expect_agent(path, expected);
    json_t *object = json_of(RESEAT("config", "reload", "--json"), 2);
    json_t *error = json_object_get(object, "error");
    cr_expect_str_eq(harness_text(error, "file"), path);
    cr_expect_eq(harness_number(error, "line"), 3);
    cr_expect(strstr(harness_text(error, "reason"), "budget"));
    char *after = programs();
    cr_expect_str_eq(after, before);
    cr_expect_eq(RESEAT("move", "app", "cpu1")->status, 0);
    cr_expect(strstr(RESEAT("agent", "status")->err, expected));
    configure("policy = { gain = 30; };");
    cr_expect_eq(RESEAT("config", "reload")->status, 0);
    cr_expect_str_eq(RESEAT("agent", "status")->err, "");
    expect_agent(path, "");
    free(before);
    free(after);
}

/** Wait until the program keeps so many bytes ready. */
static void expect_warm(json_int_t bytes)
{
    json_int_t said = -1;

    for (int tried = 0; said != bytes && tried < 400; tried++) {
        json_t *object = json_of(RESEAT("ps", "--json"), 0);
        json_t *app = json_array_get(json_object_get(object, "apps"), 0);
        said = harness_number(app, "warm_bytes");
        usleep(25000);
    }
    cr_assert_eq(said, bytes, "%lld", (long long)said);
}

Test(config, programs_keep_as_much_memory_ready_as_it_says)
{
    configure("programs = ( { match = \"app\"; warm = \"12MiB\"; } );");
    harness_start("app", "done");
    expect_warm(12 << 20);
    configure("programs = ( { match = \"app\"; warm = \"8MiB\"; } );");
    cr_assert_eq(RESEAT("config", "reload")->status, 0);
    expect_warm(8 << 20);
    configure("programs = ( { match = \"*\"; warm = \"0\"; } );");
    cr_assert_eq(RESEAT("config", "reload")->status, 0);
    expect_warm(0);
}

static void wait_for_problem(const char *problem)
{
    for (int tried = 0; tried < 400; tried++) {
        json_t *object = json_of(RESEAT("agent", "status", "--json"), 0);
        const char *text = harness_text(json_object_get(object, "agent"), "config_problem");
        bool reached = problem[0] ? strstr(text, problem) != NULL : !text[0];
        if (reached)
            return;
        usleep(25000);
    }
    cr_assert(false, "the agent never said \"%s\"", problem);
}

Test(config, a_signal_has_it_read_too_during_a_move)
{
    harness_start("app", "slow");
    pid_t agent = harness_agent();
    pid_t mover = harness_spawn(harness_reseat(), "move", "app", "cpu0", NULL);

    cr_assert(harness_state("app", "moving", 10000));
    configure("policy = {\n\n\n gain = true; };");
    cr_assert_eq(kill(agent, SIGHUP), 0);
    wait_for_problem("reseat.conf:4: ");
    configure("policy = { gain = 20; };");
    cr_assert_eq(kill(agent, SIGHUP), 0);
    wait_for_problem("");
    expect_agent(path, "");
    /* The request is still the client's, to cancel. */
    cr_expect(harness_state("app", "moving", 0));
    kill(mover, SIGINT);
    cr_expect_eq(harness_wait(mover), 1);
    cr_expect(harness_state("app", "running", 10000));
    cr_expect_eq(harness_agent(), agent);
}

Test(config, an_agent_does_not_start_with_a_wrong_one_and_programs_run_without)
{
    char expected[300];

    configure("policy = {\n gain = 9; };");
    snprintf(expected, sizeof(expected), "%s:2: \"gain\"", path);
    harness_says(RESEAT("agent", "start"), 3, expected);
    struct result *result = harness_ends(RESEAT("run", "--", "echo", "ran"), 0);
    cr_expect_str_eq(result->out, "ran\n");
    cr_expect(strstr(result->err, expected), "%s", result->err);
    cr_expect(strstr(result->err, "runs without it"), "%s", result->err);
    configure("policy = {\n gain = 10; };");
    cr_expect_eq(RESEAT("agent", "start")->status, 0);
    expect_agent(path, "");
}

Test(config, options_of_the_agent_are_settings)
{
    const char *reseatd = getenv("TEST_RESEATD");
    harness_ends(harness_run(reseatd, "--daemon", "--gain", "9", NULL), 1);
    cr_expect_eq(harness_run(reseatd, "--daemon", "--gains", "20", NULL)->status, 2);
    cr_expect_eq(harness_run(reseatd, "--daemon", "--gain", NULL)->status, 2);
    cr_expect_eq(harness_agent(), 0);
    harness_ends(harness_run(reseatd, "--daemon", "--gain", "20", "--automatic=no", NULL), 0);
    cr_expect_neq(harness_agent(), 0);
    /* They go before the file, also when that is read again. */
    configure("policy = { gain = 9; };");
    cr_expect_eq(RESEAT("config", "reload")->status, 2);
    configure("policy = { gain = 30; };");
    cr_expect_eq(RESEAT("config", "reload")->status, 0);
    expect_agent(path, "");
}

Test(config, a_path_from_where_the_agent_is_started_is_found_again)
{
    configure("policy = { gain = 20; };");
    cr_assert_eq(chdir(harness_folder()), 0);
    setenv("RESEAT_CONFIG", "config/reseat/reseat.conf", 1);
    cr_expect_eq(RESEAT("agent", "start")->status, 0);
    expect_agent(path, "");
    cr_expect_eq(RESEAT("config", "reload")->status, 0);
    unlink(path);
    cr_expect_eq(RESEAT("config", "reload")->status, 2);
    expect_agent(path, "No such file");
}
