#include "tests/support/cases.h"
#include <math.h>

#include "state/base/clock.h"
#include "stream/worker/choose.h"

/* The device of a test: what its stages take, exactly or with noise. */
struct stage {
    double setup, bandwidth;
    double least;    /* Seconds that even the smallest payload takes. */
    unsigned hiccup; /* Which of its payloads takes 50 times as long; 0: none. */
};

struct world {
    struct choose choose;
    struct choose_world is;
    struct stage stages[CHOOSE_STAGES];
    uint32_t pack_unpack_ns[2];
    double noise;
    unsigned seed;
    uint64_t now_ns;
};

static struct world world_of(struct stage write, struct stage compute, struct stage read)
{
    struct world world = {
        .is = {.input = 1024,
               .output = 1024,
               .capacity = 16384,
               .device_memory = 64u << 20,
               .cores = 8},
        .stages = {[CHOOSE_WRITE] = write, [CHOOSE_COMPUTE] = compute, [CHOOSE_READ] = read},
        .seed = 1};
    choose_init(&world.choose, &world.is);
    return world;
}

static double takes(const struct world *world, enum choose_stage stage, double records)
{
    const struct stage *figures = &world->stages[stage];
    return fmax(figures->setup + records * 1024 / figures->bandwidth, figures->least);
}

/* Each stage has a payload, of at most @most records. How often what to use has changed. */
static unsigned flow(struct world *world, unsigned times, uint32_t most)
{
    unsigned changes = 0;
    for (unsigned i = 0; i < times; i++) {
        for (size_t stage = CHOOSE_WRITE; stage <= CHOOSE_READ; stage++) {
            uint32_t records = world->choose.payloads[stage];
            records = records < most ? records : most;
            double seconds = takes(world, stage, records);
            seconds *= 1 + world->noise * (rand_r(&world->seed) % 2001 / 1000.0 - 1);
            if (world->stages[stage].hiccup && --world->stages[stage].hiccup == 0)
                seconds *= 50;
            world->now_ns += (uint64_t)(seconds * 1e9);
            changes += choose_seen(&world->choose, stage, records, seconds, world->now_ns,
                                   world->pack_unpack_ns);
        }
    }
    return changes;
}

/* Seconds for a record, when all stages work at once. */
static double period(const struct world *world, const uint32_t payloads[CHOOSE_STAGES])
{
    double slowest = 0;
    for (size_t i = CHOOSE_WRITE; i <= CHOOSE_READ; i++)
        slowest = fmax(slowest, takes(world, i, payloads[i]) / payloads[i]);
    return slowest;
}

static double best_period(const struct world *world)
{
    uint32_t payloads[CHOOSE_STAGES];
    double best = INFINITY;
    for (uint32_t write = 1; write <= 2048; write *= 2)
        for (uint32_t compute = 1; compute <= 1024; compute *= 2)
            for (uint32_t read = 1; read <= 2048; read *= 2) {
                payloads[CHOOSE_WRITE] = write;
                payloads[CHOOSE_COMPUTE] = compute;
                payloads[CHOOSE_READ] = read;
                best = fmin(best, period(world, payloads));
            }
    return best;
}

static void check_choice(const struct world *world)
{
    cr_assert(world->choose.chosen);
    double now = period(world, world->choose.payloads), best = best_period(world);
    cr_assert_leq(now, 1.05 * best, "%.3g s for a record, the best are %.3g", now, best);
    const uint32_t *payloads = world->choose.payloads;
    uint64_t together = 0;
    for (size_t i = CHOOSE_WRITE; i <= CHOOSE_READ; i++)
        together += CHOOSE_DEPTH * payloads[i];
    cr_assert_leq(together, world->is.capacity,
                  "a ring has room for all while the next one is packed");
}

Test(choose, what_is_chosen_is_within_a_twentieth_of_the_best)
{
    for (unsigned seed = 1; seed <= 200; seed++) {
        unsigned random = seed;
        struct stage stages[3];
        for (size_t i = 0; i < 3; i++)
            stages[i] = (struct stage){(1 + rand_r(&random) % 500) * 1e-6,
                                       (1 + rand_r(&random) % 1000) * 1e7};
        struct world world = world_of(stages[0], stages[1], stages[2]);
        flow(&world, 100, UINT32_MAX);
        check_choice(&world);
    }
}

Test(choose, a_payload_that_takes_long_once_does_not_count)
{
    struct stage link = {20e-6, 10e9};
    for (unsigned hiccup = 1; hiccup <= 12; hiccup++) {
        struct stage compute = {.setup = 300e-6, .bandwidth = 5e9, .hiccup = hiccup};
        struct world world = world_of(link, compute, link);
        flow(&world, 25, UINT32_MAX);
        check_choice(&world);
    }
}

/* A device that is not full with few records: below 450 us it is no faster. */
Test(choose, a_device_that_takes_the_same_for_few_gets_as_many_as_the_ring_allows)
{
    struct stage link = {20e-6, 10e9};
    struct world world =
        world_of(link, (struct stage){.setup = 8e-6, .bandwidth = 8e9, .least = 450e-6}, link);
    flow(&world, 100, UINT32_MAX);
    cr_assert(world.choose.chosen);
    cr_assert_eq(world.choose.payloads[CHOOSE_COMPUTE], 4096);
    cr_assert_leq(period(&world, world.choose.payloads),
                  takes(&world, CHOOSE_COMPUTE, 4096) / 4096);
}

