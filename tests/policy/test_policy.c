#include "tests/policy/policy_expect.h"
#include "tests/support/leaks.h"

/* What one program gets that waits or queues, and at whose cost. */
TestSuite(policy, .fini = leaks_check, .timeout = 60);

#define ALL_WAYS (POLICY_UPGRADE | POLICY_SPILL | POLICY_WAIT | POLICY_SUSPEND)

/* gpu0 of 8 MiB with p0 (6, its call needs 4 more, 5 at once) and gpu1 of @other MiB, empty. */
static struct policy_program *grown(struct world *w, uint64_t other)
{
    world_init(w, 1);
    world_add_device(w, 8);
    world_add_device(w, other);
    struct policy_program *p = world_add_program(w, 0, 6);
    world_ask(w, p, 4);
    p->least = 5 * MIB;
    return p;
}

Test(policy, what_fits_in_place_is_granted_before_any_way_is_tried)
{
    static const char *const ways[] = {"suspend", "wait, spill", "upgrade, spill", "none"};
    struct world w;

    for (unsigned i = 0; i < 4; i++) {
        struct policy_program *p = grown(&w, 99);

        set_ways(&w, ways[i]);
        w.devices[0].memory = 10 * MIB;
        p->ways = i % 2 ? 0 : ALL_WAYS;
        expect_answer(&w, p, POLICY_GRANT, 0, 4);
        w.devices[0].closed = true; /* It takes no new program. */
        expect_answer(&w, p, POLICY_GRANT, 0, 4);
    }
}

Test(policy, ways_are_those_that_settings_and_program_allow)
{
    static const struct {
        const char *setting;
        unsigned ways;
        uint64_t other; /* MiB of the other device. */
        enum policy_action action;
        uint32_t device;
        uint64_t bytes;
    } cases[] = {
        {"upgrade, spill, wait", ALL_WAYS, 10, POLICY_DO_MOVE, 1, 10},
        {"upgrade, spill, wait", ALL_WAYS, 9, POLICY_DO_SPILL, 0, 8},
        {"spill, wait", ALL_WAYS, 10, POLICY_DO_SPILL, 0, 8},
        {"spill, upgrade", POLICY_UPGRADE, 10, POLICY_DO_MOVE, 1, 10},
        {"wait, suspend", ALL_WAYS, 8, POLICY_DO_REFUSE, 0, 0},
        {"upgrade, suspend, wait", ALL_WAYS, 9, POLICY_DO_REFUSE, 0, 0},
        {"suspend, wait", ALL_WAYS, 10, POLICY_DO_SUSPEND, POLICY_NONE, 0},
        {"upgrade, spill", POLICY_WAIT, 10, POLICY_DO_REFUSE, 0, 0},
        {"none", ALL_WAYS, 10, POLICY_DO_REFUSE, 0, 0},
        {"upgrade", 0, 10, POLICY_DO_REFUSE, 0, 0},
    };
    struct world w;

    for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct policy_program *p = grown(&w, cases[i].other);

        set_ways(&w, cases[i].setting);
        p->ways = cases[i].ways;
        expect_answer(&w, p, cases[i].action, cases[i].device, cases[i].bytes);
    }
}

Test(policy, reasons_name_what_lacks_where_and_what_fits)
{
    struct world w;

    struct policy_program *p = grown(&w, 12);
    struct policy_step step = ask(&w, p);
    cr_expect_str_eq(step.reason,
                     "gpu0 has 2 MiB free of 8 MiB, p0 needs 4 MiB more; gpu1 fits, it has "
                     "12 MiB free");
    p = grown(&w, 9);
    step = ask(&w, p);
    cr_expect_str_eq(step.reason, "gpu0 has 2 MiB free of 8 MiB, p0 needs 4 MiB more; it spills, "
                                  "with 8 MiB of 10 MiB on gpu0");
    p->ways = POLICY_WAIT | POLICY_UPGRADE;
    step = ask(&w, p);
    cr_expect_str_eq(step.reason,
                     "p0 needs 10 MiB, the largest device that takes programs has 9 MiB");
    w.devices[1].memory = 1536 * MIB + 512 * 1024;
    world_add_program(&w, 1, 1530);
    step = ask(&w, p);
    cr_expect_str_eq(step.reason, "gpu0 has 2 MiB free of 8 MiB, p0 needs 4 MiB more; it waits for "
                                  "3.5 MiB more on gpu1");
    p->quota = 9 * MIB;
    step = ask(&w, p);
    cr_expect_str_eq(step.reason, "p0 needs 10 MiB, its quota is 9 MiB");
}

