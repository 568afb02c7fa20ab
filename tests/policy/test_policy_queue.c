#include "tests/policy/policy_expect.h"
#include "tests/support/leaks.h"

/* Who goes first, and who makes room for whom. */
TestSuite(policy_queue, .fini = leaks_check, .timeout = 60);

/* gpu0 of 10 MiB, where p0 (3, priority 0) and p1 (6, priority 0) run; p2 of 6 and priority 1
 * queues. */
static struct policy_program *important(struct world *w)
{
    world_init(w, 1);
    world_add_device(w, 10);
    world_add_program(w, 0, 3);
    world_add_program(w, 0, 6);
    struct policy_program *p = world_add_program(w, POLICY_NONE, 6);
    p->priority = 1;
    world_refresh(w);
    return p;
}

Test(policy_queue, a_higher_priority_displaces_as_the_ways_allow)
{
    struct world w;

    struct policy_program *p = important(&w);
    struct policy_step step = expect_step(ask(&w, p), POLICY_DO_SUSPEND, 1, POLICY_NONE, 0);
    cr_expect_str_eq(step.reason, "p2 needs 6 MiB on gpu0, which has 1 MiB free of 10 MiB: p1 is "
                                  "suspended, its priority is 0 against 1");
    world_settle(&w, 2);
    cr_expect_eq(p->state, POLICY_RUNNING);
    cr_expect_eq(w.programs[1].state, POLICY_SUSPENDED);
    cr_expect_eq(w.programs[0].state, POLICY_RUNNING, "the small one was not needed");

    p = important(&w);
    w.programs[1].least = MIB;
    expect_step(ask(&w, p), POLICY_DO_SPILL, 1, 0, 1);
    set_ways(&w, "upgrade, suspend, wait");
    expect_step(ask(&w, p), POLICY_DO_SUSPEND, 1, POLICY_NONE, 0);
    set_ways(&w, "upgrade, spill, wait, suspend");
    world_add_device(&w, 6)->speed = 500;
    p->least = 6 * MIB;
    w.barred[2] = 1 << 1;
    expect_step(ask(&w, p), POLICY_DO_MOVE, 1, 1, 6);
}

Test(policy_queue, who_is_behind_one_that_has_to_wait_may_displace_on_another_device)
{
    struct world w;

    world_init(&w, 1);
    world_add_device(&w, 10);
    world_add_device(&w, 10);
    world_add_program(&w, 0, 10)->priority = 5;
    world_add_program(&w, 1, 10);
    world_add_program(&w, POLICY_NONE, 6)->priority = 3;
    world_add_program(&w, POLICY_NONE, 6)->priority = 2;
    world_refresh(&w);
    w.barred[0] = w.barred[2] = 1 << 1;
    world_settle(&w, 4);
    cr_expect_eq(w.programs[0].state, POLICY_RUNNING);
    cr_expect_eq(w.programs[1].state, POLICY_SUSPENDED);
    cr_expect_eq(w.programs[2].state, POLICY_SUSPENDED, "gpu0 has a more important one");
    cr_expect_eq(w.programs[3].state, POLICY_RUNNING);
}

Test(policy_queue, who_makes_room_gives_a_step_of_it_and_keeps_what_it_needs)
{
    struct world w;

    world_init(&w, 1);
    world_add_device(&w, 10);
    world_add_program(&w, 0, 9)->least = 2 * MIB;
    struct policy_program *p = world_add_program(&w, 0, 1);
    p->priority = 1;
    world_ask(&w, p, 1);
    struct policy_step step = expect_step(ask(&w, p), POLICY_DO_SPILL, 0, 0, 8);
    w.devices[0].step = 4 * MIB;
    step = expect_step(ask(&w, p), POLICY_DO_SPILL, 0, 0, 5);
    cr_expect(strstr(step.reason, "p0 keeps 5 MiB there"), "%s", step.reason);
    w.devices[0].step = 100 * MIB;
    expect_step(ask(&w, p), POLICY_DO_SPILL, 0, 0, 2);
}

