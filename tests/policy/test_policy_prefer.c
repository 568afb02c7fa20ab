#include "tests/policy/policy_expect.h"
#include "tests/support/leaks.h"

/* Programs that said what they prefer. */
TestSuite(policy_prefer, .fini = leaks_check, .timeout = 300);

static void expect_next(struct world *w, enum policy_action action, uint32_t device)
{
    struct policy_step step = next(w);

    cr_expect_str_eq(policy_action_name(step.action), policy_action_name(action), "%s",
                     step.reason);
    if (action != POLICY_NOTHING)
        cr_expect_eq(step.device, device, "on %u: %s", step.device, step.reason);
}

static void expect_explained(struct world *w, const char *expected)
{
    char text[2048], *line;

    policy_explain(&w->world, &w->settings, 0, text, sizeof(text));
    line = strstr(text, "It prefers");
    cr_assert(line, "%s", text);
    *strchr(line, '\n') = '\0';
    cr_expect_str_eq(line, expected);
}

/* p0 (2 MiB) on gpu0 of 4 MiB, gpu1 of 8 MiB is free; it prefers @mib. */
static struct policy_program *one(struct world *w, uint64_t mib)
{
    world_init(w, 1);
    world_add_device(w, 4);
    world_add_device(w, 8);
    struct policy_program *p = world_add_program(w, 0, 2);
    world_prefer(w, p, &(struct reseat_limits){.memory = mib});
    return p;
}

Test(policy_prefer, a_free_device_that_has_more_of_it_is_taken)
{
    struct world w;

    one(&w, 8);
    struct policy_step step = next(&w);
    cr_expect_eq(step.action, POLICY_DO_MOVE);
    cr_expect_eq(step.device, 1);
    cr_expect_eq(step.bytes, 2 * MIB);
    cr_expect_str_eq(step.reason, "p0 prefers 8 MiB; gpu1 has them");
    expect_explained(&w, "It prefers 8 MiB; gpu1 has them.");
    world_do(&w, &step);
    world_pass(&w, 1000);
    expect_next(&w, POLICY_NOTHING, 0);
    expect_explained(&w, "It prefers 8 MiB; gpu1 has them.");
    /* Nobody else moves for that, and what is asked for is more than there is. */
    one(&w, 4);
    expect_next(&w, POLICY_NOTHING, 0);
    one(&w, 16);
    step = next(&w);
    cr_expect_eq(step.device, 1);
    cr_expect_str_eq(step.reason, "p0 prefers 16 MiB; gpu1 has more of that than gpu0");
    world_do(&w, &step);
    world_pass(&w, 1000);
    expect_next(&w, POLICY_NOTHING, 0);
    expect_explained(&w, "It prefers 16 MiB; no device has more of that for it than gpu1.");
}

Test(policy_prefer, it_has_to_be_free_there)
{
    struct world w;

    one(&w, 8);
    world_add_program(&w, 1, 1)->pinned = true;
    expect_next(&w, POLICY_NOTHING, 0);
    expect_explained(&w, "It prefers 8 MiB; gpu1 has them, once 8 MiB are free there.");
    one(&w, 7);
    world_add_program(&w, 1, 1)->pinned = true;
    w.programs[1].busy = 300;
    world_refresh(&w);
    expect_next(&w, POLICY_DO_MOVE, 1);
}

Test(policy_prefer, never_below_its_minimum_nor_where_nobody_is_taken)
{
    struct world w;

    struct policy_program *p = one(&w, 8);
    w.barred[0] = 2;
    expect_next(&w, POLICY_NOTHING, 0);
    w.barred[0] = 0;
    w.devices[1].closed = true;
    expect_next(&w, POLICY_NOTHING, 0);
    w.devices[1].closed = false;
    p->quota = 4 * MIB; /* It may not have more anyhow. */
    expect_next(&w, POLICY_NOTHING, 0);
    p->quota = 5 * MIB;
    expect_next(&w, POLICY_DO_MOVE, 1);
    p->ways = POLICY_WAIT;
    expect_next(&w, POLICY_NOTHING, 0);
}

Test(policy_prefer, less_of_one_thing_is_not_made_up_for)
{
    struct world w;

    struct policy_program *p = one(&w, 8);
    w.has[0].compute_units = 4;
    w.has[1].compute_units = 3;
    world_prefer(&w, p, &(struct reseat_limits){.memory = 8, .compute_units = 8});
    expect_next(&w, POLICY_NOTHING, 0);
    w.has[1].compute_units = 4;
    expect_next(&w, POLICY_DO_MOVE, 1);
    /* What is beyond what it prefers counts for nothing. */
    world_prefer(&w, p, &(struct reseat_limits){.memory = 8, .compute_units = 3});
    w.has[1].compute_units = 3;
    expect_next(&w, POLICY_DO_MOVE, 1);
    world_prefer(&w, p, &(struct reseat_limits){.features = RESEAT_FP64 | RESEAT_IMAGES});
    w.has[0].features = RESEAT_FP64;
    w.has[1].features = RESEAT_IMAGES | RESEAT_FP16;
    expect_next(&w, POLICY_NOTHING, 0);
    w.has[1].features |= RESEAT_FP64;
    expect_next(&w, POLICY_DO_MOVE, 1);
    expect_explained(&w, "It prefers images; gpu1 has them.");
}