Test(policy, a_spill_leaves_what_the_largest_command_needs)
{
    struct world w;

    struct policy_program *p = grown(&w, 4);
    p->least = 8 * MIB;
    expect_answer(&w, p, POLICY_DO_SPILL, 0, 8);
    p->least = 8 * MIB + 1;
    expect_answer(&w, p, POLICY_DO_REFUSE, 0, 0);
    /* Elsewhere, if it does not fit where it is. */
    p = grown(&w, 9);
    p->least = 9 * MIB;
    expect_answer(&w, p, POLICY_DO_MOVE, 1, 9);
    p->ways = POLICY_SPILL | POLICY_WAIT;
    expect_answer(&w, p, POLICY_DO_REFUSE, 0, 0);
    /* What others hold there is waited for. */
    p = grown(&w, 4);
    world_add_program(&w, 0, 2);
    p->least = 7 * MIB;
    expect_answer(&w, p, POLICY_DO_WAIT, 0, 0);
}

Test(policy, the_device_that_is_worth_most_is_chosen)
{
    struct world w;

    struct policy_program *p = grown(&w, 10);
    p->busy = 1000;
    world_add_device(&w, 20)->speed = 2000;
    world_add_device(&w, 20)->speed = 1500;
    expect_answer(&w, p, POLICY_DO_MOVE, 2, 10);
    w.devices[2].price = 9000;
    expect_answer(&w, p, POLICY_DO_MOVE, 3, 10);
    w.settings.weight_price = 0;
    expect_answer(&w, p, POLICY_DO_MOVE, 2, 10);
    world_add_program(&w, 2, 1)->busy = 1000; /* Shared, it is not as fast. */
    world_refresh(&w);
    expect_answer(&w, p, POLICY_DO_MOVE, 3, 10);
    w.devices[3].closed = true;
    expect_answer(&w, p, POLICY_DO_MOVE, 2, 10);
    w.devices[2].drains = true;
    expect_answer(&w, p, POLICY_DO_MOVE, 1, 10);
    w.barred[0] = 1 << 1;
    expect_answer(&w, p, POLICY_DO_SPILL, 0, 8);
}

Test(policy, new_programs_spread_over_equal_devices)
{
    static const uint32_t expected[] = {0, 1, 2, 0, 1};
    struct world w;

    world_init(&w, 1);
    for (unsigned i = 0; i < 3; i++)
        world_add_device(&w, 8);
    w.devices[0].kind = PLACE_GPU;
    for (unsigned i = 0; i < 5; i++) {
        struct policy_program *p = world_add_program(&w, POLICY_NONE, i == 4 ? 0 : 1);
        struct policy_step step;

        p->busy = 0; /* Not known yet, and not while the others are started. */
        step = ask(&w, p);
        cr_expect_eq(step.action, POLICY_DO_RESUME);
        cr_expect_eq(step.device, expected[i], "%u on %u", i, step.device);
        world_do(&w, &step);
    }
}

Test(policy, a_quota_is_never_exceeded_and_named)
{
    struct world w;

    struct policy_program *p = grown(&w, 20);
    w.devices[0].memory = 20 * MIB;
    p->quota = 10 * MIB;
    expect_answer(&w, p, POLICY_GRANT, 0, 4);
    p->quota = 9 * MIB;
    struct policy_step step = expect_step(ask(&w, p), POLICY_DO_SPILL, 0, 0, 9);
    cr_expect_str_eq(
        step.reason,
        "p0 needs 10 MiB, its quota is 9 MiB; it spills, with 9 MiB of 10 MiB on gpu0");
    p->least = 10 * MIB;
    p->ways = POLICY_SPILL;
    step = expect_step(ask(&w, p), POLICY_DO_REFUSE, 0, 0, 0);
    cr_expect_str_eq(step.reason, "p0 needs 10 MiB, its quota is 9 MiB");
    p->ways = POLICY_SPILL | POLICY_WAIT;
    expect_answer(&w, p, POLICY_DO_SUSPEND, POLICY_NONE, 0);
    p->pinned = true;
    step = expect_step(ask(&w, p), POLICY_DO_REFUSE, 0, 0, 0);
    cr_expect(strstr(step.reason, "its quota is 9 MiB"));
}