Test(policy_queue, nobody_is_displaced_who_need_not_be)
{
    struct world w;

    /* The same priority, or none that may be suspended. */
    struct policy_program *p = important(&w);
    p->priority = 0;
    expect_answer(&w, p, POLICY_DO_WAIT, 0, 0);
    p = important(&w);
    w.programs[1].ways = POLICY_WAIT;
    expect_answer(&w, p, POLICY_DO_WAIT, 0, 0);
    p = important(&w);
    w.programs[1].pinned = true;
    expect_answer(&w, p, POLICY_DO_WAIT, 0, 0);
    /* A device that is free is better. */
    p = important(&w);
    world_add_device(&w, 6)->speed = 1;
    expect_answer(&w, p, POLICY_DO_RESUME, 1, 6);
    /* The lowest priority first, of equals the smallest that gives enough. */
    p = important(&w);
    w.programs[1].priority = -1;
    world_add_program(&w, 0, 1);
    expect_step(ask(&w, p), POLICY_DO_SUSPEND, 1, POLICY_NONE, 0);
    p->wanted = p->least = 3 * MIB;
    w.programs[1].priority = 0;
    expect_step(ask(&w, p), POLICY_DO_SUSPEND, 0, POLICY_NONE, 0);
    /* On the device where less harm is done. */
    p = important(&w);
    world_add_device(&w, 10);
    world_add_program(&w, 1, 6)->priority = -1;
    expect_step(ask(&w, p), POLICY_DO_SUSPEND, 3, POLICY_NONE, 0);
    /* Room is being made already. */
    w.programs[3].busy_moving = true;
    struct policy_step step = expect_step(ask(&w, p), POLICY_DO_WAIT, 2, 0, 0);
    cr_expect_str_eq(step.reason, "p2 needs 6 MiB; room is being made on gpu1");
}

Test(policy_queue, the_least_important_is_displaced_and_the_most_important_stays)
{
    struct policy_program *p;
    struct world w;

    /* Either would be enough, whichever is listed first. */
    for (int second = 0; second < 2; second++) {
        world_init(&w, 1);
        world_add_device(&w, 10);
        world_add_program(&w, 0, 5)->priority = second ? 2 : 1;
        world_add_program(&w, 0, 5)->priority = second ? 1 : 2;
        p = world_add_program(&w, POLICY_NONE, 5);
        p->priority = 3;
        world_refresh(&w);
        expect_step(ask(&w, p), POLICY_DO_SUSPEND, second ? 1 : 0, POLICY_NONE, 0);
    }
    /* A device is as good as its least important program, whoever else is there. */
    world_init(&w, 1);
    world_add_device(&w, 10);
    world_add_device(&w, 10);
    world_add_program(&w, 0, 5);
    world_add_program(&w, 0, 5)->priority = 3;
    world_add_program(&w, 1, 10)->priority = 1;
    p = world_add_program(&w, POLICY_NONE, 5);
    p->priority = 4;
    world_refresh(&w);
    expect_step(ask(&w, p), POLICY_DO_SUSPEND, 0, POLICY_NONE, 0);
    /* Two of three have to go, and the most important would do for one of them. */
    world_init(&w, 1);
    world_add_device(&w, 10);
    world_add_program(&w, 0, 4)->priority = 3;
    world_add_program(&w, 0, 3)->priority = 2;
    world_add_program(&w, 0, 3)->priority = 1;
    p = world_add_program(&w, POLICY_NONE, 6);
    p->priority = 4;
    world_refresh(&w);
    world_settle(&w, 4);
    cr_expect_eq(p->state, POLICY_RUNNING);
    cr_expect_eq(w.programs[0].state, POLICY_RUNNING);
    cr_expect_eq(w.programs[1].state, POLICY_SUSPENDED);
    cr_expect_eq(w.programs[2].state, POLICY_SUSPENDED);
}

Test(policy_queue, who_does_not_answer_is_not_waited_for_and_another_is_displaced)
{
    struct world w;

    struct policy_program *p = important(&w);
    w.programs[1].busy_moving = true;
    expect_answer(&w, p, POLICY_DO_WAIT, 0, 0);
    world_add_device(&w, 10);
    world_add_program(&w, 1, 6);
    world_refresh(&w);
    expect_answer(&w, p, POLICY_DO_WAIT, 0, 0);
    w.programs[1].silent = true;
    struct policy_step step = expect_step(ask(&w, p), POLICY_DO_SUSPEND, 3, POLICY_NONE, 0);
    /* A limit is kept by others, too. */
    world_init(&w, 1);
    world_add_device(&w, 10);
    world_add_program(&w, 0, 5);
    world_add_program(&w, 0, 5);
    w.programs[0].busy_moving = true;
    w.devices[0].memory = 6 * MIB;
    world_refresh(&w);
    policy_next(&w.world, &w.settings, &step);
    cr_expect_eq(step.action, POLICY_NOTHING, "%s", step.reason);
    w.programs[0].silent = true;
    policy_next(&w.world, &w.settings, &step);
    cr_expect_eq(step.action, POLICY_DO_SUSPEND, "%s", step.reason);
    cr_expect_eq(step.program, 1);
}

