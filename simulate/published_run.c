#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "simulate/published.h"

#define CLOCK_LEAST_MHZ 135.0
#define RELIEFS         8
#define CLOCK_LOST      1.3 /* So much longer than at a higher clock: lower ones are not tried. */

/* ---- what a schedule comes to ---- */

static double published_run_watts_at(const struct published_step *step,
                                     const struct schedule_slot *slots, uint64_t ns)
{
    uint64_t mw = step->graph.idle_mw;

    for (uint32_t i = 0; i < step->graph.launches; i++)
        if (slots[i].start_ns <= ns && ns < slots[i].end_ns)
            mw += step->costs[(size_t)i * step->graph.candidates + slots[i].candidate].draw_mw;
    return (double)mw / 1000;
}

static void published_measure(const struct published_step *step, const struct schedule_slot *slots,
                              double cap_w, struct published_result *ret_result)
{
    const double *assumed = step->options->value;
    struct published_result result = {0};
    uint64_t length = 0, uj = 0;

    for (uint32_t i = 0; i < step->graph.launches; i++) {
        const struct schedule_slot *slot = &slots[i];
        length = slot->end_ns > length ? slot->end_ns : length;
        uj += step->costs[(size_t)i * step->graph.candidates + slot->candidate].energy_uj;
        result.highest_w =
            fmax(result.highest_w, published_run_watts_at(step, slots, slot->start_ns));
    }
    result.seconds = (double)length / 1e9;
    result.joules = (double)(uj + schedule_energy(step->graph.idle_mw, length)) / 1e6;
    double apart = assumed[PUBLISHED_SAMPLE] * 1e6;
    for (double at = 0; cap_w > 0 && at < assumed[PUBLISHED_STEPS] * (double)length; at += apart) {
        result.samples_taken++;
        result.violations +=
            published_run_watts_at(step, slots, (uint64_t)fmod(at, (double)length)) > cap_w;
    }
    *ret_result = result;
}

/* ---- the GPU alone under the vendor's power management ---- */

struct managed {
    const struct published_step *step;
    double cap_w, clock_mhz;
    double spent_j, since_s; /* Since the clock was set last. */
};

static double published_managed_watts(const struct managed *managed, uint32_t launch, bool peak)
{
    const struct published_step *step = managed->step;
    const struct schedule_cost *cost = &step->costs[(size_t)launch * step->graph.candidates];
    double watts =
        peak ? (double)cost->draw_mw / 1e3 : (double)cost->energy_uj * 1e3 / (double)cost->run_ns;

    return watts * published_clock_power(step->options, managed->clock_mhz) +
           (double)step->graph.idle_mw / 1e3;
}

/* The clock at which the last period would have kept to the cap, one step less where it must be. */
static void published_managed_control(struct managed *managed)
{
    double idle_w = (double)managed->step->graph.idle_mw / 1e3;
    double step_mhz = managed->step->options->value[PUBLISHED_CLOCK_STEP];
    double above_w = managed->spent_j / managed->since_s - idle_w;
    double clock = PUBLISHED_CLOCK_MHZ;

    if (above_w > 0 && managed->cap_w > idle_w)
        clock = managed->clock_mhz * pow((managed->cap_w - idle_w) / above_w,
                                         1 / managed->step->options->value[PUBLISHED_CLOCK_POWER]);
    clock = floor(clock / step_mhz) * step_mhz;
    managed->clock_mhz = fmax(CLOCK_LEAST_MHZ, fmin(PUBLISHED_CLOCK_MHZ, clock));
    managed->spent_j = managed->since_s = 0;
}

static void published_managed(const struct published_step *step, double cap_w,
                              struct published_result *ret_result)
{
    const double *assumed = step->options->value;
    struct managed managed = {.step = step, .cap_w = cap_w, .clock_mhz = PUBLISHED_CLOCK_MHZ};
    struct published_result result = {0};
    double now = 0, control = assumed[PUBLISHED_CONTROL] / 1e3, sample = 0;
    uint32_t steps = (uint32_t)assumed[PUBLISHED_STEPS];

