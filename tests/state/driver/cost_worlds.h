#ifndef RESEAT_TESTS_STATE_DRIVER_COST_WORLDS_H
#define RESEAT_TESTS_STATE_DRIVER_COST_WORLDS_H

#include <stdlib.h>

#include "state/driver/cost.h"

#define GB  1e9
#define MIB (1ull << 20)
#define GIB (1ull << 30)

/* A pipeline of one or two links, work or none, a ring, and hands or none; the same for each seed.
 */
static inline struct cost_problem cost_world(unsigned seed, unsigned cores)
{
    struct cost_problem problem = {.cores = 1 + (unsigned)rand_r(&seed) % cores};
    unsigned links = 1 + (unsigned)rand_r(&seed) % 2, works = rand_r(&seed) % 3 != 0;
    for (unsigned i = 0; i < links; i++)
        problem.stages[problem.count++] = (struct cost_stage){
            COST_LINK, (1 + rand_r(&seed) % 200) * 1e-6, (1 + rand_r(&seed) % 600) * 0.1 * GB};
    for (unsigned i = 0; i < works; i++)
        problem.stages[problem.count++] =
            (struct cost_stage){COST_WORK, (1 + rand_r(&seed) % 20) * 1e-6,
                                (1 + rand_r(&seed) % 120) * 0.1 * GB, rand_r(&seed) % 4 * 2u};
    problem.stages[problem.count++] =
        (struct cost_stage){COST_RING, 100e-6, (1 + rand_r(&seed) % 200) * 0.1 * GB};
    if (seed % 3 == 0)
        problem.stages[problem.count++] =
            (struct cost_stage){COST_HAND, (1 + rand_r(&seed) % 300) * 1e-6, 1};
    problem.total = (1 + (uint64_t)rand_r(&seed) % 4000) * MIB + (unsigned)rand_r(&seed) % 1000;
    if (seed % 4 == 0)
        problem.total = 1 + (unsigned)rand_r(&seed) % (4 * MIB);
    problem.ring = COST_RING_MAX >> (unsigned)rand_r(&seed) % 5;
    return problem;
}

#endif
