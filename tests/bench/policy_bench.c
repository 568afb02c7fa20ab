#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "policy/settings.h"

/*
 * What one decision costs in a large world: medians over several worlds, in microseconds of the
 * processor.
 *   policy_bench [DEVICES [PROGRAMS]]
 */

#define WORLDS  15
#define SAMPLES 40 /* In each world. */
#define GIB     (UINT64_C(1) << 30)

struct scene {
    const char *name;
    unsigned queued_percent; /* Of the programs, on no device. */
    unsigned fill_percent;   /* Of the devices' memory. */
    unsigned ways;
    uint32_t busy; /* Thousandths that a program keeps its device busy, at most. */
};

struct fleet {
    struct policy_world world;
    struct policy_device *devices;
    struct policy_program *programs;
    uint32_t *queue;
    char (*names)[16];
};

static uint64_t state = 1;

static uint64_t random_below(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

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

static const struct policy_program *sorted_programs;

static int compare_queued(const void *a, const void *b)
{
    const struct policy_program *x = &sorted_programs[*(const uint32_t *)a];
    const struct policy_program *y = &sorted_programs[*(const uint32_t *)b];

    if (x->priority != y->priority)
        return x->priority > y->priority ? -1 : 1;
    return x->ticket < y->ticket ? -1 : x->ticket > y->ticket;
}

static void place(struct fleet *fleet, const struct scene *scene, uint32_t i)
{
    struct policy_program *p = &fleet->programs[i];

    uint32_t count = fleet->world.device_count, start = (uint32_t)random_below(count);
    bool queues = random_below(100) < scene->queued_percent;

    for (uint32_t tries = 0; tries < count && !queues; tries++) {
        uint32_t device = (start + tries) % count;
        struct policy_device *d = &fleet->devices[device];

        if (d->reserved + p->wanted > d->memory / 100 * scene->fill_percent)
            continue;
        d->reserved += p->wanted;
        d->busy += p->busy;
        d->residents++;
        p->state = POLICY_RUNNING;
        p->device = device;
        p->granted = p->wanted;
        p->next = d->first;
        d->first = i;
        return;
    }
    fleet->queue[fleet->world.queue_count++] = i;
}

static void fill(struct fleet *fleet, const struct scene *scene)
{
    fleet->world.queue_count = 0;
    for (uint32_t i = 0; i < fleet->world.device_count; i++) {
        static const uint32_t speeds[] = {500, 1000, 2000, 4000};
        unsigned kind = (unsigned)random_below(4);

        snprintf(fleet->names[i], sizeof(*fleet->names), "gpu%u", i);
        fleet->devices[i] = (struct policy_device){.name = fleet->names[i],
                                                   .memory = (8u << kind) * GIB,
                                                   .speed = speeds[kind],
                                                   .price = speeds[kind],
                                                   .first = POLICY_NONE};
    }
    for (uint32_t i = 0; i < fleet->world.program_count; i++) {
        uint64_t wanted = (1 + random_below(8)) * GIB;

        fleet->programs[i] = (struct policy_program){.name = "program",
                                                     .state = POLICY_SUSPENDED,
                                                     .device = POLICY_NONE,
                                                     .wanted = wanted,
                                                     .least = wanted / 2,
                                                     .quota = UINT64_MAX,
                                                     .ticket = i + 1,
                                                     .stayed_s = random_below(100),
                                                     .busy = (uint32_t)random_below(scene->busy),
                                                     .priority = (int32_t)random_below(3),
                                                     .ways = scene->ways};
        place(fleet, scene, i);
    }
    sorted_programs = fleet->programs;
    qsort(fleet->queue, fleet->world.queue_count, sizeof(*fleet->queue), compare_queued);
}

static void print_times(const char *what, double *times, unsigned count)
{
    qsort(times, count, sizeof(*times), compare);
    printf("  %-16s median %8.1f us   90%% %8.1f us   longest %8.1f us\n", what, times[count / 2],
           times[count * 9 / 10], times[count - 1]);
}

static void run(struct fleet *fleet, const struct scene *scene)
{
    static double answers[WORLDS * SAMPLES], nexts[WORLDS], rebalances[WORLDS];
    unsigned answered = 0, actions[POLICY_DO_REFUSE + 1] = {0};
    struct policy_settings settings;
    struct policy_step step;
    double start;

    settings_init(&settings);
    for (unsigned w = 0; w < WORLDS; w++) {
        fill(fleet, scene);
        for (unsigned i = 0; i < SAMPLES && fleet->world.queue_count; i++) {
            uint32_t p = fleet->queue[random_below(fleet->world.queue_count)];

            start = now_us();
            policy_answer(&fleet->world, &settings, p, &step);
            answers[answered++] = now_us() - start;
            actions[step.action]++;
        }
        start = now_us();
        policy_next(&fleet->world, &settings, &step);
        nexts[w] = now_us() - start;
        start = now_us();
        policy_rebalance(&fleet->world, &settings, &step);
        rebalances[w] = now_us() - start;
    }
    printf("%s: %u devices, %u programs, %u of them queue\n", scene->name,
           fleet->world.device_count, fleet->world.program_count, fleet->world.queue_count);
    if (answered)
        print_times("policy_answer", answers, answered);
    print_times("policy_next", nexts, WORLDS);
    print_times("policy_rebalance", rebalances, WORLDS);
    printf("  answers:");
    for (unsigned i = 0; i <= POLICY_DO_REFUSE; i++) {
        if (actions[i])
            printf(" %s %u", policy_action_name((enum policy_action)i), actions[i]);
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    static const unsigned hard = POLICY_UPGRADE | POLICY_WAIT | POLICY_SUSPEND;
    static const struct scene scenes[] = {
        {"room for all", 2, 60, hard | POLICY_SPILL, 300},
        {"full, by priority", 30, 98, hard, 300},
        {"full, everyone spills", 30, 98, hard | POLICY_SPILL, 300},
        {"full, nobody gives way", 30, 98, POLICY_WAIT, 300},
        {"half used, all busy", 10, 50, hard, 1000},
    };
    uint32_t devices = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1000;
    uint32_t programs = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 10 * devices;
    struct fleet fleet = {.devices = calloc(devices, sizeof(*fleet.devices)),
                          .programs = calloc(programs, sizeof(*fleet.programs)),
                          .queue = calloc(programs, sizeof(*fleet.queue)),
                          .names = calloc(devices, sizeof(*fleet.names))};

    if (!devices || !programs || !fleet.devices || !fleet.programs || !fleet.queue ||
        !fleet.names) {
        fprintf(stderr, "policy_bench: no world of %u devices and %u programs\n", devices,
                programs);
        return 2;
    }
    fleet.world = (struct policy_world){.devices = fleet.devices,
                                        .device_count = devices,
                                        .programs = fleet.programs,
                                        .program_count = programs,
                                        .queue = fleet.queue};
    for (size_t i = 0; i < sizeof(scenes) / sizeof(*scenes); i++)
        run(&fleet, &scenes[i]);
    free(fleet.names);
    free(fleet.queue);
    free(fleet.programs);
    free(fleet.devices);
    return 0;
}
