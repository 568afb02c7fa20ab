#include "tests/policy/policy_expect.h"
#include "tests/policy/policy_world.h"
#include "tests/support/leaks.h"

/* Worlds whose devices are not as fast as they are said to be, and that answer: how busy a program
 * keeps a device depends on which one it is and on who else is there. */
TestSuite(policy_visits, .fini = leaks_check, .timeout = 300);

#define TICK_S    10
#define SIX_HOURS (6 * 60 * 60)
#define DEVICES   3
#define PROGRAMS  5

struct truth {
    struct world world;
    bool measures;            /* Each program's launches were measured on every device, */
    bool visited;             /* but only on those where it was. */
    unsigned tried[PROGRAMS]; /* Bits: those. */
    struct policy_measured measured[PROGRAMS][DEVICES];
    uint32_t speed[DEVICES];                 /* What it is, against what policy is told. */
    uint32_t work[PROGRAMS], rest[PROGRAMS]; /* Milliseconds of each round, at speed 1000. */
    unsigned moves[PROGRAMS];
};

/* Of each program the part of its time in which it waits for its device, in steps of 50. */
static void react(struct truth *truth)
{
    struct world *w = &truth->world;

    for (uint32_t i = 0; i < w->world.program_count; i++) {
        struct policy_program *p = &w->programs[i];
        uint64_t works = 0;

        for (uint32_t k = 0; k < w->world.program_count; k++)
            if (w->programs[k].device == p->device)
                works += (uint64_t)truth->work[k] * 1000 / truth->speed[p->device];
        p->busy = (uint32_t)((works * 1000 / (works + truth->rest[i]) + 25) / 50 * 50);
        truth->tried[i] |= 1u << p->device;
        for (uint32_t d = 0; d < DEVICES; d++) {
            bool known = truth->measures && (!truth->visited || truth->tried[i] >> d & 1);
            truth->measured[i][d] = (struct policy_measured){
                truth->speed[d] * 1000 / truth->speed[p->device], known ? 1000 : 0};
        }
        p->measured = truth->measured[i];
    }
    world_refresh(w);
}

static void random_truth(struct truth *truth, uint64_t seed)
{
    struct world *w = &truth->world;

    memset(truth, 0, sizeof(*truth));
    world_init(w, seed);
    for (uint32_t i = 0; i < DEVICES; i++) {
        struct policy_device *d = world_add_device(w, 64);

        d->speed = 500 + (uint32_t)world_random(w, 3000);
        d->price = 500 * (1 + (uint32_t)world_random(w, 3));
        truth->speed[i] = 100 + (uint32_t)world_random(w, 6000);
    }
    for (uint32_t i = 0; i < PROGRAMS; i++) {
        world_add_program(w, (uint32_t)world_random(w, DEVICES), 2);
        truth->work[i] = 1 + (uint32_t)world_random(w, world_chance(w, 50) ? 50 : 2000);
        truth->rest[i] = 1 + (uint32_t)world_random(w, 500);
    }
}

/* For so long; the moves that were made. */
static unsigned live(struct truth *truth, uint64_t seconds)
{
    struct world *w = &truth->world;
    unsigned moves = 0;

    for (uint64_t s = 0; s < seconds; s += TICK_S) {
        struct policy_step step;

        react(truth);
        policy_next(&w->world, &w->settings, &step);
        world_pass(w, TICK_S);
        if (step.action == POLICY_NOTHING)
            continue;
        cr_assert_eq(step.action, POLICY_DO_MOVE);
        moves++;
        truth->moves[step.program]++;
        world_do(w, &step);
    }
    return moves;
}

Test(policy_visits, moves_are_few_where_nothing_changes_however_wrong_speeds_are)
{
    unsigned early = 0, late = 0;

    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct truth truth;

        random_truth(&truth, seed);
        early += live(&truth, SIX_HOURS / 2);
        late += live(&truth, SIX_HOURS / 2);
        for (unsigned i = 0; i < PROGRAMS; i++)
            cr_expect_leq(truth.moves[i], 2 * DEVICES, "seed %lu: program %u was moved %u times",
                          seed, i, truth.moves[i]);
    }
    /* They did not begin where they end, and what was tried once shows where that is. */
    cr_expect_geq(early, 100);
    cr_expect_leq(late, 3);
}

