#include "tests/support/cases.h"
#include <jansson.h>
#include <signal.h>
#include <unistd.h>

#include "tests/agent/harness.h"

/* What the agent knows of programs that registered with reseat.h. */

TestSuite(aware, .init = harness_init, .fini = harness_finish, .timeout = 120);

static char notes[4096];

/** The name of the one program's device, static, once it has told one. */
static const char *device(void)
{
    static char name[64];
    name[0] = '\0';
    for (int i = 0; i < 500 && !name[0]; i++) {
        json_t *object = harness_parse(RESEAT("ps", "--json")->out);
        json_t *app = json_array_get(json_object_get(object, "apps"), 0);
        const char *told = json_string_value(json_object_get(app, "device"));
        snprintf(name, sizeof(name), "%s", told ? told : "");
        usleep(20000);
    }
    return name;
}

static pid_t start(void)
{
    snprintf(notes, sizeof(notes), "%s/notes", harness_folder());
    setenv("FAKE_MOVE", "done", 1);
    pid_t pid = harness_spawn(harness_reseat(), "run", "--name", "app", "--", harness_program(),
                              "60", "aware", notes, NULL);
    cr_assert(harness_state("app", "running", 10000));
    cr_assert(device()[0]);
    return pid;
}

/** "aware" of the one program there is; NULL: it is not. */
static json_t *aware(void)
{
    json_t *apps = json_object_get(harness_parse(RESEAT("ps", "--json")->out), "apps");
    cr_assert_eq(json_array_size(apps), 1);
    return json_object_get(json_array_get(apps, 0), "aware");
}

static json_int_t wants(const char *which, const char *what)
{
    json_t *found = aware();
    json_int_t value = found ? harness_number(json_object_get(found, which), what) : -1;
    return value;
}

static bool comes_to_want(json_int_t memory)
{
    for (int i = 0; i < 500 && wants("preferred", "memory") != memory; i++)
        usleep(20000);
    return wants("preferred", "memory") == memory;
}

Test(aware, shows_what_a_program_asks_for_and_what_it_asks_for_later)
{
    pid_t pid = start();
    json_t *found = aware();
    json_t *features = json_object_get(json_object_get(found, "minimum"), "features");

    cr_assert(found);
    cr_assert_eq(wants("minimum", "memory"), 1 << 20);
    cr_assert_eq(wants("minimum", "local_memory"), 32768);
    cr_assert_eq(wants("minimum", "work_group_size"), 64);
    cr_assert_eq(wants("minimum", "compute_units"), 0);
    cr_assert_eq(wants("preferred", "memory"), 4 << 20);
    cr_assert_eq(wants("preferred", "compute_units"), 8);
    cr_assert_eq(json_array_size(features), 2);
    cr_assert_str_eq(json_string_value(json_array_get(features, 0)), "fp64");
    cr_assert_str_eq(json_string_value(json_array_get(features, 1)), "images");
    kill(pid, SIGUSR1);
    cr_assert(comes_to_want(8 << 20));
    cr_assert_eq(wants("minimum", "memory"), 2 << 20);
    kill(pid, SIGUSR2);
    cr_assert(comes_to_want(-1));
}

Test(aware, a_new_agent_is_told_again)
{
    pid_t pid = start();

    kill(pid, SIGUSR1);
    cr_assert(comes_to_want(8 << 20));
    cr_assert_eq(RESEAT("agent", "stop")->status, 0);
    cr_assert_eq(RESEAT("agent", "start")->status, 0);
    cr_assert(harness_state("app", "running", 10000));
    cr_assert_eq(wants("minimum", "memory"), 2 << 20);
}

/** Wait until @line is among the notes. */
static bool noted(const char *line)
{
    char text[4096];

    for (int i = 0; i < 500; i++) {
        FILE *file = fopen(notes, "r");
        size_t size = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
        text[size] = '\0';
        if (file)
            fclose(file);
        if (strstr(text, line))
            return true;
        usleep(20000);
    }
    return false;
}