Test(policy_prefer, all_that_is_missing_is_named_as_far_as_it_can_be_read)
{
    static const struct reseat_limits much = {.memory = 8,
                                              .allocation = 5 * MIB,
                                              .local_memory = 65536,
                                              .work_group_size = 512,
                                              .compute_units = 64,
                                              .features = 63};
    struct policy_program *p;
    struct world w;

    p = one(&w, 8);
    world_prefer(&w, p, &much);
    w.has[1] = much;
    expect_explained(&w, "It prefers 8 MiB, objects of 5 MiB, 64 KiB of local memory and "
                         "more; gpu1 has them.");
    w.has[0].allocation = 5 * MIB;
    w.has[0].local_memory = 65536;
    w.has[0].features = 63;
    w.has[1].work_group_size = 511;
    expect_explained(&w, "It prefers 8 MiB, work-groups of 512 and 64 compute units; "
                         "gpu1 has more of that.");
}

Test(policy_prefer, a_slower_or_busier_device_is_not_worth_it)
{
    struct world w;

    struct policy_program *p = one(&w, 8);
    p->busy = 1000;
    world_refresh(&w);
    expect_next(&w, POLICY_DO_MOVE, 1); /* As busy as here. */
    w.devices[1].speed = 999;
    expect_next(&w, POLICY_NOTHING, 0);
    expect_explained(&w, "It prefers 8 MiB; gpu1 has them, but would hold it up.");
    w.devices[1].speed = 1000;
    world_prefer(&w, p, &(struct reseat_limits){.memory = 7});
    world_add_program(&w, 1, 1)->busy = 1;
    w.programs[1].ways = 0;
    world_refresh(&w);
    expect_next(&w, POLICY_NOTHING, 0);
    /* What uses a fraction may be slower, as long as it stays one. */
    p->busy = 100;
    w.devices[1].speed = 500;
    world_refresh(&w);
    expect_next(&w, POLICY_DO_MOVE, 1);
    w.devices[1].speed = 100;
    expect_next(&w, POLICY_NOTHING, 0);
}

Test(policy_prefer, gain_stay_and_budget_hold_and_a_rebalance_does_not_wait)
{
    struct policy_step step;
    struct world w;

    struct policy_program *p = one(&w, 8);
    w.devices[0].memory = 4 * MIB;
    w.devices[1].memory = 5 * MIB - 1; /* A quarter more is worth it. */
    expect_next(&w, POLICY_NOTHING, 0);
    w.devices[1].memory++;
    expect_next(&w, POLICY_DO_MOVE, 1);
    for (unsigned i = 0; i < 5; i++) {
        p = one(&w, 8);
        if (i == 0)
            p->stayed_s = w.settings.stay_s - 1;
        else if (i == 1)
            p->recent_moves = w.settings.budget_program;
        else if (i == 2)
            w.world.recent_moves = w.settings.budget;
        else if (i == 3)
            p->kept = true;
        else
            w.settings.automatic = false;
        expect_next(&w, POLICY_NOTHING, 0);
        policy_rebalance(&w.world, &w.settings, &step);
        cr_expect_eq(step.action, POLICY_DO_MOVE);
        cr_expect_eq(step.device, 1);
    }
}

Test(policy_prefer, saving_takes_nothing_of_it)
{
    struct world w;

    struct policy_program *p = one(&w, 4);
    w.devices[1] = (struct policy_device){.name = "gpu1",
                                          .memory = 4 * MIB,
                                          .speed = 1000,
                                          .price = 100,
                                          .first = POLICY_NONE,
                                          .has = &w.has[1]};
    p->busy = 10;
    world_refresh(&w);
    expect_next(&w, POLICY_DO_MOVE, 1);
    w.devices[1].memory--;
    expect_next(&w, POLICY_NOTHING, 0);
    p->prefers = NULL;
    expect_next(&w, POLICY_DO_MOVE, 1);
}

Test(policy_prefer, what_is_held_up_leaves_and_does_not_come_back)
{
    struct world w;

    struct policy_program *p = one(&w, 8);
    world_do(
        &w, &(struct policy_step){
                .action = POLICY_DO_MOVE, .device = 1, .bytes = 2 * MIB, .reason = "for the test"});
    world_add_program(&w, 1, 2)->busy = 700;
    w.programs[1].ways = 0;
    p->busy = 600;
    world_refresh(&w);
    world_pass(&w, 1000);
    expect_next(&w, POLICY_DO_MOVE, 0);
    world_settle(&w, 1);
    world_pass(&w, 1000);
    expect_next(&w, POLICY_NOTHING, 0);
    cr_expect_eq(p->device, 0);
}