/* Each up to eight times faster or slower than it is said to be. */
static void random_speeds(struct truth *truth)
{
    for (uint32_t i = 0; i < DEVICES; i++) {
        uint32_t off = 1000 + (uint32_t)world_random(&truth->world, 7001);
        uint64_t said = truth->world.devices[i].speed;

        truth->speed[i] =
            (uint32_t)(world_chance(&truth->world, 50) ? said * off / 1000 : said * 1000 / off);
    }
}

/* In each half a program is moved at most once to each of the other devices, and back after 600 s,
 * 1200 s and so on: four times in three hours. */
Test(policy_visits, moves_are_bounded_where_guessed_speeds_are_wrong_and_change)
{
    unsigned early = 0, late = 0, once = 0;

    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct truth truth;

        random_truth(&truth, seed);
        truth.measures = seed % 2;
        truth.visited = true;
        for (uint32_t i = 0; i < DEVICES; i++)
            truth.world.devices[i].guessed = true;
        for (uint32_t i = 0; i < PROGRAMS; i++)
            truth.world.programs[i].age_s = 0;
        for (unsigned half = 0; half < 2; half++) {
            unsigned *moves = half ? &late : &early;

            random_speeds(&truth);
            memset(truth.moves, 0, sizeof(truth.moves));
            *moves += live(&truth, SIX_HOURS / 2);
            for (unsigned i = 0; i < PROGRAMS; i++) {
                cr_expect_leq(truth.moves[i], DEVICES - 1 + 4,
                              "seed %lu: program %u was moved %u times", seed, i, truth.moves[i]);
                once += truth.moves[i] <= 1;
            }
        }
    }
    cr_expect_geq(once, 300 * 2 * PROGRAMS * 9 / 10, "%u of %u", once, 300 * 2 * PROGRAMS);
    /* They go where they are better off nevertheless. */
    cr_expect_geq(early, 100, "%u", early);
    cr_expect_geq(late, 100, "%u", late);
}

/* Three processors' drivers, of which one is said to be as fast as the first and is 37 times
 * slower. One program does little there, and one, elsewhere, keeps its device busy a tenth of the
 * time. */
Test(policy_visits, a_guessed_device_is_not_tried_where_that_cannot_pay)
{
    static const uint32_t said[] = {5, 10, 5}, is[] = {1000, 1900, 27};

    for (unsigned load = 1; load <= 4; load++) {
        struct truth truth;
        struct world *w = &truth.world;

        memset(&truth, 0, sizeof(truth));
        truth.measures = truth.visited = true;
        world_init(w, load);
        for (uint32_t i = 0; i < DEVICES; i++) {
            struct policy_device *d = world_add_device(w, 64);

            d->speed = said[i];
            d->guessed = true;
            truth.speed[i] = is[i];
        }
        world_add_program(w, 2, 1)->kept = true;
        world_add_program(w, 0, 2);
        w->programs[0].age_s = w->programs[1].age_s = 0;
        truth.work[0] = 1;
        truth.rest[0] = 500;
        truth.work[1] = 26 * load;
        truth.rest[1] = 200;
        cr_expect_leq(live(&truth, 600), 1, "%u times the work", load);
        cr_expect_neq(w->programs[1].device, 2, "%u times the work", load);
    }
}

/* How many times as long the programs' rounds take as they would alone on the fastest device. */
static double slowdown(const struct truth *truth)
{
    double sum = 0;

    for (uint32_t i = 0; i < PROGRAMS; i++) {
        double works = 0, best = 1e9;

        for (uint32_t k = 0; k < PROGRAMS; k++)
            if (truth->world.programs[k].device == truth->world.programs[i].device)
                works += truth->work[k] * 1e3 / truth->speed[truth->world.programs[i].device];
        for (uint32_t d = 0; d < DEVICES; d++)
            if (truth->work[i] * 1e3 / truth->speed[d] < best)
                best = truth->work[i] * 1e3 / truth->speed[d];
        sum += (works + truth->rest[i]) / (best + truth->rest[i]);
    }
    return sum / PROGRAMS;
}

