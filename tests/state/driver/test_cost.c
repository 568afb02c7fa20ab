#include "tests/support/cases.h"
#include <math.h>

#include "state/base/memory/pages.h"
#include "tests/state/driver/cost_worlds.h"

/* Figures as seen on an H200 beside 16 cores. */
static const struct cost_stage read_stage = {COST_LINK, 10e-6, 55.4 * GB};
static const struct cost_stage copy_stage = {COST_WORK, 5e-6, 8.6 * GB};
static const struct cost_stage ring_stage = {COST_RING, 100e-6, 14 * GB};
static const struct cost_stage hand_stage = {COST_HAND, 20e-6};

static struct cost_choice choose(struct cost_stage link, struct cost_stage work,
                                 struct cost_stage ring, uint64_t total, unsigned cores)
{
    const struct cost_problem problem = {
        .stages = {link, work, ring}, .count = 3, .total = total, .cores = cores, .ring = 1u << 28};
    struct cost_choice choice;
    cost_choose(&problem, COST_SLACK, &choice);
    return choice;
}

static size_t ring_of(const struct cost_choice *choice)
{
    return choice->chunk * choice->chunks;
}

Test(cost, a_large_download_gets_threads_enough_for_the_link)
{
    struct cost_choice choice = choose(read_stage, copy_stage, ring_stage, 8 * GIB, 16);
    cr_assert_geq(choice.threads, 6);
    cr_assert_leq(choice.threads, 12);
    cr_assert_geq(choice.chunk, MIB);
    cr_assert_geq(choice.chunks, 3);
    cr_assert_lt(choice.seconds, 8 * GIB / (50 * GB));
    cr_assert_gt(choice.seconds, 8 * GIB / (55.4 * GB));
}

Test(cost, threads_never_exceed_the_cores)
{
    for (unsigned cores = 1; cores < 70; cores++) {
        struct cost_choice choice = choose(read_stage, copy_stage, ring_stage, 64 * GIB, cores);
        cr_assert_leq(choice.threads, cores == 1 ? 0 : cores);
        cr_assert_leq(choice.threads, COST_THREADS_MAX);
    }
}

Test(cost, no_stage_has_more_threads_than_help_it)
{
    struct cost_stage fresh = {COST_WORK, 5e-6, 7.7 * GB, .most = 4};
    struct cost_choice choice = choose(read_stage, fresh, ring_stage, 64 * GIB, 16);
    cr_assert_eq(choice.threads, 4);
}

Test(cost, without_work_there_are_no_threads)
{
    struct cost_choice choice = choose(read_stage, read_stage, ring_stage, 8 * GIB, 16);
    cr_assert_eq(choice.threads, 0);
    cr_assert_geq(choice.chunks, 3);
}

Test(cost, slow_hands_need_more_chunks)
{
    struct cost_problem problem = {.stages = {read_stage, copy_stage, hand_stage, ring_stage},
                                   .count = 4,
                                   .total = GIB,
                                   .cores = 16,
                                   .ring = 48 * MIB};
    struct cost_choice quick, slow;
    cost_choose(&problem, COST_SLACK, &quick);
    problem.stages[2].setup = 250e-6;
    cost_choose(&problem, COST_SLACK, &slow);
    cr_assert_gt(slow.chunks, quick.chunks);
    cr_assert_lt(slow.seconds, 1.1 * quick.seconds, "chunks are on their way meanwhile");
    cr_assert_gt(cost_predict(&problem, &quick), 1.2 * slow.seconds);
}

Test(cost, few_bytes_get_small_rings_and_few_threads)
{
    struct cost_choice small = choose(read_stage, copy_stage, ring_stage, 2 * MIB, 16);
    struct cost_choice large = choose(read_stage, copy_stage, ring_stage, 8 * GIB, 16);
    cr_assert_lt(ring_of(&small), ring_of(&large));
    cr_assert_lt(small.threads, large.threads);
    small = choose(read_stage, copy_stage, ring_stage, 1, 16);
    cr_assert_eq(small.chunks, 1);
    cr_assert_eq(small.chunk, COST_CHUNK_MIN);
    cr_assert_eq(small.threads, 0);
}

