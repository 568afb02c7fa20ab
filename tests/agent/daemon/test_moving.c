#include "tests/support/cases.h"
#include <jansson.h>
#include <signal.h>
#include <unistd.h>

#include "tests/agent/harness.h"

/* What a user sees of moves, suspends, resumes and prewarmed devices. */

TestSuite(moving, .init = harness_init, .fini = harness_finish, .timeout = 120);

Test(moving, moves_suspends_and_resumes)
{
    harness_start("app", "done");
    harness_says(RESEAT("move", "app", "cpu1"), 0, "from gpu0 to cpu1");
    cr_assert_eq(RESEAT("suspend", "app")->status, 0);
    cr_assert(harness_state("app", "suspended", 2000));
    struct result *result = RESEAT("suspend", "app");
    cr_assert(strstr(result->out, "is already suspended\n"), "%s", result->out);
    result = harness_says(RESEAT("explain", "app"), 0, "is suspended");
    cr_assert_null(strstr(result->out, "its programs know"), "it has no device: %s", result->out);
    /* It was stopped all along: the time that the copies took is no pause of a running program. */
    result = harness_says(RESEAT("resume", "app"), 0, "resumed on cpu1 in");
    cr_assert(!strstr(result->out, "paused") && !strstr(result->out, "stopped"), "%s", result->out);
    result = RESEAT("move", "app", "cpu1");
    cr_assert(strstr(result->out, "is already on cpu1\n"), "%s", result->out);
    cr_assert_eq(RESEAT("resume", "app")->status, 0);
    cr_assert_eq(RESEAT("suspend", "app")->status, 0);
    cr_assert(strstr(RESEAT("resume", "app", "cpu0")->out, "on cpu0"));
}

/** What `reseat ps --json` says that "app" is ready for: the first, or "". */
static const char *ready_for(void)
{
    static char name[64];
    json_t *object = harness_json(RESEAT("ps", "--json"), "ps");
    json_t *app = json_array_get(json_object_get(object, "apps"), 0);
    json_t *ready = json_object_get(app, "ready");

    cr_assert(json_is_array(ready));
    const char *first = json_string_value(json_array_get(ready, 0));
    snprintf(name, sizeof(name), "%s", first ? first : "");
    return name;
}

Test(moving, makes_a_program_ready_for_a_device_and_lets_go_of_that)
{
    harness_start("app", "done");
    harness_says(RESEAT("prewarm", "app", "cpu1"), 0, "is ready for cpu1");
    cr_assert_str_eq(ready_for(), "cpu1");
    cr_assert(strstr(RESEAT("ps")->out, "cpu1"));
    harness_says(RESEAT("prewarm", "app", "cpu1", "--off"), 0, "prewarmed device cpu1 released");
    cr_assert_str_eq(ready_for(), "");
    cr_assert(strstr(RESEAT("prewarm", "app", "--off")->out, "no prewarmed device to release"));
    json_t *object = harness_json(RESEAT("prewarm", "app", "cpu0", "--json"), "prewarm");
    cr_assert_str_eq(harness_text(object, "to"), "cpu0");
    cr_assert_eq(RESEAT("prewarm", "app", "cpu1")->status, 0);
    cr_assert_eq(RESEAT("prewarm", "app", "--off")->status, 0);
    cr_assert_str_eq(ready_for(), "");
    /* Where it is, and what names nothing. */
    cr_assert(strstr(RESEAT("prewarm", "app", "gpu0")->out, "is ready for gpu0 already"));
    cr_assert_eq(RESEAT("prewarm", "app")->status, 2);
    cr_assert_eq(RESEAT("prewarm", "app", "no-such")->status, 3);
    /* A device that is drained is not to be used, and not for this either. */
    cr_assert_eq(RESEAT("prewarm", "app", "cpu1")->status, 0);
    cr_assert_eq(RESEAT("drain", "cpu1")->status, 0);
    cr_assert_str_eq(ready_for(), "", "it is ready for a device that is drained");
    harness_says(RESEAT("prewarm", "app", "cpu1"), 4, "drained");
}

