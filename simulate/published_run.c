#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "simulate/published.h"

#define CLOCK_LEAST_MHZ 135.0
#define RELIEFS         8
#define CLOCK_LOST      1.3 /* So much longer than at a higher clock: lower ones are not tried. */

/* ---- schedules launch by launch, as devices become idle ---- */

struct run {
    const struct published_step *step;
    struct schedule_slot *slots; /* `order`: 1 when it was started. */
    double cap_w;
    uint64_t now_ns;
    uint32_t running[SCHEDULE_CANDIDATES]; /* Launch on each device. */
    uint32_t last_gpu;                     /* The launch that the GPU was given last. */
    uint32_t left;
};

static const struct schedule_cost *run_cost(const struct run *run, uint32_t launch,
                                            uint32_t candidate)
{
    return &run->step->costs[(size_t)launch * run->step->graph.candidates + candidate];
}

/* Ended, or with inputs that have. */
static bool run_ended(const struct run *run, uint32_t launch)
{
    return run->slots[launch].order && run->slots[launch].end_ns <= run->now_ns;
}

static bool run_is_ready(const struct run *run, uint32_t launch)
{
    const struct schedule_graph *graph = &run->step->graph;

    if (run->slots[launch].order)
        return false;
    for (uint32_t e = graph->first[launch]; e < graph->first[launch + 1]; e++)
        if (!run_ended(run, graph->edges[e].from))
            return false;
    return true;
}

/* When the launch's inputs are on a candidate's device. */
static uint64_t run_ready_ns(const struct run *run, uint32_t launch, uint32_t candidate)
{
    const struct schedule_graph *graph = &run->step->graph;
    uint64_t ready = 0;

    for (uint32_t e = graph->first[launch]; e < graph->first[launch + 1]; e++) {
        const struct schedule_slot *from = &run->slots[graph->edges[e].from];
        uint64_t at =
            from->end_ns + schedule_transfer(graph, graph->unit[from->candidate],
                                             graph->unit[candidate], graph->edges[e].bytes)
                               .run_ns;
        ready = at > ready ? at : ready;
    }
    return ready;
}

static uint64_t run_drawn_mw(const struct run *run)
{
    uint64_t mw = run->step->graph.idle_mw;

    for (uint32_t unit = 0; unit < SCHEDULE_CANDIDATES; unit++)
        if (run->running[unit] != SCHEDULE_NONE)
            mw += run_cost(run, run->running[unit], run->slots[run->running[unit]].candidate)
                      ->draw_mw;
    return mw;
}

static void run_start(struct run *run, uint32_t launch, uint32_t candidate)
{
    struct schedule_slot *slot = &run->slots[launch];
    uint64_t ready = run_ready_ns(run, launch, candidate);
    uint32_t unit = run->step->graph.unit[candidate];

    slot->order = 1;
    slot->candidate = candidate;
    slot->start_ns = ready > run->now_ns ? ready : run->now_ns;
    slot->end_ns = slot->start_ns + run_cost(run, launch, candidate)->run_ns;
    run->running[unit] = launch;
    run->left--;
    if (unit < run->step->gpus)
        run->last_gpu = launch;
}

/* Go on to the next end. False: nothing runs. */
static bool run_advance(struct run *run)
{
    uint64_t next = UINT64_MAX;

    for (uint32_t unit = 0; unit < SCHEDULE_CANDIDATES; unit++)
        if (run->running[unit] != SCHEDULE_NONE && run->slots[run->running[unit]].end_ns < next)
            next = run->slots[run->running[unit]].end_ns;
    if (next == UINT64_MAX)
        return false;
    run->now_ns = next;
    for (uint32_t unit = 0; unit < SCHEDULE_CANDIDATES; unit++)
        if (run->running[unit] != SCHEDULE_NONE && run->slots[run->running[unit]].end_ns <= next)
            run->running[unit] = SCHEDULE_NONE;
    return true;
}