Test(cost, dear_registration_makes_rings_small)
{
    struct cost_choice a =
        choose(read_stage, copy_stage, (struct cost_stage){COST_RING, 0, 100 * GB}, GIB, 16);
    struct cost_choice b =
        choose(read_stage, copy_stage, (struct cost_stage){COST_RING, 0, 0.5 * GB}, GIB, 16);
    cr_assert_lt(ring_of(&b), ring_of(&a));
}

Test(cost, dear_set_up_makes_chunks_large)
{
    struct cost_choice a =
        choose((struct cost_stage){COST_LINK, 1e-6, 10 * GB}, copy_stage, ring_stage, GIB, 4);
    struct cost_choice b =
        choose((struct cost_stage){COST_LINK, 5e-3, 10 * GB}, copy_stage, ring_stage, GIB, 4);
    cr_assert_lt(a.chunk, b.chunk);
}

Test(cost, a_ring_is_never_larger_than_allowed)
{
    for (uint64_t ring = COST_CHUNK_MIN; ring <= COST_RING_MAX; ring *= 2) {
        struct cost_problem problem = {.stages = {read_stage, copy_stage, ring_stage},
                                       .count = 3,
                                       .total = 8 * GIB,
                                       .cores = 16,
                                       .ring = ring};
        struct cost_choice choice;
        cost_choose(&problem, 0, &choice);
        cr_assert_leq(ring_of(&choice), ring);
        cr_assert_gt(choice.chunks, 0);
    }
}

/*
 * The pipeline itself: each chunk goes into a stage as soon as it has left the one before and the
 * chunk ahead has left this one; only so many are under way, one fewer than the ring has, each
 * comes back late, and who sends them on their way needs a turn for each.
 */
static double simulate(const struct cost_problem *problem, const struct cost_choice *choice)
{
    double free_at[COST_STAGES_MAX] = {0}, back_at[COST_CHUNKS_MAX] = {0};
    double once = choice->threads * COST_THREAD_START, end = 0;
    unsigned moving = choice->chunks > 1 ? choice->chunks - 1 : 1, number = 0;
    for (uint64_t at = 0; at < problem->total; at += choice->chunk, number++) {
        uint64_t left = problem->total - at;
        double bytes = (double)(left < choice->chunk ? left : choice->chunk);
        double ready = fmax(back_at[number % moving], number * COST_TURN), caller = 0;
        for (size_t i = 0; i < problem->count; i++) {
            const struct cost_stage *stage = &problem->stages[i];
            unsigned threads = stage->kind == COST_WORK ? choice->threads : 0;
            if (stage->kind == COST_HAND)
                ready += stage->setup;
            if (stage->kind == COST_RING || stage->kind == COST_HAND)
                continue;
            double workers = threads < 2 ? 1 : 1 + (threads - 1) * COST_EFFICIENCY;
            double start = ready > free_at[i] ? ready : free_at[i];
            bool alone = stage->kind == COST_WORK && threads == 0;
            if (alone && start < caller)
                start = caller;
            ready = free_at[i] = start + stage->setup + bytes / (stage->bandwidth * workers);
            for (size_t j = 0; alone && j < problem->count; j++) /* one pair of hands */
                if (problem->stages[j].kind == COST_WORK)
                    free_at[j] = ready;
        }
        end = ready;
        back_at[number % moving] = ready + COST_LATE;
    }
    for (size_t i = 0; i < problem->count; i++)
        if (problem->stages[i].kind == COST_RING)
            once +=
                problem->stages[i].setup + (double)ring_of(choice) / problem->stages[i].bandwidth;
    return once + end;
}

