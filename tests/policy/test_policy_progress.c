#include "tests/policy/policy_world.h"
#include "tests/support/leaks.h"

/* Programs that take memory bit by bit and want, together, more than there is: everyone finishes.
 */
TestSuite(policy_progress, .fini = leaks_check, .timeout = 300);

#define PROGRAMS 8

struct life {
    uint64_t left;  /* MiB still to be asked for. */
    unsigned works; /* Turns to run before it asks again or ends. */
    unsigned turns; /* Turns that it has had. */
};

struct play {
    struct world world;
    struct life lives[PROGRAMS];
    struct policy_step under_way[WORLD_PROGRAMS]; /* POLICY_NOTHING: none. */
    unsigned slow;                                /* Steps take up to so many turns. */
    uint64_t largest;                             /* MiB, of all devices. */
    unsigned refused, ended;
};

static void start(struct play *play, uint64_t seed)
{
    struct world *w = &play->world;

    *play = (struct play){0};
    world_init(w, seed);
    w->settings.stay_s = world_random(w, 3);
    w->settings.age_s = world_chance(w, 50) ? 0 : 5;
    w->settings.automatic = world_chance(w, 50);
    play->slow = world_chance(w, 50) ? 0 : 3;
    unsigned devices = 1 + (unsigned)world_random(w, 3);
    for (unsigned i = 0; i < devices; i++) {
        uint64_t memory = 4 + world_random(w, 9);

        world_add_device(w, memory)->speed = 1000 + (uint32_t)world_random(w, 2000);
        play->largest = memory > play->largest ? memory : play->largest;
    }
    for (unsigned i = 0; i < PROGRAMS; i++) {
        struct policy_program *p = world_add_program(w, POLICY_NONE, 0);

        /* More than half of the largest device: no two of them fit together. */
        play->lives[i].left = play->largest / 2 + 1 + world_random(w, (play->largest + 1) / 2);
        if (play->lives[i].left > play->largest)
            play->lives[i].left = play->largest;
        p->priority = (int32_t)world_random(w, 3);
        p->preemptible = world_chance(w, 30);
        p->pinned = world_chance(w, 5);
        p->ways = POLICY_WAIT | (unsigned)world_random(w, 16);
        if (world_chance(w, 20))
            p->ways = POLICY_SUSPEND;
        p->ways &= ~(unsigned)POLICY_SPILL;
    }
}

/* Its call failed: it gives up, and gives back. */
static void refused(struct play *play, uint32_t id)
{
    struct policy_program *p = &play->world.programs[id];
    bool fits_somewhere = p->need <= play->largest * MIB;

    /* Whose device is too small, and who may neither move nor be suspended, has no way out. */
    for (uint32_t i = 0; p->device != POLICY_NONE && i < play->world.world.device_count; i++)
        fits_somewhere &= p->ways & (POLICY_UPGRADE | POLICY_SUSPEND) ||
                          p->need <= play->world.devices[p->device].memory;
    cr_assert(p->pinned || !fits_somewhere, "%s is refused without need", p->name);
    play->refused++;
    world_end(&play->world, p);
}

static void begin_step(struct play *play, const struct policy_step *step)
{
    struct policy_program *p = &play->world.programs[step->program];

    if (step->action == POLICY_DO_REFUSE) {
        refused(play, step->program);
    } else if (!play->slow || step->action == POLICY_GRANT || step->action == POLICY_DO_WAIT) {
        world_do(&play->world, step);
    } else {
        world_promise(&play->world, step);
        play->under_way[step->program] = *step;
        p->busy_moving = true;
    }
}

static void end_steps(struct play *play)
{
    for (uint32_t i = 0; i < PROGRAMS; i++) {
        struct policy_step step = play->under_way[i];

        if (step.action == POLICY_NOTHING || world_random(&play->world, play->slow))
            continue;
        play->under_way[i].action = POLICY_NOTHING;
        play->world.programs[i].busy_moving = false;
        world_promise(&play->world, &(struct policy_step){.program = i});
        world_do(&play->world, &step);
    }
}

static void settle(struct play *play)
{
    struct policy_step step;

    for (unsigned count = 0;; count++) {
        policy_next(&play->world.world, &play->world.settings, &step);
        if (step.action == POLICY_NOTHING)
            return;
        cr_assert_lt(count, 200, "no end: %s", step.reason);
        begin_step(play, &step);
    }
}

/* One turn of a program that runs. */
static void live(struct play *play, uint32_t id)
{
    struct world *w = &play->world;
    struct life *life = &play->lives[id];
    struct policy_step step;

    life->turns++;
    if (life->works) {
        life->works--;
        return;
    }
    if (!life->left) {
        play->ended++;
        world_end(w, &w->programs[id]);
        return;
    }
    uint64_t more = 1 + world_random(w, life->left);
    life->left -= more;
    life->works = 1 + (unsigned)world_random(w, 3);
    world_ask(w, &w->programs[id], more);
    w->programs[id].least = w->programs[id].wanted;
    policy_answer(&w->world, &w->settings, id, &step);
    begin_step(play, &step);
}

