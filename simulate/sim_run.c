#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "simulate/sim_world.h"

#define HOUR_MS 3600000.0

const char *sim_regime_name(enum sim_regime regime)
{
    static const char *const names[] = {
        [SIM_TERMINATION] = "termination",
        [SIM_CHEAPEST] = "cheapest",
        [SIM_SAVING] = "saving",
        [SIM_OVERCOMMIT] = "overcommit",
        [SIM_RECONFIGURATION] = "reconfiguration",
    };

    return names[regime];
}

void sim_options_init(struct sim_options *ret_options)
{
    *ret_options = (struct sim_options){
        .seed = 1,
        .levels = {{0, 1000}, {10000, 350}, {50000, 350}, {200000, 350}},
        .level_count = 4,
        .notice_ms = 120000,
        .away_ms = 1800000,
        .repair_ms = 86400000,
        .checkpoint_ms = 3600000,
        .storage = 1000000,
        .link = 10000000,
        .network = 3000000,
        .latency_ms = 1,
        .fixed_ms = 500,
        .touch_ms = 10000,
        .balance_ms = 1000,
        .cell = 1000,
    };
    settings_init(&ret_options->settings);
}

/* ---- what happens ---- */

/* The program allocates more: its call waits until the policy decides. */
static void sim_run_grow(struct sim_world *world, uint32_t task)
{
    struct sim_program *program = &world->shared->programs[task];
    struct policy_program *slot = sim_slot(world, task);

    program->grown++;
    slot->wanted = sim_wanted(world, task);
    slot->least = slot->wanted / SIM_LEAST_PART;
    slot->need = slot->wanted;
    slot->state = POLICY_WAITING;
    sim_set_mode(world, task, SIM_BLOCKED);
    sim_queue_add(world, task, true);
    sim_ask(world, task);
}

static void sim_run_on_program(struct sim_world *world, uint32_t task)
{
    uint32_t device = sim_slot(world, task)->device;
    const struct sim_program *program = &world->shared->programs[task];

    sim_settle(world, task);
    if (program->progress < sim_task(world, task)->work) {
        if (program->progress >= sim_milestone(world, task))
            sim_run_grow(world, task);
        else
            sim_save(world, task, false);
        return;
    }
    sim_end(world, task, false);
    sim_serve(world, device);
}

static void sim_run_end_rest(struct sim_world *world, uint32_t task)
{
    struct sim_program *program = &world->shared->programs[task];

    if (!program->rests || program->slot == SIM_NONE)
        return;
    program->rests = false;
    if (program->mode != SIM_STEPPING) {
        sim_slot(world, task)->busy_moving = sim_task(world, task)->more > 0;
        sim_ask(world, task);
    }
}

static void sim_run_on_due(struct sim_world *world, const struct sim_due *due)
{
    struct sim_shared *shared = world->shared;
    bool now =
        due->kind <= SIM_DUE_STEP && shared->programs[due->index].generation == due->generation;

    switch (due->kind) {
    case SIM_DUE_PROGRAM:
        if (now)
            sim_run_on_program(world, due->index);
        break;
    case SIM_DUE_STEP:
        if (now && shared->programs[due->index].saves)
            sim_saved(world, due->index);
        else if (now)
            sim_step_done(world, due->index);
        break;
    case SIM_DUE_REST:
        if (shared->programs[due->index].cell == due->cell)
            sim_run_end_rest(world, due->index);
        break;
    case SIM_DUE_NODE:
        if (world->hosts[due->index].generation == due->generation)
            sim_on_node(world, due->index);
        break;
    case SIM_DUE_BALANCE:
        if (world->look == due->generation) {
            world->looks_at_ms = 0;
            sim_look(world, !sim_next(world));
        }
        return;
    case SIM_DUE_CLUSTER:
        shared->ticking = false;
        sim_cluster_tick(shared);
        if (shared->queue_count)
            sim_cluster_wait(shared);
        return;
    }
    sim_look(world, false);
}