    for (uint64_t at = 0; at < (uint64_t)steps * step->graph.launches; at++) {
        uint32_t launch = (uint32_t)(at % step->graph.launches);
        double left = (double)step->costs[(size_t)launch * step->graph.candidates].run_ns / 1e9;
        while (left > 0) {
            double slower = published_clock_time(step->options, managed.clock_mhz);
            double until = fmin(left * slower, control - managed.since_s);
            double joules = until * published_managed_watts(&managed, launch, false);
            double peak_w = published_managed_watts(&managed, launch, true);
            for (; sample < now + until; sample += assumed[PUBLISHED_SAMPLE] / 1e3) {
                result.samples_taken++;
                result.violations += peak_w > cap_w;
            }
            result.highest_w = fmax(result.highest_w, peak_w);
            result.joules += joules;
            managed.spent_j += joules;
            managed.since_s += until;
            now += until;
            left = until < left * slower ? left - until / slower : 0;
            if (managed.since_s >= control * (1 - 1e-9))
                published_managed_control(&managed);
        }
    }
    result.seconds = now / steps;
    result.joules /= steps;
    *ret_result = result;
}

/* ---- all together ---- */

/* What a step takes on one GPU without a cap: so long that under the vendor's management at 230 W
 * it takes what Table 3 prints. */
static int published_run_alone_ns(const struct published_network *network,
                                  const struct published_options *options, uint64_t *ret_ns)
{
    double seconds = (double)network->batch / network->capped_gpu, length = seconds;

    for (unsigned i = 0; i < 4; i++) {
        struct published_result result = {.seconds = 1};
        struct published_step step;
        int error = published_step_init(&step, network, options, 1, 0, (uint64_t)(length * 1e9));
        if (!error)
            published_managed(&step, published_caps[PUBLISHED_TABLE3], &result);
        published_step_finish(&step);
        if (error)
            return error;
        length *= seconds / result.seconds;
    }
    *ret_ns = (uint64_t)(length * 1e9);
    return 0;
}

struct work {
    struct published_step step;
    enum published_scheduler scheduler;
    double cap_w, clock_mhz;
    uint64_t limit_ns;
    struct schedule_slot *slots, *spare, *best;
    struct schedule_cost *costs; /* Those of the step, less what does not fit. */
    struct published_result result;
};

static void published_work_keep(struct work *work, struct schedule_slot *slots,
                                uint64_t *ret_length)
{
    uint64_t length = 0;

    for (uint32_t i = 0; i < work->step.graph.launches; i++)
        length = slots[i].end_ns > length ? slots[i].end_ns : length;
    if (length < *ret_length) {
        *ret_length = length;
        memcpy(work->slots, slots, work->step.graph.launches * sizeof(*slots));
    }
}

/*
 * A plan that keeps to a cap whatever runs at once: the FPGAs may draw @fpga_mw, and the GPU what
 * the cap leaves. Keep it where it is shorter than @ret_length.
 */
static void published_work_split(struct work *work, uint64_t fpga_mw, uint64_t *ret_length)
{
    const struct published_step *step = &work->step;
    struct schedule_graph graph = step->graph;
    uint64_t cap_mw = (uint64_t)(work->cap_w * 1000), rest = graph.idle_mw + fpga_mw;
    struct schedule_result plan;

    graph.costs = work->costs;
    for (size_t i = 0; i < (size_t)graph.launches * graph.candidates; i++) {
        uint64_t most = i % graph.candidates ? fpga_mw : cap_mw > rest ? cap_mw - rest : 0;
        work->costs[i] =
            step->costs[i].draw_mw <= most ? step->costs[i] : (struct schedule_cost){0};
    }
    if (schedule_plan(&graph, SCHEDULE_TIME, 0, work->best, work->spare, &plan))
        published_work_keep(work, work->best, ret_length);
}

/* Launch by launch, by rank and in the program's order; or planned, with each split of the power
 * that lets more run on the FPGAs. The shortest of them. */
static int published_work_cap(struct work *work)
{
    const struct schedule_graph *graph = &work->step.graph;
    uint64_t length = UINT64_MAX;

    schedule_rank(graph, work->spare);
    for (unsigned i = 0; i < 2; i++) {
        int error = published_capped(&work->step, work->cap_w, work->best, work->spare,
                                     &work->result.highest_w);
        if (error)
            return error;
        published_work_keep(work, work->best, &length);
        for (uint32_t launch = 0; launch < graph->launches; launch++)
            work->spare[launch].order = launch;
    }
    uint64_t last = UINT64_MAX;
    for (uint64_t next = 0; next != last;) {
        published_work_split(work, next, &length);
        last = next;
        /* The next higher power of any launch there. */
        for (size_t i = 1; i < (size_t)graph->launches * graph->candidates; i += 2) {
            uint64_t mw = work->step.costs[i].draw_mw;
            if (mw > last && (next == last || mw < next))
                next = mw;
        }
    }
    return 0;
}