Test(policy_queue, of_one_priority_only_what_is_preemptible_is_displaced)
{
    struct world w;

    struct policy_program *p = important(&w);
    p->priority = 0;
    w.programs[1].preemptible = true;
    struct policy_step step = expect_step(ask(&w, p), POLICY_DO_SUSPEND, 1, POLICY_NONE, 0);
    cr_expect(strstr(step.reason, "it is preemptible"));
    p->preemptible = true;
    expect_answer(&w, p, POLICY_DO_WAIT, 0, 0);
    /* And it is not in front of the others when it queues. */
    p = world_add_program(&w, POLICY_NONE, 1);
    expect_answer(&w, p, POLICY_DO_RESUME, 0, 1);
}

Test(policy_queue, a_minimum_stay_does_not_hold_off_priorities_but_keeps_what_waiting_earned)
{
    struct world w;

    struct policy_program *p = important(&w);
    w.settings.age_s = 100;
    w.programs[1].stayed_s = 0;
    expect_step(ask(&w, p), POLICY_DO_SUSPEND, 1, POLICY_NONE, 0);
    w.programs[1].waited_s = 100;
    expect_answer(&w, p, POLICY_DO_WAIT, 0, 0);
    w.programs[1].stayed_s = w.settings.stay_s;
    expect_step(ask(&w, p), POLICY_DO_SUSPEND, 1, POLICY_NONE, 0);
    w.programs[1].stayed_s = 0;
    w.settings.age_s = 0;
    expect_step(ask(&w, p), POLICY_DO_SUSPEND, 1, POLICY_NONE, 0);
}

Test(policy_queue, the_queue_goes_by_priority_then_aging_then_ticket)
{
    struct policy_program *first, *second;
    struct policy_step step;
    struct world w;

    world_init(&w, 1);
    world_add_device(&w, 8);
    world_add_program(&w, 0, 8);
    first = world_add_program(&w, POLICY_NONE, 8);
    second = world_add_program(&w, POLICY_NONE, 8);
    first->ways = second->ways = POLICY_WAIT;
    w.settings.age_s = 100;
    world_end(&w, &w.programs[0]);
    policy_next(&w.world, &w.settings, &step);
    expect_step(step, POLICY_DO_RESUME, 1, 0, 8);
    expect_answer(&w, second, POLICY_DO_WAIT, 0, 0);
    second->priority = 1;
    world_refresh(&w);
    policy_next(&w.world, &w.settings, &step);
    expect_step(step, POLICY_DO_RESUME, 2, 0, 8);
    expect_answer(&w, first, POLICY_DO_WAIT, 0, 0);
    first->waited_s = 100;
    policy_next(&w.world, &w.settings, &step);
    expect_step(step, POLICY_DO_RESUME, 1, 0, 8);
    w.settings.age_s = 101;
    policy_next(&w.world, &w.settings, &step);
    expect_step(step, POLICY_DO_RESUME, 2, 0, 8);
}

Test(policy_queue, the_first_in_the_queue_takes_what_those_behind_hold)
{
    struct policy_program *first, *second;
    struct world w;

    world_init(&w, 1);
    world_add_device(&w, 8);
    first = world_add_program(&w, 0, 4);
    second = world_add_program(&w, 0, 4);
    first->ways = second->ways = POLICY_WAIT;
    world_ask(&w, first, 2);
    expect_answer(&w, first, POLICY_DO_WAIT, 0, 0);
    world_ask(&w, second, 2);
    expect_answer(&w, second, POLICY_DO_WAIT, 0, 0);
    struct policy_step step = expect_step(ask(&w, first), POLICY_DO_SUSPEND, 1, POLICY_NONE, 0);
    cr_expect_str_eq(step.reason, "p0 needs 6 MiB on gpu0, which has 0 bytes free of 8 MiB: p1 is "
                                  "suspended, it waits behind");
}

