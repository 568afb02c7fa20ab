#include "tests/support/cases.h"
#include <jansson.h>
#include <signal.h>
#include <unistd.h>

#include "tests/agent/harness.h"

/* What a user sees of launches that are done on several devices; and what the program is told,
 * which the stand-in says as what it is ready for. */

TestSuite(spreading, .init = harness_init, .fini = harness_finish, .timeout = 120);

/** The names in that list of what `reseat ps --json` says of "app", with commas. */
static const char *listed(const char *key)
{
    static char names[256];
    json_t *object = harness_json(RESEAT("ps", "--json"), "ps"), *name;
    const json_t *apps = json_object_get(object, "apps"), *list = NULL;
    size_t i;

    for (i = 0; i < json_array_size(apps); i++)
        if (strcmp(harness_text(json_array_get(apps, i), "name"), "app") == 0)
            list = json_object_get(json_array_get(apps, i), key);
    cr_assert(json_is_array(list));
    names[0] = '\0';
    json_array_foreach(list, i, name)
    {
        strcat(names, i ? "," : "");
        strcat(names, json_string_value(name));
    }
    return names;
}

/** The program was told of these, in any time. */
static void expect_told(const char *names)
{
    for (unsigned ms = 0; strcmp(listed("ready"), names) != 0 && ms < 5000; ms += 50)
        usleep(50000);
    cr_assert_str_eq(listed("ready"), names);
}

static pid_t start_with(const char *spread, const char *option, const char *value)
{
    pid_t pid =
        harness_spawn(harness_reseat(), "run", "--name", "app", "--device", "gpu0", "--spread",
                      spread, option, value, "--", harness_program(), "100", NULL);
    cr_assert(harness_state("app", "running", 5000));
    return pid;
}

static pid_t start(const char *spread)
{
    return start_with(spread, "--float", "same");
}

Test(spreading, a_program_is_told_of_the_devices_that_it_was_run_with)
{
    start("cpu1,cpu0,cpu1");

    expect_told("cpu1,cpu0");
    cr_assert_str_eq(listed("spread"), "cpu1,cpu0", "one that is named twice counts once");
    cr_assert(strstr(RESEAT("ps")->out, "gpu0 + cpu1,cpu0"), "%s", RESEAT("ps")->out);
    cr_assert(
        harness_prints("explain", "app", "done on cpu1, cpu0 too: 1 so far, 64 work-items", 2000),
        "%s", RESEAT("explain", "app")->out);
}

Test(spreading, launches_for_an_objective_are_counted_by_device)
{
    start_with("cpu1,cpu0", "--objective", "energy");

    expect_told("cpu1,cpu0");
    cr_assert(harness_prints("explain", "app", "1 launch on gpu0, 30 launches on cpu1", 2000), "%s",
              RESEAT("explain", "app")->out);
    const char *text = RESEAT("explain", "app")->out;
    cr_assert(strstr(text, "objective energy: each launch"), "%s", text);
    cr_assert(strstr(text, "its power is capped"), "%s", text);
    cr_assert_null(strstr(text, "its long launches"), "%s", text);

    json_t *object = harness_json(RESEAT("explain", "app", "--json"), "explain");
    const json_t *app = json_object_get(object, "app");
    const json_t *second = json_array_get(json_object_get(app, "placed"), 1);
    cr_assert_str_eq(harness_text(app, "objective"), "energy");
    cr_assert_str_eq(harness_text(app, "not_placed"), "its power is capped");
    cr_assert_eq(json_array_size(json_object_get(app, "placed")), 2);
    cr_assert_str_eq(harness_text(second, "device"), "cpu1");
    cr_assert_eq(harness_number(second, "launches"), 30);
}