Test(moving, a_program_that_cannot_be_made_ready_says_why_and_stays)
{
    harness_start("app", "fail");
    struct result *result =
        harness_says(RESEAT("prewarm", "app", "cpu1"), 1, "was not made ready for cpu1");
    cr_assert(strstr(result->err, "a program failed"), "%s", result->err);
    cr_assert_str_eq(ready_for(), "");
}

Test(moving, makes_a_program_ready_for_several_devices_and_lets_go_of_them)
{
    harness_start("app", "done");
    struct result *result =
        harness_says(RESEAT("prewarm", "app", "cpu0,cpu1"), 0, "is ready for cpu0");
    cr_assert(strstr(result->out, "is ready for cpu1"), "%s", result->out);
    const char *shown = RESEAT("ps")->out; /* in the order in which they were made */
    cr_assert(strstr(shown, "cpu0,cpu1") || strstr(shown, "cpu1,cpu0"), "%s", shown);
    /* Where it is already, and the same twice. */
    json_t *object = harness_json(RESEAT("prewarm", "app", "cpu1,cpu1,gpu0", "--json"), "prewarm");
    cr_assert_eq(json_array_size(json_object_get(object, "devices")), 3);
    cr_assert_str_eq(harness_text(harness_find(object, "devices", "to", "gpu0"), "result"), "done");
    result = harness_says(RESEAT("prewarm", "app", "--off", "cpu1,cpu0"), 0,
                          "prewarmed device cpu0 released");
    cr_assert(strstr(result->out, "prewarmed device cpu1 released"), "%s", result->out);
    cr_assert_str_eq(ready_for(), "");
    /* One that is not to be used, and nothing is asked. */
    cr_assert_eq(RESEAT("prewarm", "app", "cpu0,no-such")->status, 3);
    cr_assert_eq(RESEAT("prewarm", "app", "cpu0,")->status, 2);
    cr_assert_eq(RESEAT("drain", "cpu1")->status, 0);
    cr_assert_eq(RESEAT("prewarm", "app", "cpu0,cpu1")->status, 4);
    cr_assert_eq(RESEAT("prewarm", "app", "cpu0,1,2,3,4,5,6,7,8")->status, 2);
    cr_assert_str_eq(ready_for(), "");
}

Test(moving, a_device_that_cannot_be_made_ready_keeps_no_other_from_it)
{
    harness_start("app", "failtwo");
    struct result *result = harness_ends(RESEAT("prewarm", "app", "cpu1,cpu0"), 1);
    cr_assert(strstr(result->out, "is ready for cpu0"), "%s", result->out);
    cr_assert(strstr(result->err, "was not made ready for cpu1"), "%s", result->err);
    cr_assert_str_eq(ready_for(), "cpu0");
    json_t *object = harness_json(RESEAT("prewarm", "app", "cpu0,cpu1", "--json"), "prewarm");
    cr_assert_str_eq(harness_text(harness_find(object, "devices", "to", "cpu0"), "result"), "done");
    cr_assert_str_eq(harness_text(harness_find(object, "devices", "to", "cpu1"), "result"),
                     "rolled-back");
    cr_assert_str_eq(harness_text(object, "to"), "cpu1");
    cr_assert_eq(harness_number(object, "status"), 1);
}

Test(moving, a_deadline_and_an_interruption_end_all_that_is_made_ready)
{
    harness_start("app", "slow");
    json_t *object = harness_json(
        RESEAT("prewarm", "app", "cpu0,cpu1", "--timeout", "0.3", "--json"), "prewarm");

    cr_assert_str_eq(harness_text(harness_find(object, "devices", "to", "cpu0"), "result"),
                     "expired");
    cr_assert_str_eq(harness_text(harness_find(object, "devices", "to", "cpu1"), "result"),
                     "expired");
    pid_t mover = harness_spawn(harness_reseat(), "prewarm", "app", "cpu0,cpu1", NULL);
    cr_assert(harness_state("app", "moving", 5000));
    kill(mover, SIGINT);
    cr_assert_eq(harness_wait(mover), 1);
    cr_assert(harness_state("app", "running", 2000));
    cr_assert_str_eq(ready_for(), "");
}