Test(policy, what_is_pinned_gets_it_in_place_or_is_refused)
{
    struct policy_program *p, *low;
    struct world w;

    p = grown(&w, 99);
    p->pinned = true;
    struct policy_step step = expect_step(ask(&w, p), POLICY_DO_REFUSE, 0, 0, 0);
    cr_expect_str_eq(step.reason, "gpu0 has 2 MiB free of 8 MiB, p0 needs 4 MiB more; it is pinned "
                                  "there and neither spills nor waits");
    w.devices[0].memory = 10 * MIB;
    expect_answer(&w, p, POLICY_GRANT, 0, 4);
    /* Those it outranks make room for it as for others. */
    low = world_add_program(&w, 0, 2);
    low->recent_moves = w.settings.budget_program;
    expect_answer(&w, p, POLICY_DO_REFUSE, 0, 0);
    low->priority = -1;
    expect_step(ask(&w, p), POLICY_DO_MOVE, world_id(&w, low), 1, 2);
    low->busy_moving = true;
    expect_answer(&w, p, POLICY_DO_WAIT, 0, 0);
}

Test(policy, what_no_device_has_is_refused_at_once)
{
    struct policy_program *p, *fresh;
    struct world w;

    p = grown(&w, 9);
    p->ways = ALL_WAYS & ~(unsigned)POLICY_SPILL;
    expect_answer(&w, p, POLICY_DO_REFUSE, 0, 0);
    w.barred[0] = 1 << 1;
    w.devices[1].memory = 99 * MIB;
    struct policy_step step = expect_step(ask(&w, p), POLICY_DO_REFUSE, 0, 0, 0);
    cr_expect_str_eq(step.reason,
                     "p0 needs 10 MiB: no device that it may use has that much memory");
    fresh = world_add_program(&w, POLICY_NONE, 100);
    fresh->ways = POLICY_WAIT;
    expect_answer(&w, fresh, POLICY_DO_REFUSE, 0, 0);
    /* Nobody waits behind what cannot be. */
    world_settle(&w, 2);
    cr_expect_eq(p->state, POLICY_RUNNING);
    cr_expect_eq(fresh->state, POLICY_SUSPENDED);
    fresh = world_add_program(&w, POLICY_NONE, 99);
    expect_answer(&w, fresh, POLICY_DO_RESUME, 1, 99);
}

Test(policy, for_a_device_that_takes_none_just_now_one_queues_and_holds_nothing)
{
    struct world w;

    struct policy_program *p = grown(&w, 10);
    p->least = 10 * MIB;
    w.devices[1].drains = true;
    expect_answer(&w, p, POLICY_DO_SUSPEND, POLICY_NONE, 0);
    world_settle(&w, 1);
    expect_answer(&w, p, POLICY_DO_WAIT, POLICY_NONE, 0);
    world_settle(&w, 0);
    w.devices[1].drains = false;
    expect_answer(&w, p, POLICY_DO_RESUME, 1, 10);
    p = grown(&w, 10);
    p->ways = POLICY_WAIT | POLICY_UPGRADE;
    w.devices[1].closed = true;
    expect_answer(&w, p, POLICY_DO_REFUSE, 0, 0);
}

Test(policy, a_limit_in_the_way_has_it_queue_and_is_no_error)
{
    struct world w;

    world_init(&w, 1);
    world_add_device(&w, 10)->whole = 20 * MIB;
    struct policy_program *p = world_add_program(&w, 0, 8);
    world_ask(&w, p, 7);
    p->least = 15 * MIB;
    p->ways = POLICY_SPILL | POLICY_SUSPEND;
    expect_answer(&w, p, POLICY_DO_SUSPEND, POLICY_NONE, 0);
    p->ways = POLICY_SPILL | POLICY_UPGRADE;
    expect_answer(&w, p, POLICY_DO_REFUSE, 0, 0);
    /* What it has already it need not say that of. */
    p->owns = true;
    p->ways = 0;
    struct policy_step step = expect_step(ask(&w, p), POLICY_DO_SUSPEND, 0, POLICY_NONE, 0);
    cr_expect(strstr(step.reason, "the largest device that takes programs has 10 MiB"), "%s",
              step.reason);
    world_do(&w, &step);
    expect_answer(&w, p, POLICY_DO_WAIT, POLICY_NONE, 0);
    w.devices[0].memory = 20 * MIB;
    world_refresh(&w);
    expect_answer(&w, p, POLICY_DO_RESUME, 0, 15);
    p->quota = 14 * MIB;
    expect_answer(&w, p, POLICY_DO_WAIT, POLICY_NONE, 0);
    /* No limit stands in the way: no device ever had as much. */
    p->quota = UINT64_MAX;
    w.devices[0].memory = 10 * MIB;
    w.devices[0].whole = 14 * MIB;
    world_refresh(&w);
    expect_answer(&w, p, POLICY_DO_REFUSE, POLICY_NONE, 0);
}

