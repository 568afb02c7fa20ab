#include "tests/policy/policy_expect.h"
#include "tests/support/leaks.h"

/* What the policy does of itself. */
TestSuite(policy_next, .fini = leaks_check, .timeout = 60);

static void expect_next(struct world *w, enum policy_action action, uint32_t program,
                        uint32_t device, uint64_t mib)
{
    expect_step(next(w), action, program, device, mib);
}

/* gpu0 of 8 MiB with p0 (4) and gpu1 of @other MiB, empty. */
static struct policy_program *one(struct world *w, uint64_t other)
{
    world_init(w, 1);
    world_add_device(w, 8);
    world_add_device(w, other);
    return world_add_program(w, 0, 4);
}

Test(policy_next, all_well_is_left_alone)
{
    struct world w;

    one(&w, 8);
    struct policy_step step = next(&w);
    cr_expect_eq(step.action, POLICY_NOTHING);
    cr_expect_str_eq(step.reason, "");
    world_init(&w, 1);
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
}

Test(policy_next, a_drained_device_is_left_for_the_best_that_fits)
{
    struct world w;

    struct policy_program *p = one(&w, 4);
    p->ways = 0; /* Nobody asks it. */
    p->stayed_s = 0;
    p->recent_moves = w.world.recent_moves = 10000;
    w.devices[0].drains = true;
    struct policy_step step = expect_step(next(&w), POLICY_DO_MOVE, 0, 1, 4);
    cr_expect_str_eq(step.reason, "gpu0 is drained; gpu1 has 4 MiB free, p0 fits with 4 MiB");
    world_add_device(&w, 4)->speed = 2000;
    expect_next(&w, POLICY_DO_MOVE, 0, 2, 4);
    w.barred[0] = 1 << 2;
    expect_next(&w, POLICY_DO_MOVE, 0, 1, 4);
    w.devices[1].closed = true;
    expect_next(&w, POLICY_DO_SUSPEND, 0, POLICY_NONE, 0);
    p->busy_moving = true;
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
    p->busy_moving = false;
    p->pinned = true;
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
}

Test(policy_next, a_drained_program_spills_elsewhere_if_what_it_needs_at_once_fits)
{
    struct world w;

    struct policy_program *p = one(&w, 3);
    p->least = 3 * MIB;
    w.devices[0].drains = true;
    struct policy_step step = expect_step(next(&w), POLICY_DO_MOVE, 0, 1, 3);
    cr_expect_str_eq(step.reason,
                     "gpu0 is drained; gpu1 has 3 MiB free, p0 spills there with 3 MiB of 4 MiB");
    p->least++;
    step = expect_step(next(&w), POLICY_DO_SUSPEND, 0, POLICY_NONE, 0);
    cr_expect_str_eq(step.reason,
                     "gpu0 is drained; no other device that it runs on has 4 MiB free for p0");
    p->least = 0;
    p->ways = POLICY_UPGRADE;
    expect_next(&w, POLICY_DO_SUSPEND, 0, POLICY_NONE, 0);
}

Test(policy_next, ten_programs_leave_a_drained_device_by_importance)
{
    struct world w;
    unsigned there = 0;

    world_init(&w, 1);
    world_add_device(&w, 20);
    world_add_device(&w, 9);
    for (int i = 0; i < 10; i++) {
        struct policy_program *p = world_add_program(&w, 0, 2);

        p->priority = i % 5;
        p->ways = POLICY_UPGRADE | POLICY_SUSPEND;
    }
    w.devices[0].drains = true;
    cr_expect_eq(world_settle(&w, 10), 10);
    for (int i = 0; i < 10; i++) {
        cr_expect_eq(w.programs[i].device, i % 5 >= 3 ? 1 : POLICY_NONE, "p%d", i);
        there += w.programs[i].device == 1;
    }
    cr_expect_eq(there, 4);
    /* They come back when they may. */
    w.devices[0].drains = false;
    world_settle(&w, 10);
    for (int i = 0; i < 10; i++)
        cr_expect_eq(w.programs[i].state, POLICY_RUNNING);
}