Test(moving, a_resume_that_fails_says_that_the_program_stays_suspended)
{
    harness_start("app", "strand");
    cr_assert_eq(RESEAT("suspend", "app")->status, 0);
    cr_assert(harness_state("app", "suspended", 2000));
    struct result *result = harness_ends(RESEAT("resume", "app", "gpu0"), 1);
    cr_assert(strstr(result->err, "app (pid ") && strstr(result->err, "was not resumed on gpu0; "
                                                                      "still suspended: building a "
                                                                      "program failed: -11"),
              "%s", result->err);
    /* What went wrong once need not be the device's fault: an image may be gone. */
    cr_assert(!strstr(result->err, "choose another device"), "%s", result->err);
}

Test(moving, what_is_pinned_is_not_sent_to_another_device)
{
    pid_t pid = harness_start("app", "pinned");
    harness_says(RESEAT("move", "app", "cpu1"), 4,
                 "the program is pinned to its device: it uses pipes\n");
    harness_end(pid);
    pid = harness_start("app", "refuse");
    struct result *result = RESEAT("move", "app", "cpu1");
    cr_assert(strstr(result->err, "256 offered; choose another device (reseat devices)\n"), "%s",
              result->err);
}

Test(moving, a_move_that_took_long_says_what_took_long)
{
    pid_t pid = harness_start("app", "long");
    harness_says(RESEAT("move", "app", "cpu1"), 0,
                 ", 12.10 s of it building 9 programs; paused for 17.70 s (target "
                 "50.0 ms; 17.60 s of it waiting for kernels smooth, sum); "
                 "nothing copied");
    harness_end(pid);
    pid = harness_start("app", "done");
    struct result *result = RESEAT("move", "app", "cpu1");
    cr_assert(strstr(result->out, "; paused for 12.0 ms; "), "%s", result->out);
    cr_assert(!strstr(result->out, "building") && !strstr(result->out, "target"), "%s",
              result->out);
}

Test(moving, killed_in_the_middle_of_a_move_and_started_again_it_knows_the_programs)
{
    pid_t pid = harness_start("survivor", "slow");
    harness_spawn("sleep", "30", NULL);
    pid_t agent = harness_agent();
    pid_t mover = harness_spawn(harness_reseat(), "move", "survivor", "cpu0", NULL);

    cr_assert(harness_state("survivor", "moving", 5000));
    kill(agent, SIGKILL);
    cr_assert_eq(harness_wait(mover), 3);
    cr_assert_eq(kill(pid, 0), 0);
    cr_assert_eq(RESEAT("agent", "start")->status, 0);
    cr_assert(harness_state("survivor", "running", 2000));
    cr_assert_neq(harness_agent(), agent);
}

Test(moving, a_program_that_dies_in_a_move_is_a_clear_error)
{
    pid_t pid = harness_start("mortal", "die");
    harness_says(RESEAT("move", "mortal", "cpu0"), 3, "ended during the move");
    cr_assert_eq(harness_wait(pid), 9);
    cr_assert(!strstr(RESEAT("ps")->out, "mortal"));
}

Test(moving, interrupting_the_command_cancels_the_move)
{
    harness_start("app", "slow");
    pid_t mover = harness_spawn(harness_reseat(), "move", "app", "cpu0", NULL);

    cr_assert(harness_state("app", "moving", 5000));
    kill(mover, SIGINT);
    cr_assert_eq(harness_wait(mover), 1);
    cr_assert(harness_state("app", "running", 2000));
    mover = harness_spawn(harness_reseat(), "move", "app", "cpu0", NULL);
    cr_assert(harness_state("app", "moving", 5000));
    kill(mover, SIGKILL);
    harness_wait(mover);
    cr_assert(harness_state("app", "running", 2000));
}

/* Waits for what a move shows in another terminal. */
static bool shows(const char *verb, const char *text)
{
    for (unsigned i = 0; i < 100; i++) {
        struct result *result = strcmp(verb, "ps") ? RESEAT(verb, "app") : RESEAT(verb);
        if (strstr(result->out, text))
            return true;
        usleep(50000);
    }
    return false;
}

