#include "remote/server/listener/devices.h"
#include "state/base/compiler.h"
#include "tests/support/leaks.h"

TestSuite(timeslices, .fini = leaks_check, .timeout = 60);

#define USERS 4

/* One device and its sessions, in a time of its own. */
struct rig {
    struct timeslices timeslices;
    struct timeslice_user users[USERS];
    uint64_t now;
    uint64_t had[USERS];
    enum timeslice_event said[USERS]; /* The last event of each. */
    uint64_t ns[USERS];
    unsigned events[USERS];
};

static void tell(void *data, struct timeslice_user *user, enum timeslice_event event, uint64_t ns)
{
    struct rig *rig = data;
    size_t i = (size_t)(user - rig->users);
    rig->said[i] = event;
    rig->ns[i] = ns;
    rig->events[i]++;
}

static void init(struct rig *rig)
{
    *rig = (struct rig){.now = NS_PER_S};
    rig->timeslices.tell = tell;
    rig->timeslices.data = rig;
    for (size_t i = 0; i < USERS; i++)
        rig->users[i].share = TIMESLICE_SHARE;
}

static void want(struct rig *rig, size_t user)
{
    timeslices_want(&rig->timeslices, &rig->users[user], rig->now);
}

static void over(struct rig *rig, size_t user)
{
    timeslices_over(&rig->timeslices, &rig->users[user], false, rig->now);
}

static size_t holder(const struct rig *rig)
{
    cr_assert(rig->timeslices.holder);
    return (size_t)(rig->timeslices.holder - rig->users);
}

/* The holder has its whole time slice, and would have another at once. */
static void run_turns(struct rig *rig, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t user = holder(rig);
        rig->now += TIMESLICE_NS;
        rig->had[user] += TIMESLICE_NS;
        timeslices_over(&rig->timeslices, &rig->users[user], true, rig->now);
        cr_assert_neq(timeslices_tick(&rig->timeslices, rig->now), 0);
    }
}

Test(timeslices, who_is_alone_is_left_alone)
{
    struct rig rig;
    init(&rig);
    want(&rig, 0);
    cr_expect_eq(rig.said[0], TIMESLICE_BEGINS);
    cr_expect_eq(rig.ns[0], UINT64_MAX);
    rig.now += 1000 * NS_PER_S;
    cr_expect_eq(timeslices_tick(&rig.timeslices, rig.now), UINT64_MAX);
    cr_expect_eq(rig.events[0], 1);
}

Test(timeslices, who_comes_second_waits_for_one_turn_at_most)
{
    struct rig rig;
    init(&rig);
    want(&rig, 0);
    rig.now += 1000 * NS_PER_S;
    want(&rig, 1);
    cr_expect_eq(rig.said[0], TIMESLICE_RECALLED);
    cr_expect_eq(rig.ns[0], TIMESLICE_NS);
    cr_expect_eq(rig.events[1], 0);
    rig.now += TIMESLICE_NS;
    over(&rig, 0);
    cr_expect_eq(rig.said[1], TIMESLICE_BEGINS);
}

/* What it used while nobody wanted the device is not held against it. */
Test(timeslices, who_was_alone_for_long_pays_for_one_turn)
{
    struct rig rig;
    init(&rig);
    want(&rig, 0);
    rig.now += 1000 * NS_PER_S;
    want(&rig, 1);
    run_turns(&rig, 40);
    cr_expect_leq(rig.had[0], rig.had[1] + 2 * TIMESLICE_NS);
    cr_expect_leq(rig.had[1], rig.had[0] + 2 * TIMESLICE_NS);
}

Test(timeslices, time_goes_by_weight)
{
    struct rig rig;
    init(&rig);
    rig.users[1].share = 3 * TIMESLICE_SHARE;
    rig.users[2].share = 6 * TIMESLICE_SHARE;
    for (size_t i = 0; i < 3; i++)
        want(&rig, i);
    run_turns(&rig, 1000);
    uint64_t all = rig.had[0] + rig.had[1] + rig.had[2];
    cr_expect_leq(rig.had[0], all / 10 + 4 * TIMESLICE_NS);
    cr_expect_geq(rig.had[0], all / 10 - 4 * TIMESLICE_NS);
    cr_expect_leq(rig.had[1], all * 3 / 10 + 4 * TIMESLICE_NS);
    cr_expect_geq(rig.had[1], all * 3 / 10 - 4 * TIMESLICE_NS);
}

/* Who did not ask saves nothing up. */
Test(timeslices, who_comes_late_does_not_keep_the_others_out)
{
    struct rig rig;
    init(&rig);
    want(&rig, 0);
    want(&rig, 1);
    run_turns(&rig, 1000);
    memset(rig.had, 0, sizeof(rig.had));
    want(&rig, 2);
    run_turns(&rig, 30);
    for (size_t i = 0; i < 3; i++) {
        cr_expect_geq(rig.had[i], 8 * TIMESLICE_NS, "%zu", i);
        cr_expect_leq(rig.had[i], 12 * TIMESLICE_NS, "%zu", i);
    }
}

