#include <errno.h>

#include "simulate/published.h"

/* ---- schedules launch by launch, as devices become idle ---- */

struct run {
    const struct published_step *step;
    struct schedule_slot *slots; /* `order`: 1 once the launch was started. */
    double cap_w;
    uint64_t now_ns;
    uint32_t running[SCHEDULE_CANDIDATES]; /* Launch on each device. */
    uint32_t last_gpu;                     /* The launch that the GPU was given last. */
    uint32_t left;
};

static const struct schedule_cost *published_run_cost(const struct run *run, uint32_t launch,
                                                      uint32_t candidate)
{
    return &run->step->costs[(size_t)launch * run->step->graph.candidates + candidate];
}

static bool published_run_ended(const struct run *run, uint32_t launch)
{
    return run->slots[launch].order && run->slots[launch].end_ns <= run->now_ns;
}

static bool published_run_is_ready(const struct run *run, uint32_t launch)
{
    const struct schedule_graph *graph = &run->step->graph;

    if (run->slots[launch].order)
        return false;
    for (uint32_t e = graph->first[launch]; e < graph->first[launch + 1]; e++)
        if (!published_run_ended(run, graph->edges[e].from))
            return false;
    return true;
}

/* When the launch's inputs are on a candidate's device. */
static uint64_t published_run_ready_ns(const struct run *run, uint32_t launch, uint32_t candidate)
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

static uint64_t published_run_drawn_mw(const struct run *run)
{
    uint64_t mw = run->step->graph.idle_mw;

    for (uint32_t unit = 0; unit < SCHEDULE_CANDIDATES; unit++)
        if (run->running[unit] != SCHEDULE_NONE)
            mw += published_run_cost(run, run->running[unit],
                                     run->slots[run->running[unit]].candidate)
                      ->draw_mw;
    return mw;
}

static void published_run_start(struct run *run, uint32_t launch, uint32_t candidate)
{
    struct schedule_slot *slot = &run->slots[launch];
    uint64_t ready = published_run_ready_ns(run, launch, candidate);
    uint32_t unit = run->step->graph.unit[candidate];

    slot->order = 1;
    slot->candidate = candidate;
    slot->start_ns = ready > run->now_ns ? ready : run->now_ns;
    slot->end_ns = slot->start_ns + published_run_cost(run, launch, candidate)->run_ns;
    run->running[unit] = launch;
    run->left--;
    if (unit < run->step->gpus)
        run->last_gpu = launch;
}

/* Go on to the next end. False: nothing runs. */
static bool published_run_advance(struct run *run)
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

static void published_run_init(struct run *run, const struct published_step *step, double cap_w,
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

    published_run_init(&run, step, 0, slots);
    do {
        for (uint32_t gpu = 0; gpu < step->gpus; gpu++)
            for (uint32_t i = gpu; i < step->graph.launches && run.running[gpu] == SCHEDULE_NONE;
                 i += step->gpus)
                if (published_run_is_ready(&run, i))
                    published_run_start(&run, i, gpu);
    } while (published_run_advance(&run));
}

/* ---- the paper's rule ---- */