/* All choices there are, one after another. False at the end. */
static bool next_choice(const struct cost_problem *problem, struct cost_choice *choice)
{
    bool works = false;
    for (size_t i = 0; i < problem->count; i++)
        works = works || problem->stages[i].kind == COST_WORK;
    if (works && ++choice->threads <= problem->cores)
        return true;
    choice->threads = 0;
    if (++choice->chunks <= COST_CHUNKS_MAX)
        return true;
    choice->chunks = 1;
    choice->chunk *= 2;
    return choice->chunk <= COST_CHUNK_MAX;
}

static bool is_allowed(const struct cost_problem *problem, const struct cost_choice *choice)
{
    uint64_t steps = (problem->total + choice->chunk - 1) / choice->chunk;
    for (size_t i = 0; i < problem->count; i++)
        if (problem->stages[i].most && choice->threads > problem->stages[i].most)
            return false;
    return ring_of(choice) <= problem->ring && choice->chunks <= steps &&
           choice->threads <= (problem->cores > 1 ? problem->cores : 0) &&
           (steps > 1 || choice->chunk == COST_CHUNK_MIN || problem->total > choice->chunk / 2);
}

/* Nothing that the search leaves out is better, and nothing it may take is more modest. */
Test(cost, the_choice_is_the_best_of_all, .timeout = 120)
{
    for (unsigned seed = 1; seed <= 150; seed++) {
        struct cost_problem problem = cost_world(seed, 8);
        struct cost_choice best, modest, each = {.chunk = COST_CHUNK_MIN, .chunks = 1};
        double least = INFINITY;
        cost_choose(&problem, 0, &best);
        cost_choose(&problem, COST_SLACK, &modest);
        cr_assert(is_allowed(&problem, &best) && is_allowed(&problem, &modest));
        cr_assert_float_eq(cost_predict(&problem, &best), best.seconds, best.seconds * 1e-12);
        cr_assert_float_eq(cost_predict(&problem, &modest), modest.seconds, modest.seconds * 1e-12);
        cr_assert_leq(modest.seconds, best.seconds * (1 + COST_SLACK) * (1 + 1e-12));
        do {
            if (!is_allowed(&problem, &each))
                continue;
            double seconds = cost_predict(&problem, &each);
            least = seconds < least ? seconds : least;
            if (seconds > best.seconds * (1 + COST_SLACK) * (1 - 1e-12))
                continue;
            cr_assert_geq(each.threads, modest.threads, "seed %u", seed);
            if (each.threads == modest.threads)
                cr_assert_geq(ring_of(&each), ring_of(&modest), "seed %u", seed);
        } while (next_choice(&problem, &each));
        cr_assert_float_eq(best.seconds, least, least * 1e-12, "seed %u: %.17g, there is %.17g",
                           seed, best.seconds, least);
    }
}

/* What is predicted is what a pipeline takes, and nothing else is much better in one. */
Test(cost, the_prediction_is_near_a_simulation)
{
    for (unsigned seed = 1; seed <= 60; seed++) {
        struct cost_problem problem = cost_world(seed, 8);
        struct cost_choice choice, each = {.chunk = COST_CHUNK_MIN, .chunks = 1};
        double best = INFINITY;
        cost_choose(&problem, COST_SLACK, &choice);
        double got = simulate(&problem, &choice);
        cr_assert_leq(got, choice.seconds * 1.03, "seed %u: %g, said %g", seed, got,
                      choice.seconds);
        cr_assert_geq(got, choice.seconds * 0.8, "seed %u: %g, said %g", seed, got, choice.seconds);
        do {
            uint64_t steps = problem.total / each.chunk;
            if (!is_allowed(&problem, &each) || steps > 3000)
                continue;
            double seconds = simulate(&problem, &each);
            best = seconds < best ? seconds : best;
        } while (next_choice(&problem, &each));
        /* Of few bytes the last chunk, which is smaller, weighs more than an average one tells. */
        cr_assert_leq(got, best * (problem.total > 8 * MIB ? 1.05 : 1.1), "seed %u: %g, best %g",
                      seed, got, best);
    }
}