Test(timeslices, who_does_not_end_is_passed_over)
{
    struct rig rig;
    init(&rig);
    want(&rig, 0);
    want(&rig, 1);
    uint64_t until = timeslices_tick(&rig.timeslices, rig.now);
    cr_expect_eq(until, rig.now + TIMESLICE_NS + TIMESLICE_OVERTIME_NS);
    rig.now = until;
    timeslices_tick(&rig.timeslices, rig.now);
    cr_expect_eq(rig.said[0], TIMESLICE_LOST);
    cr_expect_eq(holder(&rig), 1);
    /* It asks for another, while what it left is there: beside the others, and rarely. */
    want(&rig, 0);
    unsigned events = rig.events[0];
    over(&rig, 1);
    want(&rig, 1);
    cr_expect_eq(holder(&rig), 1);
    cr_expect_eq(rig.events[0], events);
    rig.now += TIMESLICE_BESIDE_NS;
    timeslices_tick(&rig.timeslices, rig.now);
    cr_expect_eq(rig.said[0], TIMESLICE_BEGINS);
    cr_expect_eq(holder(&rig), 1, "it holds up the other again");
    cr_expect_eq(rig.events[0], events + 1);
}

/* Then it pays for all that it took, and takes part again. */
Test(timeslices, who_was_passed_over_pays_when_it_has_ended)
{
    struct rig rig;
    init(&rig);
    want(&rig, 0);
    over(&rig, 0);
    want(&rig, 1);
    want(&rig, 0);
    /* The other waits from the first. */
    timeslices_over(&rig.timeslices, &rig.users[1], true, rig.now);
    cr_assert_eq(holder(&rig), 0);
    rig.now = timeslices_tick(&rig.timeslices, rig.now);
    timeslices_tick(&rig.timeslices, rig.now);
    cr_assert_eq(rig.said[0], TIMESLICE_LOST);
    rig.now += 100 * TIMESLICE_NS;
    over(&rig, 0);
    want(&rig, 0);
    memset(rig.had, 0, sizeof(rig.had));
    run_turns(&rig, 60);
    cr_expect_eq(rig.had[0], 0);
    run_turns(&rig, 200);
    cr_expect_geq(rig.had[0], 60 * TIMESLICE_NS);
}

Test(timeslices, who_leaves_is_no_longer_waited_for)
{
    struct rig rig;
    init(&rig);
    for (size_t i = 0; i < 3; i++)
        want(&rig, i);
    timeslices_leave(&rig.timeslices, &rig.users[1], rig.now);
    timeslices_leave(&rig.timeslices, &rig.users[0], rig.now);
    cr_expect_eq(holder(&rig), 2);
    timeslices_leave(&rig.timeslices, &rig.users[2], rig.now);
    cr_expect_null(rig.timeslices.holder);
    cr_expect_null(rig.timeslices.waiting);
    /* Also one that owes. */
    want(&rig, 0);
    want(&rig, 1);
    rig.now = timeslices_tick(&rig.timeslices, rig.now);
    timeslices_tick(&rig.timeslices, rig.now);
    want(&rig, 0);
    timeslices_leave(&rig.timeslices, &rig.users[0], rig.now);
    cr_expect_null(rig.timeslices.owing);
    cr_expect_eq(holder(&rig), 1);
    over(&rig, 1);
    cr_expect_eq(timeslices_tick(&rig.timeslices, rig.now), UINT64_MAX);
}

/* A session's process may say anything. */
Test(timeslices, events_in_any_order_leave_it_whole)
{
    struct rig rig;
    unsigned seed = 7;
    init(&rig);
    for (int step = 0; step < 200000; step++) {
        struct timeslice_user *user = &rig.users[rand_r(&seed) % USERS];
        rig.now += (uint64_t)rand_r(&seed) % (TIMESLICE_OVERTIME_NS / 4);
        switch (rand_r(&seed) % 8) {
        case 0:
            timeslices_leave(&rig.timeslices, user, rig.now);
            break;
        case 1:
        case 2:
        case 3:
            timeslices_over(&rig.timeslices, user, rand_r(&seed) % 2, rig.now);
            break;
        default:
            timeslices_want(&rig.timeslices, user, rig.now);
        }
        timeslices_tick(&rig.timeslices, rig.now);
        size_t waiting = 0, owing = 0;
        for (struct timeslice_user *at = rig.timeslices.waiting; at; at = at->next, waiting++)
            cr_assert(at->waits && !at->owes && at != rig.timeslices.holder && waiting < USERS);
        for (struct timeslice_user *at = rig.timeslices.owing; at; at = at->next, owing++)
            cr_assert(at->owes && at != rig.timeslices.holder && owing < USERS);
        cr_assert(rig.timeslices.holder || !waiting, "nobody has what somebody waits for");
    }
}
