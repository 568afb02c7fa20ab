#include "tests/support/cases.h"

#include "state/base/clock.h"
#include "state/transfer/transfer.h"

/* A bandwidth, on a clock of the test's own. */

#define MIB (UINT64_C(1) << 20)

Test(throttle, lets_all_go_at_once_without_a_rate)
{
    struct throttle throttle = {0};
    cr_assert_eq(throttle_take(&throttle, UINT64_MAX, 17), 17);
    cr_assert_eq(throttle_take(&throttle, 1, 18), 18);
}

/* Whatever is taken and whenever: what went by any moment is what the rate gives until then, and
 * what may be saved up. */
Test(throttle, never_lets_more_go_than_the_rate_gives)
{
    const uint64_t rate = 100 * MIB;
    struct throttle throttle = {.rate = rate};
    unsigned seed = 1;
    uint64_t now = NS_PER_S, begin = now, gone = 0;
    for (unsigned i = 0; i < 100000; i++) {
        uint64_t bytes = (uint64_t)rand_r(&seed) % (4 * MIB);
        uint64_t due = throttle_take(&throttle, bytes, now);
        cr_assert_geq(due, now);
        gone += bytes;
        now = due;
        double given = ((double)(now - begin) + THROTTLE_BURST_NS) / 1e9 * (double)rate;
        cr_assert_leq((double)gone, given + 1024, "%llu bytes by %llu", (unsigned long long)gone,
                      (unsigned long long)(now - begin));
        if (rand_r(&seed) % 4 == 0)
            now += (uint64_t)rand_r(&seed) % (100 * NS_PER_MS);
    }
}

Test(throttle, is_the_rate_for_who_always_waits)
{
    const uint64_t rate = 7 * MIB + 13;
    struct throttle throttle = {.rate = rate};
    uint64_t now = NS_PER_S, begin = now;
    for (unsigned i = 0; i < 1000; i++)
        now = throttle_take(&throttle, 3 * MIB, now);
    double seconds = (double)(now - begin) / 1e9, wanted = 3000.0 * MIB / (double)rate;
    cr_assert(seconds > wanted - 0.02 && seconds < wanted + 0.01, "%f s, not %f", seconds, wanted);
}

Test(throttle, saves_up_no_more_than_a_moment)
{
    struct throttle throttle = {.rate = MIB};
    cr_assert_eq(throttle_take(&throttle, 1, 3600 * NS_PER_S), 3600 * NS_PER_S);
    uint64_t due = throttle_take(&throttle, MIB, 7200 * NS_PER_S);
    cr_assert_eq(due, 7200 * NS_PER_S + NS_PER_S - THROTTLE_BURST_NS);
}

Test(throttle, of_more_than_there_will_ever_be_is_far_away)
{
    struct throttle throttle = {.rate = 1};
    uint64_t due = throttle_take(&throttle, UINT64_MAX, NS_PER_S);
    cr_assert_gt(due, UINT64_MAX / 8);
    cr_assert_geq(throttle_take(&throttle, UINT64_MAX, due), due, "it came round");
}

/* What is owed is paid at the new rate, from the moment of the change on. */
Test(throttle, a_rate_that_changes_changes_the_wait)
{
    static _Atomic uint64_t changed;
    struct throttle throttle = {.rate = MIB, .changed = &changed};
    uint64_t now = 3600 * NS_PER_S;
    uint64_t due = throttle_take(&throttle, 100 * MIB, now);
    cr_assert_eq(due, now + 100 * NS_PER_S - THROTTLE_BURST_NS);
    now = due - 50 * NS_PER_S;
    cr_assert_eq(throttle_due(&throttle, now), due, "nothing was changed");
    atomic_store(&changed, 10 * MIB);
    cr_assert_eq(throttle_rate(&throttle), 10 * MIB);
    cr_assert_eq(throttle_due(&throttle, now), now + 5 * NS_PER_S);
    cr_assert_eq(throttle_due(&throttle, now), now + 5 * NS_PER_S, "it is changed twice");
    atomic_store(&changed, MIB / 2);
    cr_assert_eq(throttle_due(&throttle, now), now + 100 * NS_PER_S);
    /* Nothing is owed any more, and nothing was saved up by the change. */
    now += 100 * NS_PER_S;
    atomic_store(&changed, MIB);
    cr_assert_eq(throttle_take(&throttle, MIB, now), now + NS_PER_S);
}

Test(throttle, a_limit_may_begin_later_and_be_as_small_as_any)
{
    static _Atomic uint64_t changed;
    struct throttle throttle = {.changed = &changed};
    cr_assert_eq(throttle_take(&throttle, 100 * MIB, NS_PER_S), NS_PER_S);
    atomic_store(&changed, UINT64_MAX);
    (void)throttle_take(&throttle, UINT64_MAX, NS_PER_S);
    atomic_store(&changed, 1);
    uint64_t due = throttle_take(&throttle, UINT64_MAX, NS_PER_S);
    cr_assert_gt(due, UINT64_MAX / 8);
}
