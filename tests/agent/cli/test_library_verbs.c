#include "tests/support/cases.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/agent/harness.h"

/* The library of device binaries, as its owner looks after it. */

static char source[128], binary[128];

static void put(const char *path, char byte, size_t size)
{
    FILE *file = fopen(path, "we");

    cr_assert_not_null(file);
    for (size_t i = 0; i < size; i++)
        fputc(byte, file);
    fclose(file);
}

static void setup(void)
{
    harness_init();
    snprintf(source, sizeof(source), "%s/k.cl", harness_folder());
    snprintf(binary, sizeof(binary), "%s/k.bin", harness_folder());
    harness_write(source, "kernel void k(global int *a) { a[0] = 1; }\n");
    put(binary, 'b', 1000);
}
TestSuite(library_verbs, .init = setup, .fini = harness_finish, .timeout = 100);

static json_t *list(void)
{
    return harness_json(RESEAT("library", "list", "--json"), "library");
}

static size_t count(void)
{
    json_t *answer = list();
    size_t entries = json_array_size(json_object_get(answer, "entries"));

    return entries;
}

static int add(const char *options)
{
    return RESEAT("library", "add", "--device", "cpu1", "--source", source, "--options", options,
                  binary)
        ->status;
}

/** Its file, the first of the list. */
static const char *path_of_first(void)
{
    static char path[512];
    json_t *answer = list();
    const json_t *entry = json_array_get(json_object_get(answer, "entries"), 0);

    snprintf(path, sizeof(path), "%s/%s", harness_text(answer, "folder"),
             harness_text(entry, "key"));
    return path;
}

Test(library_verbs, what_is_added_is_listed)
{
    cr_assert_eq(count(), 0);
    cr_assert_eq(add("-DX=1 -DY"), 0);
    json_t *answer = list();
    const json_t *entry = json_array_get(json_object_get(answer, "entries"), 0);
    cr_expect_str_eq(harness_text(entry, "origin"), "added");
    cr_expect_str_eq(harness_text(entry, "device"), "Fake two");
    cr_expect_gt(harness_number(entry, "size_bytes"), 1000);
    cr_expect_eq(strlen(harness_text(entry, "key")), 64);
    cr_expect_eq(harness_number(answer, "limit_bytes"), 1024 << 20);
    cr_expect(strstr(RESEAT("library", "list")->out, "Fake two"));
    /* Blanks alone are no other options, and one recipe has one entry. */
    cr_assert_eq(add(" -DX=1   -DY "), 0);
    cr_assert_eq(count(), 1);
    cr_assert_eq(add("-DX=2 -DY"), 0);
    cr_assert_eq(count(), 2);
}

Test(library_verbs, what_cannot_be_added_is_said)
{
    char missing[160], dated[128];

    snprintf(missing, sizeof(missing), "%s/missing", harness_folder());
    snprintf(dated, sizeof(dated), "%s/dated.cl", harness_folder());
    harness_write(dated, "constant char *t = __TIME__;");
    cr_expect_eq(RESEAT("library", "add", "--device", "cpu1", binary)->status, 2);
    cr_expect_eq(
        RESEAT("library", "add", "--device", "cpu1", "--source", source, "--il", source, binary)
            ->status,
        2);
    cr_expect_eq(RESEAT("library", "add", "--source", source, binary)->status, 2);
    harness_ends(RESEAT("library", "add", "--device", "tpu7", "--source", source, binary), 3);
    harness_ends(RESEAT("library", "add", "--device", "cpu1", "--source", missing, binary), 1);
    harness_ends(RESEAT("library", "add", "--device", "cpu1", "--source", source, missing), 1);
    harness_ends(RESEAT("library", "add", "--device", "cpu1", "--source", dated, binary), 4);
    put(binary, 'b', 0);
    cr_expect_eq(add(""), 1);
    put(binary, 'b', 10);
    setenv("RESEAT_LIBRARY_LIMIT", "0", 1);
    harness_says(RESEAT("library", "add", "--device", "cpu1", "--source", source, binary), 1,
                 "switched off");
    unsetenv("RESEAT_LIBRARY_LIMIT");
    cr_expect_eq(count(), 0);
}