Test(spreading, devices_are_named_and_taken_back_while_it_runs)
{
    setenv("RESEAT_SLICE", "5", 1);
    harness_start("app", "done");
    harness_says(RESEAT("spread", "app", "cpu0,cpu1"), 0, "done on cpu0, cpu1 too");
    expect_told("cpu0,cpu1");
    /* What is named replaces what was, and its own may be among them: it may move. */
    json_t *object = harness_json(RESEAT("spread", "app", "gpu0,cpu0", "--json"), "spread");
    cr_assert_str_eq(json_string_value(json_array_get(json_object_get(object, "spread"), 0)),
                     "gpu0");
    cr_assert_eq(json_array_size(json_object_get(object, "spread")), 2);
    expect_told("gpu0,cpu0");
    struct result *result = RESEAT("spread", "app", "--off");
    cr_assert(strstr(result->out, "on its own device only"), "%s", result->out);
    expect_told("");
}

Test(spreading, free_devices_are_given_and_taken_back)
{
    start_with("free", "--float", "any");

    expect_told("cpu0,cpu1");
    json_t *object = harness_json(RESEAT("ps", "--json"), "ps");
    cr_assert(json_is_true(
        json_object_get(json_array_get(json_object_get(object, "apps"), 0), "spread_free")));
    pid_t other = harness_spawn(harness_reseat(), "run", "--name", "other", "--device", "cpu0",
                                "--", harness_program(), "100", NULL);
    expect_told("cpu1");
    harness_end(other);
    expect_told("cpu0,cpu1");
    cr_assert_eq(RESEAT("drain", "cpu1")->status, 0);
    expect_told("cpu0");
    cr_assert_eq(RESEAT("drain", "cpu1", "--off")->status, 0);
    expect_told("cpu0,cpu1");
    cr_assert_eq(RESEAT("spread", "app", "cpu1")->status, 0);
    expect_told("cpu1");
    cr_assert_eq(RESEAT("spread", "app", "free,cpu0")->status, 3, "it stands alone");
    cr_assert_eq(RESEAT("spread", "app", "free")->status, 0);
    expect_told("cpu0,cpu1");
}

Test(spreading, none_is_free_of_another_model)
{
    start("free");

    cr_assert(harness_prints("explain", "app", "will be done on free devices too", 5000), "%s",
              RESEAT("explain", "app")->out);
    expect_told("");
}

static void configure(const char *text)
{
    harness_configure(text);
    (void)RESEAT("agent", "stop"); /* there may be none yet */
}

Test(spreading, the_configuration_says_of_a_program_that_floats_may_differ)
{
    configure("programs = ( { match = \"app\"; float = \"any\"; } );\n");
    pid_t pid = start_with("free", "--objective", "time");
    expect_told("cpu0,cpu1");
    harness_end(pid);
    pid = start("free");
    cr_assert(harness_prints("explain", "app", "will be done on free devices too", 5000), "%s",
              RESEAT("explain", "app")->out);
    expect_told("");
}

Test(spreading, a_program_starts_on_no_device_but_those_of_only)
{
    harness_says(RESEAT("run", "--device", "gpu0", "--only", "cpu0,cpu1", "true"), 2,
                 "--device gpu0 is not among the devices of --only, cpu0,cpu1");
    cr_assert_eq(RESEAT("run", "--device", "cpu1", "--only", "cpu0,cpu1", "true")->status, 0);
    configure("policy = { gain = 9; };\n"); /* an agent does not start with that */
    harness_says(RESEAT("run", "--device", "gpu0", "--only", "cpu0,cpu1", "true"), 2,
                 "is not among the devices");
}

Test(spreading, what_cannot_be_is_refused_and_changes_nothing)
{
    setenv("RESEAT_SLICE", "5", 1);
    pid_t pid = harness_start("app", "done");

    cr_assert_eq(RESEAT("spread", "app", "cpu1")->status, 0);
    cr_assert_eq(RESEAT("spread", "app")->status, 2);
    cr_assert_eq(RESEAT("spread", "app", "cpu0", "--off")->status, 2);
    cr_assert_eq(RESEAT("spread", "app", "cpu0,")->status, 2);
    cr_assert_eq(RESEAT("spread", "app:0", "cpu0")->status, 2);
    cr_assert_eq(RESEAT("spread", "no-such", "cpu0")->status, 3);
    cr_assert_eq(RESEAT("spread", "app", "cpu0,no-such")->status, 3);
    harness_says(RESEAT("spread", "app", "cpu0,cpu0,cpu0,cpu0,cpu0,cpu0,cpu0,cpu0,cpu0"), 2,
                 "at most 8");
    expect_told("cpu1");
    harness_says(RESEAT("spread", "app", "gpu0"), 4, "runs there already");
    expect_told("cpu1");
    harness_end(pid);
    cr_assert_eq(RESEAT("run", "--spread", "no-such", "true")->status, 3);
    cr_assert_eq(RESEAT("run", "--spread", "cpu0,,cpu1", "true")->status, 2);
    cr_assert_eq(RESEAT("run", "--spread", "cpu0", "--slice", "0", "true")->status, 2);
}