Test(policy_next, who_would_rather_leave_a_closed_device_does_where_there_is_room)
{
    struct policy_program *p, *other;
    struct world w;

    p = one(&w, 4);
    p->stayed_s = 0;
    p->leaves = true;
    other = world_add_program(&w, 0, 3);
    other->priority = 1;
    w.settings.automatic = false;
    world_refresh(&w);
    expect_next(&w, POLICY_NOTHING, 0, 0, 0); /* Nobody takes it away. */
    w.devices[0].closed = true;
    struct policy_step step = expect_step(next(&w), POLICY_DO_MOVE, 0, 1, 4);
    cr_expect_str_eq(step.reason, "gpu0 will be taken; gpu1 has 4 MiB free, p0 fits with 4 MiB");
    other->leaves = true; /* More important. */
    expect_next(&w, POLICY_DO_MOVE, 1, 1, 3);
    p->busy_moving = true;
    expect_next(&w, POLICY_DO_MOVE, 1, 1, 3);
    other->leaves = p->busy_moving = false;
    /* It is not suspended for that. */
    w.barred[0] = 2;
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
    w.devices[0].drains = true;
    w.programs[1].pinned = true;
    expect_next(&w, POLICY_DO_SUSPEND, 0, POLICY_NONE, 0);
}

Test(policy_next, a_lowered_limit_is_kept_by_spilling_then_by_the_least_important)
{
    struct policy_program *low, *high;
    struct world w;

    low = one(&w, 3);
    high = world_add_program(&w, 0, 4);
    high->priority = 1;
    low->least = 2 * MIB;
    high->least = MIB;
    world_refresh(&w);
    w.devices[0].memory = 7 * MIB;
    struct policy_step step = expect_step(next(&w), POLICY_DO_SPILL, 0, 0, 3);
    cr_expect_str_eq(step.reason,
                     "gpu0 may be used up to 7 MiB, 8 MiB are granted: p0 keeps 3 MiB there");
    w.devices[0].memory = 3 * MIB;
    expect_next(&w, POLICY_DO_SPILL, 0, 0, 2);
    world_settle(&w, 3);
    cr_expect_eq(low->granted + high->granted, 3 * MIB);
    /* p0 at 2 MiB and p1 at 1 MiB cannot give more: the least important leaves. */
    w.devices[0].memory = 2 * MIB;
    expect_step(next(&w), POLICY_DO_MOVE, 0, 1, 3);
    w.barred[0] = 2;
    expect_next(&w, POLICY_DO_SUSPEND, 0, POLICY_NONE, 0);
    high->busy_moving = true;
    expect_next(&w, POLICY_NOTHING, 0, 0, 0); /* It may be leaving. */
    high->busy_moving = false;
    low->pinned = true;
    expect_next(&w, POLICY_DO_MOVE, 1, 1, 3);
    w.barred[1] = 2;
    expect_next(&w, POLICY_DO_SUSPEND, 1, POLICY_NONE, 0);
    high->pinned = true;
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
}

Test(policy_next, what_was_spilled_comes_back_when_there_is_room)
{
    struct world w;

    struct policy_program *p = one(&w, 3);
    p->granted = MIB;
    p->busy = 0;
    p->stayed_s = 0;
    w.settings.automatic = false;
    world_refresh(&w);
    struct policy_step step = expect_step(next(&w), POLICY_GRANT, 0, 0, 3);
    cr_expect_str_eq(step.reason,
                     "gpu0 has 7 MiB free, p0 takes back 3 MiB of the 3 MiB that it spilled");
    p->quota = 2 * MIB;
    expect_next(&w, POLICY_GRANT, 0, 0, 1);
    p->quota = UINT64_MAX;
    w.devices[0].memory = 2 * MIB;
    expect_next(&w, POLICY_GRANT, 0, 0, 1);
    w.devices[0].memory = MIB + MIB / 2 - 1; /* Less than an eighth: not worth it. */
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
    /* What the first in the queue waits for is not taken. */
    w.devices[0].memory = 8 * MIB;
    w.devices[1].closed = true;
    world_add_program(&w, POLICY_NONE, 8)->ways = POLICY_WAIT;
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
    p->priority = 1; /* Unless it is more important. */
    expect_next(&w, POLICY_GRANT, 0, 0, 3);
}

