#include <criterion/criterion.h>
#include <stdlib.h>

#include "state/transfer/cost.h"

#define GB  1e9
#define MIB (1ull << 20)
#define GIB (1ull << 30)

/* Figures as seen on an H200 beside 16 cores. */
static const struct cost_stage read_stage = {COST_LINK, 10e-6, 55.4 * GB};
static const struct cost_stage copy_stage = {COST_COPY, 5e-6, 8.6 * GB};
static const struct cost_stage ring_stage = {COST_RING, 100e-6, 14 * GB};

Test(cost, a_large_download_gets_threads_enough_for_the_link)
{
    const struct cost_stage stages[] = {read_stage, copy_stage, ring_stage};
    struct cost_choice choice;
    cost_choose(stages, 3, 8 * GIB, 16, &choice);
    cr_assert_geq(choice.threads, 6);
    cr_assert_leq(choice.threads, 12);
    cr_assert_geq(choice.chunk, MIB);
    cr_assert_geq(choice.chunks, 3);
    cr_assert_lt(choice.seconds, 8 * GIB / (50 * GB));
    cr_assert_gt(choice.seconds, 8 * GIB / (55.4 * GB));
}

Test(cost, threads_never_exceed_the_cores)
{
    const struct cost_stage stages[] = {read_stage, copy_stage, ring_stage};
    for (unsigned cores = 1; cores < 70; cores++) {
        struct cost_choice choice;
        cost_choose(stages, 3, 64 * GIB, cores, &choice);
        cr_assert_leq(choice.threads, cores == 1 ? 0 : cores);
        cr_assert_leq(choice.threads, COST_THREADS_MAX);
    }
}

Test(cost, without_a_copy_there_are_no_threads)
{
    const struct cost_stage stages[] = {read_stage, read_stage, ring_stage};
    struct cost_choice choice;
    cost_choose(stages, 3, 8 * GIB, 16, &choice);
    cr_assert_eq(choice.threads, 0);
    cr_assert_geq(choice.chunks, 3);
}

Test(cost, few_bytes_get_small_rings_and_few_threads)
{
    const struct cost_stage stages[] = {read_stage, copy_stage, ring_stage};
    struct cost_choice small, large;
    cost_choose(stages, 3, 2 * MIB, 16, &small);
    cost_choose(stages, 3, 8 * GIB, 16, &large);
    cr_assert_lt(small.chunk * small.chunks, large.chunk * large.chunks);
    cr_assert_lt(small.threads, large.threads);
    cost_choose(stages, 3, 1, 16, &small);
    cr_assert_eq(small.chunks, 1);
    cr_assert_eq(small.threads, 0);
}

Test(cost, dear_registration_makes_rings_small)
{
    const struct cost_stage cheap[] = {read_stage, copy_stage, {COST_RING, 0, 100 * GB}};
    const struct cost_stage dear[] = {read_stage, copy_stage, {COST_RING, 0, 0.5 * GB}};
    struct cost_choice a, b;
    cost_choose(cheap, 3, GIB, 16, &a);
    cost_choose(dear, 3, GIB, 16, &b);
    cr_assert_lt(b.chunk * b.chunks, a.chunk * a.chunks);
}

Test(cost, dear_set_up_makes_chunks_large)
{
    const struct cost_stage cheap[] = {{COST_LINK, 1e-6, 10 * GB}, copy_stage, ring_stage};
    const struct cost_stage dear[] = {{COST_LINK, 5e-3, 10 * GB}, copy_stage, ring_stage};
    struct cost_choice a, b;
    cost_choose(cheap, 3, GIB, 4, &a);
    cost_choose(dear, 3, GIB, 4, &b);
    cr_assert_lt(a.chunk, b.chunk);
}

/* One chunk after another through each stage as soon as both are free: the pipeline itself. */
static double simulate(const struct cost_stage *stages, size_t n, uint64_t total,
                       const struct cost_choice *choice)
{
    double free_at[4] = {0}, once = choice->threads * COST_THREAD_START, end = 0;
    double workers = choice->threads < 2 ? 1 : 1 + (choice->threads - 1) * COST_EFFICIENCY;
    for (uint64_t at = 0; at < total; at += choice->chunk) {
        double bytes = (double)(total - at < choice->chunk ? total - at : choice->chunk);
        double ready = 0;
        for (size_t i = 0; i < n; i++) {
            if (stages[i].kind == COST_RING)
                continue;
            double rate = stages[i].bandwidth * (stages[i].kind == COST_COPY ? workers : 1);
            double start = ready > free_at[i] ? ready : free_at[i];
            ready = free_at[i] = start + stages[i].setup + bytes / rate;
        }
        end = ready;
    }
    for (size_t i = 0; i < n; i++)
        if (stages[i].kind == COST_RING)
            once += stages[i].setup + (double)choice->chunk * choice->chunks / stages[i].bandwidth;
    return once + end;
}

/* No other chunk size or thread count is much better in a simulation of the pipeline. */
Test(cost, the_choice_is_near_the_best_of_a_simulation)
{
    unsigned state = 1;
    for (int round = 0; round < 60; round++) {
        struct cost_stage stages[3] = {
            {COST_LINK, (1 + rand_r(&state) % 200) * 1e-6, (1 + rand_r(&state) % 60) * GB},
            {COST_COPY, (1 + rand_r(&state) % 20) * 1e-6, (1 + rand_r(&state) % 12) * GB},
            {COST_RING, 100e-6, (1 + rand_r(&state) % 20) * GB},
        };
        uint64_t total = (8 + (uint64_t)rand_r(&state) % 2000) * MIB + rand_r(&state) % 1000;
        unsigned cores = 1 + (unsigned)rand_r(&state) % 16;
        struct cost_choice choice;
        cost_choose(stages, 3, total, cores, &choice);
        double got = simulate(stages, 3, total, &choice), best = got;
        for (struct cost_choice c = {.chunk = COST_CHUNK_MIN}; c.chunk <= COST_CHUNK_MAX;
             c.chunk *= 2) {
            for (c.threads = 0; c.threads <= (cores > 1 ? cores : 0); c.threads++) {
                c.chunks =
                    total > 3 * (uint64_t)c.chunk ? 3 : (unsigned)((total + c.chunk - 1) / c.chunk);
                if ((uint64_t)c.chunk * c.chunks > COST_RING_MAX)
                    continue;
                double seconds = simulate(stages, 3, total, &c);
                best = seconds < best ? seconds : best;
            }
        }
        cr_assert_leq(got, best * 1.06, "round %d: %g, best %g", round, got, best);
    }
}
