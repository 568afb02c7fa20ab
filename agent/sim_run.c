#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/sim_random.h"
#include "agent/sim_world.h"

#define HOUR_MS   3600000.0
#define MILLIONTH 1e-6

const char *sim_regime_name(enum sim_regime regime)
{
    static const char *const names[] = {"termination", "overcommit", "reconfiguration"};

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
        .link = 10000000,
        .fixed_ms = 500,
        .touch_ms = 10000,
        .balance_ms = 60000,
        .cell = 1000,
    };
    settings_init(&ret_options->settings);
}

/* ---- devices come and go ---- */

/*
 * The next time that something of @rate millionths an hour happens to a device, in milliseconds
 * from now. A device has one stream of numbers, whatever the regime and the rate: all regimes see
 * the same reclaims.
 */
static uint64_t draw(struct sim_world *world, uint32_t device, double mean_ms)
{
    uint64_t number =
        sim_random(world->options->seed, sim_global(world, device), world->seats[device].draws++);
    double wait = sim_exponential(number) * mean_ms;

    return wait < 1e15 ? (uint64_t)wait + 1 : UINT64_MAX / 2;
}

static uint64_t draw_rate(struct sim_world *world, uint32_t device, uint32_t rate)
{
    uint64_t wait = draw(world, device, HOUR_MS / (rate * MILLIONTH));

    return rate ? wait : UINT64_MAX / 2;
}

static void plan_device(struct sim_world *world, uint32_t device, uint64_t time_ms)
{
    sim_push(world, time_ms, SIM_DUE_DEVICE, device, ++world->seats[device].generation);
}

static void device_up(struct sim_world *world, uint32_t device)
{
    struct sim_seat *seat = &world->seats[device];
    uint64_t reclaim = draw_rate(world, device, world->level.reclaim);
    uint64_t failure = draw_rate(world, device, world->options->fail);
    uint64_t notice = reclaim > world->options->notice_ms ? reclaim - world->options->notice_ms : 0;

    seat->phase = SIM_UP;
    seat->fails = failure < notice;
    seat->taken_ms = world->now_ms + reclaim;
    world->devices[device].closed = world->devices[device].drains = false;
    sim_log(world, SIM_DEVICE, SIM_NONE, device, world->devices[device].memory);
    if (seat->fails || reclaim < UINT64_MAX / 2) {
        plan_device(world, device, world->now_ms + (seat->fails ? failure : notice));
    }
    sim_serve(world, device);
}

static void device_noticed(struct sim_world *world, uint32_t device)
{
    struct sim_seat *seat = &world->seats[device];

    seat->phase = SIM_NOTICED;
    seat->in_use = seat->used;
    world->devices[device].closed = true;
    plan_device(world, device, seat->taken_ms);
    if (world->regime == SIM_RECONFIGURATION && seat->used && world->options->notice_ms) {
        world->devices[device].drains = true;
        sim_drain(world, device);
    }
}

static void device_gone(struct sim_world *world, uint32_t device)
{
    struct sim_seat *seat = &world->seats[device];
    bool failed = seat->phase == SIM_UP;

    if (failed ? seat->used : seat->in_use) {
        world->shared->result->failures += failed;
        world->shared->result->reclaims += !failed;
    }
    seat->phase = SIM_AWAY;
    world->devices[device].closed = true;
    world->devices[device].drains = false;
    sim_device_lost(world, device);
    sim_log(world, SIM_DEVICE, SIM_NONE, device, 0);
    uint64_t away = draw(world, device, (double)world->options->away_ms);
    plan_device(world, device, world->now_ms + (failed ? world->options->repair_ms : away));
}

static void on_device(struct sim_world *world, uint32_t device)
{
    const struct sim_seat *seat = &world->seats[device];

    if (seat->phase == SIM_LATE || seat->phase == SIM_AWAY) {
        device_up(world, device);
    } else if (seat->phase == SIM_UP && !seat->fails) {
        device_noticed(world, device);
    } else {
        device_gone(world, device);
    }
}

/* ---- programs ---- */