Test(policy_next, what_its_device_holds_up_goes_up)
{
    struct world w;

    struct policy_program *p = one(&w, 8);
    p->busy = 1000;
    w.devices[1].speed = 2500;
    w.devices[1].price = 5000;
    world_refresh(&w);
    struct policy_step step = expect_step(next(&w), POLICY_DO_MOVE, 0, 1, 4);
    cr_expect_str_eq(step.reason,
                     "gpu0 is busy 100% of the time, gpu1 is 0% at 2.50 times its speed");
    p->busy = w.devices[0].busy = w.settings.busy_high;
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
    p->busy = w.devices[0].busy = w.settings.busy_high + 1;
    expect_next(&w, POLICY_DO_MOVE, 0, 1, 4);
    w.devices[1].memory = 4 * MIB - 1;
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
    w.devices[1].memory = 4 * MIB;
    expect_next(&w, POLICY_DO_MOVE, 0, 1, 4);
    w.devices[1].closed = true;
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
    w.devices[1].closed = false;
    w.barred[0] = 2;
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
    w.barred[0] = 0;
    p->ways = POLICY_SPILL | POLICY_WAIT | POLICY_SUSPEND;
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
    p->ways = POLICY_UPGRADE;
    p->pinned = true;
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
}

Test(policy_next, a_move_up_has_to_promise_the_gain)
{
    struct world w;

    struct policy_program *p = one(&w, 8);
    p->busy = 1000;
    world_refresh(&w);
    w.devices[1].speed = 1000 + w.settings.gain - 1;
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
    w.devices[1].speed++;
    expect_next(&w, POLICY_DO_MOVE, 0, 1, 4);
    /* Two that share a device part when there is another like it, but not three on two. */
    w.devices[1].speed = 1000;
    p->busy = 500;
    world_add_program(&w, 0, 2)->busy = 500;
    world_refresh(&w);
    expect_next(&w, POLICY_DO_MOVE, 0, 1, 4);
    world_add_program(&w, 1, 1)->busy = 500;
    world_refresh(&w);
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
}

Test(policy_next, what_spills_goes_where_it_fits_if_that_is_faster)
{
    struct world w;

    struct policy_program *p = one(&w, 6);
    p->wanted = 6 * MIB;
    w.devices[0].memory = 4 * MIB;
    struct policy_step step = expect_step(next(&w), POLICY_DO_MOVE, 0, 1, 6);
    cr_expect_str_eq(step.reason, "p0 spills 2 MiB on gpu0; gpu1 has 6 MiB free for all of it");
    w.devices[1].speed = 833; /* 4/6 of it now, with a gain of a quarter: 5/6. */
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
    w.devices[1].speed = 834;
    expect_next(&w, POLICY_DO_MOVE, 0, 1, 6);
    w.devices[1].memory = 6 * MIB - 1;
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
}

Test(policy_next, what_uses_a_fraction_goes_down_or_beside_others)
{
    struct world w;

    struct policy_program *p = one(&w, 4);
    p->busy = w.settings.busy_low - 1;
    w.devices[1].speed = 500;
    w.devices[1].price = 800;
    world_refresh(&w);
    struct policy_step step = expect_step(next(&w), POLICY_DO_MOVE, 0, 1, 4);
    cr_expect_str_eq(step.reason, "p0 keeps gpu0 busy 14% of the time; gpu1 suffices at 80% of the "
                                  "price");
    w.devices[1].price++; /* Not a quarter more for the old one. */
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
    w.devices[1].price = 800;
    w.devices[1].speed = 200; /* It would be busy there. */
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
    w.devices[1].speed = 500;
    p->busy++;
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
    /* Beside another at the same price, so that its own is free. */
    p->busy--;
    w.devices[1] = (struct policy_device){
        .name = "gpu1", .memory = 8 * MIB, .speed = 1000, .price = 1000, .first = POLICY_NONE};
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
    world_add_program(&w, 1, 4)->busy = 700;
    world_refresh(&w);
    step = expect_step(next(&w), POLICY_DO_MOVE, 0, 1, 4);
    cr_expect_str_eq(step.reason, "p0 keeps gpu0 busy 14% of the time; gpu1 has room beside "
                                  "others, and gpu0 is free then");
    w.programs[1].busy = 702; /* That would be too busy with both. */
    world_refresh(&w);
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
    w.programs[1].busy = 500;
    world_add_program(&w, 0, 1);
    world_refresh(&w);
    expect_next(&w, POLICY_NOTHING, 0, 0, 0); /* gpu0 would not be free. */
}

