#include "remote/server/session/pending.h"

#include "tests/support/cases.h"

TestSuite(pending, .timeout = 60);

#define US (NS_PER_MS / 1000)

Test(pending, an_end_is_seen_at_most_a_64th_of_its_time_late)
{
    for (uint64_t age_ns = 0; age_ns < 100 * NS_PER_S; age_ns += 1 + age_ns / 7) {
        uint64_t after_ns = pending_look_after(age_ns);
        cr_assert(after_ns <= 20 * US || after_ns * 64 <= age_ns);
        /* Nor is a driver asked more often than that takes. */
        cr_assert(after_ns == 20 * NS_PER_MS || after_ns >= age_ns / 64);
        cr_assert_geq(after_ns, 20 * US);
    }
}

Test(pending, looks_are_never_farther_apart_than_those_at_all)
{
    cr_assert_eq(pending_look_after(0), 20 * US);
    cr_assert_eq(pending_look_after(64 * 50 * US), 50 * US);
    cr_assert_eq(pending_look_after(UINT64_MAX), 20 * NS_PER_MS);
}