Test(policy_queue, who_loses_nothing_by_it_moves_for_the_first_in_the_queue)
{
    struct world w;

    /* gpu0 8 (p0 3), gpu1 4 (empty): p1 needs 6. */
    world_init(&w, 1);
    world_add_device(&w, 8);
    world_add_device(&w, 4);
    world_add_program(&w, 0, 3);
    struct policy_program *p = world_add_program(&w, POLICY_NONE, 6);
    struct policy_step step = expect_step(ask(&w, p), POLICY_DO_MOVE, 0, 1, 3);
    cr_expect_str_eq(step.reason,
                     "p1 needs 6 MiB: p0 makes room on gpu0, gpu1 has 4 MiB free for it");
    w.programs[0].stayed_s = w.settings.stay_s - 1;
    expect_answer(&w, p, POLICY_DO_WAIT, 0, 0);
    w.programs[0].stayed_s = w.settings.stay_s;
    w.programs[0].recent_moves = w.settings.budget_program;
    expect_answer(&w, p, POLICY_DO_WAIT, 0, 0);
    w.programs[0].recent_moves = 0;
    w.world.recent_moves = w.settings.budget;
    expect_answer(&w, p, POLICY_DO_WAIT, 0, 0);
    w.world.recent_moves = 0;
    w.devices[1].speed = 999;
    expect_answer(&w, p, POLICY_DO_WAIT, 0, 0);
    w.programs[0].busy = w.settings.busy_low - 1;
    expect_step(ask(&w, p), POLICY_DO_MOVE, 0, 1, 3);
    world_settle(&w, 2);
    cr_expect_eq(p->state, POLICY_RUNNING);
    cr_expect_eq(p->device, 0);
}

Test(policy_queue, whoever_waits_in_front_keeps_what_it_holds_whatever_its_priority)
{
    struct policy_program *aged, *p;
    struct world w;

    /* p0 holds 6 MiB of gpu0 and waits for 8 on gpu1, where 1 is missing; p1 would like gpu0. */
    world_init(&w, 1);
    world_add_device(&w, 8);
    world_add_device(&w, 16);
    aged = world_add_program(&w, 0, 6);
    p = world_add_program(&w, POLICY_NONE, 6);
    world_add_program(&w, 0, 2)->pinned = true;
    world_add_program(&w, 1, 9)->pinned = true;
    world_ask(&w, aged, 2);
    aged->ways = POLICY_WAIT | POLICY_UPGRADE | POLICY_SUSPEND;
    aged->waited_s = 2 * w.settings.age_s;
    w.barred[1] = 1 << 1;
    p->priority = 1;
    p->ways = POLICY_WAIT;
    world_refresh(&w);
    struct policy_step step = expect_step(ask(&w, p), POLICY_DO_WAIT, 1, 0, 0);
    cr_expect_str_eq(step.reason, "p1 needs 6 MiB; it waits behind p0");
    aged->waited_s = 0;
    expect_step(ask(&w, p), POLICY_DO_SUSPEND, 0, POLICY_NONE, 0);
}

Test(policy_queue, who_waits_where_it_never_can_be_leaves_before_others_are_served)
{
    struct policy_program *vain, *other;
    struct world w;

    world_init(&w, 1);
    world_add_device(&w, 6);
    world_add_device(&w, 2);
    vain = world_add_program(&w, 1, 2);
    other = world_add_program(&w, POLICY_NONE, 5);
    vain->priority = 1;
    vain->ways = POLICY_WAIT | POLICY_SUSPEND;
    world_ask(&w, vain, 4);
    cr_expect_eq(world_settle(&w, 3), 2);
    cr_expect_eq(vain->state, POLICY_RUNNING);
    cr_expect_eq(vain->device, 0);
    cr_expect_eq(other->state, POLICY_SUSPENDED);
    cr_expect_eq(w.suspended, 1, "the other was let in and put out again");
}