/* p0 is held up on gpu0; gpu1 is faster and free. */
static struct policy_program *held_up(struct world *w)
{
    struct policy_program *p = one(w, 8);

    p->busy = 1000;
    w->devices[1].speed = 2000;
    world_refresh(w);
    return p;
}

Test(policy_next, stay_and_budgets_hold_what_nobody_asked_for_but_no_rebalance)
{
    struct policy_program *p;
    struct policy_step step;
    struct world w;

    for (unsigned i = 0; i < 4; i++) {
        p = held_up(&w);
        expect_next(&w, POLICY_DO_MOVE, 0, 1, 4);
        if (i == 0)
            p->stayed_s = w.settings.stay_s - 1;
        else if (i == 1)
            p->recent_moves = w.settings.budget_program;
        else if (i == 2)
            w.world.recent_moves = w.settings.budget;
        else
            w.settings.automatic = false;
        expect_next(&w, POLICY_NOTHING, 0, 0, 0);
        policy_rebalance(&w.world, &w.settings, &step);
        expect_step(step, POLICY_DO_MOVE, 0, 1, 4);
        world_do(&w, &step);
        policy_rebalance(&w.world, &w.settings, &step);
        expect_step(step, POLICY_NOTHING, 0, 0, 0);
    }
}

Test(policy_next, the_more_important_goes_up_first)
{
    struct world w;

    held_up(&w);
    world_add_program(&w, 0, 4)->priority = 1;
    w.programs[1].busy = 1000;
    world_refresh(&w);
    expect_next(&w, POLICY_DO_MOVE, 1, 1, 4);
}

/* Needs and drains do not wait for budgets, and use none: only what nobody asked for is counted
 * here, over a day in which loads change all the time. */
Test(policy_next, budgets_are_kept_however_loads_change)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        uint64_t moves[WORLD_PROGRAMS][400] = {{0}}; /* When. */
        unsigned counts[WORLD_PROGRAMS] = {0}, all = 0;
        struct world w;

        world_init(&w, seed);
        w.settings.budget = 3;
        w.settings.stay_s = 10;
        w.settings.return_s = 0;
        for (unsigned i = 0; i < 4; i++)
            world_add_device(&w, 16)->speed = 500 + (uint32_t)world_random(&w, 2000);
        for (unsigned i = 0; i < 8; i++)
            world_add_program(&w, (uint32_t)world_random(&w, 4), 2);
        for (uint64_t now = 0; now < 2000; now++) {
            struct policy_step step;

            for (unsigned i = 0; i < 8; i++)
                w.programs[i].busy = (uint32_t)world_random(&w, 1000);
            world_refresh(&w);
            w.world.recent_moves = 0;
            for (unsigned i = 0; i < 8; i++) {
                w.programs[i].recent_moves = 0;
                for (unsigned k = 0; k < counts[i]; k++)
                    w.programs[i].recent_moves += moves[i][k] + w.settings.budget_s > now;
                w.world.recent_moves += w.programs[i].recent_moves;
            }
            step = next(&w);
            world_pass(&w, 1);
            if (step.action == POLICY_NOTHING)
                continue;
            cr_assert_eq(step.action, POLICY_DO_MOVE);
            cr_assert_lt(w.world.recent_moves, 3);
            cr_assert_lt(w.programs[step.program].recent_moves, w.settings.budget_program);
            cr_assert(!counts[step.program] ||
                      now - moves[step.program][counts[step.program] - 1] >= 10);
            cr_assert_lt(counts[step.program], 400);
            moves[step.program][counts[step.program]++] = now;
            all++;
            world_do(&w, &step);
        }
        /* At most 3 in each 60 s, and the loads were such that it was about as many. */
        cr_expect_leq(all, 3 * (2000 / 60 + 1));
        cr_expect_geq(all, 50, "only %u moves", all);
    }
}