/* Moving the inputs from the GPU hides behind what the GPU was given before. */
static bool published_rule_move_hides(const struct run *run, uint32_t launch, uint32_t candidate)
{
    uint64_t ready = published_run_ready_ns(run, launch, candidate), produced = 0;
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
static uint32_t published_rule_pick(const struct run *run, uint32_t unit)
{
    const struct published_step *step = run->step;
    bool fpga = unit >= step->gpus;
    uint32_t other = SCHEDULE_NONE;

    for (uint32_t i = unit % step->gpus; i < step->graph.launches; i += step->gpus) {
        const struct published_launch *launch = &step->launches[i];
        if (!published_run_is_ready(run, i))
            continue;
        uint32_t there = step->gpus + launch->copy;
        bool on_fpga = step->fpgas && launch->offloaded &&
                       published_run_cost(run, i, there)->run_ns <= launch->gpu_ns &&
                       published_rule_move_hides(run, i, there);
        if (on_fpga == fpga)
            return i;
        other = other == SCHEDULE_NONE ? i : other;
    }
    return fpga ? SCHEDULE_NONE : other;
}

/* Case 2: the first that fits under the cap. */
static uint32_t published_rule_pick_capped(const struct run *run, uint32_t unit)
{
    const struct published_step *step = run->step;
    uint64_t drawn = published_run_drawn_mw(run), cap = (uint64_t)(run->cap_w * 1000);

    for (uint32_t i = unit % step->gpus; i < step->graph.launches; i += step->gpus) {
        const struct schedule_cost *cost = published_run_cost(run, i, unit);
        if (published_run_is_ready(run, i) && cost->run_ns && drawn + cost->draw_mw <= cap)
            return i;
    }
    return SCHEDULE_NONE;
}

/* The least cap under which one of the launches that are ready can run. */
static double published_run_least_w(const struct run *run)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t i = 0; i < run->step->graph.launches; i++) {
        for (uint32_t c = 0; published_run_is_ready(run, i) && c < run->step->graph.candidates;
             c++) {
            const struct schedule_cost *cost = published_run_cost(run, i, c);
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

    published_run_init(&run, step, cap_w, slots);
    do {
        /* The FPGAs are asked first, under a cap the GPUs. */
        for (uint32_t i = 0; i < units; i++) {
            uint32_t unit = cap_w > 0 ? i : units - 1 - i;
            if (run.running[unit] != SCHEDULE_NONE)
                continue;
            uint32_t launch = cap_w > 0 ? published_rule_pick_capped(&run, unit)
                                        : published_rule_pick(&run, unit);
            if (launch != SCHEDULE_NONE)
                published_run_start(&run, launch, unit);
        }
    } while (published_run_advance(&run));
    if (run.left) {
        *ret_least_w = published_run_least_w(&run);
        return -ERANGE;
    }
    return 0;
}

/* ---- reseat under a cap ---- */

/* Choose for one launch. What it waits for counts as given to its device already. */
static void published_capped_choose(struct run *run, uint32_t launch, uint64_t *frees)
{
    const struct schedule_graph *graph = &run->step->graph;
    struct schedule_candidate candidates[SCHEDULE_CANDIDATES];
    const struct schedule_launch asked = {.objective = SCHEDULE_TIME,
                                          .now_ns = run->now_ns,
                                          .idle_mw = graph->idle_mw,
                                          .drawn_mw = published_run_drawn_mw(run),
                                          .cap_mw = (uint64_t)(run->cap_w * 1000)};

    for (uint32_t c = 0; c < graph->candidates; c++) {
        const struct schedule_cost *cost = published_run_cost(run, launch, c);
        uint32_t unit = graph->unit[c], busy = run->running[unit];
        candidates[c] = (struct schedule_candidate){
            .allowed = cost->run_ns,
            .ready_ns = published_run_ready_ns(run, launch, c),
            .free_ns = frees[unit],
            .run_ns = cost->run_ns,
            .energy_uj = cost->energy_uj,
            .draw_mw = cost->draw_mw,
            .relieved_mw =
                busy == SCHEDULE_NONE
                    ? 0
                    : published_run_cost(run, busy, run->slots[busy].candidate)->draw_mw};
    }
    struct schedule_choice choice = schedule_choose(&asked, candidates, graph->candidates);
    if (choice.verdict != SCHEDULE_RUN)
        return;
    uint32_t unit = graph->unit[choice.candidate];
    if (run->running[unit] == SCHEDULE_NONE && frees[unit] <= run->now_ns)
        published_run_start(run, launch, choice.candidate);
    frees[unit] = choice.end_ns;
}

int published_capped(const struct published_step *step, double cap_w, struct schedule_slot *slots,
                     const struct schedule_slot *ranked, double *ret_least_w)
{
    struct run run;

    published_run_init(&run, step, cap_w, slots);
    do {
        uint64_t frees[SCHEDULE_CANDIDATES];
        for (uint32_t unit = 0; unit < SCHEDULE_CANDIDATES; unit++) {
            uint32_t busy = run.running[unit];
            frees[unit] = busy == SCHEDULE_NONE ? run.now_ns : slots[busy].end_ns;
        }
        for (uint32_t i = 0; i < step->graph.launches; i++)
            if (published_run_is_ready(&run, ranked[i].order))
                published_capped_choose(&run, ranked[i].order, frees);
    } while (published_run_advance(&run));
    if (run.left) {
        *ret_least_w = published_run_least_w(&run);
        return -ERANGE;
    }
    return 0;
}
