#include "tests/support/cases.h"
#include <dirent.h>
#include <jansson.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include "state/driver/inventory.h"
#include "tests/agent/harness.h"

/* What devices there are, and what programs are told of them. */

TestSuite(devices, .init = harness_init, .fini = harness_finish, .timeout = 120);

Test(devices, devices_say_who_uses_them)
{
    harness_start("user", "done");
    cr_assert(harness_prints("devices", "--json", "\"used_bytes\": 67108864", 5000));
    json_t *object = harness_json(RESEAT("devices", "--json"), "devices"), *device;
    size_t i, users = 0;

    cr_assert_eq(json_array_size(json_object_get(object, "devices")), 3);
    json_array_foreach(json_object_get(object, "devices"), i, device)
    {
        json_t *apps = json_object_get(device, "apps");
        users += json_array_size(apps);
        if (json_array_size(apps)) {
            cr_assert_str_eq(harness_text(device, "name"), "gpu0");
            cr_assert_eq(harness_number(device, "used_bytes"), 64 << 20);
        }
    }
    cr_assert_eq(users, 1);
}

/** What `reseat devices` prints on a terminal of so many columns, with an option or NULL. */
static const char *list_on_terminal(unsigned short columns, const char *option)
{
    static char page[65536];
    const struct winsize size = {.ws_row = 24, .ws_col = columns};
    size_t used = 0;
    ssize_t count;
    int terminal, status;
    pid_t pid = forkpty(&terminal, NULL, NULL, &size);

    cr_assert(pid >= 0);
    if (pid == 0) {
        execl(getenv("TEST_RESEAT"), "reseat", "devices", option, (char *)NULL);
        _exit(127);
    }
    /* At the end of the other side's life a terminal gives EIO. */
    while (used < sizeof(page) - 1 &&
           (count = read(terminal, page + used, sizeof(page) - 1 - used)) > 0)
        used += (size_t)count;
    page[used] = '\0';
    close(terminal);
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert_eq(status, 0, "%s", page);
    return page;
}

Test(devices, a_narrow_terminal_has_fewer_columns_and_no_longer_lines)
{
    enum { NARROW = 52, WIDE = 300 };
    cr_assert_eq(RESEAT("devices")->status, 0);
    cr_assert(strstr(list_on_terminal(WIDE, NULL), "HOST"));
    const char *page = list_on_terminal(NARROW, NULL);
    cr_assert(strstr(page, "NAME") && strstr(page, "STATE") && !strstr(page, "HOST"), "%s", page);
    for (const char *line = page; *line; line += strspn(line, "\r\n")) {
        size_t length = strcspn(line, "\r\n");
        cr_assert_leq(length, NARROW, "%s", page);
        line += length;
    }
}

Test(devices, on_a_terminal_texts_are_wrapped_between_words)
{
    cr_assert_eq(RESEAT("devices")->status, 0);
    const char *page = list_on_terminal(100, "--presented");
    bool wraps = false;
    for (const char *line = page; *line; line += strspn(line, "\r\n")) {
        size_t length = strcspn(line, "\r\n");
        cr_assert_leq(length, 100, "%s", page);
        /* The rest of a text is below its first words. */
        wraps = wraps || (*line == ' ' && strstr(page, "ANSWER") < line);
        line += length;
    }
    cr_expect(wraps, "%s", page);
    cr_expect(strstr(page, "cannot be carried"), "%s", page);
    cr_expect(strstr(page, "\"reseat virtual"), "%s", page);
}

/** The entry of that name in a list of "presented". */
static json_t *entry(json_t *presented, const char *list, const char *name)
{
    json_t *one = harness_find(presented, list, "name", name);

    cr_assert(one, "no %s in %s", name, list);
    return one;
}

static void expect_text(json_t *object, const char *key, const char *text)
{
    cr_expect_str_eq(harness_text(object, key), text);
}

static void expect_by(json_t *object, const char *first, size_t count)
{
    json_t *by = json_object_get(object, "by");

    cr_assert_eq(json_array_size(by), count);
    cr_expect(!count || strcmp(json_string_value(json_array_get(by, 0)), first) == 0);
}

