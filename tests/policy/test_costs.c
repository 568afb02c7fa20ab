#include <math.h>

#include "policy/costs.h"
#include "tests/support/leaks.h"

TestSuite(costs, .fini = leaks_check, .timeout = 60);

#define MS 1000000u

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static struct cost_guess guess(const struct costs *costs, uint64_t items)
{
    struct cost_guess answer;
    cr_assert(costs_guess(costs, items, &answer), "nothing is known at %lu", (unsigned long)items);
    return answer;
}

static bool within(uint64_t ns, double expected, double factor)
{
    return (double)ns > expected / factor && (double)ns < expected * factor;
}

static void add_times(struct costs *costs, unsigned times, uint64_t items, uint64_t ns)
{
    for (unsigned i = 0; i < times; i++)
        costs_add(costs, items, ns);
}

/* Times that vary by a quarter, of one size. */
static void random_costs(struct costs *costs, uint64_t *state)
{
    memset(costs, 0, sizeof(*costs));
    for (unsigned i = 0; i < 40; i++) {
        uint64_t items = 1ull << next_random(state) % 20;
        costs_add(costs, items, items * (750 + next_random(state) % 500));
        if (i % 2)
            costs_add_power(costs, items, 20000 + next_random(state) % 20000);
    }
}

static void expect_same_mean(const struct cost_mean *one, const struct cost_mean *other)
{
    cr_assert_float_eq(one->count, other->count, 1e-3);
    cr_assert_float_eq(one->mean, other->mean, 1e-3);
    cr_assert_float_eq(one->spread, other->spread, 1e-2);
}

static void expect_same(const struct costs *one, const struct costs *other)
{
    for (unsigned i = 0; i < COSTS_SIZES; i++) {
        const struct cost_point *a = &one->points[i], *b = &other->points[i];
        cr_assert_float_eq(a->size, b->size, 1e-3);
        expect_same_mean(&a->time, &b->time);
        expect_same_mean(&a->power, &b->power);
    }
}

Test(costs, merging_is_commutative_and_associative)
{
    uint64_t state = 7;
    for (unsigned round = 0; round < 200; round++) {
        struct costs a, b, c;
        random_costs(&a, &state);
        random_costs(&b, &state);
        random_costs(&c, &state);
        struct costs ab = a, ba = b, bc = b, left, right = a;
        costs_merge(&ab, &b);
        costs_merge(&ba, &a);
        expect_same(&ab, &ba);
        left = ab;
        costs_merge(&left, &c);
        costs_merge(&bc, &c);
        costs_merge(&right, &bc);
        expect_same(&left, &right);
    }
}

Test(costs, merging_gives_the_mean_of_all_samples)
{
    struct costs one = {0}, other = {0};
    add_times(&one, 6, 1024, 4 * MS);
    add_times(&other, 2, 1024, 16 * MS);
    costs_merge(&one, &other);
    double mean = exp2((6 * log2(4e6) + 2 * log2(16e6)) / 8);
    cr_assert(within(guess(&one, 1024).ns, mean, 1.001));
    cr_assert_float_eq(one.points[10].time.spread, 6 * 0.25 + 2 * 2.25, 1e-3);
}

Test(costs, more_samples_that_agree_are_never_less_certain)
{
    struct costs costs = {0};
    uint32_t before = UINT32_MAX;
    for (unsigned i = 0; i < 100; i++) {
        costs_add(&costs, 4096, 3 * MS);
        struct cost_guess now = guess(&costs, 4096);
        cr_assert_leq(now.error_permil, before);
        before = now.error_permil;
    }
    cr_assert_leq(before, 50);
    cr_assert_leq(costs.points[12].time.count, COSTS_MEMORY);
}

Test(costs, samples_that_differ_are_less_certain)
{
    struct costs same = {0}, differ = {0};
    for (unsigned i = 0; i < 16; i++) {
        costs_add(&same, 4096, 3 * MS);
        costs_add(&differ, 4096, i % 2 ? 2 * MS : 4 * MS);
    }
    cr_assert_gt(guess(&differ, 4096).error_permil, guess(&same, 4096).error_permil);
}

Test(costs, a_lasting_change_is_followed_within_four_samples)
{
    for (unsigned known = COSTS_FOLLOW; known < 200; known += 13)
        for (unsigned factor = 5; factor < 2000; factor *= 3) {
            struct costs slower = {0}, faster = {0};
            add_times(&slower, known, 256, 2 * MS);
            add_times(&slower, COSTS_FOLLOW, 256, 2ull * MS * factor);
            cr_assert(within(guess(&slower, 256).ns, 2.0 * MS * factor, 1.01));
            add_times(&faster, known, 256, 2ull * MS * factor);
            add_times(&faster, COSTS_FOLLOW, 256, 2 * MS);
            cr_assert(within(guess(&faster, 256).ns, 2.0 * MS, 1.01));
        }
}