Test(library_verbs, damage_is_found_and_removed)
{
    cr_assert_eq(add("-DA"), 0);
    cr_assert_eq(add("-DB"), 0);
    cr_assert_eq(RESEAT("library", "verify")->status, 0);
    int fd = open(path_of_first(), O_WRONLY);
    cr_assert_geq(fd, 0);
    cr_assert_eq(pwrite(fd, "x", 1, 500), 1);
    close(fd);
    cr_assert_eq(RESEAT("library", "verify")->status, 1);
    json_t *answer = harness_json(RESEAT("library", "verify", "--json"), "library");
    cr_assert_eq(harness_number(answer, "damaged"), 1);
    cr_assert_eq(count(), 2);
    cr_assert_eq(RESEAT("library", "verify", "--remove")->status, 0);
    cr_assert_eq(count(), 1);
    cr_assert_eq(RESEAT("library", "verify")->status, 0);
}

Test(library_verbs, pruning_takes_what_the_options_say)
{
    const struct timespec long_ago[] = {{.tv_sec = 1000000}, {.tv_sec = 1000000}};
    const char *options[] = {"-DA", "-DB", "-DC"};

    for (size_t i = 0; i < 3; i++)
        cr_assert_eq(add(options[i]), 0);
    cr_assert_eq(RESEAT("library", "prune")->status, 0);
    cr_assert_eq(RESEAT("library", "prune", "--older", "1")->status, 0);
    cr_assert_eq(RESEAT("library", "prune", "--device", "Fake one")->status, 0);
    cr_assert_eq(count(), 3);
    cr_assert_eq(utimensat(AT_FDCWD, path_of_first(), long_ago, 0), 0);
    cr_assert_eq(RESEAT("library", "prune", "--older", "1", "--device", "Fake one")->status, 0);
    cr_assert_eq(count(), 3);
    cr_assert_eq(RESEAT("library", "prune", "--older", "1")->status, 0);
    cr_assert_eq(count(), 2);
    cr_assert_eq(RESEAT("library", "prune", "--older", "soon")->status, 2);
    cr_assert_eq(RESEAT("library", "prune", "--device", "two")->status, 0);
    cr_assert_eq(count(), 0);
    cr_assert_eq(add("-DA"), 0);
    cr_assert_eq(RESEAT("library", "prune", "--all")->status, 0);
    cr_assert_eq(count(), 0);
}

Test(library_verbs, pruning_goes_down_to_the_limit)
{
    put(binary, 'b', 700 << 10);
    setenv("RESEAT_LIBRARY_LIMIT", "3", 1);
    cr_assert_eq(add("-DA"), 0);
    cr_assert_eq(add("-DB"), 0);
    cr_assert_eq(add("-DC"), 0);
    cr_assert_eq(count(), 3);
    setenv("RESEAT_LIBRARY_LIMIT", "1", 1);
    cr_assert_eq(RESEAT("library", "prune")->status, 0);
    cr_assert_eq(count(), 1);
    unsetenv("RESEAT_LIBRARY_LIMIT");
}

Test(library_verbs, a_folder_that_others_may_enter_is_refused)
{
    char folder[512];

    cr_assert_eq(add("-DA"), 0);
    snprintf(folder, sizeof(folder), "%s", path_of_first());
    *strrchr(folder, '/') = '\0';
    cr_assert_eq(chmod(folder, 0755), 0);
    harness_says(RESEAT("library", "list"), 1, "its mode is not 0700");
    cr_expect_eq(add("-DB"), 1);
}

/* Where programs find it, and how much it may take. */
Test(library_verbs, programs_are_told_where_it_is)
{
    char expected[256];

    setenv("RESEAT_LIBRARY_LIMIT", "77", 1);
    struct result *result =
        RESEAT("run", "sh", "-c", "echo $RESEAT_BINARIES $RESEAT_LIBRARY_LIMIT");
    snprintf(expected, sizeof(expected), "%s/cache/reseat/binaries 77\n", harness_folder());
    cr_expect_str_eq(result->out, expected);
    unsetenv("RESEAT_LIBRARY_LIMIT");
}
