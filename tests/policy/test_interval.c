#include "tests/support/cases.h"
#include <math.h>

#include "policy/interval.h"

/* As printed: groups, their latency, and a snapshot every so many of them. */
static double as_printed(const struct interval_costs *costs, double n, double group, double c)
{
    return n * group * (1 + (costs->down + c * group / 2) / costs->fault) + n * costs->snapshot / c;
}

Test(interval, expects_what_the_published_equation_does)
{
    const struct interval_costs costs = {.fault = 3600, .down = 2.5, .snapshot = 0.04};
    for (double c = 1; c <= 1 << 20; c *= 2)
        cr_assert_float_eq(interval_expected(&costs, 1e6 * 0.003, c * 0.003),
                           as_printed(&costs, 1e6, 0.003, c), 1e-6);
}

Test(interval, the_best_one_is_better_than_all_others)
{
    static const double faults[] = {1, 60, 3600, 2592000}, snapshots[] = {1e-4, 0.01, 2};
    for (unsigned i = 0; i < 4; i++)
        for (unsigned j = 0; j < 3; j++) {
            const struct interval_costs costs = {faults[i], 7, snapshots[j]};
            double best = interval_best(&costs), least = interval_expected(&costs, 100, best);
            cr_assert_gt(best, 0);
            for (double other = best / 1024; other < best * 1024; other *= 1.1)
                cr_assert_geq(interval_expected(&costs, 100, other), least * (1 - 1e-12));
        }
}

/* Its text: a snapshot at each 25 % of the groups, a fault at 50 %, and 25 % at most is done again.
 */
Test(interval, does_half_an_interval_again_on_average)
{
    const struct interval_costs costs = {.fault = 100};
    cr_assert_float_eq(interval_expected(&costs, 100, 25), 112.5, 1e-9);
}
