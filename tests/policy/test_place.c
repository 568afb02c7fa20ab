#include <errno.h>

#include "policy/decide.h"
#include "tests/support/leaks.h"

TestSuite(place, .fini = leaks_check, .timeout = 60);

static void expect_choice(const struct place_device *devices, size_t count, size_t expected,
                          const char *reason)
{
    char text[256] = "";
    size_t chosen = 99;

    cr_assert_eq(place_choose(devices, count, &chosen, text, sizeof(text)), 0);
    cr_expect_eq(chosen, expected, "device %zu", chosen);
    cr_expect_str_eq(text, reason);
}

Test(place, kind_decides_before_memory)
{
    const struct place_device devices[] = {
        {"other0", PLACE_OTHER, 100, 0, false},
        {"cpu0", PLACE_CPU, 1000, 0, false},
        {"fpga0", PLACE_ACCELERATOR, 100, 10, false},
        {"gpu0", PLACE_GPU, 100, 99, false},
    };

    expect_choice(devices, 4, 3, "gpu0: the only GPU that takes new programs");
    expect_choice(devices, 3, 2, "fpga0: the only accelerator that takes new programs");
    expect_choice(devices, 2, 1, "cpu0: the only CPU that takes new programs");
}

Test(place, least_used_share_of_memory_wins)
{
    const struct place_device devices[] = {
        {"gpu0", PLACE_GPU, 1ull << 30, 1ull << 29, false},
        {"gpu1", PLACE_GPU, 140ull << 30, 35ull << 30, false},
        {"gpu2", PLACE_GPU, 100, 75, false},
    };

    expect_choice(devices, 3, 1, "gpu1: GPU with 25% of its memory in use, the least of 3");
}

Test(place, what_has_no_room_for_the_peak_of_former_runs_comes_last)
{
    const struct place_device devices[] = {
        {"gpu0", PLACE_GPU, 100, 0, .small = true},
        {"cpu0", PLACE_CPU, 1000, 900},
        {"gpu1", PLACE_GPU, 100, 90, .small = true},
    };
    const unsigned taken[3] = {0, 5, 0};
    size_t chosen;

    expect_choice(devices, 3, 1, "cpu0: the only CPU that takes new programs");
    cr_assert_eq(place_spread(devices, taken, 3, &chosen), 0);
    cr_expect_eq(chosen, 1);
    cr_assert_eq(place_spread(devices, taken, 1, &chosen), 0);
    cr_expect_eq(chosen, 0, "no other device has room");
}

Test(place, equals_go_to_the_first_listed)
{
    const struct place_device devices[] = {
        {"gpu0", PLACE_GPU, 100, 50, true},
        {"gpu1", PLACE_GPU, 200, 100, false},
        {"gpu2", PLACE_GPU, 100, 50, false},
    };

    expect_choice(devices, 3, 1, "gpu1: GPU with 50% of its memory in use, the least of 2");
}

Test(place, memory_that_is_not_known_counts_as_full)
{
    const struct place_device devices[] = {
        {"gpu0", PLACE_GPU, 0, 0, false},
        {"gpu1", PLACE_GPU, 100, 99, false},
        {"gpu2", PLACE_GPU, 100, 200, false},
    };

    expect_choice(devices, 3, 1, "gpu1: GPU with 99% of its memory in use, the least of 3");
}

Test(place, nothing_open_is_refused_with_the_reason)
{
    const struct place_device devices[] = {{"gpu0", PLACE_GPU, 100, 0, true}};
    char text[256] = "";
    size_t chosen = 99;

    cr_expect_eq(place_choose(devices, 1, &chosen, text, sizeof(text)), -ENODEV);
    cr_expect_str_eq(text, "none of the 1 devices takes new programs");
    cr_expect_eq(place_choose(NULL, 0, &chosen, text, sizeof(text)), -ENODEV);
    cr_expect_str_eq(text, "there is no device");
    cr_expect_eq(chosen, 99);
}

Test(place, several_spread_evenly_over_the_best_kind)
{
    const struct place_device devices[] = {
        {"cpu0", PLACE_CPU, 100, 0, false},
        {"gpu0", PLACE_GPU, 100, 90, false},
        {"gpu1", PLACE_GPU, 100, 10, true},
        {"gpu2", PLACE_GPU, 100, 50, false},
    };
    static const size_t expected[] = {3, 1, 3, 1, 3};
    unsigned taken[4] = {0};
    size_t chosen = 99;

    for (size_t i = 0; i < sizeof(expected) / sizeof(*expected); i++) {
        cr_assert_eq(place_spread(devices, taken, 4, &chosen), 0);
        cr_expect_eq(chosen, expected[i], "the %zuth on %zu", i, chosen);
        taken[chosen]++;
    }
    cr_assert_eq(place_spread(devices + 2, taken, 1, &chosen), -ENODEV);
    cr_assert_eq(place_spread(devices, taken, 0, &chosen), -ENODEV);
}