Test(devices, presented_says_what_programs_are_told_and_because_of_which_device)
{
    setenv("POCL_FAKE_DEVICES", "cpu:one,gpu:small,cpu:two,old:first", 1);
    json_t *object = harness_json(RESEAT("devices", "--presented", "--json"), "devices");
    json_t *presented = json_object_get(object, "presented"), *one;

    one = json_object_get(presented, "devices");
    cr_assert_eq(json_array_size(one), 4);
    cr_expect_str_eq(json_string_value(json_array_get(one, 0)), "gpu0");
    one = json_object_get(presented, "left_out");
    cr_assert_eq(json_array_size(one), 1);
    expect_text(json_array_get(one, 0), "device", "accel0");

    one = entry(presented, "answers", "CL_DEVICE_MAX_WORK_GROUP_SIZE");
    cr_expect_eq(harness_number(one, "value"), 256);
    expect_text(one, "rule", "least");
    expect_by(one, "gpu0", 1);
    cr_expect_eq(harness_number(json_object_get(one, "devices"), "cpu1"), 4096);
    one = entry(presented, "answers", "CL_DEVICE_MAX_COMPUTE_UNITS");
    expect_text(one, "rule", "equal");
    expect_by(one, NULL, 0);
    one = entry(presented, "answers", "CL_DEVICE_ADDRESS_BITS");
    cr_expect(json_is_null(json_object_get(one, "value")));
    expect_text(one, "rule", "missing");

    one = entry(presented, "extensions", "cl_khr_byte_addressable_store");
    cr_expect(json_is_true(json_object_get(one, "offered")));
    one = entry(presented, "extensions", "cl_khr_gl_sharing");
    cr_expect(json_is_false(json_object_get(one, "offered")));
    expect_text(one, "rule", "not-carried");
    one = entry(presented, "extensions", "cl_khr_fp16");
    expect_text(one, "rule", "missing");
    expect_by(one, "gpu0", 1);

    struct result *result = harness_says(RESEAT("devices", "--presented"), 0,
                                         "least of gpu0 256, cpu0 4096, cpu1 4096");
    cr_expect(strstr(result->out, "accel0 takes no part"), "%s", result->out);
    cr_expect(strstr(result->out, "not on gpu0"), "%s", result->out);
    cr_assert_eq(RESEAT("ps", "--presented")->status, 2);
    setenv("POCL_FAKE_DEVICES", "", 1);
    object = harness_json(RESEAT("devices", "--presented", "--json"), "devices");
    cr_expect_str_eq(harness_error(object), "no-device");
}

Test(devices, presented_memory_is_the_most_of_any_device_or_what_is_said)
{
    setenv("POCL_FAKE_DEVICES", "gpu:small,cpu:roomy", 1);
    json_t *object = harness_json(RESEAT("devices", "--presented", "--json"), "devices");
    json_t *one =
        entry(json_object_get(object, "presented"), "answers", "CL_DEVICE_GLOBAL_MEM_SIZE");

    cr_expect_eq(harness_number(one, "value"), 8ll << 30);
    expect_text(one, "rule", "most-memory");
    expect_by(one, "cpu0", 1);
    struct result *result = RESEAT("devices", "--presented");
    cr_expect(strstr(result->out, "of cpu0, which has the most memory, of gpu0 2147483648, "
                                  "cpu0 8589934592"),
              "%s", result->out);

    setenv("RESEAT_MEMORY", "3GiB", 1);
    object = harness_json(RESEAT("devices", "--presented", "--json"), "devices");
    one = entry(json_object_get(object, "presented"), "answers", "CL_DEVICE_GLOBAL_MEM_SIZE");
    cr_expect_eq(harness_number(one, "value"), 3ll << 30);
    expect_text(one, "rule", "ours");
    expect_text(one, "because", "as --memory says");
    setenv("RESEAT_MEMORY", "3 GiB", 1);
    cr_expect_eq(RESEAT("devices", "--presented")->status, 2);
    unsetenv("RESEAT_MEMORY");
}

Test(devices, names_do_not_shift_between_listings)
{
    setenv("POCL_FAKE_DEVICES", "cpu:one,cpu:two", 1);
    cr_assert(strstr(RESEAT("devices")->out, "cpu1 cpu  two"));
    setenv("POCL_FAKE_DEVICES", "cpu:zero,cpu:two,gpu:new", 1);
    struct result *result = RESEAT("devices");
    cr_assert(strstr(result->out, "cpu1 cpu  two"), "%s", result->out);
    cr_assert(strstr(result->out, "cpu2 cpu  zero"), "%s", result->out);
    cr_assert(!strstr(result->out, "one"), "%s", result->out);
    RESEAT("agent", "stop");
    setenv("POCL_FAKE_DEVICES", "cpu:two", 1);
    cr_assert(strstr(RESEAT("devices")->out, "cpu1 cpu  two"));
}

/** The devices in the inventory that a program started now is given. */
static size_t told_devices(void)
{
    struct inventory inventory;
    struct result *result = harness_ends(RESEAT("run", "--", "printenv", "RESEAT_INVENTORY"), 0);
    result->out[strcspn(result->out, "\n")] = '\0';
    cr_assert_eq(inventory_read(result->out, &inventory), 0, "%s", result->out);
    size_t count = inventory.count;
    inventory_finish(&inventory);
    return count;
}