Test(cost, a_way_goes_straight_where_a_ring_does_not_pay)
{
    const struct host_figures host = {copy_stage, copy_stage, copy_stage, ring_stage, hand_stage};
    struct link_figures link = {
        read_stage, read_stage, {COST_LINK, 30e-6, 18.6 * GB}, {COST_LINK, 30e-6, 10.3 * GB}};
    struct cost_way way = {
        .from = &link, .host = &host, .total = 8 * GIB, .cores = 16, .link = true};
    struct cost_choice choice;
    cost_route(&way, &choice);
    cr_assert(choice.chunk > 0 && choice.threads > 2);
    way.cores = 1; /* one copying thread has half of what the driver's own has */
    cost_route(&way, &choice);
    cr_assert_eq(choice.chunk, 0);
    cr_assert_float_eq(choice.seconds, 8 * GIB / (18.6 * GB), 0.001);
    way.ring = true;
    cost_route(&way, &choice);
    cr_assert(choice.chunk > 0 && choice.threads == 0);
    way = (struct cost_way){
        .from = &link, .to = &link, .host = &host, .total = 8 * GIB, .cores = 16, .link = true};
    cost_route(&way, &choice);
    cr_assert(choice.chunk > 0 && choice.threads == 0);
}

Test(cost, pages_that_are_to_be_made_take_threads_of_their_own)
{
    const struct host_figures host = {.copy = {COST_WORK, 5e-6, 8 * GB},
                                      .out = {COST_WORK, 5e-6, 12 * GB},
                                      .fresh = {COST_WORK, 5e-6, 4 * GB},
                                      .ring = ring_stage,
                                      .hand = hand_stage};
    struct link_figures link = {
        read_stage, read_stage, {COST_LINK, 30e-6, 18.6 * GB}, {COST_LINK, 30e-6, 10.3 * GB}};
    struct cost_way way = {
        .from = &link, .host = &host, .total = 8 * GIB, .cores = 64, .link = true};
    struct cost_choice warm, fresh;
    cost_route(&way, &warm);
    way.fresh = true;
    cost_route(&way, &fresh);
    cr_assert_gt(fresh.threads, warm.threads);
    /* PAGES_THREADS make pages while as many copy. */
    cr_assert_eq(fresh.threads, 2 * PAGES_THREADS);
    cr_assert_gt(fresh.seconds, warm.seconds);
    way.cores = 1; /* straight, into pages that are made before */
    cost_route(&way, &fresh);
    cr_assert_eq(fresh.chunk, 0);
    cr_assert_float_eq(fresh.seconds, 8 * GIB / (18.6 * GB) + 8 * GIB / (4 * GB), 0.001);
    way =
        (struct cost_way){.to = &link, .host = &host, .total = 8 * GIB, .cores = 64, .link = true};
    cost_route(&way, &warm);
    way.fresh = true; /* nothing is written there */
    cost_route(&way, &fresh);
    cr_assert_eq(fresh.threads, warm.threads);
    cr_assert_eq(fresh.seconds, warm.seconds);
}

Test(cost, few_bytes_and_shared_memory_need_no_figures)
{
    const struct host_figures host = {copy_stage, copy_stage, copy_stage, ring_stage, hand_stage};
    const struct link_figures link = {
        read_stage, read_stage, {COST_LINK, 30e-6, 18.6 * GB}, {COST_LINK, 40e-6, 10.3 * GB}};
    struct cost_way way = {.to = &link, .host = &host, .total = MIB, .cores = 16, .link = true};
    struct cost_choice simple, choice;
    cr_assert(cost_is_simple(&way, &simple) && simple.chunk == 0);
    cost_route(&way, &choice);
    cr_assert_eq(choice.chunk, 0);
    cr_assert_float_eq(choice.seconds, 40e-6 + MIB / (10.3 * GB), 1e-9);
    way.link = false;
    way.total = 8 * GIB;
    cr_assert(cost_is_simple(&way, &simple) && simple.chunk == 0);
    way.ring = true;
    cr_assert(cost_is_simple(&way, &simple) && simple.chunk == MIB && simple.chunks == 4);
    cost_route(&way, &choice);
    cr_assert_eq(choice.chunk, simple.chunk);
    cr_assert_float_eq(choice.seconds, 8 * GIB / (8.6 * GB), 0.1, "the one copying thread's");
    way = (struct cost_way){.from = &link, .to = &link, .host = &host, .total = 70001, .cores = 16};
    cr_assert(cost_is_simple(&way, &simple) && simple.chunk == COST_CHUNK_MIN);
    way.total = COST_MEASURE_FROM - 1;
    cr_assert(cost_is_simple(&way, &simple) && simple.chunk == MIB);
    way.total = COST_MEASURE_FROM;
    cr_assert(!cost_is_simple(&way, &simple), "devices that share host memory are copied between");
}