/* Sizes that were not tried are predicted from others, which seem to need less. */
Test(choose, a_wrong_prediction_is_corrected)
{
    struct stage compute = {.setup = 100e-6, .bandwidth = 100e6, .least = 2.2e-3};
    struct world world =
        world_of((struct stage){100e-6, 20e6}, compute, (struct stage){100e-6, 20e6});
    flow(&world, 1000, UINT32_MAX);
    cr_assert(world.choose.chosen);
    cr_assert_gt(world.choose.corrections, 0, "no prediction was wrong");
    check_choice(&world);
}

Test(choose, stages_that_are_not_the_slowest_are_no_brake)
{
    struct world world = world_of((struct stage){200e-6, 10e9}, (struct stage){50e-6, 1e9},
                                  (struct stage){200e-6, 10e9});
    world.pack_unpack_ns[0] = world.pack_unpack_ns[1] = 10;
    flow(&world, 100, UINT32_MAX);
    check_choice(&world);
    double slowest = period(&world, world.choose.payloads);
    for (size_t i = CHOOSE_WRITE; i <= CHOOSE_READ; i += 2)
        cr_assert_leq(1.5 * takes(&world, i, world.choose.payloads[i]) / world.choose.payloads[i],
                      slowest);
    cr_assert_geq(world.choose.payloads[CHOOSE_UNPACK], 32, "20 us for each payload");
}

Test(choose, stages_that_are_not_the_slowest_get_small_payloads)
{
    struct world world = world_of((struct stage){10e-6, 10e9}, (struct stage){50e-6, 50e6},
                                  (struct stage){10e-6, 10e9});
    flow(&world, 100, UINT32_MAX);
    check_choice(&world);
    cr_assert_leq(world.choose.payloads[CHOOSE_WRITE], 8);
    cr_assert_leq(world.choose.payloads[CHOOSE_READ], 8);
    cr_assert_geq(world.choose.payloads[CHOOSE_COMPUTE], 64);
    cr_assert_leq(world.choose.payloads[CHOOSE_PACK], 16, "and so does the client");
}

Test(choose, a_client_that_is_slow_by_itself_may_pack_less)
{
    struct stage fast = {10e-6, 10e9};
    struct world quick = world_of(fast, fast, fast), slow = world_of(fast, fast, fast);
    quick.pack_unpack_ns[0] = 1;
    slow.pack_unpack_ns[0] = 100000;
    flow(&quick, 100, UINT32_MAX);
    flow(&slow, 100, UINT32_MAX);
    cr_assert_gt(quick.choose.payloads[CHOOSE_PACK], slow.choose.payloads[CHOOSE_PACK],
                 "what is slow by itself is not slower with small payloads");
}

Test(choose, it_is_learnt_again_on_another_device)
{
    struct stage link = {20e-6, 5e9};
    struct world world = world_of(link, (struct stage){1e-6, 50e6}, link);
    flow(&world, 2000, UINT32_MAX);
    check_choice(&world);
    uint32_t before = world.choose.payloads[CHOOSE_COMPUTE];
    world.stages[CHOOSE_COMPUTE] = (struct stage){2e-3, 50e6};
    flow(&world, 4000, UINT32_MAX);
    check_choice(&world);
    cr_assert_gt(world.choose.payloads[CHOOSE_COMPUTE], before);
}

Test(choose, noise_does_not_change_it_all_the_time)
{
    struct stage link = {20e-6, 1e9};
    struct world world = world_of(link, (struct stage){50e-6, 500e6}, link);
    world.noise = 0.3;
    flow(&world, 200, UINT32_MAX);
    cr_assert(world.choose.chosen);
    cr_assert_leq(flow(&world, 20000, UINT32_MAX), 40);
    flow(&world, 200, UINT32_MAX);
    cr_assert_leq(period(&world, world.choose.payloads), 1.25 * best_period(&world));
}

Test(choose, few_records_at_a_time_are_enough_to_choose)
{
    struct stage stage = {20e-6, 1e9};
    struct world world = world_of(stage, stage, stage);
    flow(&world, 300, 3);
    cr_assert(world.choose.chosen);
    cr_assert_eq(flow(&world, 1000, 3), 0);
}

Test(choose, no_payload_is_larger_than_its_share_of_a_ring)
{
    struct world world = {.is = {.input = 1u << 20,
                                 .output = 4,
                                 .capacity = 16,
                                 .device_memory = 64u << 20,
                                 .cores = 2,
                                 .cpu = true}};
    choose_init(&world.choose, &world.is);
    for (size_t i = 0; i < CHOOSE_STAGES; i++) {
        world.stages[i] = (struct stage){1e-3, 1e9};
        cr_assert_leq(choose_most(&world.choose, i), 4);
    }
    flow(&world, 300, UINT32_MAX);
    cr_assert(world.choose.chosen);
    for (size_t i = 0; i < CHOOSE_STAGES; i++)
        cr_assert_leq(world.choose.payloads[i], choose_most(&world.choose, i));
}