static int published_work_schedule(struct work *work)
{
    static const enum schedule_objective objectives[PUBLISHED_SCHEDULERS] = {
        [PUBLISHED_FASTEST] = SCHEDULE_TIME, [PUBLISHED_NO_LOSS] = SCHEDULE_ENERGY_AT_NO_LOSS};
    struct published_step *step = &work->step;
    struct schedule_result plan;

    if (work->scheduler == PUBLISHED_ALONE) {
        published_alone(step, work->slots);
        return 0;
    }
    if (work->scheduler == PUBLISHED_RULE)
        return published_rule(step, work->cap_w, work->slots, &work->result.highest_w);
    if (work->cap_w > 0)
        return published_work_cap(work);
    return schedule_plan(&step->graph, objectives[work->scheduler], work->limit_ns, work->slots,
                         work->spare, &plan)
               ? 0
               : -ERANGE;
}

/* What is left on the GPU runs faster only for as much as is offloaded: the most that holds for the
 * schedule that it leads to. */
static int published_work_run(struct work *work)
{
    double most = work->step.network->time / 100, part = work->scheduler != PUBLISHED_ALONE;

    for (unsigned i = 0;; i++) {
        published_step_cost(&work->step, work->clock_mhz, part);
        int error = published_work_schedule(work);
        if (error)
            return error;
        double offloaded = published_step_offloaded(&work->step, work->slots) / most;
        if (offloaded >= part)
            break;
        part = i < RELIEFS ? offloaded : 0;
    }
    published_measure(&work->step, work->slots, work->cap_w, &work->result);
    return 0;
}

/* The clock at which the step is shortest. The least cap is the lowest clock's. */
static int published_work_run_clocks(struct work *work)
{
    double apart = work->step.options->value[PUBLISHED_CLOCK_STEP];
    struct published_result best = {.seconds = INFINITY};
    int error = -ERANGE;

    for (; work->clock_mhz >= CLOCK_LEAST_MHZ; work->clock_mhz -= apart) {
        int failed = published_work_run(work);
        if (failed)
            continue;
        error = 0;
        if (work->result.seconds < best.seconds)
            best = work->result;
        else if (work->result.seconds > CLOCK_LOST * best.seconds)
            break;
    }
    if (!error)
        work->result = best;
    return error;
}

static int published_work_start(struct work *work)
{
    size_t launches = work->step.graph.launches;

    work->slots = calloc(launches, sizeof(*work->slots));
    work->spare = calloc(launches, sizeof(*work->spare));
    work->best = calloc(launches, sizeof(*work->best));
    work->costs = calloc(launches * work->step.graph.candidates, sizeof(*work->costs));
    return work->slots && work->spare && work->best && work->costs ? 0 : -ENOMEM;
}

static void published_work_finish(struct work *work)
{
    free(work->slots);
    free(work->spare);
    free(work->best);
    free(work->costs);
    published_step_finish(&work->step);
}

int published_run(const struct published_network *network, const struct published_options *options,
                  unsigned gpus, unsigned fpgas, enum published_scheduler scheduler, double cap_w,
                  struct published_result *ret_result)
{
    struct work work = {.scheduler = scheduler, .cap_w = cap_w, .clock_mhz = PUBLISHED_CLOCK_MHZ};
    struct published_result other = {0};
    uint64_t alone_ns = 0;
    int error = published_run_alone_ns(network, options, &alone_ns);

