#include "tests/support/cases.h"
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <unistd.h>

#include "agent/config/paths.h"
#include "agent/config/process.h"
#include "tests/agent/harness.h"

TestSuite(agent, .init = harness_init, .fini = harness_finish, .timeout = 120);

Test(agent, exit_statuses)
{
    cr_assert_eq(RESEAT("ps")->status, 3);
    cr_assert_eq(RESEAT("move", "app", "cpu0")->status, 3);
    cr_assert_eq(RESEAT("move", "app")->status, 2);
    cr_assert_eq(RESEAT("move", "app", "cpu0", "more")->status, 2);
    cr_assert_eq(RESEAT("move", "app", "cpu0", "--timeout", "soon")->status, 2);
    cr_assert_eq(RESEAT("move", "app", "cpu0", "--wrong")->status, 2);
    cr_assert_eq(RESEAT("nonsense")->status, 2);
    cr_assert_eq(RESEAT("run")->status, 2);
    cr_assert_eq(RESEAT("run", "--present", "toaster", "true")->status, 2);
    cr_assert_eq(RESEAT("run", "--device", "gpu9", "true")->status, 3);
    cr_assert_eq(RESEAT("run", "/nonexistent")->status, 127);
    cr_assert_eq(RESEAT("run", "/tmp")->status, 126);

    pid_t pid = harness_start("app", "fail");
    struct result *result =
        harness_says(RESEAT("move", "app", "cpu0"), 1, "building a program failed: -11");
    cr_assert_eq(strchr(result->err, '\n'), result->err + strlen(result->err) - 1);
    cr_assert_eq(RESEAT("move", "nobody", "cpu0")->status, 3);
    cr_assert_eq(RESEAT("move", "app", "gpu7")->status, 3);
    cr_assert_eq(RESEAT("move", "app", "Fake")->status, 2);
    harness_end(pid);

    pid = harness_start("refuser", "refuse");
    harness_says(RESEAT("move", "refuser", "cpu0"), 4, "1024 used, 256 offered");
    harness_end(pid);

    pid = harness_start("slow", "slow");
    harness_ends(RESEAT("move", "slow", "cpu0", "--timeout", "0.3"), 5);
    cr_assert(harness_state("slow", "running", 2000));
    kill(pid, SIGSTOP);
    cr_assert_eq(RESEAT("move", "slow", "cpu0", "--timeout", "0.2")->status, 5);
    kill(pid, SIGCONT);
}

Test(agent, json_is_valid_on_success_and_on_errors)
{
    json_t *object = harness_json(RESEAT("ps", "--json"), "ps");

    cr_assert_str_eq(harness_error(object), "no-agent");
    harness_json(RESEAT("devices", "--json"), "devices");
    harness_json(RESEAT("ps", "--json"), "ps");
    harness_json(RESEAT("version", "--json"), "version");
    harness_json(RESEAT("agent", "status", "--json"), "agent");
    harness_json(RESEAT("move", "--json"), "move");
    harness_json(RESEAT("suspend", "--json", "--bad"), "suspend");

    harness_start("app \"\xc3\xa9", "done");
    harness_json(RESEAT("ps", "--json"), "ps");
    object = harness_json(RESEAT("move", "app \"\xc3\xa9", "cpu0", "--json"), "move");
    cr_assert_str_eq(harness_text(object, "to"), "cpu0");
    cr_assert_gt(harness_number(object, "bytes"), 0);
    object = harness_json(RESEAT("move", "b\xff", "cpu0", "--json"), "move");
    cr_assert_str_eq(harness_error(object), "no-app");
}

Test(agent, a_program_that_has_not_called_opencl_is_starting_also_for_the_next_agent)
{
    setenv("FAKE_MOVE", "done", 1);
    harness_spawn(harness_reseat(), "run", "--name", "late", harness_program(), "60", "late",
                  "2500", NULL);
    cr_assert(harness_state("late", "starting", 2000));
    cr_assert_eq(RESEAT("suspend", "late")->status, 4);
    kill(harness_agent(), SIGKILL);
    cr_assert_eq(RESEAT("agent", "start")->status, 0);
    cr_assert(harness_state("late", "starting", 500));
    harness_says(RESEAT("move", "late", "cpu1"), 0, "will start on cpu1");
    cr_assert(harness_state("late", "running", 5000));
    cr_assert(harness_prints("ps", NULL, "cpu1", 5000), "%s", RESEAT("ps")->out);
}