static const struct cost_stage link_guess = {COST_LINK, 30e-6, 6 * GB};

/* Copies of @bytes over @link, each @times as long as it takes. */
static void learn(struct cost_stage *stage, const struct cost_stage *link, double bytes,
                  unsigned copies, double times)
{
    for (unsigned i = 0; i < copies; i++)
        cost_stage_learn(stage, bytes, times * cost_stage_seconds(link, bytes, 1));
}

/* Whether it knows what @bytes take over @link. */
static void check_knows(const struct cost_stage *stage, const struct cost_stage *link, double bytes)
{
    double seconds = cost_stage_seconds(link, bytes, 1);
    cr_assert_float_eq(cost_stage_seconds(stage, bytes, 1), seconds, 0.05 * seconds,
                       "%g bytes: %g, said %g", bytes, seconds,
                       cost_stage_seconds(stage, bytes, 1));
}

Test(cost, small_copies_tell_of_the_set_up_time_and_not_of_the_bandwidth)
{
    const struct cost_stage link = {COST_LINK, 200e-6, 6 * GB};
    for (double bytes = 1024; bytes <= 32768; bytes *= 2) {
        struct cost_stage stage = link_guess;
        learn(&stage, &link, bytes, 20, 1);
        check_knows(&stage, &link, bytes);
        cr_assert_lt(cost_stage_seconds(&stage, MIB, 1), 2 * cost_stage_seconds(&link, MIB, 1),
                     "after copies of %g bytes", bytes);
    }
}

Test(cost, copies_of_two_sizes_tell_of_both)
{
    const double setups[] = {5e-6, 50e-6, 1e-3}, rates[] = {0.1 * GB, GB, 40 * GB};
    for (unsigned i = 0; i < 9; i++) {
        const struct cost_stage link = {COST_LINK, setups[i / 3], rates[i % 3]};
        struct cost_stage stage = link_guess;
        for (unsigned n = 0; n < 300; n++) {
            learn(&stage, &link, 2048, 1, 1);
            learn(&stage, &link, 4 * MIB, 1, 1);
        }
        check_knows(&stage, &link, 2048);
        check_knows(&stage, &link, 4 * MIB);
    }
}

Test(cost, a_copy_that_was_late_is_soon_forgotten)
{
    struct cost_stage stage = link_guess;
    learn(&stage, &link_guess, 4096, 1, 1000);
    cr_assert_leq(cost_stage_seconds(&stage, 4096, 1),
                  2 * cost_stage_seconds(&link_guess, 4096, 1));
    learn(&stage, &link_guess, 4096, 8, 1);
    check_knows(&stage, &link_guess, 4096);
}

Test(cost, a_link_that_changes_is_learnt_anew)
{
    struct cost_stage link = {COST_LINK, 100e-6, 10 * GB}, stage = link_guess;
    for (unsigned i = 0; i < 4; i++) {
        link.bandwidth *= i % 2 ? 50 : 1.0 / 50;
        learn(&stage, &link, 16 * MIB, 40, 1);
        check_knows(&stage, &link, 16 * MIB);
    }
}
