#include <time.h>

#include "interpose/entry/start.h"
#include "policy/schedule.h"
#include "state/base/clock.h"
#include "state/command/place.h"
#include "state/move/elastic.h"
#include "tests/support/engine_rig.h"

/*
 * What it costs to choose a device for a launch: schedule_bench [NAME OF A CASE]
 *
 * First the choice alone, in nanoseconds of the processor. Then launches of 2 ms on emulated
 * devices, without an objective and with one, while a device is chosen for each launch and while
 * that rests: for each launch the time of all threads of the process (the driver's are the same in
 * each row) and the wall time, medians of batches, and how many launches the second device ran. A
 * chain gains nothing there, two chains do. A look is what finding takes that no launch of a queue
 * can be given; there are about five for each launch.
 */

#define LAUNCHES 4096
#define ROUNDS   200

enum {
    BATCHES = 200,
    WARM = 20,
    BATCH = 20,
    LOOKS = 100,
    LONG = 5,
    TRIES = 11,
    CHAIN = 10,
    BUFFERS = 6,
    ITEMS = 64
};

static double now_ns(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static uint64_t bench_choices(void)
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
            double start = now_ns(CLOCK_THREAD_CPUTIME_ID);
            for (unsigned round = 0; round < ROUNDS; round++)
                for (size_t i = 0; i < LAUNCHES; i++)
                    ends += schedule_choose(&launch, candidates[i], count).end_ns;
            printf("%-18s %10u %8.1f\n", names[o], count,
                   (now_ns(CLOCK_THREAD_CPUTIME_ID) - start) / ((double)ROUNDS * LAUNCHES));
        }
    }
    return ends;
}

/* BATCH launches of @chains chains, CHAIN of one after CHAIN of the other. */
static void give_batch(struct engine_program *program, cl_kernel kernel, const cl_mem *buffers,
                       unsigned chains, size_t groups)
{
    const size_t local = ITEMS, global = groups * local;

    for (unsigned n = 0; n < BATCH; n++) {
        unsigned from = n / CHAIN % chains * (BUFFERS / 2);
        for (cl_uint i = 0; i < BUFFERS / 2; i++)
            OK(clSetKernelArg(kernel, i, sizeof(cl_mem), &buffers[from + (n + i) % 3]));
        OK(clEnqueueNDRangeKernel(program->queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL));
    }
}

static int compare(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;

    return (a > b) - (a < b);
}

/* Launches of which a choice was made. */
static uint64_t count_chosen(const struct place_status *status)
{
    uint64_t chosen = 0;

    for (uint32_t i = 0; i < status->count; i++)
        chosen += status->counts[i].launches;
    return chosen;
}

/* Of each launch of batches of one kind, in nanoseconds. */
struct times {
    unsigned count;
    double busy[BATCHES], wall[BATCHES];
    uint64_t helped;
};

static void print_times(const char *what, const char *kind, struct times *times)
{
    qsort(times->busy, times->count, sizeof(double), compare);
    qsort(times->wall, times->count, sizeof(double), compare);
    if (times->count != 0)
        printf("%-12s %-24s %8u %10.0f %10.0f %8u\n", what, kind, times->count * BATCH,
               times->busy[times->count / 2], times->wall[times->count / 2],
               (unsigned)times->helped);
    fflush(stdout);
}

/* What it takes to find that none of a queue's launches can be given, as after most changes: home
 * has enough to do. Launches take 10 ms for this. */