Test(policy_next, who_may_not_use_its_device_any_more_is_moved_off)
{
    struct policy_step step;
    struct world w;

    world_init(&w, 1);
    w.settings.automatic = false;
    world_add_device(&w, 8);
    world_add_device(&w, 8);
    world_add_device(&w, 6);
    struct policy_program *p = world_add_program(&w, 0, 4);
    world_add_program(&w, 1, 6);
    p->stayed_s = 0;
    p->kept = true;
    w.barred[0] = 1 << 0;
    policy_next(&w.world, &w.settings, &step);
    expect_step(step, POLICY_DO_MOVE, 0, 2, 4);
    cr_expect_str_eq(
        step.reason,
        "gpu0 no longer meets the requirements of p0; gpu2 has 6 MiB free, p0 fits with 4 MiB");
    /* A part of it would do where it spills. */
    w.barred[0] = 1 << 0 | 1 << 2;
    p->least = 2 * MIB;
    policy_next(&w.world, &w.settings, &step);
    expect_step(step, POLICY_DO_MOVE, 0, 1, 2);
    /* Nowhere else it stays, and so it does where it is pinned, or was moved often enough. */
    p->ways = POLICY_UPGRADE | POLICY_SUSPEND;
    cr_expect_eq(world_settle(&w, 1), 0);
    w.barred[0] = 1 << 0;
    p->pinned = true;
    cr_expect_eq(world_settle(&w, 1), 0);
    p->pinned = false;
    p->recent_moves = w.settings.budget_program;
    cr_expect_eq(world_settle(&w, 1), 0);
    p->recent_moves = 0;
    cr_expect_eq(world_settle(&w, 2), 1);
    cr_expect_eq(p->device, 2);
}

Test(policy_next, who_waits_has_the_room_before_who_may_not_use_its_device)
{
    struct policy_program *waits, *p;
    struct world w;

    world_init(&w, 1);
    w.settings.automatic = false;
    world_add_device(&w, 8);
    world_add_device(&w, 8);
    p = world_add_program(&w, 0, 6);
    waits = world_add_program(&w, POLICY_NONE, 5);
    w.barred[0] = 1 << 0;
    w.barred[1] = 1 << 0;
    world_settle(&w, 3);
    cr_expect_eq(waits->device, 1);
    cr_expect_eq(p->device, 0);
    world_end(&w, waits);
    world_settle(&w, 3);
    cr_expect_eq(p->device, 1);
}

/* p0 keeps gpu0 as busy as @busy; gpu1 is four times as fast, and free. It may not move yet. */
static struct policy_program *waits_to_go(struct world *w, uint32_t busy)
{
    struct policy_program *p = one(w, 8);

    w->settings.prewarm = true;
    w->devices[1].speed = 4000;
    p->busy = w->devices[0].busy = busy;
    p->stayed_s = 0;
    return p;
}

Test(policy_next, a_program_is_made_ready_for_where_it_would_go)
{
    struct world w;
    struct policy_program *p = waits_to_go(&w, 1000);

    struct policy_step step = expect_step(next(&w), POLICY_DO_PREWARM, 0, 1, 0);
    cr_expect_str_eq(step.reason,
                     "p0 is likely to move from gpu0 to gpu1 next: it is prewarmed there");
    world_do(&w, &step);
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
    /* What it was for. */
    p->stayed_s = w.settings.stay_s;
    expect_next(&w, POLICY_DO_MOVE, 0, 1, 4);
}