/** Wait until a process that is no child of ours has ended. */
static bool agent_ends(pid_t pid, unsigned ms)
{
    uint64_t start;

    for (unsigned i = 0; i < ms / 20; i++) {
        if (process_start_time(pid, &start) == -ESRCH)
            return true;
        usleep(20000);
    }
    return false;
}

Test(agent, one_that_no_command_reaches_ends_and_leaves_its_programs_to_the_next)
{
    char gone[PATH_MAX];
    struct paths paths;

    harness_start("app", "done");
    pid_t first = harness_agent();
    cr_assert_eq(paths_find(&paths), 0);
    cr_assert_eq(kill(first, SIGSTOP), 0);
    cr_assert_eq(paths_join(harness_folder(), "gone", gone), 0);
    cr_assert_eq(rename(paths.folder, gone), 0);
    cr_assert_eq(RESEAT("agent", "start")->status, 0);
    pid_t second = harness_agent();
    cr_assert_neq(second, first);
    cr_assert_eq(kill(first, SIGCONT), 0);
    cr_expect(agent_ends(first, 5000), "nobody can end it");
    cr_expect(harness_state("app", "running", 5000), "%s", RESEAT("ps")->out);
    /* What the second one listens on is not the first one's to remove. */
    cr_expect_eq(harness_agent(), second);
    cr_expect_eq(RESEAT("move", "app", "cpu1")->status, 0);

    cr_assert_eq(unlink(paths.socket), 0);
    cr_expect(agent_ends(second, 5000), "nobody can end the second one");
    cr_expect_eq(RESEAT("agent", "start")->status, 0);
    cr_expect(harness_state("app", "running", 5000), "%s", RESEAT("ps")->out);
}

/* What is printed must not get into a file or connection that got the number of a closed one. */
Test(agent, nothing_of_ours_gets_the_number_of_a_closed_standard_descriptor)
{
    char path[64], file[PATH_MAX];

    cr_assert_eq(setenv("RUN", harness_reseat(), 1), 0);
    cr_assert_eq(setenv("AGENT", getenv("TEST_RESEATD"), 1), 0);
    pid_t pid = harness_spawn("/bin/sh", "-c", "exec \"$AGENT\" <&- >&- 2>&-", NULL);
    for (int i = 0; i < 100 && access(harness_path("run/reseat/agent.sock"), F_OK); i++)
        usleep(20000);
    for (int fd = 0; fd <= 2; fd++) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
        ssize_t length = readlink(path, file, sizeof(file) - 1);
        file[length > 0 ? length : 0] = '\0';
        cr_expect_str_eq(file, "/dev/null");
    }
    /* A program that is run has them closed, as it would without us. */
    harness_ends(
        harness_run("/bin/sh", "-c", "exec \"$RUN\" run sh -c 'test ! -e /proc/$$/fd/0' <&-", NULL),
        0);
    cr_assert_eq(RESEAT("limit", "cpu0", "--memory", "1MiB")->status, 0); /* An event. */
    cr_expect_eq(harness_run("/bin/sh", "-c", "exec \"$RUN\" events >&-", NULL)->status, 1);
    cr_expect_eq(RESEAT("agent", "stop")->status, 0);
    cr_expect_eq(harness_wait(pid), 0);
}

Test(agent, a_child_after_fork_is_a_program_of_its_own)
{
    setenv("FAKE_MOVE", "done", 1);
    harness_spawn(harness_reseat(), "run", "--device", "cpu1", harness_program(), "60", "fork",
                  NULL);
    json_t *apps = NULL;

    for (int i = 0; i < 100; i++) {
        apps = json_object_get(harness_parse(RESEAT("ps", "--json")->out), "apps");
        if (json_array_size(apps) == 2)
            break;
        usleep(50000);
    }
    cr_assert_eq(json_array_size(apps), 2);
}
