#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/bench/policy_fleet.h"

/*
 * What one decision costs in a large world, in microseconds of the processor. Each is made three
 * times and the quickest counts, so that the longest is the policy's and not the machine's.
 *   policy_bench [DEVICES [PROGRAMS]]
 */

#define WORLDS 15
#define SAMPLES                                                                                    \
    40          /* Answers in each world; the first in the queue and the last are among them.      \
                 */
#define STEPS 8 /* Others in each world: what they say is done, and they are asked again. */
#define TIMES 3

/* One kind of decision in one kind of world. */
struct tally {
    const char *what;
    double times[WORLDS * SAMPLES];
    unsigned count;
};

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Of a sorted list. */
static double part(const struct tally *tally, unsigned percent)
{
    return tally->times[(tally->count - 1) * percent / 100];
}

static double print_tally(struct tally *tally)
{
    if (!tally->count)
        return 0;
    qsort(tally->times, tally->count, sizeof(*tally->times), compare);
    printf("  %-16s median %7.1f us   99%% %7.1f us   longest %7.1f us\n", tally->what,
           part(tally, 50), part(tally, 99), part(tally, 100));
    return part(tally, 100);
}

static void answer(const struct fleet *fleet, uint32_t program, struct tally *tally,
                   struct policy_step *ret_step)
{
    double best = 0;

    for (unsigned i = 0; i < TIMES; i++) {
        double start = now_us(), took;

        policy_answer(&fleet->world, &fleet->settings, program, ret_step);
        took = now_us() - start;
        best = i && best < took ? best : took;
    }
    tally->times[tally->count++] = best;
}

typedef void (*decide_fn)(const struct policy_world *, const struct policy_settings *,
                          struct policy_step *);

/* False: nothing is left to do. */
static bool decide(struct fleet *fleet, decide_fn ask, struct tally *tally)
{
    struct policy_step step;
    double best = 0;

    for (unsigned i = 0; i < TIMES; i++) {
        double start = now_us(), took;

        ask(&fleet->world, &fleet->settings, &step);
        took = now_us() - start;
        best = i && best < took ? best : took;
    }
    tally->times[tally->count++] = best;
    return fleet_do(fleet, &step);
}

static double run(struct fleet *fleet, const struct scene *scene)
{
    struct tally answers = {.what = "policy_answer"}, nexts = {.what = "policy_next"},
                 rebalances = {.what = "policy_rebalance"};
    unsigned actions[POLICY_DO_REFUSE + 1] = {0}, queued = 0;
    double longest = 0, took;

    for (unsigned w = 0; w < WORLDS; w++) {
        fleet_fill(fleet, scene);
        queued += fleet->world.queue_count / WORLDS;
        for (unsigned i = 0; i < SAMPLES && fleet->world.queue_count; i++) {
            uint32_t last = fleet->world.queue_count - 1;
            uint32_t at = i < 2 ? i * last : (uint32_t)fleet_random(last + 1);
            struct policy_step step;

            answer(fleet, fleet->queue[at], &answers, &step);
            actions[step.action]++;
        }
        for (unsigned i = 0; i < STEPS && decide(fleet, policy_next, &nexts); i++)
            ;
        for (unsigned i = 0; i < STEPS && decide(fleet, policy_rebalance, &rebalances); i++)
            ;
    }
    printf("%s: %u devices, %u programs, %u of them queue\n", scene->name,
           fleet->world.device_count, fleet->world.program_count, queued);
    longest = print_tally(&answers);
    took = print_tally(&nexts);
    longest = took > longest ? took : longest;
    took = print_tally(&rebalances);
    longest = took > longest ? took : longest;
    printf("  answers:");
    for (unsigned i = 0; i <= POLICY_DO_REFUSE; i++)
        if (actions[i])
            printf(" %s %u", policy_action_name((enum policy_action)i), actions[i]);
    printf("\n");
    return longest;
}

int main(int argc, char **argv)
{
    uint32_t devices = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1000;
    uint32_t programs = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 10 * devices;
    double longest = 0;
    struct fleet fleet;

    if (fleet_init(&fleet, devices, programs)) {
        fprintf(stderr, "policy_bench: no world of %u devices and %u programs\n", devices,
                programs);
        return 2;
    }
    for (size_t i = 0; i < fleet_scene_count; i++) {
        double took = run(&fleet, &fleet_scenes[i]);

        longest = took > longest ? took : longest;
    }
    printf("longest of all: %.1f us\n", longest);
    fleet_finish(&fleet);
    return 0;
}
