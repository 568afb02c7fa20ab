#include <criterion/criterion.h>
#include <string.h>

#include "remote/server/listener/turns.h"
#include "state/base/compiler.h"
#include "tests/support/leaks.h"

TestSuite(turns, .fini = leaks_check, .timeout = 60);

#define USERS 4

/* One device and its sessions, in a time of its own. */
struct rig {
    struct turns turns;
    struct turn_user users[USERS];
    uint64_t now;
    uint64_t had[USERS];
    enum turn_word said[USERS]; /* The last word to each. */
    uint64_t ns[USERS];
    unsigned words[USERS];
};

static void tell(void *data, struct turn_user *user, enum turn_word word, uint64_t ns)
{
    struct rig *rig = data;
    size_t i = (size_t)(user - rig->users);
    rig->said[i] = word;
    rig->ns[i] = ns;
    rig->words[i]++;
}

static void init(struct rig *rig)
{
    *rig = (struct rig){.now = NS_PER_S};
    rig->turns.tell = tell;
    rig->turns.data = rig;
    for (size_t i = 0; i < USERS; i++)
        rig->users[i].share = TURN_SHARE;
}

static void want(struct rig *rig, size_t user)
{
    turns_want(&rig->turns, &rig->users[user], rig->now);
}

static void over(struct rig *rig, size_t user)
{
    turns_over(&rig->turns, &rig->users[user], false, rig->now);
}

static size_t holder(const struct rig *rig)
{
    cr_assert(rig->turns.holder);
    return (size_t)(rig->turns.holder - rig->users);
}

/* The holder has its whole turn, and would have another at once. */
static void run_turns(struct rig *rig, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t user = holder(rig);
        rig->now += TURN_NS;
        rig->had[user] += TURN_NS;
        turns_over(&rig->turns, &rig->users[user], true, rig->now);
        cr_assert_neq(turns_tick(&rig->turns, rig->now), 0);
    }
}

Test(turns, who_is_alone_is_left_alone)
{
    struct rig rig;
    init(&rig);
    want(&rig, 0);
    cr_expect_eq(rig.said[0], TURN_YOURS);
    cr_expect_eq(rig.ns[0], UINT64_MAX);
    rig.now += 1000 * NS_PER_S;
    cr_expect_eq(turns_tick(&rig.turns, rig.now), UINT64_MAX);
    cr_expect_eq(rig.words[0], 1);
}

Test(turns, who_comes_second_waits_for_one_turn_at_most)
{
    struct rig rig;
    init(&rig);
    want(&rig, 0);
    rig.now += 1000 * NS_PER_S;
    want(&rig, 1);
    cr_expect_eq(rig.said[0], TURN_RECALLED);
    cr_expect_eq(rig.ns[0], TURN_NS);
    cr_expect_eq(rig.words[1], 0);
    rig.now += TURN_NS;
    over(&rig, 0);
    cr_expect_eq(rig.said[1], TURN_YOURS);
}

/* What it used while nobody wanted the device is not held against it. */
Test(turns, who_was_alone_for_long_pays_for_one_turn)
{
    struct rig rig;
    init(&rig);
    want(&rig, 0);
    rig.now += 1000 * NS_PER_S;
    want(&rig, 1);
    run_turns(&rig, 40);
    cr_expect_leq(rig.had[0], rig.had[1] + 2 * TURN_NS);
    cr_expect_leq(rig.had[1], rig.had[0] + 2 * TURN_NS);
}

Test(turns, time_goes_by_weight)
{
    struct rig rig;
    init(&rig);
    rig.users[1].share = 3 * TURN_SHARE;
    rig.users[2].share = 6 * TURN_SHARE;
    for (size_t i = 0; i < 3; i++)
        want(&rig, i);
    run_turns(&rig, 1000);
    uint64_t all = rig.had[0] + rig.had[1] + rig.had[2];
    cr_expect_leq(rig.had[0], all / 10 + 4 * TURN_NS);
    cr_expect_geq(rig.had[0], all / 10 - 4 * TURN_NS);
    cr_expect_leq(rig.had[1], all * 3 / 10 + 4 * TURN_NS);
    cr_expect_geq(rig.had[1], all * 3 / 10 - 4 * TURN_NS);
}

/* Who did not ask saves nothing up. */
Test(turns, who_comes_late_does_not_keep_the_others_out)
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
        cr_expect_geq(rig.had[i], 8 * TURN_NS, "%zu", i);
        cr_expect_leq(rig.had[i], 12 * TURN_NS, "%zu", i);
    }
}

