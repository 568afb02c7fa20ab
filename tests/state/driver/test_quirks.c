#include "tests/support/cases.h"
#include <unistd.h>

#include "state/driver/driver.h"
#include "state/driver/quirks.h"

TestSuite(quirks, .timeout = 60);

static bool has_file(const char *path)
{
    char whole[512];
    snprintf(whole, sizeof(whole), "%s/%s", SOURCE, path);
    return access(whole, R_OK) == 0;
}

static void says(const char *text)
{
    cr_expect(text && text[0]);
}

Test(quirks, rows_are_whole_and_name_files_that_are_there)
{
    for (size_t i = 0; i < quirk_row_count; i++) {
        const struct quirk_row *row = &quirk_rows[i];
        says(row->platform);
        says(row->versions);
        says(row->what);
        says(row->why);
        cr_expect(has_file(row->where), "%s: %s", row->what, row->where);
        cr_expect_eq(row->tested == NULL, row->untested != NULL, "%s: a test, or a reason",
                     row->what);
        if (row->tested)
            cr_expect(has_file(row->tested), "%s: %s", row->what, row->tested);
    }
}

Test(quirks, one_row_for_each_bit)
{
    unsigned seen = 0;
    for (size_t i = 0; i < quirk_row_count; i++) {
        unsigned quirk = quirk_rows[i].quirk;
        cr_expect_eq(quirk & (quirk - 1), 0);
        cr_expect_eq(seen & quirk, 0, "%s", quirk_rows[i].what);
        seen |= quirk;
    }
    cr_expect_eq(seen, QUIRK_RUNS_IN_CALLER | QUIRK_FINISH_FORGETS | QUIRK_GROUP_SIZE_WRONG |
                           QUIRK_WAITS_END | QUIRK_BINARY_COMPILES | QUIRK_BINARY_IS_IL |
                           QUIRK_OFFSETS_MIXED | QUIRK_COMPILES_INSIDE | QUIRK_NO_LOCKS |
                           QUIRK_RUNS_AT_ONCE | QUIRK_CALLS_COMPLETE | QUIRK_LOCKS_EVENT |
                           QUIRK_HOLDS_BACK);
}

Test(quirks, are_those_of_the_platform_and_of_no_other)
{
    static const struct {
        const char *platform;
        unsigned quirks;
    } expected[] = {
        {"Oclgrind", QUIRK_RUNS_IN_CALLER | QUIRK_NO_LOCKS},
        {"rusticl", QUIRK_FINISH_FORGETS | QUIRK_GROUP_SIZE_WRONG | QUIRK_BINARY_IS_IL |
                        QUIRK_COMPILES_INSIDE | QUIRK_LOCKS_EVENT | QUIRK_HOLDS_BACK},
        {"NVIDIA CUDA", QUIRK_WAITS_END | QUIRK_CALLS_COMPLETE},
        {"Portable Computing Language",
         QUIRK_BINARY_COMPILES | QUIRK_OFFSETS_MIXED | QUIRK_RUNS_AT_ONCE},
        {"Emulated", 0},
        {"rustic", 0},
        {"", 0},
    };
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
        cr_expect_eq(quirks_of(expected[i].platform), expected[i].quirks, "%s",
                     expected[i].platform);
}

Test(quirks, are_known_of_each_device_that_is_listed)
{
    struct device **devices;
    size_t count;
    cr_assert_eq(driver_list_library("/usr/lib/oclgrind/liboclgrind-rt-icd.so", &devices, &count),
                 0);
    cr_assert_gt(count, 0);
    for (size_t i = 0; i < count; i++)
        cr_expect_eq(devices[i]->quirks, QUIRK_RUNS_IN_CALLER | QUIRK_NO_LOCKS);
    free(devices);
}