Test(costs, a_smaller_change_is_averaged_in)
{
    struct costs costs = {0};
    add_times(&costs, 100, 256, 10 * MS);
    add_times(&costs, 22, 256, 15 * MS);
    cr_assert(within(guess(&costs, 256).ns, 10.0 * MS * sqrt(1.5), 1.03));
}

Test(costs, what_lies_now_and_then_is_bounded)
{
    struct costs costs = {0};
    const uint64_t lies[] = {0, 1, UINT64_MAX, 1};
    add_times(&costs, 40, 256, 10 * MS);
    for (unsigned i = 0; i < 400; i++)
        if (i % 10 < 3)
            costs_add(&costs, 256, lies[i % 4]);
        else
            costs_add(&costs, 256, 10 * MS);
    cr_assert(within(guess(&costs, 256).ns, 10.0 * MS, 2));
}

Test(costs, no_value_breaks_it)
{
    struct costs costs = {0};
    uint64_t state = 3;
    for (unsigned i = 0; i < 20000; i++) {
        uint64_t items = next_random(&state) << next_random(&state) % 34;
        uint64_t ns = next_random(&state) << next_random(&state) % 34;
        costs_add(&costs, i % 7 ? items : UINT64_MAX, i % 5 ? ns : UINT64_MAX * (i % 2));
        struct cost_guess answer;
        if (costs_guess(&costs, items, &answer))
            cr_assert_leq(answer.ns, 64 * 86400000000000u);
        for (unsigned at = 0; at < COSTS_SIZES; at++)
            cr_assert(isfinite(costs.points[at].time.mean) && costs.points[at].time.count >= 0 &&
                      costs.points[at].time.spread >= 0);
    }
}

Test(costs, the_first_slow_launches_are_forgotten)
{
    struct costs costs = {0};
    costs_add(&costs, 256, 900 * MS);
    costs_add(&costs, 256, 300 * MS);
    add_times(&costs, 3, 256, 10 * MS);
    cr_assert(within(guess(&costs, 256).ns, 10.0 * MS, 1.01));
}

Test(costs, between_two_sizes_it_is_interpolated)
{
    struct costs costs = {0};
    add_times(&costs, 5, 1 << 10, 1 * MS);
    add_times(&costs, 5, 1 << 14, 16 * MS);
    cr_assert(within(guess(&costs, 1 << 12).ns, 4.0 * MS, 1.01));
    cr_assert_gt(guess(&costs, 1 << 12).error_permil, guess(&costs, 1 << 10).error_permil);
}

Test(costs, far_outside_nothing_is_known)
{
    struct costs costs = {0};
    struct cost_guess answer;
    cr_assert_not(costs_guess(&costs, 1, &answer));
    add_times(&costs, 5, 1 << 20, 8 * MS);
    cr_assert_not(costs_guess(&costs, 1 << 23, &answer));
    cr_assert_not(costs_guess(&costs, 1 << 17, &answer));
    cr_assert(within(guess(&costs, 1 << 21).ns, 16.0 * MS, 1.01));
    cr_assert(within(guess(&costs, 1 << 19).ns, 4.0 * MS, 1.01));
    add_times(&costs, 5, 1ull << 32, 8000ull * MS); /* too far apart for a line */
    cr_assert_not(costs_guess(&costs, 1 << 26, &answer));
}

Test(costs, records_carry_a_point)
{
    struct costs costs = {0}, copy = {0};
    for (unsigned i = 0; i < 9; i++)
        costs_add(&costs, 5000, (8 + i % 3) * MS);
    for (unsigned i = 0; i < 4; i++)
        costs_add_power(&costs, 5000, 40000 + 1000 * i);
    struct cost_record record;
    cost_record_of(&costs.points[12], &record);
    cr_assert(costs_read_record(&record, &copy));
    cr_assert(within(guess(&copy, 5000).ns, (double)guess(&costs, 5000).ns, 1.001));
    cr_assert_eq(guess(&copy, 5000).error_permil, record.error_permil);
    cr_assert(
        within(guess(&copy, 5000).power_mw, 41486, 1.001)); /* of 41, 42, 43 and 44 W less 1 */
    cr_assert_eq(guess(&copy, 5000).power_error_permil, record.power_error_permil);
    const struct cost_record wrong[] = {{.ns = 1, .samples_k = 1000},
                                        {.items = 1, .samples_k = 1000},
                                        {.items = 1, .ns = 1},
                                        {.items = 1, .ns = UINT64_MAX, .samples_k = 1000},
                                        {.items = 1, .ns = 1, .samples_k = UINT64_MAX},
                                        {1, 1, 1000, UINT64_MAX, 0, 0, 0, 0, 0},
                                        {1, 1, 1000, 0, 0, UINT64_MAX, 1000, 0, 0},
                                        {1, 1, 1000, 0, 0, 1, UINT64_MAX, 0, 0},
                                        {1, 1, 1000, 0, 0, 1, 1000, UINT64_MAX, 0}};
    for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        cr_assert_not(costs_read_record(&wrong[i], &copy));
}