Test(devices, what_a_program_is_told_does_not_depend_on_who_else_runs)
{
    setenv("POCL_FAKE_DEVICES", "gpu:small,cpu:two", 1);
    harness_start("first", "done");
    cr_expect_eq(told_devices(), 2);
    setenv("POCL_FAKE_DEVICES", "cpu:one,cpu:three", 1);
    cr_expect_eq(told_devices(), 2, "not those of the other environment");
    /* They are there all the same, for the program that sees them, however often they are listed.
     */
    for (int i = 0; i < 2; i++) {
        struct result *result = RESEAT("devices");
        cr_expect(strstr(result->out, "small") && strstr(result->out, "one"), "%s", result->out);
        usleep(1100000);
    }
    json_t *object = harness_json(RESEAT("devices", "--presented", "--json"), "devices");
    json_t *devices = json_object_get(json_object_get(object, "presented"), "devices");
    cr_expect_eq(json_array_size(devices), 2);
    cr_expect_eq(told_devices(), 2);
    cr_expect(strstr(RESEAT("ps")->out, "gpu0"));
}

Test(devices, a_program_starts_where_its_own_environment_shows_a_device)
{
    setenv("POCL_FAKE_DEVICES", "gpu:small", 1);
    harness_start("first", "done");
    setenv("POCL_FAKE_DEVICES", "cpu:one", 1);
    harness_start("second", "done");
    cr_expect(strstr(RESEAT("ps")->out, "cpu0"), "%s", RESEAT("ps")->out);
}

Test(devices, doctor_says_what_a_wider_choice_of_devices_costs)
{
    setenv("POCL_FAKE_DEVICES", "cpu:one", 1);
    RESEAT("devices");
    struct result *result = RESEAT("doctor");
    cr_expect(!strstr(result->out, "choice:"), "%s", result->out);
    setenv("POCL_FAKE_DEVICES", "cpu:narrow,gpu:small", 1);
    RESEAT("devices");
    result = RESEAT("doctor");
    cr_expect(strstr(result->out, "because cpu1 is allowed, programs are not offered"), "%s",
              result->out);
}

Test(devices, a_lister_that_hangs_or_crashes_is_survived)
{
    const char *reseatd = getenv("TEST_RESEATD");

    cr_assert_eq(harness_run(reseatd, "--daemon", "--lister-timeout", "1", NULL)->status, 0);
    setenv("POCL_FAKE_DEVICES", "hang", 1);
    cr_assert_eq(RESEAT("devices")->status, 1);
    setenv("POCL_FAKE_DEVICES", "crash", 1);
    cr_assert_eq(RESEAT("devices")->status, 1);
    setenv("POCL_FAKE_DEVICES", "cpu:one", 1);
    cr_assert_eq(RESEAT("devices")->status, 0);
    setenv("POCL_FAKE_DEVICES", "hang", 1);
    struct result *result = harness_ends(RESEAT("devices"), 0);
    cr_assert(strstr(result->err, "may be old"), "%s", result->err);
}

/** How many files of the runtime folder have a name that begins so; the name of the last. */
static size_t files_named(const char *begin, char ret_name[256])
{
    DIR *folder = opendir(harness_path("run/reseat"));
    const struct dirent *entry;
    size_t count = 0;

    cr_assert_not_null(folder);
    while ((entry = readdir(folder))) {
        if (strncmp(entry->d_name, begin, strlen(begin)) == 0) {
            count++;
            strcpy(ret_name, entry->d_name);
        }
    }
    closedir(folder);
    return count;
}

Test(devices, lists_that_nobody_reads_any_more_are_removed)
{
    char name[256], used[256], path[512], devices[32];

    setenv("POCL_FAKE_DEVICES", "gpu:used", 1);
    harness_start("user", "done");
    cr_assert_eq(files_named("inventory-", used), 1);
    for (int i = 0; i < 20; i++) {
        /* As a helper leaves it that is killed while it writes. */
        snprintf(path, sizeof(path), "%s/inventory.new.%06d", harness_path("run/reseat"), i);
        harness_write(path, "");
        snprintf(devices, sizeof(devices), "gpu:number %d", i);
        setenv("POCL_FAKE_DEVICES", devices, 1);
        cr_assert_eq(RESEAT("devices")->status, 0);
    }
    cr_expect_leq(files_named("inventory-", name), 10, "%zu", files_named("inventory-", name));
    cr_expect_eq(files_named("inventory.", name), 0, "%s is left", name);
    cr_expect_eq(files_named(used, name), 1, "a program was told of it");
    /* What is known of a program is known to the next agent. */
    cr_assert_eq(RESEAT("agent", "stop")->status, 0);
    setenv("POCL_FAKE_DEVICES", "gpu:another", 1);
    cr_assert_eq(RESEAT("devices")->status, 0);
    cr_expect_eq(files_named(used, name), 1, "a program was told of it");
}