static void run_init(struct run *run, const struct published_step *step, double cap_w,
                     struct schedule_slot *slots)
{
    *run = (struct run){.step = step,
                        .slots = slots,
                        .cap_w = cap_w,
                        .last_gpu = SCHEDULE_NONE,
                        .left = step->graph.launches};
    for (uint32_t unit = 0; unit < SCHEDULE_CANDIDATES; unit++)
        run->running[unit] = SCHEDULE_NONE;
    for (uint32_t i = 0; i < step->graph.launches; i++)
        slots[i].order = 0;
}

void published_alone(const struct published_step *step, struct schedule_slot *slots)
{
    struct run run;

    run_init(&run, step, 0, slots);
    do {
        for (uint32_t gpu = 0; gpu < step->gpus; gpu++)
            for (uint32_t i = gpu; i < step->graph.launches && run.running[gpu] == SCHEDULE_NONE;
                 i += step->gpus)
                if (run_is_ready(&run, i))
                    run_start(&run, i, gpu);
    } while (run_advance(&run));
}

/* ---- the paper's rule ---- */

/* Moving the inputs from the GPU hides behind what the GPU was given before. */
static bool rule_move_hides(const struct run *run, uint32_t launch, uint32_t candidate)
{
    uint64_t ready = run_ready_ns(run, launch, candidate), produced = 0;
    const struct schedule_graph *graph = &run->step->graph;

    for (uint32_t e = graph->first[launch]; e < graph->first[launch + 1]; e++) {
        uint64_t end = run->slots[graph->edges[e].from].end_ns;
        produced = end > produced ? end : produced;
    }
    if (ready <= produced || run->last_gpu == SCHEDULE_NONE)
        return ready <= produced;
    const struct schedule_slot *before = &run->slots[run->last_gpu];
    return ready - produced < before->end_ns - before->start_ns;
}

/* Case 1: what is faster on the FPGAs goes there; the GPU takes it only when it would be idle. */
static uint32_t rule_pick(const struct run *run, uint32_t unit)
{
    const struct published_step *step = run->step;
    bool fpga = unit >= step->gpus;
    uint32_t other = SCHEDULE_NONE;

    for (uint32_t i = unit % step->gpus; i < step->graph.launches; i += step->gpus) {
        const struct published_launch *launch = &step->launches[i];
        if (!run_is_ready(run, i))
            continue;
        uint32_t there = step->gpus + launch->copy;
        bool on_fpga = step->fpgas && launch->offloaded &&
                       run_cost(run, i, there)->run_ns <= launch->gpu_ns &&
                       rule_move_hides(run, i, there);
        if (on_fpga == fpga)
            return i;
        other = other == SCHEDULE_NONE ? i : other;
    }
    return fpga ? SCHEDULE_NONE : other;
}

/* Case 2: the first that fits under the cap. */
static uint32_t rule_pick_capped(const struct run *run, uint32_t unit)
{
    const struct published_step *step = run->step;
    uint64_t drawn = run_drawn_mw(run), cap = (uint64_t)(run->cap_w * 1000);

    for (uint32_t i = unit % step->gpus; i < step->graph.launches; i += step->gpus) {
        const struct schedule_cost *cost = run_cost(run, i, unit);
        if (run_is_ready(run, i) && cost->run_ns && drawn + cost->draw_mw <= cap)
            return i;
    }
    return SCHEDULE_NONE;
}

/* The least cap under which one of the launches that are ready can run. */
static double run_least_w(const struct run *run)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t i = 0; i < run->step->graph.launches; i++) {
        for (uint32_t c = 0; run_is_ready(run, i) && c < run->step->graph.candidates; c++) {
            const struct schedule_cost *cost = run_cost(run, i, c);
            if (cost->run_ns && cost->draw_mw < least)
                least = cost->draw_mw;
        }
    }
    return (double)(least + run->step->graph.idle_mw) / 1000;
}

