#include "tests/support/cases.h"
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/agent/harness.h"

TestSuite(run, .init = harness_init, .fini = harness_finish, .timeout = 60);

Test(run, passes_status_signals_streams_and_folder)
{
    cr_assert_eq(RESEAT("run", "--", "sh", "-c", "exit 42")->status, 42);
    cr_assert_eq(RESEAT("run", "sh", "-c", "kill -TERM $$")->status, 128 + SIGTERM);
    struct result *result = RESEAT("run", "sh", "-c", "pwd; echo wrong >&2");
    char *here = getcwd(NULL, 0);
    strcat(strcpy(result->out + 4096, here), "\n");
    cr_assert_str_eq(result->out, result->out + 4096);
    cr_assert_str_eq(result->err, "wrong\n");
    free(here);
    result = harness_run("sh", "-c", "echo in | \"$1\" run cat", "sh", harness_reseat(), NULL);
    cr_assert_str_eq(result->out, "in\n");
}

Test(run, opens_every_road_and_keeps_the_users_setting)
{
    char expected[512];

    setenv("OCL_ICD_VENDORS", "/opt/vendors", 1);
    setenv("OCL_ICD_FILENAMES", "libmine.so", 1);
    unsetenv("LD_PRELOAD");
    struct result *result =
        RESEAT("run", "--name", "x", "--present", "gpu", "--profile", "native", "--device", "cpu1",
               "sh", "-c",
               "echo $RESEAT_ICD_VENDORS,$RESEAT_ICD_FILENAMES,${OCL_ICD_FILENAMES-none},"
               "$RESEAT_NAME,$RESEAT_PRESENT,$RESEAT_PROFILE,$LD_PRELOAD;"
               "cat $OCL_ICD_VENDORS/*; echo $RESEAT_DEVICE; test -r $RESEAT_INVENTORY && "
               "test -S $RESEAT_SOCKET && echo $RESEAT_ID");
    snprintf(expected, sizeof(expected), "/opt/vendors,libmine.so,none,x,gpu,native,%s\n%s\n",
             getenv("TEST_LIBRARY"), getenv("TEST_LIBRARY"));
    cr_assert_eq(strncmp(result->out, expected, strlen(expected)), 0, "%s", result->out);
    cr_assert(strstr(result->out, "device=Fake%20two;"), "%s", result->out);
    cr_assert(strstr(result->out, "\na1\n"), "%s", result->out);
}

Test(run, says_how_long_a_piece_is)
{
    struct result *result = RESEAT("run", "--slice", "25", "sh", "-c", "echo $RESEAT_SLICE");
    cr_assert_str_eq(result->out, "25\n");
    result = RESEAT("run", "sh", "-c", "echo $RESEAT_SLICE");
    cr_assert_str_eq(result->out, "10\n");
    cr_assert_eq(RESEAT("run", "--slice", "-1", "true")->status, 2);
    cr_assert_eq(RESEAT("run", "--slice", "1x", "true")->status, 2);
    cr_assert_eq(RESEAT("run", "--slice", "61s", "true")->status, 2);
    cr_assert_eq(RESEAT("run", "--slice", "2.5", "true")->status, 2);
    cr_assert_str_eq(RESEAT("run", "--slice", "1.5s", "sh", "-c", "echo $RESEAT_SLICE")->out,
                     "1500\n");
    cr_assert_eq(RESEAT("run", "--slice", "60001", "true")->status, 2);
    cr_assert_eq(RESEAT("run", "--slice", "60000", "true")->status, 0);
    /* What the user's environment says counts as configured. */
    setenv("RESEAT_SLICE", "7", 1);
    cr_assert_str_eq(RESEAT("run", "sh", "-c", "echo $RESEAT_SLICE")->out, "7\n");
    cr_assert_str_eq(RESEAT("run", "--slice", "0", "sh", "-c", "echo $RESEAT_SLICE")->out, "0\n");
    unsetenv("RESEAT_SLICE");
}