static void bench_looks(const char *what, struct engine_program *program, cl_kernel kernel,
                        const cl_mem *buffers, unsigned chains)
{
    struct place_status before, after;
    double looks[TRIES] = {0};

    for (unsigned tries = 0, chosen = 0; tries < 20 * TRIES && chosen < TRIES; tries++) {
        place_read(&before);
        give_batch(program, kernel, buffers, chains, LONG);
        double busy = now_ns(CLOCK_THREAD_CPUTIME_ID);
        for (unsigned n = 0; n < LOOKS; n++)
            defer_pump();
        busy = now_ns(CLOCK_THREAD_CPUTIME_ID) - busy;
        OK(clFinish(program->queue));
        place_read(&after);
        if (count_chosen(&after) - count_chosen(&before) != BATCH)
            continue;
        looks[chosen++] = busy / LOOKS;
    }
    qsort(looks, TRIES, sizeof(double), compare);
    printf("%-12s %-24s %8d %10.0f\n", what, "objective, a look", BATCH, looks[TRIES / 2]);
    fflush(stdout);
}

static void bench_engine(const char *what, bool objective, unsigned chains)
{
    static const char source[] =
        "kernel void blend(global uint *out, global const uint *a, global const uint *b) {\n"
        "  size_t at = get_global_id(0); out[at] = out[at] * 3u + a[at] * 5u + b[at]; }\n";
    static struct engine_rig rig;
    static struct times stayed, chosen;
    struct engine_program program;
    struct place_status before, after;
    cl_mem buffers[BUFFERS];

    setenv("EMU_LIBRARY", EMU_LIBRARY, 0);
    setenv("EMU_VENDORS", EMU_VENDORS, 0);
    setenv("POCL_DEVICES", "basic pthread", 0);
    setenv(START_ENV_SLICE, "4", 1);
    if (objective)
        place_configure(SCHEDULE_TIME, true);
    engine_rig_open(&rig, "[one] items_per_s=32000 name=one type=cpu base=1 own_memory=yes "
                          "[two] items_per_s=32000 name=two type=cpu base=1 own_memory=yes");
    engine_program_open(&rig, 0, source, &program);
    cl_kernel kernel = engine_kernel(program.program, "blend");
    for (unsigned i = 0; i < BUFFERS; i++)
        buffers[i] = engine_buffer(program.context, 0, LONG * ITEMS * sizeof(cl_uint), NULL);
    if (objective)
        OK(elastic_set(engine_rig_key(&rig, "two"), 1));
    if (objective)
        bench_looks(what, &program, kernel, buffers, chains);
    place_read(&after);
    for (unsigned n = 0; n < BATCHES; n++) {
        double wall = now_ns(CLOCK_MONOTONIC), busy = now_ns(CLOCK_PROCESS_CPUTIME_ID);
        give_batch(&program, kernel, buffers, chains, 1);
        OK(clFinish(program.queue));
        wall = now_ns(CLOCK_MONOTONIC) - wall;
        busy = now_ns(CLOCK_PROCESS_CPUTIME_ID) - busy;
        before = after;
        place_read(&after);
        uint64_t of = count_chosen(&after) - count_chosen(&before);
        struct times *times = of != 0 ? &chosen : &stayed;
        if (n < WARM || (of != 0 && of != BATCH))
            continue;
        times->busy[times->count] = busy / BATCH;
        times->wall[times->count++] = wall / BATCH;
        times->helped += after.helped - before.helped;
    }
    print_times(what, objective ? "objective, resting" : "no objective", &stayed);
    print_times(what, "objective, chosen", &chosen);
    if (objective)
        printf("%-12s %-24s %19.0f\n", what, "trials, in all", (double)after.risked_ns);
    fflush(stdout);
    OK(elastic_set(NULL, 0));
}

/* The last one is run first. Each has a process of its own, for there is one engine in each. */
TestCall(bench, two_chains_placed, bench_engine("two chains", true, 2));
TestCall(bench, two_chains, bench_engine("two chains", false, 2));
TestCall(bench, one_chain_placed, bench_engine("a chain", true, 1));

Test(bench, one_chain)
{
    printf("\n%-12s %-24s %8s %10s %10s %8s\n", "", "", "launches", "busy ns", "wall ns", "helped");
    bench_engine("a chain", false, 1);
}

Test(bench, choices)
{
    cr_assert(bench_choices() != 0); /* so that the compiler leaves nothing out */
    fflush(stdout);
}