int published_rule(const struct published_step *step, double cap_w, struct schedule_slot *slots,
                   double *ret_least_w)
{
    uint32_t units = step->gpus * (step->fpgas ? 2 : 1);
    struct run run;

    run_init(&run, step, cap_w, slots);
    do {
        /* The FPGAs are asked first, under a cap the GPUs. */
        for (uint32_t i = 0; i < units; i++) {
            uint32_t unit = cap_w > 0 ? i : units - 1 - i;
            if (run.running[unit] != SCHEDULE_NONE)
                continue;
            uint32_t launch = cap_w > 0 ? rule_pick_capped(&run, unit) : rule_pick(&run, unit);
            if (launch != SCHEDULE_NONE)
                run_start(&run, launch, unit);
        }
    } while (run_advance(&run));
    if (run.left) {
        *ret_least_w = run_least_w(&run);
        return -ERANGE;
    }
    return 0;
}

/* ---- reseat under a cap ---- */

/* Choose for one launch. What it waits for counts as given to its device already. */
static void capped_choose(struct run *run, uint32_t launch, uint64_t *frees)
{
    const struct schedule_graph *graph = &run->step->graph;
    struct schedule_candidate candidates[SCHEDULE_CANDIDATES];
    const struct schedule_launch asked = {.objective = SCHEDULE_TIME,
                                          .now_ns = run->now_ns,
                                          .idle_mw = graph->idle_mw,
                                          .drawn_mw = run_drawn_mw(run),
                                          .cap_mw = (uint64_t)(run->cap_w * 1000)};

    for (uint32_t c = 0; c < graph->candidates; c++) {
        const struct schedule_cost *cost = run_cost(run, launch, c);
        uint32_t unit = graph->unit[c], busy = run->running[unit];
        candidates[c] = (struct schedule_candidate){
            .allowed = cost->run_ns,
            .ready_ns = run_ready_ns(run, launch, c),
            .free_ns = frees[unit],
            .run_ns = cost->run_ns,
            .energy_uj = cost->energy_uj,
            .draw_mw = cost->draw_mw,
            .relieved_mw = busy == SCHEDULE_NONE
                               ? 0
                               : run_cost(run, busy, run->slots[busy].candidate)->draw_mw};
    }
    struct schedule_choice choice = schedule_choose(&asked, candidates, graph->candidates);
    if (choice.verdict != SCHEDULE_RUN)
        return;
    uint32_t unit = graph->unit[choice.candidate];
    if (run->running[unit] == SCHEDULE_NONE && frees[unit] <= run->now_ns)
        run_start(run, launch, choice.candidate);
    frees[unit] = choice.end_ns;
}

int published_capped(const struct published_step *step, double cap_w, struct schedule_slot *slots,
                     const struct schedule_slot *ranked, double *ret_least_w)
{
    struct run run;

    run_init(&run, step, cap_w, slots);
    do {
        uint64_t frees[SCHEDULE_CANDIDATES];
        for (uint32_t unit = 0; unit < SCHEDULE_CANDIDATES; unit++) {
            uint32_t busy = run.running[unit];
            frees[unit] = busy == SCHEDULE_NONE ? run.now_ns : slots[busy].end_ns;
        }
        for (uint32_t i = 0; i < step->graph.launches; i++)
            if (run_is_ready(&run, ranked[i].order))
                capped_choose(&run, ranked[i].order, frees);
    } while (run_advance(&run));
    if (run.left) {
        *ret_least_w = run_least_w(&run);
        return -ERANGE;
    }
    return 0;
}

/* ---- what a schedule comes to ---- */

static double run_watts_at(const struct published_step *step, const struct schedule_slot *slots,
                           uint64_t ns)
{
    uint64_t mw = step->graph.idle_mw;

    for (uint32_t i = 0; i < step->graph.launches; i++)
        if (slots[i].start_ns <= ns && ns < slots[i].end_ns)
            mw += step->costs[(size_t)i * step->graph.candidates + slots[i].candidate].draw_mw;
    return (double)mw / 1000;
}