Test(moving, another_terminal_sees_where_a_move_goes_and_cancels_it)
{
    harness_start("app", "slow");
    harness_says(RESEAT("cancel", "app"), 4, "is not being moved: nothing to cancel");
    cr_assert_eq(RESEAT("cancel", "none")->status, 3);
    pid_t mover = harness_spawn(harness_reseat(), "move", "app", "cpu0", NULL);
    cr_assert(harness_state("app", "moving", 5000));
    cr_expect(shows("ps", "moving to cpu0"), "%s", RESEAT("ps")->out);
    cr_expect(shows("ps", "%: "), "it does not say how far it is: %s", RESEAT("ps")->out);
    cr_expect(shows("explain", "moving to cpu0"));
    harness_says(RESEAT("cancel", "app"), 0, "app (pid ");
    cr_assert_eq(harness_wait(mover), 1);
    cr_assert(harness_state("app", "running", 2000));
    cr_assert(!strstr(RESEAT("ps")->out, "moving to"));
}

Test(moving, another_terminal_changes_the_limits_of_a_move)
{
    harness_start("app", "adjusted");
    char command[512];
    harness_says(RESEAT("adjust", "app", "--bandwidth", "7MiB"), 4,
                 "is not being moved: nothing to adjust");
    cr_assert_eq(RESEAT("adjust", "none", "--bandwidth", "7MiB")->status, 3);
    cr_assert_eq(RESEAT("adjust", "app")->status, 2);
    snprintf(command, sizeof(command), "exec %s move app cpu1 --json", harness_reseat());
    FILE *mover = popen(command, "r");
    cr_assert(mover);
    cr_assert(harness_state("app", "moving", 5000));
    /* One at a time: the second leaves what the first said. */
    struct result *result = harness_ends(RESEAT("adjust", "app", "--bandwidth", "7MiB"), 0);
    cr_assert(strstr(result->out, "app (pid ") && strstr(result->out, ": adjusted"), "%s",
              result->out);
    cr_assert_eq(RESEAT("adjust", "app", "--max-downtime", "30")->status, 0);
    json_t *report = json_loadf(mover, 0, NULL);
    cr_assert(report);
    cr_assert_str_eq(harness_text(report, "result"), "done");
    cr_assert_eq(harness_number(report, "bytes"), 7 << 20);
    cr_assert_eq(harness_number(report, "predicted_ns"), 30000000);
    json_decref(report);
    pclose(mover);
    cr_assert(strstr(RESEAT("events")->out, "adjust"), "%s", RESEAT("events")->out);
}

Test(moving, what_is_copied_already_is_not_adjusted)
{
    harness_start("app", "late");

    cr_assert_eq(RESEAT("move", "app", "cpu1", "--detach")->status, 0);
    cr_assert(shows("ps", "%: "), "%s", RESEAT("ps")->out);
    harness_says(RESEAT("adjust", "app", "--max-downtime", "30"), 4, "too late to adjust");
    cr_assert_eq(RESEAT("cancel", "app")->status, 0);
}

Test(moving, what_copies_nothing_is_not_adjusted)
{
    harness_start("app", "slow");
    pid_t prewarm = harness_spawn(harness_reseat(), "prewarm", "app", "cpu1", NULL);

    cr_assert(shows("explain", "cpu1"));
    harness_says(RESEAT("adjust", "app", "--bandwidth", "7MiB"), 4, "nothing to adjust");
    cr_assert_eq(RESEAT("cancel", "app")->status, 0);
    harness_wait(prewarm);
}

Test(moving, a_detached_move_goes_on_by_itself_and_is_waited_for)
{
    harness_start("app", "done:2000");
    harness_says(RESEAT("move", "app", "cpu1", "--detach"), 0, "leaves gpu0 for cpu1");
    harness_ends(RESEAT("wait", "app", "running", "--timeout", "60s"), 0);
    struct result *result = RESEAT("move", "app", "cpu1");
    cr_assert(strstr(result->out, "is already on cpu1"), "%s", result->out);
}

Test(moving, a_detached_move_is_cancelled)
{
    harness_start("app", "slow");

    cr_assert_eq(RESEAT("move", "app", "cpu1", "--detach")->status, 0);
    cr_assert(harness_state("app", "moving", 5000));
    cr_assert_eq(RESEAT("wait", "app", "running", "--timeout", "1s")->status, 5);
    cr_assert_eq(RESEAT("cancel", "app")->status, 0);
    cr_assert_eq(RESEAT("wait", "app", "running", "--timeout", "60s")->status, 0);
    cr_assert(harness_prints("ps", NULL, "gpu0", 2000));
}

