#include "tests/support/cases.h"
#include <math.h>

#include "state/base/clock.h"
#include "stream/worker/tune.h"

#define RECORD 1024
#define SIZES  12

/* A pipeline whose stages share a cache: what it does not hold takes up to twice as long. */
struct pipeline {
    struct choose choose;
    struct tune tune;
    double setup[CHOOSE_STAGES], record[CHOOSE_STAGES]; /* seconds */
    double cache;                                       /* records */
    double noise, load; /* Records a second that the client has; 0: as many as pass. */
    unsigned seed;
    uint64_t now_ns, epoch_ns;
    double slower;
};

/* Seconds for a record, when all stages work at once. */
static double period(const struct pipeline *pipeline, const uint32_t payloads[CHOOSE_STAGES])
{
    double slowest = 0, held = 0;
    for (size_t i = 0; i < CHOOSE_STAGES; i++)
        held += CHOOSE_DEPTH * (double)payloads[i];
    for (size_t i = 0; i < CHOOSE_STAGES; i++) {
        double missed = fmin(fmax(log2(held / pipeline->cache) / 2, 0), 1);
        double record = pipeline->record[i] * (1 + missed);
        slowest = fmax(slowest, pipeline->setup[i] / (double)payloads[i] + record);
    }
    return pipeline->load != 0 ? fmax(slowest, 1 / pipeline->load) : slowest;
}

static double best_period(const struct pipeline *pipeline)
{
    uint32_t payloads[CHOOSE_STAGES];
    double best = INFINITY;
    for (unsigned i = 0; i < SIZES * SIZES * SIZES * SIZES * SIZES; i++) {
        unsigned rest = i;
        for (size_t stage = 0; stage < CHOOSE_STAGES; stage++, rest /= SIZES)
            payloads[stage] = 1u << rest % SIZES;
        best = fmin(best, period(pipeline, payloads));
    }
    return best;
}

static void start(struct pipeline *pipeline, unsigned seed)
{
    const struct choose_world world = {.input = RECORD,
                                       .output = RECORD,
                                       .capacity = 16384,
                                       .device_memory = 64u << 20,
                                       .cores = 16};
    *pipeline = (struct pipeline){.seed = seed, .cache = INFINITY};
    for (size_t i = 0; i < CHOOSE_STAGES; i++) {
        pipeline->setup[i] = (1 + rand_r(&pipeline->seed) % 100) * 1e-6;
        pipeline->record[i] = (1 + rand_r(&pipeline->seed) % 100) * 1e-8;
    }
    choose_init(&pipeline->choose, &world);
}

/* Returns how many records pass. */
static double flow(struct pipeline *pipeline, double seconds)
{
    struct tune *tune = &pipeline->tune;
    double records = 0;
    uint64_t until = pipeline->now_ns + (uint64_t)(seconds * NS_PER_S);
    while (pipeline->now_ns < until) {
        double takes = period(pipeline, tune->payloads) * tune->payloads[CHOOSE_READ];
        if (pipeline->now_ns >= pipeline->epoch_ns) { /* Other programs come and go. */
            pipeline->epoch_ns = pipeline->now_ns + 8 * NS_PER_MS;
            pipeline->slower = 1 + pipeline->noise * (rand_r(&pipeline->seed) % 1001 / 1000.0);
        }
        takes *= pipeline->slower;
        pipeline->now_ns += (uint64_t)(takes * NS_PER_S);
        records += tune->payloads[CHOOSE_READ];
        tune_answered(tune, tune->payloads[CHOOSE_READ], pipeline->now_ns);
    }
    return records;
}

Test(tune, what_it_ends_with_is_within_a_twentieth_of_the_best)
{
    double soon = 0;
    for (unsigned seed = 1; seed <= 40; seed++) {
        struct pipeline pipeline;
        start(&pipeline, seed);
        if (seed % 2)
            pipeline.cache = 1024 + rand_r(&pipeline.seed) % 4096;
        pipeline.noise = 0.1;
        tune_begin(&pipeline.tune, &pipeline.choose, 0);
        double best = best_period(&pipeline);
        flow(&pipeline, 5);
        soon += period(&pipeline, pipeline.tune.best) / best / 40;
        flow(&pipeline, 15);
        double now = period(&pipeline, pipeline.tune.best);
        cr_expect_leq(now, 1.05 * best, "seed %u: %.3g s for a record, the best are %.3g", seed,
                      now, best);
    }
    /* Most of it is gained by large steps, early. */
    cr_expect_leq(soon, 1.015);
}

Test(tune, what_is_tried_takes_little_of_the_time)
{
    double share = 0;
    for (unsigned seed = 1; seed <= 6; seed++) {
        struct pipeline pipeline;
        start(&pipeline, seed);
        tune_begin(&pipeline.tune, &pipeline.choose, 0);
        flow(&pipeline, 20);
        share += flow(&pipeline, 60) * period(&pipeline, pipeline.tune.best) / 60 / 6;
    }
    cr_assert_geq(share, 0.99);
}

Test(tune, a_load_that_is_below_what_passes_changes_nothing)
{
    struct pipeline pipeline;
    uint32_t before[CHOOSE_STAGES];
    start(&pipeline, 1);
    pipeline.load = 1000;
    pipeline.noise = 0.005;
    tune_begin(&pipeline.tune, &pipeline.choose, 0);
    memcpy(before, pipeline.tune.best, sizeof(before));
    flow(&pipeline, 200);
    cr_assert_arr_eq(pipeline.tune.best, before, sizeof(before));
}

Test(tune, it_tries_again_when_the_load_has_grown)
{
    struct pipeline pipeline;
    start(&pipeline, 1);
    pipeline.load = 1000;
    tune_begin(&pipeline.tune, &pipeline.choose, 0);
    flow(&pipeline, 200);
    pipeline.load = 0;
    flow(&pipeline, 200);
    cr_assert_leq(period(&pipeline, pipeline.tune.best), 1.05 * best_period(&pipeline));
}

Test(tune, no_payload_leaves_its_bounds)
{
    struct pipeline pipeline;
    start(&pipeline, 3);
    pipeline.noise = 0.9; /* It goes anywhere. */
    tune_begin(&pipeline.tune, &pipeline.choose, 0);
    for (unsigned i = 0; i < 2000; i++) {
        flow(&pipeline, 0.02);
        for (size_t stage = 0; stage < CHOOSE_STAGES; stage++) {
            cr_assert_geq(pipeline.tune.payloads[stage], pipeline.tune.least[stage]);
            cr_assert_leq(pipeline.tune.payloads[stage], pipeline.tune.most[stage]);
        }
    }
}