/* ---- a run ---- */

struct run {
    struct sim_shared shared;
    uint32_t next_task;
};

static void sim_run_on_arrival(struct run *run)
{
    struct sim_shared *shared = &run->shared;
    uint32_t task = run->next_task++;
    struct sim_program *program = &shared->programs[task];

    program->mode = SIM_QUEUED;
    program->settled_ms = program->since_ms = shared->now_ms;
    shared->present++;
    sim_tell(shared, SIM_ARRIVE, task, SIM_NONE, shared->trace->tasks[task].work);
    if (sim_is_possible(shared, task)) {
        sim_send(shared, task);
        return;
    }
    sim_tell(shared, SIM_REFUSE, task, SIM_NONE, 0);
    program->mode = SIM_GONE;
    shared->result->refused++;
    shared->present--;
}

static void sim_run_loop(struct run *run)
{
    struct sim_shared *shared = &run->shared;
    const struct sim_trace *trace = shared->trace;

    while (!shared->error && (shared->present || run->next_task < trace->task_count)) {
        const struct sim_due *first = sim_heap_peek(&shared->heap);
        uint64_t arrival = run->next_task < trace->task_count
                               ? trace->tasks[run->next_task].arrive_ms
                               : UINT64_MAX;
        uint64_t next = first ? first->time_ms : UINT64_MAX;
        uint64_t time = next <= arrival ? next : arrival;
        if (time > shared->options->horizon_ms)
            break;
        shared->now_ms = time;
        if (next > arrival) {
            sim_run_on_arrival(run);
            continue;
        }
        struct sim_due due = *first;
        sim_heap_pop(&shared->heap);
        sim_run_on_due(&shared->worlds[due.cell], &due);
    }
}

/* ---- what it comes to ---- */

static int sim_run_by_size(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

    return a < b ? -1 : a > b;
}

/* The nearest rank: at least @percent of them are no longer. */
static uint64_t sim_run_percentile(const uint64_t *sorted, uint64_t count, uint64_t percent)
{
    return count ? sorted[(count * percent + 99) / 100 - 1] : 0;
}

static void sim_run_sum_occupied(struct run *run)
{
    for (uint32_t i = 0; i < run->shared.cells; i++) {
        struct sim_world *world = &run->shared.worlds[i];
        for (uint32_t j = 0; j < world->trace.node_count; j++)
            sim_pay(world, j);
        for (uint32_t j = 0; j < world->trace.device_count; j++) {
            if (world->uses[j].used) {
                run->shared.occupied_ms[world->trace.devices[j].model] +=
                    run->shared.now_ms - world->uses[j].used_since_ms;
            }
        }
    }
}

static void sim_run_sum_up(struct run *run)
{
    struct sim_shared *shared = &run->shared;
    struct sim_result *result = shared->result;
    double cost = 0, node_cost = 0, waited = 0;

    sim_run_sum_occupied(run);
    for (size_t i = 0; i < run->shared.trace->models.count; i++) {
        result->occupied_ms += shared->occupied_ms[i];
        cost += (double)shared->occupied_ms[i] * run->shared.trace->models.items[i].price / 1000;
    }
    for (size_t i = 0; i < run->shared.trace->models.count; i++)
        node_cost += (double)shared->paid_ms[i] * run->shared.trace->models.items[i].price / 1000;
    qsort(shared->waits, result->finished, sizeof(*shared->waits), sim_run_by_size);
    for (uint64_t i = 0; i < result->finished; i++)
        waited += (double)shared->waits[i];
    result->cost = cost * result->level.price / 1000 / HOUR_MS;
    result->node_cost = node_cost * result->level.price / 1000 / HOUR_MS;
    result->unfinished = run->shared.trace->task_count - result->finished - result->refused;
    result->asked_ms = shared->asked_us / 1000;
    result->lost_ms = shared->lost_us / 1000;
    result->busy_ms = shared->busy_us / 1000;
    result->wait_p50_ms = sim_run_percentile(shared->waits, result->finished, 50);
    result->wait_p99_ms = sim_run_percentile(shared->waits, result->finished, 99);
    if (result->finished) {
        result->wait_mean_ms = (uint64_t)(waited / (double)result->finished);
        result->took_mean_ms = (uint64_t)(shared->took_ms / (double)result->finished);
    }
    if (shared->check) {
        sim_check_end(shared->check, shared->asked, shared->lost);
        result->checked = sim_check_events(shared->check);
        snprintf(result->problem, sizeof(result->problem), "%s", sim_check_problem(shared->check));
    }
}