void published_measure(const struct published_step *step, const struct schedule_slot *slots,
                       double cap_w, struct published_result *ret_result)
{
    const double *assumed = step->options->value;
    struct published_result result = {.offloaded = published_step_offloaded(step, slots)};
    uint64_t length = 0, uj = 0;

    for (uint32_t i = 0; i < step->graph.launches; i++) {
        const struct schedule_slot *slot = &slots[i];
        length = slot->end_ns > length ? slot->end_ns : length;
        uj += step->costs[(size_t)i * step->graph.candidates + slot->candidate].energy_uj;
        result.highest_w = fmax(result.highest_w, run_watts_at(step, slots, slot->start_ns));
    }
    result.seconds = (double)length / 1e9;
    result.joules = (double)(uj + schedule_energy(step->graph.idle_mw, length)) / 1e6;
    double apart = assumed[PUBLISHED_SAMPLE] * 1e6;
    for (double at = 0; cap_w > 0 && at < assumed[PUBLISHED_STEPS] * (double)length; at += apart) {
        result.samples_taken++;
        result.violations += run_watts_at(step, slots, (uint64_t)fmod(at, (double)length)) > cap_w;
    }
    *ret_result = result;
}

/* ---- the vendor's power management ---- */

struct managed {
    const struct published_step *step;
    double cap_w, clock_mhz;
    double spent_j, since_s; /* Since the clock was set last. */
};

static double managed_watts(const struct managed *managed, uint32_t launch, bool peak)
{
    const struct published_step *step = managed->step;
    const struct schedule_cost *cost = &step->costs[(size_t)launch * step->graph.candidates];
    double watts =
        peak ? (double)cost->draw_mw / 1e3 : (double)cost->energy_uj * 1e3 / (double)cost->run_ns;

    return watts * published_clock_power(step->options, managed->clock_mhz) +
           (double)step->graph.idle_mw / 1e3;
}

/* The clock at which the last period would have kept to the cap, one step less where it must be. */
static void managed_control(struct managed *managed)
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

void published_managed(const struct published_step *step, double cap_w,
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
            double joules = until * managed_watts(&managed, launch, false);
            double peak_w = managed_watts(&managed, launch, true);
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
                managed_control(&managed);
        }
    }
    result.seconds = now / steps;
    result.joules /= steps;
    *ret_result = result;
}

/* ---- all together ---- */

/* What a step takes on one GPU without a cap: so long that under the vendor's management at 230 W
 * it takes what Table 3 prints. */
static int run_alone_ns(const struct published_network *network,
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

static void work_keep(struct work *work, struct schedule_slot *slots, uint64_t *ret_length)
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
static void work_split(struct work *work, uint64_t fpga_mw, uint64_t *ret_length)
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
        work_keep(work, work->best, ret_length);
}

/* Launch by launch, by rank and in the program's order; or planned, with each split of the power
 * that lets more run on the FPGAs. The shortest of them. */