Test(policy_next, a_program_is_made_ready_before_enough_speaks_for_a_move)
{
    struct world w;
    uint32_t near = 950, far = 850;

    struct policy_program *p = waits_to_go(&w, 0);
    p->stayed_s = 100;
    p->busy = w.devices[0].busy = w.settings.busy_high * near / 1000;
    expect_next(&w, POLICY_DO_PREWARM, 0, 1, 0);
    p->busy = w.devices[0].busy = w.settings.busy_high * far / 1000;
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
}

Test(policy_next, a_program_is_made_ready_for_one_device_at_a_time)
{
    struct world w;
    struct policy_program *p = waits_to_go(&w, 1000);

    struct policy_step step = next(&w);
    world_do(&w, &step);
    world_add_device(&w, 8)->speed = 16000;
    p->ready_s = w.settings.stay_s - 1;
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
    p->ready_s = w.settings.stay_s;
    expect_next(&w, POLICY_DO_PREWARM, 0, 2, 0);
    /* An operator's does not hold it up. */
    p->ready = 2;
    p->ready_s = UINT64_MAX;
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
}

Test(policy_next, nothing_is_made_ready_where_nothing_is_moved)
{
    struct world w;
    struct policy_program *p = waits_to_go(&w, 1000);

    w.settings.prewarm = false;
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
    w.settings.prewarm = true;
    w.settings.automatic = false;
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
    w.settings.automatic = true;
    p->kept = true;
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
    p->kept = false;
    p->pinned = true;
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
    p->pinned = false;
    w.barred[0] = 1 << 1;
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
    w.barred[0] = 0;
    w.devices[1].closed = true;
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
    w.devices[1].closed = false;
    expect_next(&w, POLICY_DO_PREWARM, 0, 1, 0);
}

/* p0 holds 8 MiB of the 10 of gpu0, for which p1 queues. */
static struct policy_program *queues(struct world *w)
{
    world_init(w, 1);
    w->settings.prewarm = true;
    w->settings.automatic = false;
    world_add_device(w, 10);
    world_add_program(w, 0, 8);
    struct policy_program *p = world_add_program(w, POLICY_NONE, 4);
    p->ways = POLICY_WAIT;
    return p;
}

Test(policy_next, the_first_in_the_queue_is_made_ready_for_what_is_kept_for_it)
{
    struct policy_program *p, *other;
    struct world w;

    p = queues(&w);
    struct policy_step step = expect_step(next(&w), POLICY_DO_PREWARM, 1, 0, 0);
    cr_expect_str_eq(step.reason,
                     "p1 is first in the queue and gpu0 is kept for it: it is prewarmed there");
    world_do(&w, &step);
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
    /* Only the first. */
    other = world_add_program(&w, POLICY_NONE, 4);
    other->ways = POLICY_WAIT;
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
    other->priority = 1;
    w.programs[0].priority = 1;
    world_refresh(&w);
    expect_next(&w, POLICY_DO_PREWARM, 2, 0, 0);
    w.settings.prewarm_most = 1;
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
    p->ready = POLICY_NONE;
    expect_next(&w, POLICY_DO_PREWARM, 2, 0, 0);
}

Test(policy_next, nothing_is_made_ready_at_the_cost_of_who_runs)
{
    struct world w;

    queues(&w);
    struct policy_program *runs = &w.programs[0];
    /* The device computes. */
    runs->busy = w.settings.busy_high + 1;
    world_refresh(&w);
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
    runs->busy = w.settings.busy_high;
    world_refresh(&w);
    expect_next(&w, POLICY_DO_PREWARM, 1, 0, 0);
    /* Its link is in use. */
    runs->busy_moving = true;
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
    runs->busy_moving = false;
    /* What is free there may be needed. */
    runs->granted = runs->wanted = 9 * MIB + MIB / 2;
    world_refresh(&w);
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
    w.settings.prewarm_free = 50;
    expect_next(&w, POLICY_DO_PREWARM, 1, 0, 0);
    w.settings.prewarm = false;
    expect_next(&w, POLICY_NOTHING, 0, 0, 0);
}