Test(turns, who_does_not_end_is_passed_over)
{
    struct rig rig;
    init(&rig);
    want(&rig, 0);
    want(&rig, 1);
    uint64_t until = turns_tick(&rig.turns, rig.now);
    cr_expect_eq(until, rig.now + TURN_NS + TURN_OVERTIME_NS);
    rig.now = until;
    turns_tick(&rig.turns, rig.now);
    cr_expect_eq(rig.said[0], TURN_LOST);
    cr_expect_eq(holder(&rig), 1);
    /* It asks for another, while what it left is there: beside the others, and rarely. */
    want(&rig, 0);
    unsigned words = rig.words[0];
    over(&rig, 1);
    want(&rig, 1);
    cr_expect_eq(holder(&rig), 1);
    cr_expect_eq(rig.words[0], words);
    rig.now += TURN_BESIDE_NS;
    turns_tick(&rig.turns, rig.now);
    cr_expect_eq(rig.said[0], TURN_YOURS);
    cr_expect_eq(holder(&rig), 1, "it holds up the other again");
    cr_expect_eq(rig.words[0], words + 1);
}

/* Then it pays for all that it took, and takes part again. */
Test(turns, who_was_passed_over_pays_when_it_has_ended)
{
    struct rig rig;
    init(&rig);
    want(&rig, 0);
    over(&rig, 0);
    want(&rig, 1);
    want(&rig, 0);
    /* The other waits from the first. */
    turns_over(&rig.turns, &rig.users[1], true, rig.now);
    cr_assert_eq(holder(&rig), 0);
    rig.now = turns_tick(&rig.turns, rig.now);
    turns_tick(&rig.turns, rig.now);
    cr_assert_eq(rig.said[0], TURN_LOST);
    rig.now += 100 * TURN_NS;
    over(&rig, 0);
    want(&rig, 0);
    memset(rig.had, 0, sizeof(rig.had));
    run_turns(&rig, 60);
    cr_expect_eq(rig.had[0], 0);
    run_turns(&rig, 200);
    cr_expect_geq(rig.had[0], 60 * TURN_NS);
}

Test(turns, who_leaves_is_no_longer_waited_for)
{
    struct rig rig;
    init(&rig);
    for (size_t i = 0; i < 3; i++)
        want(&rig, i);
    turns_leave(&rig.turns, &rig.users[1], rig.now);
    turns_leave(&rig.turns, &rig.users[0], rig.now);
    cr_expect_eq(holder(&rig), 2);
    turns_leave(&rig.turns, &rig.users[2], rig.now);
    cr_expect_null(rig.turns.holder);
    cr_expect_null(rig.turns.waiting);
    /* Also one that owes. */
    want(&rig, 0);
    want(&rig, 1);
    rig.now = turns_tick(&rig.turns, rig.now);
    turns_tick(&rig.turns, rig.now);
    want(&rig, 0);
    turns_leave(&rig.turns, &rig.users[0], rig.now);
    cr_expect_null(rig.turns.owing);
    cr_expect_eq(holder(&rig), 1);
    over(&rig, 1);
    cr_expect_eq(turns_tick(&rig.turns, rig.now), UINT64_MAX);
}

/* A session's process may say anything. */
Test(turns, words_in_any_order_leave_it_whole)
{
    struct rig rig;
    unsigned seed = 7;
    init(&rig);
    for (int step = 0; step < 200000; step++) {
        struct turn_user *user = &rig.users[rand_r(&seed) % USERS];
        rig.now += (uint64_t)rand_r(&seed) % (TURN_OVERTIME_NS / 4);
        switch (rand_r(&seed) % 8) {
        case 0:
            turns_leave(&rig.turns, user, rig.now);
            break;
        case 1:
        case 2:
        case 3:
            turns_over(&rig.turns, user, rand_r(&seed) % 2, rig.now);
            break;
        default:
            turns_want(&rig.turns, user, rig.now);
        }
        turns_tick(&rig.turns, rig.now);
        size_t waiting = 0, owing = 0;
        for (struct turn_user *at = rig.turns.waiting; at; at = at->next, waiting++)
            cr_assert(at->waits && !at->owes && at != rig.turns.holder && waiting < USERS);
        for (struct turn_user *at = rig.turns.owing; at; at = at->next, owing++)
            cr_assert(at->owes && at != rig.turns.holder && owing < USERS);
        cr_assert(rig.turns.holder || !waiting, "nobody has what somebody waits for");
    }
}
