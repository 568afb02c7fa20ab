#include "tests/support/cases.h"
#include <jansson.h>
#include <signal.h>
#include <unistd.h>

#include "tests/agent/harness.h"

/* Which programs a command is for, and what a table shows of them. */

static pid_t programs[3];

static void begin(void)
{
    static const char *const names[] = {"render-a", "solver", "render-b"};

    harness_init();
    for (unsigned i = 0; i < 3; i++)
        programs[i] = harness_start(names[i], "done");
}

static void finish(void)
{
    for (unsigned i = 0; i < 3; i++)
        harness_end(programs[i]);
    harness_finish();
}

TestSuite(select, .init = begin, .fini = finish, .timeout = 120);

static unsigned lines(const char *text, const char *with)
{
    unsigned count = 0;

    for (const char *at = strstr(text, with); at; at = strstr(at + 1, with))
        count++;
    return count;
}

Test(select, a_command_is_for_each_program_that_all_selectors_select)
{
    struct result *result = RESEAT("suspend", "--name", "render-*", "--device", "gpu0");

    cr_assert_eq(result->status, 0, "%s", result->err);
    cr_assert_eq(lines(result->out, "suspended in"), 2, "%s", result->out);
    cr_assert(!strstr(result->out, "solver"), "%s", result->out);
    cr_assert(harness_state("render-a", "suspended", 2000));
    cr_assert(harness_state("render-b", "suspended", 2000));
    cr_assert(harness_state("solver", "running", 2000));

    /* Those that are suspended are on no device. */
    result = RESEAT("move", "--device", "gpu0", "cpu1");
    cr_assert_eq(result->status, 0, "%s", result->err);
    cr_assert_eq(lines(result->out, "moved from gpu0 to cpu1"), 1, "%s", result->out);
    result = RESEAT("resume", "--all", "cpu0", "--json");
    cr_assert_eq(result->status, 4, "%s", result->out);
    cr_assert_eq(lines(result->out, "\"schema\""), 3, "%s", result->out);
}

Test(select, a_failure_keeps_no_other_from_being_tried)
{
    struct result *result = RESEAT("cancel", "--all");

    cr_assert_eq(result->status, 4);
    cr_assert_eq(lines(result->err, "nothing to cancel"), 3, "%s", result->err);
}

Test(select, what_selects_nobody_is_an_error_and_takes_no_program_beside_it)
{
    cr_assert_eq(RESEAT("suspend", "--name", "nobody*")->status, 3);
    cr_assert_eq(RESEAT("suspend", "--device", "cpu1")->status, 3);
    cr_assert_eq(RESEAT("suspend", "--user", "nobody")->status, 3);
    cr_assert_eq(RESEAT("suspend", "--user", "no such user")->status, 2);
    cr_assert_eq(RESEAT("suspend", "--all", "solver")->status, 2);
    cr_assert_eq(RESEAT("suspend")->status, 2);
    cr_assert_eq(RESEAT("move", "--all")->status, 2);
    cr_assert(harness_state("solver", "running", 2000));
}

Test(select, a_table_has_the_columns_and_the_order_that_were_asked_for)
{
    cr_assert_str_eq(RESEAT("ps", "-o", "name", "--no-header", "--sort", "name")->out,
                     "render-a\nrender-b\nsolver\n");
    cr_assert_str_eq(RESEAT("ps", "--columns=name", "--no-header", "--sort=-name")->out,
                     "solver\nrender-b\nrender-a\n");
    /* They say what memory they have after they run. */
    cr_assert(harness_prints("ps", "--columns=memory", "64.0MiB\n64.0MiB\n64.0MiB\n", 5000));
    cr_assert_str_eq(RESEAT("ps", "-o", "name,memory", "--name", "solver")->out,
                     "NAME    MEMORY\nsolver 64.0MiB\n");
    struct result *result = RESEAT("ps", "-q", "--name", "render-*");
    cr_assert_eq(strlen(result->out), strlen("a1\na3\n"), "%s", result->out);
    /* By what is measured, not by its text: 64 MiB is more than nothing. */
    cr_assert_eq(RESEAT("suspend", "solver")->status, 0);
    cr_assert(harness_state("solver", "suspended", 2000));
    result = RESEAT("ps", "-o", "name", "--no-header", "--sort", "memory");
    cr_assert_eq(strncmp(result->out, "solver\n", 7), 0, "%s", result->out);
    result = RESEAT("ps", "-o", "name,nothing");
    cr_assert_eq(result->status, 2);
    cr_assert(strstr(result->err, "there is no column \"nothing\"; say id, name"), "%s",
              result->err);
    cr_assert_eq(RESEAT("ps", "-o", "")->status, 2);
    cr_assert_eq(RESEAT("ps", "--sort", "-")->status, 2);
    cr_assert_eq(RESEAT("ps", "-o")->status, 2);
    cr_assert_eq(RESEAT("devices", "-q")->status, 0);
    cr_assert(strstr(RESEAT("devices", "-o", "name,in-use")->out, "gpu0"));
}

Test(select, a_watched_table_is_printed_again_until_it_is_stopped)
{
    char command[512], line[4096];
    int seen = 0;

    snprintf(command, sizeof(command), "exec %s ps -o name --watch 0.1", harness_reseat());
    FILE *watch = popen(command, "r");
    cr_assert(watch);
    while (seen < 3 && fgets(line, sizeof(line), watch))
        seen += strcmp(line, "solver\n") == 0;
    cr_assert_eq(seen, 3);
    cr_assert_eq(RESEAT("agent", "stop")->status, 0);
    cr_assert_neq(pclose(watch), 0, "it goes on without an agent");
}