Test(policy_visits, measured_speeds_lead_to_better_devices)
{
    double told = 0, measured = 0;
    unsigned better = 0, worse = 0;

    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct truth truth[2];

        for (int i = 0; i < 2; i++) {
            random_truth(&truth[i], seed);
            truth[i].measures = i;
            live(&truth[i], SIX_HOURS);
        }
        told += slowdown(&truth[0]);
        measured += slowdown(&truth[1]);
        better += slowdown(&truth[1]) < slowdown(&truth[0]) - 0.01;
        worse += slowdown(&truth[1]) > slowdown(&truth[0]) + 0.01;
    }
    cr_expect_lt(measured - 200, 0.6 * (told - 200),
                 "%.3f, and %.3f by what is said; better in %u, worse in %u", measured / 200,
                 told / 200, better, worse);
    cr_expect_geq(better, 2 * worse, "better in %u, worse in %u", better, worse);
}

/* gpu1 is said to be twice as fast as gpu0, and costs twice as much. */
static struct policy_program *two_devices(struct world *w)
{
    world_init(w, 1);
    world_add_device(w, 8);
    world_add_device(w, 8);
    w->devices[1].speed = w->devices[1].price = 2000;
    return world_add_program(w, 0, 4);
}

static void keeps_busy(struct world *w, struct policy_program *p, uint32_t busy)
{
    p->busy = busy;
    world_refresh(w);
}

/* Seconds until policy moves @p, which finds that it has little to do soon after it came to gpu1
 * and much to do on gpu0: to each a reason to be on the other. */
static uint64_t until_moved(struct world *w, struct policy_program *p)
{
    for (uint64_t s = 0; s <= 100000; s += 10) {
        struct policy_step step;

        keeps_busy(w, p, p->device == 0 ? 1000 : p->stayed_s < 20 ? 500 : 50);
        policy_next(&w->world, &w->settings, &step);
        if (step.action == POLICY_DO_MOVE) {
            world_do(w, &step);
            return s;
        }
        world_pass(w, 10);
    }
    return UINT64_MAX;
}

Test(policy_visits, the_way_back_is_barred_for_twice_as_long_each_time)
{
    struct world w;
    struct policy_program *p = two_devices(&w);
    struct policy_step step;

    cr_expect_eq(until_moved(&w, p), 0);
    for (uint64_t bar_s = 600; bar_s <= 4800; bar_s *= 2)
        cr_expect_eq(until_moved(&w, p), bar_s);
    /* Whoever comes back long after it may was not sent to and fro. */
    cr_assert_eq(p->device, 1);
    keeps_busy(&w, p, 500);
    world_pass(&w, 40000 * 4);
    keeps_busy(&w, p, 50);
    policy_next(&w.world, &w.settings, &step);
    expect_step(step, POLICY_DO_MOVE, 0, 0, 4);
    world_do(&w, &step);
    cr_expect_eq(until_moved(&w, p), 600);
}

Test(policy_visits, who_asks_for_a_rebalance_or_empties_a_device_has_it_at_once)
{
    struct world w;
    struct policy_program *p = two_devices(&w);
    struct policy_step step;

    until_moved(&w, p);
    world_pass(&w, 60);
    keeps_busy(&w, p, 500);
    world_pass(&w, 60);
    keeps_busy(&w, p, 50);
    policy_next(&w.world, &w.settings, &step);
    expect_step(step, POLICY_NOTHING, POLICY_NONE, POLICY_NONE, 0);
    policy_rebalance(&w.world, &w.settings, &step);
    expect_step(step, POLICY_DO_MOVE, 0, 0, 4);
    w.devices[1].drains = true;
    policy_next(&w.world, &w.settings, &step);
    expect_step(step, POLICY_DO_MOVE, 0, 0, 4);
}