Test(costs, relative_speed_weighs_kernels_by_their_time)
{
    struct costs slow = {0}, fast = {0}, even = {0}, few = {0};
    add_times(&slow, 5, 1 << 16, 80 * MS);
    add_times(&fast, 5, 1 << 16, 10 * MS);
    add_times(&even, 5, 1 << 10, 4 * MS);
    add_times(&few, COSTS_SURE - 1, 1 << 10, 4 * MS);
    const struct costs_use uses[] = {{&slow, &fast, 1 << 16, 600 * MS},
                                     {&even, &even, 1 << 10, 200 * MS},
                                     {&even, &few, 1 << 10, 100 * MS},
                                     {&even, NULL, 1 << 10, 100 * MS}};
    struct policy_measured measured = costs_relative(uses, 4);
    cr_assert_eq(measured.covered, 800);
    cr_assert_float_eq(measured.speed, 1000.0 * 800 / (600 / 8.0 + 200), 2);
    measured = costs_relative(uses + 2, 2);
    cr_assert_eq(measured.covered, 0);
    cr_assert_eq(measured.speed, 0);
    cr_assert_eq(costs_relative(NULL, 0).covered, 0);
}

Test(costs, power_is_learnt_of_sizes_whose_time_is_known)
{
    struct costs costs = {0};
    costs_add_power(&costs, 1 << 10, 50000);
    add_times(&costs, 3, 1 << 10, 4 * MS);
    cr_assert_eq(guess(&costs, 1 << 10).power_samples, 0);
    costs_add_power(&costs, 1 << 10, 50000);
    costs_add_power(&costs, 1 << 10, 51000);
    struct cost_guess known = guess(&costs, 1 << 10), near = guess(&costs, 1 << 11);
    cr_assert_eq(known.power_samples, 2);
    cr_assert(within(known.power_mw, 50500, 1.01));
    cr_assert(within(near.power_mw, 50500, 1.01));
    cr_assert_gt(near.power_error_permil, known.power_error_permil);
    costs_add_power(&costs, 1 << 10, 0); /* noise of a meter: no power at all */
    cr_assert_lt(guess(&costs, 1 << 10).power_mw, 50000);
}

Test(costs, power_is_of_the_nearest_size_that_has_one)
{
    struct costs costs = {0};
    add_times(&costs, 3, 1 << 10, 4 * MS);
    add_times(&costs, 3, 1 << 14, 64 * MS);
    costs_add_power(&costs, 1 << 14, 90000);
    cr_assert(within(guess(&costs, 1 << 10).power_mw, 90000, 1.01));
    costs_add_power(&costs, 1 << 10, 20000);
    cr_assert(within(guess(&costs, 1 << 11).power_mw, 20000, 1.01));
    cr_assert(within(guess(&costs, 1 << 13).power_mw, 90000, 1.01));
    cr_assert(within(guess(&costs, 1 << 9).power_mw, 20000, 1.01));
    cr_assert(within(guess(&costs, 1 << 15).power_mw, 90000, 1.01));
}

Test(costs, the_power_of_a_size_that_is_too_far_is_not_taken)
{
    struct costs costs = {0};
    add_times(&costs, 3, 1 << 10, 4 * MS);
    add_times(&costs, 3, 1ull << 32, 8000ull * MS);
    costs_add_power(&costs, 1ull << 32, 90000);
    cr_assert_eq(guess(&costs, 1 << 11).power_samples, 0);
}

Test(costs, a_device_that_changed_has_its_power_to_be_learnt_anew)
{
    struct costs costs = {0};
    add_times(&costs, 20, 256, 10 * MS);
    costs_add_power(&costs, 256, 90000);
    add_times(&costs, COSTS_FOLLOW, 256, 100 * MS);
    cr_assert_eq(guess(&costs, 256).power_samples, 0);
}
