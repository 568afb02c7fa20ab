#include "tests/support/cases.h"
#include <jansson.h>
#include <signal.h>
#include <unistd.h>

#include "tests/agent/harness.h"

/* What an operator says and sees of programs that outlive their device; of the stand-in, a point
 * has as many bytes as its interval has microseconds, or as the journal may have. */

TestSuite(protecting, .init = harness_init, .fini = harness_finish, .timeout = 120);

/** That member of "protection", or of "loss", of "app". */
static json_t *said(const char *of, const char *member)
{
    json_t *object = harness_json(RESEAT("ps", "--json"), "ps"), *found = NULL;
    const json_t *apps = json_object_get(object, "apps");

    for (size_t i = 0; i < json_array_size(apps); i++) {
        const json_t *app = json_array_get(apps, i);
        if (strcmp(harness_text(app, "name"), "app") == 0)
            found = json_object_get(json_object_get(app, of), member);
    }
    cr_assert_not_null(found, "%s.%s", of, member);
    return found;
}

static json_int_t number(const char *of, const char *member)
{
    json_t *value = said(of, member);
    json_int_t number = json_is_boolean(value) ? json_is_true(value) : json_integer_value(value);

    return number;
}

static void expect_word(const char *word)
{
    json_t *value = said("protection", "protect");

    cr_assert_str_eq(json_string_value(value), word);
}

/** It says so itself, in any time. */
static void expect_bytes(bool on, json_int_t bytes)
{
    for (unsigned ms = 0; ms < 10000; ms += 50) {
        if (number("protection", "on") == on && number("protection", "snapshot_bytes") == bytes)
            return;
        usleep(50000);
    }
    cr_assert_fail("on %d with %lld bytes", (int)number("protection", "on"),
                   (long long)number("protection", "snapshot_bytes"));
}

Test(protecting, a_program_is_protected_while_it_runs_and_not_any_more)
{
    harness_start("app", "done");

    expect_word("off");
    cr_assert_eq(number("protection", "on"), 0);
    cr_assert(strstr(RESEAT("explain", "app")->out, "it is not protected"));
    harness_says(RESEAT("protect", "app", "--every", "3"), 0,
                 "is protected: 2.9 MiB copied in 7.0 ms, stopped for 3.0 ms");
    expect_word("3");
    expect_bytes(true, 3000000);
    cr_assert_gt(number("protection", "snapshot_age_ns"), 0);
    cr_assert_eq(number("protection", "snapshots"), 1);
    json_t *object =
        harness_json(RESEAT("protect", "app", "--every", "64MiB", "--json"), "protect");
    cr_assert_str_eq(harness_text(object, "protect"), "64MiB");
    cr_assert_eq(harness_number(object, "downtime_ns"), 3000000);
    expect_bytes(true, 64 << 20);
    cr_assert(strstr(RESEAT("explain", "app")->out,
                     "it is protected: the last copy, of 64.0 MiB, was made"),
              "%s", RESEAT("explain", "app")->out);
    struct result *result = RESEAT("protect", "app", "--off");
    cr_assert(strstr(result->out, "is not protected"), "%s", result->out);
    expect_word("off");
    expect_bytes(false, 0);
}

Test(protecting, what_it_does_not_understand_is_refused_and_changes_nothing)
{
    harness_start("app", "done");

    cr_assert_eq(RESEAT("protect", "app", "--every", "3", "--off")->status, 2);
    cr_assert_eq(RESEAT("protect", "app", "--every", "0")->status, 2);
    cr_assert_eq(RESEAT("protect", "app", "--every", "on")->status, 2);
    cr_assert_eq(RESEAT("protect", "app", "--every", "3 s")->status, 2);
    cr_assert_eq(RESEAT("protect", "app:0")->status, 2);
    cr_assert_eq(RESEAT("protect", "no-such")->status, 3);
    cr_assert_eq(RESEAT("run", "--protect=86401", "true")->status, 2);
    cr_assert_eq(RESEAT("run", "--protect=0B", "true")->status, 2);
    expect_word("off");
}