Test(policy_queue, of_equal_devices_the_one_with_fewer_programs_is_chosen)
{
    struct policy_program *p;
    struct world w;

    for (uint32_t used = 0; used < 2; used++) {
        world_init(&w, 1);
        world_add_device(&w, 8);
        world_add_device(&w, 8);
        world_add_program(&w, used, 0)->busy = 0;
        world_refresh(&w);
        p = world_add_program(&w, POLICY_NONE, 1);
        expect_answer(&w, p, POLICY_DO_RESUME, !used, 1);
    }
}

Test(policy_queue, the_displaced_go_the_way_that_takes_least)
{
    struct world w;

    /* Both have to make room, and only p0 has somewhere to go. */
    struct policy_program *p = important(&w);
    world_add_device(&w, 4);
    p->wanted = p->least = 9 * MIB;
    w.programs[0].least = MIB;
    world_refresh(&w);
    expect_step(ask(&w, p), POLICY_DO_MOVE, 0, 1, 3);
    set_ways(&w, "spill, wait, suspend");
    expect_step(ask(&w, p), POLICY_DO_SPILL, 0, 0, 1);
    set_ways(&w, "suspend");
    expect_step(ask(&w, p), POLICY_DO_SUSPEND, 0, POLICY_NONE, 0);
}

Test(policy_queue, nobody_makes_room_where_it_would_not_be_taken)
{
    struct policy_program *p, *there;
    struct world w;

    /* p0 needs 6 MiB: gpu1 has them once p2 is on gpu2. */
    world_init(&w, 1);
    world_add_device(&w, 8);
    world_add_device(&w, 8);
    world_add_device(&w, 4);
    p = world_add_program(&w, 0, 4);
    world_add_program(&w, 0, 4)->ways = 0;
    there = world_add_program(&w, 1, 3);
    world_ask(&w, p, 2);
    p->busy = there->busy = 0;
    world_refresh(&w);
    expect_step(ask(&w, p), POLICY_DO_MOVE, 2, 2, 3);
    /* What it waits for is free before it had moved. */
    w.programs[1].age_s = there->age_s = 0;
    p->ways = POLICY_UPGRADE | POLICY_WAIT;
    expect_answer(&w, p, POLICY_DO_WAIT, 0, 0);
}

Test(policy_queue, no_move_is_begun_that_the_budget_leaves_without_the_next)
{
    struct world w;

    /* p0 needs 4 MiB more: p2 leaves gpu1 for p1, and that gpu0 for p0. */
    world_init(&w, 1);
    world_add_device(&w, 8);
    world_add_device(&w, 4);
    world_add_device(&w, 2);
    struct policy_program *p = world_add_program(&w, 0, 4);
    world_add_program(&w, 0, 4)->busy = 0;
    world_add_program(&w, 1, 2)->busy = 0;
    world_ask(&w, p, 4);
    p->busy = 0;
    p->ways = POLICY_WAIT;
    w.settings.budget = 5;
    w.world.recent_moves = 3;
    world_refresh(&w);
    expect_step(ask(&w, p), POLICY_DO_MOVE, 2, 2, 2);
    w.world.recent_moves = 4;
    expect_answer(&w, p, POLICY_DO_WAIT, 0, 0);
}

Test(policy_queue, who_could_be_held_nowhere_is_refused_though_others_queue_in_front)
{
    struct policy_program *first, *p;
    struct world w;

    /* p0 has gpu0; p1 waits for that, and outranks nobody. */
    world_init(&w, 1);
    world_add_device(&w, 8);
    world_add_device(&w, 4);
    world_add_program(&w, 0, 8);
    world_add_program(&w, 1, 4);
    first = world_add_program(&w, POLICY_NONE, 4);
    p = world_add_program(&w, POLICY_NONE, 6);
    first->ways = p->ways = POLICY_WAIT;
    p->need = p->wanted;
    w.barred[3] = 1 << 0;
    expect_answer(&w, p, POLICY_DO_REFUSE, POLICY_NONE, 0);
    world_settle(&w, 1);
    cr_expect_eq(p->need, 0, "policy_next does not say what policy_answer says");
    cr_expect_eq(first->state, POLICY_SUSPENDED);
}