/** What a program is told when it is run with that option. */
static const char *objective_of(const char *option, const char *value)
{
    return RESEAT("run", option, value, "sh", "-c", "echo $RESEAT_OBJECTIVE $RESEAT_FLOAT")->out;
}

Test(run, says_for_what_a_device_is_chosen_for_each_launch)
{
    cr_assert_str_eq(objective_of("--slice", "5"), "none same\n");
    cr_assert_str_eq(objective_of("--objective", "energy"), "energy same\n");
    cr_assert_str_eq(objective_of("--float", "any"), "none any\n");
    cr_assert_eq(RESEAT("run", "--objective", "tim", "true")->status, 2);
    cr_assert_eq(RESEAT("run", "--float", "none", "true")->status, 2);
    harness_configure("policy = { objective = \"time\"; float = \"any\"; };\n"
                      "programs = ( { match = \"own\"; objective = \"none\"; float = \"same\"; },\n"
                      "             { match = \"half\"; objective = \"energy\"; } );\n");
    cr_assert_str_eq(objective_of("--slice", "5"), "time any\n");
    cr_assert_str_eq(objective_of("--objective", "none"), "none any\n");
    cr_assert_str_eq(objective_of("--float", "same"), "time same\n");
    cr_assert_str_eq(objective_of("--name", "own"), "none same\n");
    cr_assert_str_eq(objective_of("--name", "half"), "energy any\n");
    setenv("RESEAT_OBJECTIVE", "energy-at-no-loss", 1);
    cr_assert_str_eq(objective_of("--slice", "5"), "energy-at-no-loss any\n");
    unsetenv("RESEAT_OBJECTIVE");
    unsetenv("RESEAT_CONFIG");
}

Test(run, says_how_long_a_configured_piece_is)
{
    harness_configure("policy = { slice = 12; };\n");
    struct result *result = RESEAT("run", "sh", "-c", "echo $RESEAT_SLICE");
    cr_assert_str_eq(result->out, "12\n", "%s", result->err);
    result = RESEAT("run", "--slice", "3", "sh", "-c", "echo $RESEAT_SLICE");
    cr_assert_str_eq(result->out, "3\n");
    unsetenv("RESEAT_CONFIG");
}

Test(run, has_the_c_library_keep_stacks_unless_the_user_decided)
{
    static const char name[] = "glibc.pthread.stack_cache_size=";
    unsetenv("GLIBC_TUNABLES");
    struct result *result = RESEAT("run", "sh", "-c", "echo $GLIBC_TUNABLES");
    cr_assert_eq(strncmp(result->out, name, strlen(name)), 0, "%s", result->out);
    setenv("GLIBC_TUNABLES", "glibc.malloc.arena_max=1", 1);
    result = RESEAT("run", "sh", "-c", "echo $GLIBC_TUNABLES");
    cr_assert(strstr(result->out, name), "%s", result->out);
    cr_assert(strstr(result->out, ":glibc.malloc.arena_max=1\n"), "%s", result->out);
    setenv("GLIBC_TUNABLES", "glibc.pthread.stack_cache_size=1", 1);
    result = RESEAT("run", "sh", "-c", "echo $GLIBC_TUNABLES");
    cr_assert_str_eq(result->out, "glibc.pthread.stack_cache_size=1\n");
}

Test(run, inside_itself_keeps_what_was_kept)
{
    setenv("OCL_ICD_VENDORS", "/opt/vendors", 1);
    struct result *result = RESEAT("run", harness_reseat(), "run", "sh", "-c",
                                   "echo $RESEAT_ICD_VENDORS; echo $LD_PRELOAD");
    cr_assert(strncmp(result->out, "/opt/vendors\n", 13) == 0, "%s", result->out);
    const char *library = strstr(result->out, "libfake_reseat");
    cr_assert(library && !strstr(library + 1, "libfake_reseat"), "%s", result->out);
}