/* Who runs, or POLICY_NONE. */
static uint32_t pick_running(struct play *play)
{
    uint32_t first = (uint32_t)world_random(&play->world, PROGRAMS);

    for (uint32_t i = 0; i < PROGRAMS; i++) {
        const struct policy_program *p = &play->world.programs[(first + i) % PROGRAMS];

        if (p->state == POLICY_RUNNING && !p->busy_moving)
            return (first + i) % PROGRAMS;
    }
    return POLICY_NONE;
}

static bool is_any_under_way(const struct play *play)
{
    for (uint32_t i = 0; i < PROGRAMS; i++)
        if (play->under_way[i].action != POLICY_NOTHING)
            return true;
    return false;
}

Test(policy_progress, everyone_finishes_who_holds_what_others_wait_for)
{
    static struct play play;
    unsigned suspended = 0, refused_count = 0;

    for (uint64_t seed = 1; seed <= 4000; seed++) {
        start(&play, seed);
        for (unsigned turn = 0; play.ended + play.refused < PROGRAMS; turn++) {
            uint32_t id;

            cr_assert_lt(turn, 2000, "seed %lu: no end", seed);
            world_pass(&play.world, 1);
            end_steps(&play);
            settle(&play);
            id = pick_running(&play);
            cr_assert(id != POLICY_NONE || is_any_under_way(&play),
                      "seed %lu, turn %u: everyone waits", seed, turn);
            if (id != POLICY_NONE)
                live(&play, id);
        }
        suspended += play.world.suspended;
        refused_count += play.refused;
    }
    /* The worlds were such that it took something. */
    cr_expect_gt(suspended, 4000);
    cr_expect_gt(refused_count, 0);
}

/* Two that each hold half and want all: the textbook's deadlock. */
Test(policy_progress, two_that_hold_what_the_other_waits_for_go_one_after_the_other)
{
    struct policy_program *a, *b;
    struct policy_step step;
    struct world w;

    world_init(&w, 1);
    world_add_device(&w, 8);
    a = world_add_program(&w, 0, 4);
    b = world_add_program(&w, 0, 4);
    a->ways = b->ways = POLICY_WAIT;
    world_ask(&w, a, 3);
    policy_answer(&w.world, &w.settings, 0, &step);
    cr_assert_eq(step.action, POLICY_DO_WAIT);
    world_ask(&w, b, 3);
    world_settle(&w, 3);
    cr_expect_eq(a->state, POLICY_RUNNING);
    cr_expect_eq(a->granted, 7 * MIB);
    cr_expect_eq(b->state, POLICY_SUSPENDED);
    world_end(&w, a);
    world_settle(&w, 3);
    cr_expect_eq(b->state, POLICY_RUNNING);
    cr_expect_eq(b->granted, 7 * MIB);
}

/* A stream of small ones that would always fit does not keep a large one out. */
Test(policy_progress, small_ones_behind_do_not_starve_the_first)
{
    struct policy_program *large, *old[3];
    struct world w;

    world_init(&w, 1);
    world_add_device(&w, 8);
    for (unsigned i = 0; i < 3; i++)
        old[i] = world_add_program(&w, 0, 2);
    large = world_add_program(&w, POLICY_NONE, 6);
    large->ways = POLICY_WAIT;
    for (unsigned i = 0; i < 3; i++) {
        struct policy_program *small = world_add_program(&w, POLICY_NONE, 2);

        world_settle(&w, 1);
        cr_expect_eq(small->state, POLICY_SUSPENDED, "%s was let in front", small->name);
        cr_expect_eq(large->state, i < 2 ? POLICY_SUSPENDED : POLICY_RUNNING);
        if (i < 2) {
            world_end(&w, old[i]);
            world_settle(&w, 8);
        }
    }
    cr_expect_eq(large->state, POLICY_RUNNING);
    cr_expect_eq(old[2]->state, POLICY_RUNNING);
}

/* Beside what is kept for the first, on another device, small ones do go on. */
Test(policy_progress, small_ones_behind_go_where_the_first_does_not_wait)
{
    struct policy_program *large, *small;
    struct world w;

    world_init(&w, 1);
    world_add_device(&w, 8);
    world_add_device(&w, 4);
    world_add_program(&w, 0, 6);
    large = world_add_program(&w, POLICY_NONE, 6);
    small = world_add_program(&w, POLICY_NONE, 2);
    large->ways = small->ways = POLICY_WAIT;
    world_settle(&w, 1);
    cr_expect_eq(large->state, POLICY_SUSPENDED);
    cr_expect_eq(small->state, POLICY_RUNNING);
    cr_expect_eq(small->device, 1);
}