Test(policy, who_waited_to_the_deadline_is_refused_unless_there_is_room)
{
    struct policy_program *p, *other, *displaced;
    struct world w;

    p = grown(&w, 4);
    other = world_add_program(&w, 0, 2);
    other->ways = POLICY_WAIT;
    w.settings.wait_deadline_s = 60;
    p->ways = POLICY_WAIT;
    w.devices[0].memory = 10 * MIB;
    p->waited_s = 59;
    expect_answer(&w, p, POLICY_DO_WAIT, 0, 0);
    p->waited_s = 60;
    struct policy_step step = expect_step(ask(&w, p), POLICY_DO_REFUSE, 0, 0, 0);
    cr_expect_str_eq(step.reason, "gpu0 has 2 MiB free of 10 MiB, p0 needs 4 MiB more; it has "
                                  "waited 60 s, the deadline is 60 s");
    /* No call of this one waits: it only has no device. */
    displaced = world_add_program(&w, POLICY_NONE, 9);
    displaced->waited_s = 100;
    expect_answer(&w, displaced, POLICY_DO_WAIT, 0, 0);
    world_end(&w, other);
    expect_answer(&w, p, POLICY_GRANT, 0, 4);
}

Test(policy, only_who_waits_or_queues_gets_an_answer)
{
    struct world w;

    world_init(&w, 1);
    world_add_device(&w, 8);
    struct policy_program *p = world_add_program(&w, 0, 2);
    expect_answer(&w, p, POLICY_NOTHING, 0, 0);
    world_ask(&w, p, 2);
    p->busy_moving = true;
    expect_answer(&w, p, POLICY_DO_WAIT, 0, 0);
    p = world_add_program(&w, POLICY_NONE, 2);
    p->state = POLICY_STOPPED;
    world_refresh(&w);
    expect_answer(&w, p, POLICY_NOTHING, POLICY_NONE, 0);
    world_settle(&w, 0);
}

Test(policy, a_start_goes_where_the_peak_of_former_runs_fits)
{
    struct world w;

    world_init(&w, 1);
    world_add_device(&w, 8)->speed = 4000;
    world_add_device(&w, 16);
    world_add_device(&w, 16)->price = 2000;
    struct policy_program *p = world_add_program(&w, POLICY_NONE, 1);
    expect_answer(&w, p, POLICY_DO_RESUME, 0, 1);
    p->peak = 9 * MIB;
    expect_answer(&w, p, POLICY_DO_RESUME, 1, 1);
    world_add_program(&w, 1, 8);
    expect_answer(&w, p, POLICY_DO_RESUME, 2, 1);
    /* No device has room for it: it starts nevertheless. */
    p->peak = 20 * MIB;
    expect_answer(&w, p, POLICY_DO_RESUME, 0, 1);
    /* More than its quota it never gets. */
    p->quota = 4 * MIB;
    expect_answer(&w, p, POLICY_DO_RESUME, 0, 1);
}

/* Programs of one kind come and go; each grows to the same peak. Known or not, all of them get what
 * they need, but with known peaks fewer have to move or spill for it. */
Test(policy, known_peaks_save_moves)
{
    unsigned moved[2] = {0};

    for (uint64_t seed = 1; seed <= 100; seed++) {
        for (unsigned known = 0; known < 2; known++) {
            struct policy_program *p;
            struct world w;

            world_init(&w, seed);
            world_add_device(&w, 8 + world_random(&w, 8))->speed = 2000;
            world_add_device(&w, 16 + world_random(&w, 16));
            for (unsigned i = 0; i < 3; i++) {
                uint64_t peak = 2 + world_random(&w, 8);

                p = world_add_program(&w, POLICY_NONE, 1);
                p->peak = known ? peak * MIB : 0;
                world_settle(&w, 10);
                if (p->state != POLICY_RUNNING)
                    continue;
                world_ask(&w, p, peak - 1);
                world_settle(&w, 20);
            }
            moved[known] += w.moved + w.suspended;
        }
    }
    cr_expect_lt(2 * moved[1], moved[0], "%u, and %u where peaks are known", moved[0], moved[1]);
}