Test(moving, waits_for_states_of_programs_and_devices)
{
    pid_t pid = harness_start("app", "done");

    cr_assert_eq(RESEAT("wait", "gpu0", "idle", "--timeout", "1s")->status, 5);
    cr_assert_eq(RESEAT("wait", "cpu1", "idle")->status, 0);
    cr_assert_eq(RESEAT("wait", "gpu0", "up")->status, 0);
    cr_assert_eq(RESEAT("wait", "gpu0", "ended")->status, 2);
    cr_assert_eq(RESEAT("wait", "app", "drained")->status, 2);
    cr_assert_eq(RESEAT("wait", "none", "running")->status, 3);
    pid_t waiter = harness_spawn(harness_reseat(), "wait", "app", "suspended", NULL);
    cr_assert_eq(RESEAT("suspend", "app")->status, 0);
    cr_assert_eq(harness_wait(waiter), 0);
    pid_t ended = harness_spawn(harness_reseat(), "wait", "app", "ended", NULL);
    pid_t never = harness_spawn(harness_reseat(), "wait", "app", "running", NULL);
    struct result *result = RESEAT("wait", "app", "suspended", "--json");
    json_t *object = harness_json(result, "wait");
    cr_assert_str_eq(harness_text(object, "condition"), "suspended");
    sleep(1);
    harness_end(pid);
    cr_assert_eq(harness_wait(ended), 0);
    cr_assert_eq(harness_wait(never), 3);
}

/* What the stand-in was asked for it tells in these numbers. */
static void expect_asked(struct result *result, const char *command, uint64_t ms,
                         uint64_t bandwidth, unsigned rounds)
{
    json_t *object = harness_json(result, command);
    cr_assert_eq(result->status, 0, "%s", result->out);
    cr_assert_eq((uint64_t)harness_number(object, "predicted_ns"), ms * 1000000);
    cr_assert_eq(harness_number(object, "rounds"), rounds);
    cr_assert_eq(harness_number(object, "arrived_ns"), 13000000);
    cr_assert_eq(harness_number(object, "downtime_ns"), 12000000);
    if (bandwidth)
        cr_assert_eq((uint64_t)harness_number(object, "bytes"), bandwidth);
}

Test(moving, a_downtime_and_a_bandwidth_are_asked_for_or_configured)
{
    setenv("RESEAT_MAX_DOWNTIME", "70", 1);
    harness_start("app", "done");
    /* Aimed at; and asked for. */
    expect_asked(RESEAT("move", "app", "cpu1", "--json"), "move", 70, 0, 20);
    expect_asked(
        RESEAT("move", "app", "gpu0", "--json", "--max-downtime", "20", "--bandwidth", "3MiB"),
        "move", 20, 3 << 20, 10);
    expect_asked(RESEAT("move", "app", "cpu1", "--json", "--non-blocking"), "move", 70, 0, 120);
    expect_asked(RESEAT("move", "app", "gpu0", "--json", "--on-demand"), "move", 70, 0, 21);
    cr_assert_eq(RESEAT("move", "app", "cpu1", "--on-demand", "--non-blocking")->status, 2);
    expect_asked(RESEAT("suspend", "app", "--json", "--max-downtime", "1"), "suspend", 1, 0, 10);
    expect_asked(RESEAT("resume", "app", "--json", "--on-demand"), "resume", 70, 0, 21);
    cr_assert_eq(RESEAT("suspend", "app")->status, 0);
    expect_asked(RESEAT("resume", "app", "--json", "--whole"), "resume", 70, 0, 22);
    cr_assert_eq(RESEAT("resume", "app", "--whole", "--on-demand")->status, 2);
    cr_assert(strstr(RESEAT("ps")->out, "running, 3.0 MiB of 8.0 MiB fetched"), "%s",
              RESEAT("ps")->out);
    cr_assert_eq(RESEAT("move", "app", "cpu1", "--max-downtime", "0")->status, 2);
    cr_assert_eq(RESEAT("move", "app", "cpu1", "--bandwidth", "0")->status, 2);
    cr_assert_eq(RESEAT("move", "app", "cpu1", "--bandwidth", "fast")->status, 2);
}