static int sim_run_prepare(struct run *run, size_t level)
{
    struct sim_shared *shared = &run->shared;
    const struct sim_trace *trace = shared->trace;

    shared->programs = calloc(trace->task_count, sizeof(*shared->programs));
    shared->waits = calloc(trace->task_count, sizeof(*shared->waits));
    shared->queue = calloc(trace->task_count + 1, sizeof(*shared->queue));
    shared->candidates = calloc(trace->device_count, sizeof(*shared->candidates));
    shared->places = calloc(trace->device_count, sizeof(*shared->places));
    shared->worlds = calloc(shared->cells, sizeof(*shared->worlds));
    if (shared->options->check)
        shared->check = sim_check_create(trace, shared->options->between_hosts);
    if (!shared->programs || !shared->waits || !shared->queue || !shared->candidates ||
        !shared->places || !shared->worlds || (shared->options->check && !shared->check))
        return -ENOMEM;
    for (uint32_t i = 0; i < trace->task_count; i++) {
        shared->programs[i] = (struct sim_program){.mode = SIM_GONE,
                                                   .slot = SIM_NONE,
                                                   .asker = SIM_NONE,
                                                   .target = SIM_NONE,
                                                   .home = SIM_NONE,
                                                   .host = {{SIM_NONE, 0}, {SIM_NONE, 0}}};
    }
    for (uint32_t i = 0; i < shared->cells; i++)
        if (sim_world_init(&shared->worlds[i], shared, i, level))
            return -ENOMEM;
    return 0;
}

static void sim_run_finish(struct run *run)
{
    struct sim_shared *shared = &run->shared;

    for (uint32_t i = 0; i < shared->cells && shared->worlds; i++)
        sim_world_finish(&shared->worlds[i]);
    sim_heap_finish(&shared->heap);
    sim_check_destroy(shared->check);
    free(shared->programs);
    free(shared->waits);
    free(shared->queue);
    free(shared->candidates);
    free(shared->places);
    free(shared->worlds);
}

/* Number of cells: one for each node; with moves between hosts, one for about options->cell
 * devices. */
static uint32_t sim_run_cells_of(const struct sim_trace *trace, const struct sim_options *options,
                                 enum sim_regime regime)
{
    uint32_t cells = (trace->device_count + options->cell - 1) / options->cell;

    if (!options->between_hosts || regime != SIM_RECONFIGURATION || cells > trace->node_count)
        return trace->node_count;
    return cells;
}

int sim_run(const struct sim_trace *trace, const struct sim_options *options,
            enum sim_regime regime, size_t level, struct sim_result *ret_result)
{
    struct sim_result result = {.regime = regime, .level = options->levels[level]};
    struct run run = {.shared = {.trace = trace,
                                 .options = options,
                                 .result = &result,
                                 .offer = sim_offer,
                                 .claimer = SIM_NONE,
                                 .cells = sim_run_cells_of(trace, options, regime)}};
    int error = sim_run_prepare(&run, level);

    if (!error) {
        for (uint32_t i = 0; i < run.shared.cells; i++)
            sim_nodes_start(&run.shared.worlds[i]);
        sim_run_loop(&run);
        error = run.shared.error;
    }
    if (!error) {
        sim_run_sum_up(&run);
        *ret_result = result;
    }
    sim_run_finish(&run);
    return error;
}