Test(spreading, launches_that_are_given_whole_are_not_spread)
{
    setenv("RESEAT_SLICE", "0", 1);
    harness_start("app", "done");
    unsetenv("RESEAT_SLICE");

    /* It may, as long as it has not said how it is. */
    struct result *result = RESEAT("spread", "app", "cpu1");
    for (unsigned i = 0; i < 100 && result->status == 0; i++) {
        usleep(50000);
        result = RESEAT("spread", "app", "cpu1");
    }
    cr_assert_eq(result->status, 4, "%d: %s", result->status, result->err);
    cr_assert(strstr(result->err, "--slice"), "%s", result->err);
    cr_assert_eq(RESEAT("spread", "app", "--off")->status, 0);
}

Test(spreading, a_device_that_drains_has_no_part_until_it_is_back)
{
    start("cpu0,cpu1");

    expect_told("cpu0,cpu1");
    cr_assert_eq(RESEAT("drain", "cpu1")->status, 0);
    expect_told("cpu0");
    cr_assert_str_eq(listed("spread"), "cpu0");
    harness_says(RESEAT("spread", "app", "cpu1"), 4, "drained");
    cr_assert_eq(RESEAT("drain", "cpu1", "--off")->status, 0);
    expect_told("cpu0,cpu1");
}

Test(spreading, another_agent_knows_it)
{
    start("cpu1");

    expect_told("cpu1");
    cr_assert_eq(RESEAT("agent", "stop")->status, 0);
    cr_assert_eq(RESEAT("agent", "start")->status, 0);
    cr_assert(harness_state("app", "running", 10000));
    cr_assert_str_eq(listed("spread"), "cpu1");
    /* It is told again, since this agent may have been told otherwise meanwhile. */
    cr_assert(harness_prints("explain", "app", "2 so far", 5000), "%s",
              RESEAT("explain", "app")->out);
}

Test(spreading, a_child_is_spread_as_its_parent_is)
{
    pid_t pid = harness_spawn(harness_reseat(), "run", "--device", "gpu0", "--spread", "cpu1", "--",
                              "sh", "-c", "\"$0\" 100; true", harness_program(), NULL);
    cr_assert(harness_state("fake_program", "running", 5000), "%s", RESEAT("ps")->out);
    cr_assert(strstr(RESEAT("ps")->out, "gpu0 + cpu1"), "%s", RESEAT("ps")->out);
    /* The shell ends with it, but it would not with the shell. */
    json_t *object = harness_json(RESEAT("ps", "--json"), "ps");
    const json_t *child = json_array_get(json_object_get(object, "apps"), 0);
    cr_assert_eq(kill((pid_t)harness_number(child, "pid"), SIGKILL), 0);
    harness_wait(pid);
}

Test(spreading, it_has_pieces_where_nothing_else_says_how_long_they_are)
{
    cr_assert_str_eq(RESEAT("run", "--spread", "cpu1", "sh", "-c", "echo $RESEAT_SLICE")->out,
                     "10\n");
    cr_assert_str_eq(
        RESEAT("run", "--spread", "cpu1", "--slice", "3", "sh", "-c", "echo $RESEAT_SLICE")->out,
        "3\n");
    setenv("RESEAT_SLICE", "7", 1);
    cr_assert_str_eq(RESEAT("run", "--spread", "cpu1", "sh", "-c", "echo $RESEAT_SLICE")->out,
                     "7\n");
}