static int work_cap(struct work *work)
{
    const struct schedule_graph *graph = &work->step.graph;
    uint64_t length = UINT64_MAX;

    schedule_rank(graph, work->spare);
    for (unsigned i = 0; i < 2; i++) {
        int error = published_capped(&work->step, work->cap_w, work->best, work->spare,
                                     &work->result.highest_w);
        if (error)
            return error;
        work_keep(work, work->best, &length);
        for (uint32_t launch = 0; launch < graph->launches; launch++)
            work->spare[launch].order = launch;
    }
    uint64_t last = UINT64_MAX;
    for (uint64_t next = 0; next != last;) {
        work_split(work, next, &length);
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

static int work_schedule(struct work *work)
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
        return work_cap(work);
    return schedule_plan(&step->graph, objectives[work->scheduler], work->limit_ns, work->slots,
                         work->spare, &plan)
               ? 0
               : -ERANGE;
}

/* What is left on the GPU runs faster only for as much as is offloaded: the most that holds for the
 * schedule that it leads to. */
static int work_run(struct work *work)
{
    double most = work->step.network->time / 100, part = work->scheduler != PUBLISHED_ALONE;

    for (unsigned i = 0;; i++) {
        published_step_cost(&work->step, work->clock_mhz, part);
        int error = work_schedule(work);
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
static int work_run_clocks(struct work *work)
{
    double apart = work->step.options->value[PUBLISHED_CLOCK_STEP];
    struct published_result best = {.seconds = INFINITY};
    int error = -ERANGE;

    for (; work->clock_mhz >= CLOCK_LEAST_MHZ; work->clock_mhz -= apart) {
        int failed = work_run(work);
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

static int work_start(struct work *work)
{
    size_t launches = work->step.graph.launches;

    work->slots = calloc(launches, sizeof(*work->slots));
    work->spare = calloc(launches, sizeof(*work->spare));
    work->best = calloc(launches, sizeof(*work->best));
    work->costs = calloc(launches * work->step.graph.candidates, sizeof(*work->costs));
    return work->slots && work->spare && work->best && work->costs ? 0 : -ENOMEM;
}

static void work_finish(struct work *work)
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
    int error = run_alone_ns(network, options, &alone_ns);

    if (!error && scheduler == PUBLISHED_NO_LOSS)
        error = published_run(network, options, gpus, 0, PUBLISHED_ALONE, 0, &other);
    if (error)
        return error;
    work.limit_ns = (uint64_t)(other.seconds * 1e9 + 0.5);
    fpgas = scheduler == PUBLISHED_ALONE ? 0 : fpgas;
    error = published_step_init(&work.step, network, options, gpus, fpgas, alone_ns);
    error = error ? error : work_start(&work);
    if (!error && scheduler == PUBLISHED_ALONE && cap_w > 0)
        published_managed(&work.step, cap_w, &work.result);
    else if (!error)
        error = scheduler == PUBLISHED_CLOCKS ? work_run_clocks(&work) : work_run(&work);
    if (!error && work.limit_ns) {
        published_step_cost(&work.step, PUBLISHED_CLOCK_MHZ, 1);
        work.result.bound_j = published_bound(&work.step.graph, work.limit_ns, work.spare);
    }
    work.result.samples_s = error ? 0 : work.step.samples / work.result.seconds;
    *ret_result = work.result;
    work_finish(&work);
    return error;
}

static double run_percent(double value, double base)
{
    return 100 * (value / base - 1);
}

static void run_compare(const struct published_result *result, const struct published_result *base,
                        double share, struct published_change *change)
{
    double watts = result->joules / result->seconds, base_watts = base->joules / base->seconds;

    change->throughput += share * run_percent(result->samples_s, base->samples_s);
    change->power += share * run_percent(watts, base_watts);
    change->per_watt += share * run_percent(base->joules, result->joules);
    change->energy += share * run_percent(result->joules, base->joules);
    change->bound += share * run_percent(result->bound_j, base->joules);
}

/* Without a cap. @ret_results: NULL, or those of each network. */
static int run_free(const struct published_options *options, const struct published_claim *claim,
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
            run_compare(&results[s], &results[PUBLISHED_ALONE], 1, &ret_changes[n][s]);
            run_compare(&results[s], &results[PUBLISHED_ALONE], 1.0 / PUBLISHED_NETWORKS,
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
        error = run_free(options, &published_claims[c], ret_all->free[c], ret_all->changes[c]);
    for (size_t a = 0; !error && a < PUBLISHED_ASSUMPTIONS; a++) {
        struct published_options changed = *options;
        if (isnan(published_assumed[a].other))
            continue;
        changed.value[a] = published_assumed[a].other;
        error = run_free(&changed, three, NULL, others);
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