Test(policy_prefer, a_new_place_is_chosen_by_it_where_devices_are_alike)
{
    struct world w;

    world_init(&w, 1);
    world_add_device(&w, 8);
    world_add_device(&w, 8);
    world_add_device(&w, 8);
    w.has[1].compute_units = 4;
    w.has[2].compute_units = 2;
    world_prefer(&w, world_add_program(&w, POLICY_NONE, 2),
                 &(struct reseat_limits){.compute_units = 4});
    expect_next(&w, POLICY_DO_RESUME, 1);
}

/* ---- against an independent look at small worlds ---- */

/* Thing by thing, of what it prefers, what the device has. */
static void list_had(const struct world *w, uint32_t program, uint32_t device, uint64_t *ret)
{
    const struct reseat_limits *prefers = &w->prefers[program], *has = &w->has[device];
    uint64_t memory = prefers->memory, quota = w->programs[program].quota;
    const uint64_t both[5][2] = {{memory < quota ? memory : quota, w->devices[device].memory},
                                 {prefers->allocation, has->allocation},
                                 {prefers->local_memory, has->local_memory},
                                 {prefers->work_group_size, has->work_group_size},
                                 {prefers->compute_units, has->compute_units}};

    for (unsigned i = 0; i < 5; i++)
        ret[i] = both[i][0] < both[i][1] ? both[i][0] : both[i][1];
    for (unsigned i = 0; i < 6; i++)
        ret[5 + i] = prefers->features >> i & has->features >> i & 1;
}

/* 1: better, with the gain; -1: worse in something; 0: neither. */
static int compare(const struct world *w, uint32_t program, uint32_t to, uint32_t from)
{
    uint64_t there[11], here[11];
    int better = 0;

    list_had(w, program, to, there);
    list_had(w, program, from, here);
    for (unsigned i = 0; i < 11; i++) {
        if (there[i] < here[i])
            return -1;
        better |= there[i] > here[i] && there[i] * 1000 >= here[i] * (1000 + w->settings.gain);
    }
    return better;
}

/* All alike but for what they offer, nobody held up nor idle: only wishes move anybody. */
static void random_wishes(struct world *w, uint64_t seed)
{
    unsigned devices, programs;

    world_init(w, seed);
    devices = 2 + (unsigned)world_random(w, 3);
    programs = 1 + (unsigned)world_random(w, 4);
    for (unsigned i = 0; i < devices; i++)
        world_add_device(w, 4 + world_random(w, 12))->closed = world_chance(w, 10);
    for (unsigned i = 0; i < programs; i++) {
        uint32_t device = (uint32_t)world_random(w, devices);
        uint64_t left = (w->devices[device].memory - w->devices[device].reserved) / MIB;
        struct policy_program *p;

        if (!left)
            continue;
        p = world_add_program(w, device, 1 + world_random(w, left));
        p->busy = 200;
        if (world_chance(w, 20))
            *(uint64_t *)(uintptr_t)p->barred = world_random(w, 16) & ~(UINT64_C(1) << device);
        if (world_chance(w, 10))
            p->quota = p->granted + world_random(w, 6) * MIB;
    }
    w->settings.budget = w->settings.budget_program = UINT32_MAX;
    world_random_wishes(w, 80);
    world_refresh(w);
}

static bool may_go(const struct world *w, uint32_t program, uint32_t device)
{
    const struct policy_program *p = &w->programs[program];
    const struct policy_device *d = &w->devices[device];
    uint64_t had[11], used = 0;
    unsigned others = 0;

    for (uint32_t i = 0; i < w->world.program_count; i++) {
        used += w->programs[i].device == device ? w->programs[i].granted : 0;
        others += w->programs[i].device == device;
    }
    list_had(w, program, device, had);
    return device != p->device && !d->closed && !(*p->barred >> device & 1) && others < 4 &&
           used + (had[0] > p->wanted ? had[0] : p->wanted) <= d->memory;
}

Test(policy_prefer, a_better_device_is_found_if_there_is_one_and_nobody_goes_back)
{
    unsigned moved = 0, content = 0;

    for (uint64_t seed = 1; seed <= 20000; seed++) {
        unsigned moves[WORLD_PROGRAMS] = {0};
        struct world w;

        random_wishes(&w, seed);
        for (unsigned steps = 0;; steps++) {
            struct policy_step step = next(&w);
            bool could = false;

            for (uint32_t i = 0; i < w.world.program_count; i++)
                for (uint32_t d = 0; w.programs[i].prefers && d < w.world.device_count; d++)
                    could |= may_go(&w, i, d) && compare(&w, i, d, w.programs[i].device) > 0;
            cr_assert_eq(step.action == POLICY_DO_MOVE, could, "seed %lu: %s", seed, step.reason);
            if (!could)
                break;
            cr_assert(may_go(&w, step.program, step.device), "seed %lu: %s", seed, step.reason);
            cr_assert_gt(compare(&w, step.program, step.device, w.programs[step.program].device), 0,
                         "seed %lu: %s", seed, step.reason);
            moves[step.program]++;
            cr_assert_lt(moves[step.program], w.world.device_count, "seed %lu", seed);
            world_do(&w, &step);
            world_pass(&w, 1000);
            moved++;
        }
        content += !moves[0];
    }
    cr_expect_gt(moved, 1000);
    cr_expect_gt(content, 1000);
}