Test(policy_queue, who_waits_for_all_of_it_is_kept_no_part)
{
    struct policy_program *first, *p;
    struct world w;

    /* p2 waits for 12 MiB of gpu0, though it could spill on gpu1; p3 behind it would have p1 spill
     * for nothing. */
    world_init(&w, 1);
    w.settings.automatic = false;
    world_add_device(&w, 13)->speed = 2000;
    world_add_device(&w, 6)->speed = 1500;
    world_add_program(&w, 0, 2)->priority = 1;
    p = world_add_program(&w, 0, 1);
    p->priority = -1;
    p->least = 0;
    p->ways = POLICY_UPGRADE | POLICY_SPILL;
    first = world_add_program(&w, POLICY_NONE, 12);
    first->priority = 1;
    first->least = MIB;
    first->ways = POLICY_UPGRADE | POLICY_WAIT;
    w.programs[0].age_s = p->age_s = 0;
    world_add_program(&w, POLICY_NONE, 11)->ways = POLICY_WAIT;
    world_refresh(&w);
    cr_expect_eq(world_settle(&w, 10), 0);
    cr_expect_eq(p->granted, MIB);
    world_end(&w, &w.programs[0]);
    cr_expect_leq(world_settle(&w, 10), 2);
    cr_expect_eq(first->granted, 12 * MIB, "it has all that it waited for");
}

Test(policy_queue, who_leaves_early_looks_past_what_is_kept_for_the_first)
{
    struct policy_step step;
    struct world w;

    world_init(&w, 1);
    world_add_device(&w, 10)->closed = true;
    world_add_device(&w, 10);
    world_add_device(&w, 2);
    world_add_program(&w, 1, 6)->priority = 3;
    world_add_program(&w, 2, 1)->priority = 3;
    world_add_program(&w, POLICY_NONE, 8)->priority = 2;
    struct policy_program *p = world_add_program(&w, 0, 3);
    p->priority = 1;
    p->leaves = true;
    world_add_program(&w, 0, 1)->leaves = true;
    world_refresh(&w);
    policy_next(&w.world, &w.settings, &step);
    expect_step(step, POLICY_DO_MOVE, 4, 2, 1);
    w.programs[2].state = POLICY_STOPPED;
    world_refresh(&w);
    policy_next(&w.world, &w.settings, &step);
    expect_step(step, POLICY_DO_MOVE, 3, 1, 3);
}

/* ---- many devices ---- */

#define MANY 1100
#define GIB  (UINT64_C(1) << 30)

/* So many devices that are full, and one program, which may use only one of them. */
struct many {
    struct policy_device devices[MANY];
    struct policy_program programs[1];
    uint64_t barred[MANY / 64 + 1];
    uint32_t queue[1];
    struct policy_settings settings;
    struct policy_world world;
};

static void many_init(struct many *many, uint32_t only, uint64_t bytes)
{
    settings_init(&many->settings);
    memset(many->barred, 0xff, sizeof(many->barred));
    many->barred[only / 64] &= ~(UINT64_C(1) << only % 64);
    for (uint32_t i = 0; i < MANY; i++)
        many->devices[i] = (struct policy_device){.name = "device",
                                                  .memory = 16 * GIB,
                                                  .reserved = 16 * GIB,
                                                  .speed = 1000,
                                                  .first = POLICY_NONE};
    many->programs[0] = (struct policy_program){.name = "program",
                                                .state = POLICY_SUSPENDED,
                                                .device = POLICY_NONE,
                                                .wanted = bytes,
                                                .need = bytes,
                                                .quota = UINT64_MAX,
                                                .next = POLICY_NONE,
                                                .ways = POLICY_UPGRADE | POLICY_WAIT,
                                                .barred = many->barred};
    many->queue[0] = 0;
    many->world = (struct policy_world){.devices = many->devices,
                                        .device_count = MANY,
                                        .programs = many->programs,
                                        .program_count = 1,
                                        .queue = many->queue,
                                        .queue_count = 1};
}

static const uint32_t some_of_many[] = {0, 63, 64, 1023, 1024, MANY - 1};

