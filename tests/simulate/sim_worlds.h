#ifndef RESEAT_TESTS_AGENT_SIMULATE_SIM_WORLDS_H
#define RESEAT_TESTS_AGENT_SIMULATE_SIM_WORLDS_H

#include "tests/support/cases.h"
#include <inttypes.h>

#include "simulate/sim.h"
#include "simulate/sim_random.h"
#include "tests/support/leaks.h"

/*
 * Worlds so small that what has to come of them is computed in full, by hand: two models of
 * devices, a and b, a few of each, and a few programs. Bytes are decimal so that they divide: the
 * links bring a gigabyte a second, and storage takes no time, unless a test says so.
 */

#define GB     1000000000ull
#define SECOND 1000ull
#define HOUR   3600000ull

static struct sim_trace trace;
static struct sim_options options;

static inline void begin(uint64_t memory_a, uint32_t speed_a, uint64_t memory_b, uint32_t speed_b)
{
    const struct sim_models models = {
        .items = {{"a", memory_a, speed_a, 1000}, {"b", memory_b, speed_b, 1000}},
        .count = 2,
        .from = "the test"};

    sim_trace_init(&trace, &models);
    sim_options_init(&options);
    options.levels[0] = (struct sim_level){0, 1000};
    options.level_count = 1;
    options.link = options.network = 1000000;
    options.storage = 0;
    options.latency_ms = 0;
    options.fixed_ms = 500;
    options.touch_ms = 4000;
    options.horizon_ms = 1000 * HOUR;
    options.check = true;
    options.settings.automatic = false;
}

static inline void add_node(uint64_t from_ms, uint64_t host)
{
    cr_assert_eq(sim_trace_add_node(&trace, from_ms, host), 0);
}

/* To the last node. */
static inline void add_device(uint32_t model)
{
    cr_assert_eq(sim_trace_add_device(&trace, model), 0);
}

/* @models  Bits: 1 is a, 2 is b. */
static inline void add_program(uint64_t arrive_ms, uint64_t seconds, uint64_t bytes, uint32_t share,
                               uint8_t steps, uint64_t models)
{
    struct sim_task task = {.arrive_ms = arrive_ms,
                            .work = seconds * 1000000,
                            .bytes = bytes,
                            .share = share,
                            .steps = steps};

    cr_assert_eq(sim_trace_rule(&trace, models, &task.rule), 0);
    cr_assert_eq(sim_trace_add_task(&trace, &task), 0);
}

static inline struct sim_result run(enum sim_regime regime)
{
    const struct sim_load load = {.seed = 1};
    struct sim_result result = {0};
    char error[SIM_ERROR] = "";

    cr_assert_eq(sim_trace_seal(&trace, &load, error), 0, "%s", error);
    cr_assert_eq(sim_run(&trace, &options, regime, 0, &result), 0);
    cr_assert_str_eq(result.problem, "");
    cr_assert_gt(result.checked, 0);
    return result;
}

static inline void end(void)
{
    sim_trace_finish(&trace);
}

static inline void expect(uint64_t actual, uint64_t expected, const char *what)
{
    cr_expect_eq(actual, expected, "%s: %" PRIu64 ", not %" PRIu64, what, actual, expected);
}

static inline uint64_t time_of_reclaim(uint32_t node, double mean_ms)
{
    return (uint64_t)(sim_exponential(sim_random(options.seed, node, 0)) * mean_ms) + 1;
}

/* A seed by which the first node is reclaimed at a time of an hour or less, which is returned, and
 * for good; the second when all is over. */
static inline uint64_t reclaim_first(void)
{
    const double mean = HOUR;

    options.levels[0].reclaim = 1000000;
    options.away_ms = 100000 * HOUR;
    for (options.seed = 1;; options.seed++) {
        uint64_t when = time_of_reclaim(0, mean);
        if (when > 1000 * SECOND && when < 2000 * SECOND && time_of_reclaim(1, mean) > 4 * HOUR)
            return when;
    }
}

#endif