Test(aware, is_notified)
{
    start();

    harness_says(
        RESEAT("notify", "app", "device-taken", "--in", "2.5", "--text", "wanted elsewhere"), 0,
        "is told: device-taken\n");
    cr_assert(noted("notice 2 0 2500000000 0 wanted elsewhere\n"));
    struct result *result =
        harness_ends(RESEAT("notify", "app", "quota", "--value", "1048576", "--json"), 0);
    json_t *object = harness_parse(result->out);
    cr_assert_str_eq(harness_text(object, "what"), "quota");
    cr_assert(noted("notice 4 0 0 1048576 \n"));
}

Test(aware, is_told_what_operators_do)
{
    start();

    cr_assert_eq(RESEAT("limit", "app", "--memory", "3GiB")->status, 0);
    cr_assert(noted("notice 4 0 0 3221225472 an operator set its limit\n"));
    struct result *drained = RESEAT("drain", device());
    cr_assert(drained->status != 2, "%s", drained->err);
    cr_assert(noted("notice 2 0 0 0 an operator drains the device\n"));
    cr_assert_eq(RESEAT("drain", device(), "--off")->status, 0);
}

Test(aware, is_kept_off_devices_below_its_minimum)
{
    setenv("POCL_FAKE_DEVICES", "gpu:small,gpu:roomy,cpu:plain", 1);
    setenv("FAKE_MINIMUM_GIB", "4", 1);
    pid_t pid = start();
    struct result *result =
        harness_says(RESEAT("explain", "app"), 0, "cpu0: app would not run there.");
    cr_assert_null(strstr(result->out, "gpu1: app would not run there."), "%s", result->out);
    /* A program that is being moved is not asked. */
    cr_assert(harness_prints(
        "explain", "app", "launches of kernel loop?s are not given in pieces: it may wait", 10000));
    harness_end(pid);
    unsetenv("FAKE_MINIMUM_GIB");
    start();
    result = RESEAT("explain", "app");
    cr_assert_null(strstr(result->out, "would not run there"), "%s", result->out);
}

Test(aware, notify_says_what_is_wrong)
{
    pid_t pid = start();

    cr_assert_eq(RESEAT("notify", "app", "rain")->status, 2);
    cr_assert_eq(RESEAT("notify", "app")->status, 2);
    cr_assert_eq(RESEAT("notify", "app", "quota", "--value", "much")->status, 2);
    /* Nothing is made up for what is left out, too large, or of something else. */
    cr_assert_eq(RESEAT("notify", "app", "quota")->status, 2);
    cr_assert_eq(RESEAT("notify", "app", "power")->status, 2);
    cr_assert_eq(RESEAT("notify", "app", "device-taken")->status, 2);
    cr_assert_eq(RESEAT("notify", "app", "power", "--value", "off")->status, 2);
    cr_assert_eq(RESEAT("notify", "app", "quota", "--value", "none")->status, 2);
    cr_assert_eq(RESEAT("notify", "app", "power", "--value", "18446744073709551616")->status, 2);
    cr_assert_eq(RESEAT("notify", "app", "quota", "--value", "18446744073709551615")->status, 2);
    cr_assert_eq(RESEAT("notify", "app", "device-taken", "--in", "1", "--value", "1")->status, 2);
    cr_assert_eq(RESEAT("notify", "app", "power", "--value", "1", "--in", "1")->status, 2);
    cr_assert_eq(RESEAT("notify", "app", "device-added", "--text", "two\nlines")->status, 2);
    cr_assert_eq(RESEAT("notify", "app", "quota", "--in", "-1")->status, 2);
    cr_assert_eq(RESEAT("notify", "nobody", "device-added")->status, 3);
    kill(pid, SIGUSR2);
    cr_assert(comes_to_want(-1));
    harness_says(RESEAT("notify", "app", "device-added"), 4, "has not registered with reseat.h");
}