static void plan_balance(struct sim_world *world)
{
    bool changes = world->regime != SIM_TERMINATION && world->shared->present;

    if (!world->balancing && (changes || world->queue_count)) {
        world->balancing = true;
        sim_push(world, world->now_ms + world->options->balance_ms, SIM_DUE_BALANCE, 0, 0);
    }
}

/* It allocates more: its call waits until the policy says how it goes on. */
static void grow(struct sim_world *world, uint32_t task)
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

static void on_program(struct sim_world *world, uint32_t task)
{
    uint32_t device = sim_slot(world, task)->device;

    sim_settle(world, task);
    if (world->shared->programs[task].progress < world->trace.tasks[task].work) {
        grow(world, task);
        return;
    }
    sim_end(world, task, false);
    sim_serve(world, device);
}

static void on_due(struct sim_world *world, const struct sim_due *due)
{
    switch (due->kind) {
    case SIM_DUE_PROGRAM:
        if (world->shared->programs[due->index].generation == due->generation) {
            on_program(world, due->index);
        }
        break;
    case SIM_DUE_STEP:
        if (world->shared->programs[due->index].generation == due->generation) {
            sim_step_done(world, due->index);
        }
        break;
    case SIM_DUE_DEVICE:
        if (world->seats[due->index].generation == due->generation) {
            on_device(world, due->index);
        }
        break;
    case SIM_DUE_BALANCE:
        world->balancing = false;
        sim_next(world);
        break;
    }
}

static void start(struct sim_world *world)
{
    for (uint32_t i = 0; i < world->trace.device_count; i++) {
        uint64_t from = world->trace.devices[i].from_ms;
        if (from) {
            plan_device(world, i, from);
        } else {
            device_up(world, i);
        }
    }
}

/* ---- a run ---- */

struct run {
    const struct sim_trace *trace;
    const struct sim_options *options;
    struct sim_shared shared;
    struct sim_world *cells;
    uint32_t next_task;
    uint64_t now_ms;
};

/* How much room a cell has for a program on the devices that it may use, less what waits there. */
static double room_in(const struct sim_world *world, const struct sim_task *task)
{
    const uint64_t *barred = world->trace.rules[task->rule].barred;
    double room = -(double)world->queued_bytes;
    bool fits = false;

    for (uint32_t i = 0; i < world->trace.device_count; i++) {
        const struct policy_device *device = &world->devices[i];
        if (barred && barred[i / 64] >> (i % 64) & 1) {
            continue;
        }
        fits = fits || device->memory >= task->bytes;
        if (!device->closed && device->reserved < device->memory) {
            room += (double)(device->memory - device->reserved);
        }
    }
    return fits ? room : -INFINITY;
}

static void on_arrival(struct run *run)
{
    uint32_t task = run->next_task++, best = 0;
    double most = -INFINITY;

    for (uint32_t i = 0; i < run->shared.cells && run->shared.cells > 1; i++) {
        double room = room_in(&run->cells[i], &run->trace->tasks[task]);
        if (room > most) {
            most = room;
            best = i;
        }
    }
    struct sim_world *world = &run->cells[best];
    world->now_ms = run->now_ms;
    sim_enter(world, task);
    if (!run->shared.error) {
        sim_ask(world, task);
    }
    plan_balance(world);
}

/* The cell where something is due first; NULL: nowhere. */
static struct sim_world *first_due(struct run *run)
{
    struct sim_world *first = NULL;

    for (uint32_t i = 0; i < run->shared.cells; i++) {
        const struct sim_due *due = sim_heap_peek(&run->cells[i].heap);
        if (due && (!first || due->time_ms < sim_heap_peek(&first->heap)->time_ms)) {
            first = &run->cells[i];
        }
    }
    return first;
}

static void loop(struct run *run)
{
    const struct sim_trace *trace = run->trace;

    while (!run->shared.error && (run->shared.present || run->next_task < trace->task_count)) {
        struct sim_world *world = first_due(run);
        uint64_t arrival = run->next_task < trace->task_count
                               ? trace->tasks[run->next_task].arrive_ms
                               : UINT64_MAX;
        uint64_t next = world ? sim_heap_peek(&world->heap)->time_ms : UINT64_MAX;
        uint64_t time = next <= arrival ? next : arrival;
        if (time > run->options->horizon_ms) {
            break;
        }
        run->now_ms = time;
        if (next > arrival) {
            on_arrival(run);
            continue;
        }
        struct sim_due due = *sim_heap_peek(&world->heap);
        sim_heap_pop(&world->heap);
        world->now_ms = time;
        on_due(world, &due);
        plan_balance(world);
    }
}

