#include "tests/policy/policy_world.h"
#include "tests/support/leaks.h"

/* Random worlds with fixed seeds: what must hold in every one of them. */
TestSuite(policy_worlds, .fini = leaks_check, .timeout = 300);

static void random_settings(struct world *w)
{
    struct policy_settings *s = &w->settings;

    if (world_chance(w, 60))
        s->ways = (unsigned)world_random(w, 16);
    s->prewarm = world_chance(w, 30);
    s->stay_s = world_chance(w, 70) ? 0 : 30;
    s->budget = s->budget_program = UINT32_MAX;
    s->age_s = world_chance(w, 50) ? 0 : 100;
    s->wait_deadline_s = world_chance(w, 80) ? 0 : 150;
    s->weight_price = (uint32_t)world_random(w, 2000);
    s->weight_fill = (uint32_t)world_random(w, 2000);
}

static void random_devices(struct world *w, unsigned most)
{
    unsigned count = 1 + (unsigned)world_random(w, most);

    for (unsigned i = 0; i < count; i++) {
        struct policy_device *d = world_add_device(w, 2 + world_random(w, 15));

        d->speed = 500 * (1 + (uint32_t)world_random(w, 6));
        d->price = 500 * (uint32_t)world_random(w, 6);
        d->kind = (enum place_kind)world_random(w, 4);
        d->closed = world_chance(w, 10);
        d->drains = world_chance(w, 10);
    }
}

/* Held within what the device has, or not: a limit may have been lowered. */
static void random_program(struct world *w)
{
    uint32_t device =
        world_chance(w, 60) ? (uint32_t)world_random(w, w->world.device_count) : POLICY_NONE;
    struct policy_program *p = world_add_program(w, device, 1 + world_random(w, 12));

    p->least = world_random(w, p->wanted / MIB + 1) * MIB;
    if (device != POLICY_NONE && world_chance(w, 40))
        p->granted = world_random(w, p->wanted / MIB + 1) * MIB;
    if (p->granted < p->least)
        p->granted = p->least;
    p->busy = (uint32_t)world_random(w, 1100);
    p->priority = (int32_t)world_random(w, 3) - 1;
    p->preemptible = world_chance(w, 30);
    p->ways = (unsigned)world_random(w, 16);
    p->stayed_s = world_random(w, 100);
    p->age_s = p->stayed_s + world_random(w, world_chance(w, 50) ? 10 : 100000);
    p->peak = world_chance(w, 30) ? world_random(w, 20) * MIB : 0;
    p->waited_s = world_random(w, 300);
    if (world_chance(w, 20))
        p->quota = world_random(w, 12) * MIB;
    if (p->granted > p->quota)
        p->quota = p->granted;
    if (world_chance(w, 20))
        w->barred[world_id(w, p)] = world_random(w, 64);
    if (device == POLICY_NONE) {
        if (world_chance(w, 10))
            p->state = POLICY_STOPPED;
        else if (world_chance(w, 30))
            p->need = p->wanted;
        return;
    }
    p->leaves = world_chance(w, 20);
    p->pinned = world_chance(w, 10);
    if (p->pinned)
        p->granted = p->wanted;
    if (world_chance(w, 40))
        world_ask(w, p, 1 + world_random(w, 6));
}

static void random_world(struct world *w, uint64_t seed, unsigned devices, unsigned programs)
{
    world_init(w, seed);
    random_settings(w);
    random_devices(w, devices);
    unsigned count = 1 + (unsigned)world_random(w, programs);
    for (unsigned i = 0; i < count; i++)
        random_program(w);
    world_random_wishes(w, 40);
    w->scales = world_chance(w, 50);
    world_refresh(w);
}

/* Few have what it takes for two rules to undo each other's steps. */
Test(policy_worlds, that_are_rare_come_to_rest_too)
{
    static const uint64_t seeds[] = {15621, 477871, 500858, 914568};

    for (size_t i = 0; i < sizeof(seeds) / sizeof(*seeds); i++) {
        struct world w;

        random_world(&w, seeds[i], WORLD_DEVICES, 12);
        cr_expect_leq(world_settle(&w, 200), 200, "seed %lu", seeds[i]);
    }
}

Test(policy_worlds, come_to_rest_and_break_no_rule_on_the_way)
{
    for (uint64_t seed = 1; seed <= 60000; seed++) {
        struct world w;
        struct policy_step step;
        unsigned steps;

        random_world(&w, seed, WORLD_DEVICES, 12);
        steps = world_settle(&w, 200);
        cr_assert_leq(steps, 200, "seed %lu", seed);
        policy_next(&w.world, &w.settings, &step);
        cr_assert_eq(step.action, POLICY_NOTHING);
    }
}