Test(run, without_an_agent_warns_in_one_line_and_runs)
{
    setenv("RESEAT_AGENT", "/bin/false", 1);
    struct result *result = harness_ends(RESEAT("run", "sh", "-c", "echo ran; exit 7"), 7);
    cr_assert_str_eq(result->out, "ran\n");
    cr_assert_eq(strchr(result->err, '\n'), result->err + strlen(result->err) - 1, "%s",
                 result->err);
    cr_assert_eq(RESEAT("run", "--device", "gpu0", "true")->status, 3);
}

/** What somebody else could have left in a runtime folder: a driver, a list, a socket. */
static const char *leave_a_trap(void)
{
    static char folder[128];

    snprintf(folder, sizeof(folder), "%s/run/reseat", harness_folder());
    cr_assert_eq(RESEAT("devices")->status, 0);
    cr_assert_eq(RESEAT("agent", "stop")->status, 0);
    harness_ends(harness_run("sh", "-c",
                             "mkdir -p \"$1/vendors\" && echo /evil.so >\"$1/vendors/evil.icd\" && "
                             "test -f \"$1/inventory\" && chmod 777 \"$1\"",
                             "sh", folder, NULL),
                 0);
    return folder;
}

Test(run, nothing_in_a_folder_that_others_may_enter_is_used)
{
    const char *trap = leave_a_trap();

    setenv("RESEAT_INVENTORY", "/nonexistent", 1);
    struct result *result = RESEAT("run", "sh", "-c",
                                   "env | grep -v ^XDG; cat $OCL_ICD_VENDORS/*.icd; "
                                   "echo [$RESEAT_SOCKET$RESEAT_INVENTORY$RESEAT_DEVICE]");
    cr_expect(!strstr(result->out, trap), "%s", result->out);
    cr_expect(!strstr(result->out, "evil"), "%s", result->out);
    cr_expect(strstr(result->out, "\n[]\n"), "%s", result->out);
    cr_expect(strstr(result->err, trap), "%s", result->err);
    cr_expect_eq(RESEAT("run", "sh", "-c", "exit 7")->status, 7);
    cr_expect_eq(RESEAT("run", "--device", "cpu0", "true")->status, 3);
    static const char *const verbs[] = {"ps", "devices", "agent"};
    for (size_t i = 0; i < 3; i++)
        cr_expect_eq(RESEAT(verbs[i])->status, 1);
}

Test(run, says_which_agent_it_uses_where_the_runtime_folder_is_refused)
{
    unsetenv("RESEAT_SOCKET");
    setenv("XDG_RUNTIME_DIR", "/no/such/folder", 1);
    struct result *result = RESEAT("ps");
    cr_expect(strstr(result->err, "XDG_RUNTIME_DIR is not used: /no/such/folder cannot be entered"),
              "%s", result->err);
    cr_expect(strstr(result->err, "the agent is that of /"), "%s", result->err);
}

Test(run, says_what_keeps_the_agent_from_its_state_folder)
{
    setenv("XDG_STATE_HOME", "/dev/null", 1);
    struct result *result = RESEAT("agent", "start");
    cr_expect_neq(result->status, 0);
    cr_expect(strstr(result->err, "the state folder /dev/null/reseat cannot be used: Not a "
                                  "directory; make it yours, or set XDG_STATE_HOME"),
              "%s", result->err);
}

Test(run, one_driver_file_that_was_installed_serves_every_program)
{
    char expected[512];
    const char *library = getenv("TEST_WHOLE_LIBRARY");

    setenv("RESEAT_LIBRARY", library, 1);
    snprintf(expected, sizeof(expected), "%.*s/vendors\n%s\n",
             (int)(strrchr(library, '/') - library), library, library);
    leave_a_trap();
    unsetenv("LD_PRELOAD");
    struct result *result = RESEAT(
        "run", "sh", "-c", "unset LD_PRELOAD; echo $OCL_ICD_VENDORS; cat $OCL_ICD_VENDORS/*.icd");
    cr_expect_str_eq(result->out, expected);
}

