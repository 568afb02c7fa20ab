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
    uint64_t number = sim_random(world->options->seed, device, world->seats[device].draws++);
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
        world->result->failures += failed;
        world->result->reclaims += !failed;
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
    bool changes = world->regime != SIM_TERMINATION && world->present;

    if (!world->balancing && (changes || world->queue_count)) {
        world->balancing = true;
        sim_push(world, world->now_ms + world->options->balance_ms, SIM_DUE_BALANCE, 0, 0);
    }
}

/* It allocates more: its call waits until the policy says how it goes on. */
static void grow(struct sim_world *world, uint32_t task)
{
    struct sim_program *program = &world->programs[task];
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
    if (world->programs[task].progress < world->trace->tasks[task].work) {
        grow(world, task);
        return;
    }
    sim_end(world, task, false);
    sim_serve(world, device);
}

static void on_arrival(struct sim_world *world)
{
    uint32_t task = world->next_task++;

    sim_enter(world, task);
    if (!world->error) {
        sim_ask(world, task);
    }
}

static void on_due(struct sim_world *world, const struct sim_due *due)
{
    switch (due->kind) {
    case SIM_DUE_PROGRAM:
        if (world->programs[due->index].generation == due->generation) {
            on_program(world, due->index);
        }
        break;
    case SIM_DUE_STEP:
        if (world->programs[due->index].generation == due->generation) {
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
    for (uint32_t i = 0; i < world->trace->device_count; i++) {
        uint64_t from = world->trace->devices[i].from_ms;
        if (from) {
            plan_device(world, i, from);
        } else {
            device_up(world, i);
        }
    }
}

static void loop(struct sim_world *world)
{
    const struct sim_trace *trace = world->trace;

    while (!world->error && (world->present || world->next_task < trace->task_count)) {
        const struct sim_due *next = sim_heap_peek(&world->heap);
        uint64_t arrival = world->next_task < trace->task_count
                               ? trace->tasks[world->next_task].arrive_ms
                               : UINT64_MAX;
        bool due = next && next->time_ms <= arrival;
        uint64_t time = due ? next->time_ms : arrival;
        if (time > world->options->horizon_ms) {
            break;
        }
        world->now_ms = time;
        if (due) {
            struct sim_due copy = *next;
            sim_heap_pop(&world->heap);
            on_due(world, &copy);
        } else {
            on_arrival(world);
        }
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

static void sum_up(struct sim_world *world)
{
    struct sim_result *result = world->result;
    uint64_t waited = 0;
    double cost = 0;

    for (uint32_t i = 0; i < world->trace->device_count; i++) {
        if (world->seats[i].used) {
            world->occupied_ms[world->trace->devices[i].model] +=
                world->now_ms - world->seats[i].used_since_ms;
        }
    }
    for (size_t i = 0; i < world->trace->models.count; i++) {
        result->occupied_ms += world->occupied_ms[i];
        cost += (double)world->occupied_ms[i] * world->trace->models.items[i].price / 1000;
    }
    qsort(world->waits, result->finished, sizeof(*world->waits), by_size);
    for (uint64_t i = 0; i < result->finished; i++) {
        waited += world->waits[i];
    }
    result->cost = cost * world->level.price / 1000 / HOUR_MS;
    result->unfinished = world->trace->task_count - result->finished - result->refused;
    result->asked_ms = world->asked_us / 1000;
    result->lost_ms = world->lost_us / 1000;
    result->busy_ms = world->busy_us / 1000;
    result->wait_mean_ms = result->finished ? waited / result->finished : 0;
    result->wait_p50_ms = percentile(world->waits, result->finished, 50);
    result->wait_p99_ms = percentile(world->waits, result->finished, 99);
    result->took_mean_ms =
        result->finished ? (uint64_t)(world->took_ms / (double)result->finished) : 0;
    if (world->check) {
        sim_check_end(world->check, world->asked, world->lost);
        result->checked = sim_check_events(world->check);
        snprintf(result->problem, sizeof(result->problem), "%s", sim_check_problem(world->check));
    }
}

int sim_run(const struct sim_trace *trace, const struct sim_options *options,
            enum sim_regime regime, size_t level, struct sim_result *ret_result)
{
    struct sim_result result = {.regime = regime, .level = options->levels[level]};
    struct sim_world world;
    int error = sim_world_init(&world, trace, options, regime, level, &result);

    if (!error) {
        start(&world);
        loop(&world);
        error = world.error;
    }
    if (!error) {
        sum_up(&world);
        *ret_result = result;
    }
    sim_world_finish(&world);
    return error;
}