/* It keeps gpu1 far less busy than it kept gpu0, which is much slower than it is said to be. */
Test(policy_visits, what_a_program_did_to_a_device_counts_as_long_as_it_does_the_same)
{
    struct world w;
    struct policy_program *p = two_devices(&w);

    cr_expect_eq(until_moved(&w, p), 0);
    keeps_busy(&w, p, 100);
    world_pass(&w, 100000);
    cr_expect_eq(world_settle(&w, 1), 0);
    keeps_busy(&w, p, 50);
    cr_expect_eq(world_settle(&w, 1), 0);
    /* It has changed: it does next to nothing now. */
    keeps_busy(&w, p, 0);
    cr_expect_eq(world_settle(&w, 1), 1);
    cr_expect_eq(p->device, 0);
}

Test(policy_visits, an_explanation_says_when_a_program_may_come_back)
{
    struct world w;
    struct policy_program *p = two_devices(&w);
    char text[2048];

    until_moved(&w, p);
    world_pass(&w, 100);
    policy_explain(&w.world, &w.settings, 0, text, sizeof(text));
    cr_expect(strstr(text, "gpu0: fits, but the policy moved p0 away from it 100 s ago and does "
                           "not move it back for another 500 s.\n"),
              "%s", text);
}

Test(policy_visits, what_was_measured_counts_instead_of_what_is_said)
{
    struct world w;
    struct policy_program *p = two_devices(&w);
    struct policy_measured measured[] = {{1000, 1000}, {900, 1000}};
    struct policy_step step;

    keeps_busy(&w, p, 1000);
    p->measured = measured;
    policy_next(&w.world, &w.settings, &step);
    expect_step(step, POLICY_NOTHING, POLICY_NONE, POLICY_NONE, 0);
    /* Too little of its time was: then what is said counts. */
    measured[1].covered = 400;
    policy_next(&w.world, &w.settings, &step);
    expect_step(step, POLICY_DO_MOVE, 0, 1, 4);
    cr_expect_null(strstr(step.reason, "as measured"), "%s", step.reason);
    measured[1] = (struct policy_measured){3000, 900};
    policy_next(&w.world, &w.settings, &step);
    expect_step(step, POLICY_DO_MOVE, 0, 1, 4);
    cr_expect(strstr(step.reason, "at 3.00 times its speed as measured"), "%s", step.reason);
}

Test(policy_visits, a_move_is_made_if_it_pays_back_while_the_program_runs)
{
    struct world w;
    struct policy_program *p = two_devices(&w);
    struct policy_step step;
    char text[2048];

    keeps_busy(&w, p, 1000);
    /* It takes a minute, and saves half of the program's time. */
    p->move_ms = 60000;
    p->age_s = 119;
    policy_next(&w.world, &w.settings, &step);
    expect_step(step, POLICY_NOTHING, POLICY_NONE, POLICY_NONE, 0);
    policy_explain(&w.world, &w.settings, 0, text, sizeof(text));
    cr_expect(strstr(text, "A move to gpu1 would pay back after 120 s; it has run for 119 s and is "
                           "expected to run for as long again, so it stays.\n"),
              "%s", text);
    policy_rebalance(&w.world, &w.settings, &step);
    expect_step(step, POLICY_DO_MOVE, 0, 1, 4);
    p->age_s = 120;
    policy_next(&w.world, &w.settings, &step);
    expect_step(step, POLICY_DO_MOVE, 0, 1, 4);
    cr_expect_eq(step.payback_s, 120);
}

Test(policy_visits, a_move_is_not_undone_before_it_has_paid_back)
{
    struct world w;
    struct policy_program *p = two_devices(&w);

    w.settings.return_s = 60;
    p->move_ms = 1000000;
    cr_expect_eq(until_moved(&w, p), 0);
    cr_assert_eq(p->device, 1);
    cr_expect_eq(until_moved(&w, p), 2000);
}