Test(run, a_name_holds_no_control_characters)
{
    static const char *const names[] = {"a\x1b[2J", "a\nb", "a\x7f", "a\xc2\x9b", "a\xff", "\x01"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        cr_expect_eq(RESEAT("run", "--name", names[i], "true")->status, 2, "name %zu", i);
    cr_expect_eq(RESEAT("run", "--name", "caf\xc3\xa9 \xe2\x84\xa2", "true")->status, 0);
}

/** No byte of @text would do anything to a terminal. */
static void expect_plain(const char *text)
{
    for (const char *at = text; *at; at++) {
        bool control = ((unsigned char)*at < 0x20 && *at != '\n') || *at == 0x7f ||
                       ((unsigned char)*at == 0xc2 && (unsigned char)at[1] < 0xa0);
        cr_expect(!control, "%s", text);
    }
}

Test(run, what_programs_call_themselves_does_nothing_to_terminals_and_logs)
{
    char copy[256], command[1024], log[256];
    const char *folder = harness_folder();

    snprintf(copy, sizeof(copy), "%s/ev\x1b[2J\xc2\x9b\xffil\n", folder);
    snprintf(command, sizeof(command), "cp \"$1\" \"$2\"");
    cr_assert_eq(harness_run("sh", "-c", command, "sh", harness_program(), copy, NULL)->status, 0);
    pid_t pid = harness_spawn(harness_reseat(), "run", copy, "60", NULL);
    cr_assert(harness_state("ev?[2J???il ", "running", 10000));
    expect_plain(RESEAT("ps")->out);
    expect_plain(RESEAT("ps", "--json")->out);
    expect_plain(RESEAT("explain", "a1")->out);
    expect_plain(RESEAT("move", "a1", "cpu1")->out);
    expect_plain(RESEAT("move", "a\x1b]0;b\x07", "cpu1")->err);
    expect_plain(RESEAT("report")->out);
    expect_plain(RESEAT("doctor", copy)->out);
    expect_plain(RESEAT("run", "\x1b[2J")->err);
    snprintf(log, sizeof(log), "%s/run/reseat/agent.log", folder);
    struct result *result = harness_run("cat", log, NULL);
    cr_expect(strstr(result->out, "ev?[2J???il  (pid"), "%s", result->out);
    expect_plain(result->out);
    kill(pid, SIGKILL);
    harness_wait(pid);
}

Test(run, without_an_agent_devices_are_found_in_the_last_list)
{
    cr_assert_eq(RESEAT("devices")->status, 0);
    cr_assert_eq(RESEAT("agent", "stop")->status, 0);
    setenv("RESEAT_AGENT", "/bin/false", 1);
    harness_says(RESEAT("run", "--device", "cpu0", "sh", "-c", "echo $RESEAT_DEVICE"), 0,
                 "device=Fake%20one");
}

/* Whether it comes to have so many threads: who looks for an agent is one. */
static bool has_threads(pid_t pid, unsigned count)
{
    char path[32];
    struct stat stat;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    for (int tried = 0; tried < 400; tried++) {
        if (lstat(path, &stat) == 0 && stat.st_nlink >= 2 + count)
            return true;
        usleep(25000);
    }
    return false;
}

Test(run, a_program_started_without_an_agent_is_found_by_a_later_one)
{
    setenv("RESEAT_AGENT", "/bin/false", 1);
    pid_t pid =
        harness_spawn(harness_reseat(), "run", "--name", "orphan", harness_program(), "60", NULL);
    cr_assert(has_threads(pid, 2), "it never looked for an agent");
    unsetenv("RESEAT_AGENT");
    cr_assert_eq(RESEAT("agent", "start")->status, 0);
    cr_assert(harness_state("orphan", "running", 2000));
    kill(pid, SIGKILL);
    harness_wait(pid);
}

Test(run, help_and_version)
{
    static const char *const commands[] = {"run",    "devices", "ps",    "move",   "suspend",
                                           "resume", "doctor",  "agent", "version"};

    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
        harness_says(RESEAT(commands[i], "--help"), 0, commands[i]);
    cr_assert_eq(RESEAT("--help")->status, 0);
    cr_assert(strstr(RESEAT("version")->out, "reseat 0."));
}