    if (!error && scheduler == PUBLISHED_NO_LOSS)
        error = published_run(network, options, gpus, 0, PUBLISHED_ALONE, 0, &other);
    if (error)
        return error;
    work.limit_ns = (uint64_t)(other.seconds * 1e9 + 0.5);
    fpgas = scheduler == PUBLISHED_ALONE ? 0 : fpgas;
    error = published_step_init(&work.step, network, options, gpus, fpgas, alone_ns);
    error = error ? error : published_work_start(&work);
    if (!error && scheduler == PUBLISHED_ALONE && cap_w > 0)
        published_managed(&work.step, cap_w, &work.result);
    else if (!error)
        error = scheduler == PUBLISHED_CLOCKS ? published_work_run_clocks(&work)
                                              : published_work_run(&work);
    if (!error && work.limit_ns) {
        published_step_cost(&work.step, PUBLISHED_CLOCK_MHZ, 1);
        work.result.bound_j = published_bound(&work.step.graph, work.limit_ns, work.spare);
    }
    work.result.samples_s = error ? 0 : work.step.samples / work.result.seconds;
    *ret_result = work.result;
    published_work_finish(&work);
    return error;
}

static double published_run_percent(double value, double base)
{
    return 100 * (value / base - 1);
}

static void published_run_compare(const struct published_result *result,
                                  const struct published_result *base, double share,
                                  struct published_change *change)
{
    double watts = result->joules / result->seconds, base_watts = base->joules / base->seconds;

    change->throughput += share * published_run_percent(result->samples_s, base->samples_s);
    change->power += share * published_run_percent(watts, base_watts);
    change->per_watt += share * published_run_percent(base->joules, result->joules);
    change->energy += share * published_run_percent(result->joules, base->joules);
    change->bound += share * published_run_percent(result->bound_j, base->joules);
}

/* Without a cap. @ret_results: NULL, or those of each network. */
static int published_run_free(const struct published_options *options,
                              const struct published_claim *claim,
                              struct published_result (*ret_results)[PUBLISHED_CLOCKS],
                              struct published_change (*ret_changes)[PUBLISHED_CLOCKS])
{
    memset(ret_changes, 0, (PUBLISHED_NETWORKS + 1) * sizeof(*ret_changes));
    for (size_t n = 0; n < PUBLISHED_NETWORKS; n++) {
        struct published_result results[PUBLISHED_CLOCKS];
        for (unsigned s = 0; s < PUBLISHED_CLOCKS; s++) {
            int error = published_run(&published_networks[n], options, claim->gpus, claim->fpgas,
                                      (enum published_scheduler)s, 0, &results[s]);
            if (error)
                return error;
            published_run_compare(&results[s], &results[PUBLISHED_ALONE], 1, &ret_changes[n][s]);
            published_run_compare(&results[s], &results[PUBLISHED_ALONE], 1.0 / PUBLISHED_NETWORKS,
                                  &ret_changes[PUBLISHED_NETWORKS][s]);
        }
        if (ret_results)
            memcpy(ret_results[n], results, sizeof(results));
    }
    return 0;
}

int published_run_all(const struct published_options *options, struct published_all *ret_all)
{
    struct published_change others[PUBLISHED_NETWORKS + 1][PUBLISHED_CLOCKS];
    const struct published_claim *three = &published_claims[PUBLISHED_THREE];
    int error = 0;

    for (size_t c = 0; !error && c < PUBLISHED_CONFIGURATIONS; c++)
        error = published_run_free(options, &published_claims[c], ret_all->free[c],
                                   ret_all->changes[c]);
    for (size_t a = 0; !error && a < PUBLISHED_ASSUMPTIONS; a++) {
        struct published_options changed = *options;
        if (isnan(published_assumed[a].other))
            continue;
        changed.value[a] = published_assumed[a].other;
        error = published_run_free(&changed, three, NULL, others);
        memcpy(ret_all->others[a], others[PUBLISHED_NETWORKS], sizeof(*others));
    }
    for (size_t i = 0; !error && i < PUBLISHED_CAPS * PUBLISHED_NETWORKS * PUBLISHED_SCHEDULERS;
         i++) {
        size_t cap = i / PUBLISHED_SCHEDULERS / PUBLISHED_NETWORKS;
        size_t network = i / PUBLISHED_SCHEDULERS % PUBLISHED_NETWORKS;
        unsigned scheduler = i % PUBLISHED_SCHEDULERS;
        if (scheduler == PUBLISHED_NO_LOSS)
            continue;
        struct published_result *result = &ret_all->capped[cap][network][scheduler];
        error = published_run(&published_networks[network], options, three->gpus, three->fpgas,
                              (enum published_scheduler)scheduler, published_caps[cap], result);
        /* A cap under which nothing runs is a result, too: no samples. */
        error = error == -ERANGE ? 0 : error;
    }
    return error;
}