Test(policy_queue, one_of_many_devices_is_waited_for_if_it_could_hold_the_program)
{
    static const uint64_t sizes[] = {1, 8 * GIB, 12 * GIB - 1, 12 * GIB, 16 * GIB};
    static struct many many;

    for (size_t i = 0; i < sizeof(some_of_many) / sizeof(*some_of_many); i++) {
        for (size_t k = 0; k < sizeof(sizes) / sizeof(*sizes); k++) {
            struct policy_device *only = &many.devices[some_of_many[i]];
            struct policy_step step;

            many_init(&many, some_of_many[i], sizes[k]);
            only->memory = only->reserved = sizes[k];
            policy_answer(&many.world, &many.settings, 0, &step);
            cr_expect_eq(step.action, POLICY_DO_WAIT, "%s", step.reason);
            only->memory--;
            policy_answer(&many.world, &many.settings, 0, &step);
            cr_expect_eq(step.action, POLICY_DO_REFUSE, "%s", step.reason);
            only->memory++;
            only->closed = true;
            policy_answer(&many.world, &many.settings, 0, &step);
            cr_expect_eq(step.action, POLICY_DO_WAIT, "%s", step.reason);
        }
    }
}

Test(policy_queue, one_of_many_devices_is_moved_to_as_soon_as_it_has_room)
{
    static struct many many;

    for (size_t i = 0; i < sizeof(some_of_many) / sizeof(*some_of_many); i++) {
        uint32_t to = some_of_many[i], from = to ? to - 1 : 1;
        struct policy_step step;

        many_init(&many, to, 12 * GIB);
        many.world.queue_count = 0;
        many.programs[0].state = POLICY_RUNNING;
        many.programs[0].need = 0;
        many.programs[0].device = from;
        many.programs[0].granted = 12 * GIB;
        many.devices[from].first = 0;
        many.devices[from].residents = 1;
        many.devices[to].reserved = 4 * GIB + 1;
        policy_next(&many.world, &many.settings, &step);
        cr_expect_eq(step.action, POLICY_NOTHING, "%s", step.reason);
        many.devices[to].reserved = 4 * GIB;
        policy_next(&many.world, &many.settings, &step);
        cr_expect_eq(step.action, POLICY_DO_MOVE, "%s", step.reason);
        cr_expect_eq(step.device, to);
    }
}

/* gpu0 is full of p0, which has run for @age_s, and p1, for a day; p2 is above them and needs what
 * p0 has. */
static struct policy_program *waits_above(struct world *w, uint64_t age_s)
{
    world_init(w, 1);
    world_add_device(w, 8);
    world_add_program(w, 0, 4)->age_s = age_s;
    world_add_program(w, 0, 4)->age_s = 86400;
    w->programs[0].move_ms = w->programs[1].move_ms = 4000;
    struct policy_program *p = world_add_program(w, POLICY_NONE, 4);
    p->ways = POLICY_WAIT;
    p->priority = 1;
    p->age_s = 1000;
    return p;
}

Test(policy_queue, who_is_about_to_end_is_not_suspended)
{
    struct world w;
    char text[2048];

    /* 4 s on its way, and half of the 8.5 s for which it would be away; and p2 comes in 0.5 s. */
    struct policy_program *p = waits_above(&w, 8);
    struct policy_step step = expect_step(ask(&w, p), POLICY_DO_WAIT, 2, 0, 0);
    cr_expect_str_eq(step.reason, "p2 needs 4 MiB; it is expected to wait 8 s, less than it takes "
                                  "to make room");
    policy_explain(&w.world, &w.settings, 2, text, sizeof(text));
    cr_expect(strstr(text, "Waiting is expected to take 8.5 s; making room would take 8.3 s of the "
                           "time of p0.\n"),
              "%s", text);
    w.programs[0].age_s = 9;
    expect_step(ask(&w, p), POLICY_DO_SUSPEND, 0, POLICY_NONE, 0);
    policy_explain(&w.world, &w.settings, 2, text, sizeof(text));
    cr_expect(strstr(text, "Waiting is expected to take 9.5 s; making room would take 8.8 s of the "
                           "time of p0.\n"),
              "%s", text);
    /* For a program that just began, which is not expected to stay, it makes room. */
    p = waits_above(&w, 8);
    p->age_s = 1;
    expect_step(ask(&w, p), POLICY_DO_SUSPEND, 0, POLICY_NONE, 0);
    /* And for one that is further above. */
    p = waits_above(&w, 8);
    p->priority = 3;
    expect_step(ask(&w, p), POLICY_DO_SUSPEND, 0, POLICY_NONE, 0);
    /* Nobody waits for programs that wait themselves. */
    p = waits_above(&w, 8);
    world_ask(&w, &w.programs[0], 1);
    world_ask(&w, &w.programs[1], 1);
    step = ask(&w, p);
    cr_expect_eq(step.action, POLICY_DO_SUSPEND, "%s", step.reason);
}

