#include <stdio.h>
#include <time.h>

#include "policy/schedule.h"

/* What one choice of a device for a launch costs, in nanoseconds of the processor: schedule_bench
 */

#define LAUNCHES 4096
#define ROUNDS   200

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

int main(void)
{
    static const char *const names[] = {"time", "energy", "energy-at-no-loss"};
    static struct schedule_candidate candidates[LAUNCHES][SCHEDULE_CANDIDATES];
    uint64_t state = 1, ends = 0;

    for (size_t i = 0; i < LAUNCHES; i++)
        for (size_t c = 0; c < SCHEDULE_CANDIDATES; c++)
            candidates[i][c] =
                (struct schedule_candidate){.allowed = true,
                                            .ready_ns = next_random(&state) % 1000000,
                                            .free_ns = next_random(&state) % 1000000,
                                            .run_ns = 1 + next_random(&state) % 1000000,
                                            .energy_uj = 1 + next_random(&state) % 100000,
                                            .draw_mw = 1 + next_random(&state) % 300000};
    printf("%-18s %10s %8s\n", "objective", "candidates", "ns");
    for (unsigned o = 0; o < 3; o++) {
        for (uint32_t count = 2; count <= SCHEDULE_CANDIDATES; count *= 2) {
            struct schedule_launch launch = {.objective = (enum schedule_objective)o,
                                             .due_ns = 1000000,
                                             .idle_mw = 40000,
                                             .drawn_mw = 90000,
                                             .cap_mw = 300000};
            double start = now_ns();
            for (unsigned round = 0; round < ROUNDS; round++)
                for (size_t i = 0; i < LAUNCHES; i++)
                    ends += schedule_choose(&launch, candidates[i], count).end_ns;
            printf("%-18s %10u %8.1f\n", names[o], count,
                   (now_ns() - start) / ((double)ROUNDS * LAUNCHES));
        }
    }
    /* So that nothing is left out by the compiler. */
    return ends == 0;
}