/* It stays asked for, and the operator knows what keeps it. */
Test(protecting, a_program_that_cannot_be_protected_is_said_so_with_the_reason)
{
    setenv("FAKE_PROTECT", "it has several virtual devices", 1);
    harness_start("app", "done");
    harness_says(RESEAT("protect", "app"), 4, "it has several virtual devices");
    expect_word("on");
    cr_assert(harness_prints("explain", "app", "is not protected now: it has several", 5000));
    cr_assert(harness_prints("ps", NULL, "not yet", 5000));
}

Test(protecting, what_is_configured_holds_where_nobody_says_otherwise)
{
    harness_configure(
        "policy = { protect = true; };\n"
        "programs = ({ match = \"app\"; protect = 5; }, { match = \"x*\"; priority = 1; });\n");
    harness_start("app", "done");
    harness_start("xy", "done");

    expect_word("5");
    expect_bytes(true, 5000000);
    cr_assert(harness_prints("explain", "xy", "it is protected", 5000), "by the policy");
    harness_configure("programs = ({ match = \"app\"; protect = \"1MiB\"; });\n");
    cr_assert_eq(RESEAT("config", "reload")->status, 0);
    expect_bytes(true, 1 << 20);
    cr_assert(harness_prints("explain", "xy", "it is not protected", 5000));
    cr_assert_eq(RESEAT("protect", "app", "--every", "7")->status, 0);
    harness_configure("programs = ({ match = \"app\"; protect = false; });\n");
    cr_assert_eq(RESEAT("config", "reload")->status, 0);
    expect_word("7");
    expect_bytes(true, 7000000);
}

Test(protecting, another_agent_keeps_what_was_said_on_either_side)
{
    harness_spawn(harness_reseat(), "run", "--name", "app", "--protect=4", "--", harness_program(),
                  "100", NULL);

    cr_assert(harness_state("app", "running", 5000));
    expect_bytes(true, 4000000);
    cr_assert_eq(RESEAT("protect", "app", "--every", "6")->status, 0);
    cr_assert_eq(RESEAT("agent", "stop")->status, 0);
    cr_assert_eq(RESEAT("agent", "start")->status, 0);
    cr_assert(harness_state("app", "running", 10000));
    expect_bytes(true, 6000000);
    expect_word("6");
}

/* Nobody asked for it here: it was started without an agent, or with one whose files are gone. */
Test(protecting, a_program_that_no_agent_knew_stays_as_it_was_started)
{
    harness_spawn(harness_reseat(), "run", "--name", "app", "--protect=4", "--", harness_program(),
                  "100", NULL);
    char command[512];

    cr_assert(harness_state("app", "running", 5000));
    expect_bytes(true, 4000000);
    cr_assert_eq(RESEAT("agent", "stop")->status, 0);
    (void)!snprintf(command, sizeof(command), "rm %s/*", harness_path("run/reseat/apps"));
    cr_assert_eq(system(command), 0); // NOLINT(cert-env33-c)
    cr_assert_eq(RESEAT("agent", "start")->status, 0);
    cr_assert(harness_state("app", "running", 10000));
    expect_bytes(true, 4000000);
    expect_word("4");
    usleep(1000000); /* nothing else follows */
    cr_assert_eq(number("protection", "on"), 1);
}

Test(protecting, a_loss_is_shown_with_its_reason)
{
    setenv("FAKE_LOSS", "it does not answer any more", 1);
    harness_start("app", "done");

    cr_assert(harness_prints("explain", "app", "it lost Fake lost", 5000));
    cr_assert(strstr(RESEAT("explain", "app")->out, "it does not answer any more"));
    cr_assert_eq(number("loss", "count"), 1);
}

Test(protecting, what_is_suspended_to_an_image_is_said_to_be_in_one)
{
    setenv("FAKE_STORED", "1", 1);
    harness_start("app", "done");

    cr_assert_eq(RESEAT("suspend", "app", "--to", harness_path("images"))->status, 0);
    cr_assert(harness_prints("ps", NULL, "suspended, in an image", 5000), "%s", RESEAT("ps")->out);
}

/* What was said holds all the same. */
Test(protecting, nobody_waits_for_long_for_a_program_that_does_not_answer)
{
    pid_t program = harness_start("app", "done");

    cr_assert_eq(kill(program, SIGSTOP), 0);
    harness_ends(RESEAT("protect", "app", "--timeout", "0.5"), 5);
    cr_assert_eq(kill(program, SIGCONT), 0);
    expect_bytes(true, 0);
}