Test(policy_queue, the_wait_for_who_grows_to_its_peak_is_longer)
{
    struct world w;

    /* p0 ends soon and leaves 4 MiB, with the 2 that are free enough; but p1 takes 2 by then. */
    struct policy_program *p = waits_above(&w, 3);
    w.devices[0].memory = 10 * MIB;
    p->wanted = p->least = 6 * MIB;
    expect_step(ask(&w, p), POLICY_DO_WAIT, 2, 0, 0);
    w.programs[1].peak = 6 * MIB;
    struct policy_step step = ask(&w, p);
    cr_expect_eq(step.action, POLICY_DO_SUSPEND, "%s", step.reason);
}

Test(policy_queue, what_is_free_soon_is_waited_for_instead_of_moving)
{
    struct world w;

    world_init(&w, 1);
    world_add_device(&w, 2048);
    world_add_device(&w, 4096);
    struct policy_program *p = world_add_program(&w, 0, 1024);
    world_add_program(&w, 0, 1024)->age_s = 3;
    world_ask(&w, p, 512);
    p->ways &= ~(unsigned)POLICY_SPILL;
    p->move_ms = 3000;
    expect_answer(&w, p, POLICY_DO_WAIT, 0, 0);
    w.devices[0].link = 2 << 20; /* Measured: faster than that of its last move. */
    expect_answer(&w, p, POLICY_DO_MOVE, 1, 1536);
    w.devices[0].link = 0;
    p->move_ms = 2999;
    expect_answer(&w, p, POLICY_DO_MOVE, 1, 1536);
    p->move_ms = 3000;
    p->ways &= ~(unsigned)POLICY_WAIT;
    expect_answer(&w, p, POLICY_DO_MOVE, 1, 1536);
    /* It goes on where it may spill. */
    p->ways |= POLICY_SPILL | POLICY_WAIT;
    p->least = 0;
    expect_answer(&w, p, POLICY_DO_SPILL, 0, 1024);
}

enum rule { AS_SAID, AT_ONCE, NEVER, RULES };

/* Seconds lost until p2 has its room, in a world where p0 and p2 live as long as programs do: half
 * of those that have run for t end within t more (up to a limit). What p0 loses while it is away
 * counts half, since p2 is one step above it. */
static double lost(enum rule rule, uint64_t seed)
{
    const double most_s = 300, move_s = 4;
    struct world w;

    world_init(&w, seed);
    uint64_t age_s = 1 + world_random(&w, 10);
    double parts[2] = {(double)(1 + world_random(&w, 1000)) / 1000,
                       (double)(1 + world_random(&w, 1000)) / 1000};
    double left_s = (double)age_s / parts[0] - (double)age_s, life_s = 1 / parts[1];
    struct policy_program *p = waits_above(&w, age_s);
    p->age_s = 0;
    left_s = left_s < most_s ? left_s : most_s;
    life_s = life_s < most_s ? life_s : most_s;
    for (double s = 0; s < left_s; s++) {
        struct policy_step step = ask(&w, p);

        if (rule == AT_ONCE || (rule == AS_SAID && step.action == POLICY_DO_SUSPEND))
            return s + move_s + life_s / 2;
        world_pass(&w, 1);
    }
    return left_s;
}

Test(policy_queue, less_is_lost_than_by_suspending_always_or_never)
{
    double sums[RULES] = {0};

    for (uint64_t seed = 1; seed <= 3000; seed++)
        for (unsigned rule = 0; rule < RULES; rule++)
            sums[rule] += lost((enum rule)rule, seed);
    cr_expect_lt(sums[AS_SAID], 0.95 * sums[AT_ONCE], "%.2f s, and %.2f s by suspending at once",
                 sums[AS_SAID] / 3000, sums[AT_ONCE] / 3000);
    cr_expect_lt(sums[AS_SAID], 0.7 * sums[NEVER], "%.2f s, and %.2f s by waiting",
                 sums[AS_SAID] / 3000, sums[NEVER] / 3000);
}