/* ---- what it comes to ---- */

static int by_size(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

    return a < b ? -1 : a > b;
}

/* The nearest rank: at least @percent of them are no longer. */
static uint64_t percentile(const uint64_t *sorted, uint64_t count, uint64_t percent)
{
    return count ? sorted[(count * percent + 99) / 100 - 1] : 0;
}

static void sum_occupied(struct run *run)
{
    for (uint32_t i = 0; i < run->shared.cells; i++) {
        const struct sim_world *world = &run->cells[i];
        for (uint32_t j = 0; j < world->trace.device_count; j++) {
            if (world->seats[j].used) {
                run->shared.occupied_ms[world->trace.devices[j].model] +=
                    run->now_ms - world->seats[j].used_since_ms;
            }
        }
    }
}

static void sum_up(struct run *run)
{
    struct sim_shared *shared = &run->shared;
    struct sim_result *result = shared->result;
    double cost = 0, waited = 0;

    sum_occupied(run);
    for (size_t i = 0; i < run->trace->models.count; i++) {
        result->occupied_ms += shared->occupied_ms[i];
        cost += (double)shared->occupied_ms[i] * run->trace->models.items[i].price / 1000;
    }
    qsort(shared->waits, result->finished, sizeof(*shared->waits), by_size);
    for (uint64_t i = 0; i < result->finished; i++) {
        waited += (double)shared->waits[i];
    }
    result->cost = cost * result->level.price / 1000 / HOUR_MS;
    result->unfinished = run->trace->task_count - result->finished - result->refused;
    result->asked_ms = shared->asked_us / 1000;
    result->lost_ms = shared->lost_us / 1000;
    result->busy_ms = shared->busy_us / 1000;
    result->wait_p50_ms = percentile(shared->waits, result->finished, 50);
    result->wait_p99_ms = percentile(shared->waits, result->finished, 99);
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

static int prepare(struct run *run, size_t level)
{
    struct sim_shared *shared = &run->shared;

    shared->programs = calloc(run->trace->task_count, sizeof(*shared->programs));
    shared->waits = calloc(run->trace->task_count, sizeof(*shared->waits));
    run->cells = calloc(shared->cells, sizeof(*run->cells));
    if (run->options->check) {
        shared->check = sim_check_create(run->trace);
    }
    if (!shared->programs || !shared->waits || !run->cells ||
        (run->options->check && !shared->check)) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < run->trace->task_count; i++) {
        shared->programs[i] = (struct sim_program){
            .mode = SIM_GONE, .slot = SIM_NONE, .asker = SIM_NONE, .target = SIM_NONE};
    }
    for (uint32_t i = 0; i < shared->cells; i++) {
        if (sim_world_init(&run->cells[i], run->trace, run->options, shared, i, level)) {
            return -ENOMEM;
        }
    }
    return 0;
}

static void finish(struct run *run)
{
    for (uint32_t i = 0; i < run->shared.cells && run->cells; i++) {
        sim_world_finish(&run->cells[i]);
    }
    sim_check_destroy(run->shared.check);
    free(run->shared.programs);
    free(run->shared.waits);
    free(run->cells);
}

int sim_run(const struct sim_trace *trace, const struct sim_options *options,
            enum sim_regime regime, size_t level, struct sim_result *ret_result)
{
    struct sim_result result = {.regime = regime, .level = options->levels[level]};
    struct run run = {
        .trace = trace,
        .options = options,
        .shared = {.result = &result,
                   .cells = (trace->device_count + options->cell - 1) / options->cell}};
    int error = prepare(&run, level);

    if (!error) {
        for (uint32_t i = 0; i < run.shared.cells; i++) {
            start(&run.cells[i]);
        }
        loop(&run);
        error = run.shared.error;
    }
    if (!error) {
        sum_up(&run);
        *ret_result = result;
    }
    finish(&run);
    return error;
}
