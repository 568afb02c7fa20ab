#include "tests/support/cases.h"
#include <errno.h>
#include <math.h>

#include "simulate/published.h"

/* The published evaluation, computed again: that what is built on it is what the paper prints, and
 * that every scheduler keeps to the rules. */

TestSuite(published, .timeout = 240);

static struct published_options defaults(void)
{
    struct published_options options;

    published_options_init(&options);
    return options;
}

/* Table 2's shares, and the time on the GPU alone, of every network. */
Test(published, steps_have_the_shares_of_table_2)
{
    const struct published_options options = defaults();

    for (size_t n = 0; n < PUBLISHED_NETWORKS; n++) {
        const struct published_network *network = &published_networks[n];
        for (unsigned gpus = 1; gpus <= 2; gpus++) {
            struct published_step step;
            double all = 0, time = 0, count = 0;
            cr_assert_eq(published_step_init(&step, network, &options, gpus, 3 * gpus, 100000000),
                         0);
            cr_assert_leq(step.graph.candidates, SCHEDULE_CANDIDATES);
            for (uint32_t i = 0; i < step.graph.launches; i++) {
                all += (double)step.launches[i].gpu_ns;
                time += step.launches[i].offloaded ? (double)step.launches[i].gpu_ns : 0;
                count += step.launches[i].offloaded;
                for (uint32_t e = step.first[i]; e < step.first[i + 1]; e++)
                    cr_assert_lt(step.edges[e].from, i);
            }
            cr_expect_float_eq(100 * time / all, network->time, 0.01, "%s", network->name);
            cr_expect_float_eq(100 * count / step.graph.launches, network->launches,
                               50.0 / network->layers, "%s", network->name);
            cr_expect_float_eq(all / gpus, 1e8, 1e4);
            published_step_finish(&step);
        }
    }
}

/* A schedule by its own slots: inputs are there, no device has two launches, and at no time is more
 * drawn than the highest power that is said. */
static void check_schedule(const struct published_step *step, const struct schedule_slot *slots,
                           double most_w)
{
    const struct schedule_graph *graph = &step->graph;

    for (uint32_t i = 0; i < graph->launches; i++) {
        uint64_t mw = graph->idle_mw;
        for (uint32_t e = graph->first[i]; e < graph->first[i + 1]; e++)
            cr_assert_geq(slots[i].start_ns, slots[graph->edges[e].from].end_ns);
        for (uint32_t j = 0; j < graph->launches; j++) {
            bool together =
                slots[j].start_ns <= slots[i].start_ns && slots[i].start_ns < slots[j].end_ns;
            cr_assert(!together || i == j ||
                      graph->unit[slots[i].candidate] != graph->unit[slots[j].candidate]);
            if (together)
                mw += step->costs[(size_t)j * graph->candidates + slots[j].candidate].draw_mw;
        }
        cr_assert_leq((double)mw / 1000, most_w + 1e-9);
    }
}

Test(published, every_cap_is_kept_at_every_time_or_refused_with_the_least)
{
    const struct published_options options = defaults();

    for (size_t n = 0; n < PUBLISHED_NETWORKS; n++) {
        static struct schedule_slot slots[2000], ranked[2000];
        struct published_step step;
        unsigned refused = 0;
        cr_assert_eq(published_step_init(&step, &published_networks[n], &options, 1, 3, 50000000),
                     0);
        schedule_rank(&step.graph, ranked);
        for (double cap = 300; cap >= 45; cap -= 12.5) {
            double rule_least = 0, least = 0;
            int rule = published_rule(&step, cap, slots, &rule_least);
            if (!rule)
                check_schedule(&step, slots, cap);
            int error = published_capped(&step, cap, slots, ranked, &least);
            if (!error)
                check_schedule(&step, slots, cap);
            cr_assert_eq(error, rule);
            refused += error == -ERANGE;
            if (error) {
                cr_assert_eq(error, -ERANGE);
                cr_assert_gt(least, cap);
            }
        }
        cr_assert_gt(refused, 0, "a cap that nothing fits under is among them");
        published_step_finish(&step);
    }
}

/* The least cap that is named with a refusal does, for the launch that was refused. */
Test(published, the_least_cap_of_a_refusal_is_enough_for_that_launch)
{
    const struct published_options options = defaults();
    static struct schedule_slot slots[2000], ranked[2000];
    struct published_step step;
    double cap = 40;

    cr_assert_eq(published_step_init(&step, &published_networks[0], &options, 1, 3, 50000000), 0);
    schedule_rank(&step.graph, ranked);
    for (unsigned tries = 0; published_capped(&step, cap, slots, ranked, &cap); tries++)
        cr_assert_lt(tries, 10);
    check_schedule(&step, slots, cap);
    cr_assert_lt(cap, 210, "what the GPU would not do, the FPGAs do");
    published_step_finish(&step);
}

/* On the paper's own inputs; and with moves that cost what its one size does. */
Test(published, reseat_takes_less_energy_than_the_rule_and_no_less_throughput)
{
    for (double move = 0; move <= 512; move += 512) {
        struct published_options options = defaults();
        options.value[PUBLISHED_MOVE_KB] = move;
        for (size_t n = 0; n < PUBLISHED_NETWORKS; n++) {
            struct published_result results[PUBLISHED_CLOCKS];
            for (unsigned s = 0; s < PUBLISHED_CLOCKS; s++)
                cr_assert_eq(published_run(&published_networks[n], &options, 1, 3,
                                           (enum published_scheduler)s, 0, &results[s]),
                             0);
            cr_expect_lt(results[PUBLISHED_NO_LOSS].joules, results[PUBLISHED_RULE].joules);
            cr_expect_leq(results[PUBLISHED_NO_LOSS].seconds,
                          results[PUBLISHED_ALONE].seconds * (1 + 1e-9));
            cr_expect_leq(results[PUBLISHED_FASTEST].seconds, results[PUBLISHED_RULE].seconds);
            cr_expect_leq(results[PUBLISHED_FASTEST].seconds, results[PUBLISHED_ALONE].seconds);
            cr_expect_leq(results[PUBLISHED_NO_LOSS].bound_j, results[PUBLISHED_NO_LOSS].joules);
        }
    }
}

/* Table 3's GPU alone at 230 W is what the length of steps is taken from. */
Test(published, the_gpu_alone_under_its_own_management_is_table_3s)
{
    const struct published_options options = defaults();

    for (size_t n = 0; n < PUBLISHED_NETWORKS; n++) {
        struct published_result result;
        cr_assert_eq(
            published_run(&published_networks[n], &options, 1, 0, PUBLISHED_ALONE, 230, &result),
            0);
        cr_expect_float_eq(result.samples_s, published_networks[n].capped_gpu,
                           0.002 * published_networks[n].capped_gpu);
        cr_expect_gt(result.violations, 0, "it reacts after the fact");
    }
}

/* 30.7 % less energy a sample is 44.3 % more samples per joule. */
Test(published, throughput_per_watt_is_energy_per_sample_the_other_way_round)
{
    const struct published_claim *three = &published_claims[PUBLISHED_THREE];

    cr_expect_float_eq(100 * ((1 + three->throughput / 100) / (1 + three->power / 100) - 1),
                       three->per_watt, 1);
    cr_expect_float_eq(100 * (1 - 1 / (1 + three->per_watt / 100)), 30.7, 0.05);
}
