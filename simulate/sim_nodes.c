#include "simulate/sim_world.h"

#include "simulate/sim_random.h"

/* Host memory and the links to storage and to other nodes belong to a node; each link carries one
 * transfer after the other. */

static uint64_t sim_nodes_of(const struct sim_program *program, uint32_t node)
{
    for (size_t i = 0; i < ARRAY_SIZE(program->host); i++)
        if (program->host[i].node == node)
            return program->host[i].bytes;
    return 0;
}

bool sim_host_fits(const struct sim_world *world, uint32_t node, uint64_t bytes)
{
    uint64_t host = world->trace.nodes[node].host, used = world->hosts[node].used;

    return used <= host && bytes <= host - used;
}

static void sim_nodes_set(struct sim_world *world, uint32_t task, size_t place, uint32_t node,
                          uint64_t bytes)
{
    struct sim_program *program = &world->shared->programs[task];

    world->hosts[node].used +=
        bytes - (program->host[place].node == node ? program->host[place].bytes : 0);
    program->host[place].node = bytes ? node : SIM_NONE;
    program->host[place].bytes = bytes;
    sim_tell(world->shared, SIM_HOST, task, world->trace.nodes[node].id, bytes);
}

bool sim_host_take(struct sim_world *world, uint32_t task, uint32_t node, uint64_t bytes)
{
    const struct sim_program *program = &world->shared->programs[task];
    uint64_t has = sim_nodes_of(program, node);
    size_t place = 0;

    if (bytes <= has)
        return true;
    if (!sim_host_fits(world, node, bytes - has))
        return false;
    while (program->host[place].node != (has ? node : SIM_NONE))
        place++;
    sim_nodes_set(world, task, place, node, bytes);
    return true;
}

void sim_host_keep(struct sim_world *world, uint32_t task, uint32_t node, uint64_t bytes)
{
    struct sim_program *program = &world->shared->programs[task];
    uint64_t has = node == SIM_NONE ? 0 : sim_nodes_of(program, node);

    /* Memory that it waits for is not in host memory yet. */
    bytes = bytes < has ? bytes : has;
    for (size_t i = 0; i < ARRAY_SIZE(program->host); i++) {
        uint32_t there = program->host[i].node;
        if (there != SIM_NONE && there != node)
            sim_nodes_set(world, task, i, there, 0);
    }
    for (size_t i = 0; has != bytes && i < ARRAY_SIZE(program->host); i++) {
        if (program->host[i].node == node) {
            sim_nodes_set(world, task, i, node, bytes);
            return;
        }
    }
}

uint64_t sim_in_host(const struct sim_world *world, uint32_t task)
{
    const struct policy_program *slot = sim_slot(world, task);

    return sim_task(world, task)->host +
           (slot->wanted > slot->granted ? slot->wanted - slot->granted : 0);
}

uint64_t sim_size(const struct sim_world *world, uint32_t task)
{
    return sim_wanted(world, task) * (sim_task(world, task)->more + 1u);
}

static uint64_t sim_nodes_most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t sim_nodes_over(uint64_t bytes, uint64_t link)
{
    return (bytes + link - 1) / link;
}

uint64_t sim_store(struct sim_world *world, uint32_t node, uint64_t bytes)
{
    struct sim_host *host = &world->hosts[node];

    if (!world->options->storage)
        return 0;
    host->storage_ms = sim_nodes_most(host->storage_ms, sim_now(world)) +
                       sim_nodes_over(bytes, world->options->storage);
    return host->storage_ms - sim_now(world);
}

uint64_t sim_send_over(struct sim_world *world, uint32_t from, uint32_t to, uint64_t bytes)
{
    struct sim_host *a = &world->hosts[from], *b = &world->hosts[to];
    uint64_t link = world->options->network < world->options->link ? world->options->network
                                                                   : world->options->link;

    a->network_ms = b->network_ms =
        sim_nodes_most(sim_nodes_most(a->network_ms, b->network_ms), sim_now(world)) +
        sim_nodes_over(bytes, link);
    return a->network_ms - sim_now(world) + world->options->latency_ms;
}

/* Nodes that come and go, and what is saved before they do. */

#define HOUR_MS   3600000.0
#define MILLIONTH 1e-6

/*
 * Draw the time until the next event of mean interval @mean_ms at a node, in milliseconds. A node
 * has one stream of numbers, whatever the regime and rate, so that all regimes see the same
 * reclaims.
 */
static uint64_t sim_nodes_draw(struct sim_world *world, uint32_t node, double mean_ms)
{
    uint64_t number =
        sim_random(world->options->seed, world->trace.nodes[node].id, world->hosts[node].draws++);
    double wait = sim_exponential(number) * mean_ms;

    return wait < 1e15 ? (uint64_t)wait + 1 : UINT64_MAX / 2;
}

static uint64_t sim_nodes_draw_rate(struct sim_world *world, uint32_t node, uint32_t rate)
{
    uint64_t wait = sim_nodes_draw(world, node, HOUR_MS / (rate * MILLIONTH));

    return rate ? wait : UINT64_MAX / 2;
}

static void sim_nodes_plan(struct sim_world *world, uint32_t node, uint64_t time_ms)
{
    sim_push(world, time_ms, SIM_DUE_NODE, node, ++world->hosts[node].generation);
}

static void sim_nodes_open_devices(struct sim_world *world, uint32_t node, bool open)
{
    const struct sim_node *n = &world->trace.nodes[node];

    for (uint32_t i = n->first; i < n->first + n->count; i++) {
        world->devices[i].closed = !open;
        world->devices[i].drains = false;
    }
}

static bool sim_nodes_is_used(const struct sim_world *world, uint32_t node)
{
    const struct sim_node *n = &world->trace.nodes[node];
    bool used = world->hosts[node].used;

    for (uint32_t i = n->first; i < n->first + n->count; i++)
        used = used || world->uses[i].used;
    return used;
}

static void sim_nodes_up(struct sim_world *world, uint32_t node)
{
    const struct sim_node *n = &world->trace.nodes[node];
    struct sim_host *host = &world->hosts[node];
    uint64_t reclaim = sim_nodes_draw_rate(world, node, world->level.reclaim);
    uint64_t failure = sim_nodes_draw_rate(world, node, world->options->fail);
    uint64_t notice = reclaim > world->options->notice_ms ? reclaim - world->options->notice_ms : 0;

    host->phase = SIM_UP;
    host->fails = failure < notice;
    host->taken_ms = sim_now(world) + reclaim;
    host->storage_ms = host->network_ms = 0;
    sim_nodes_open_devices(world, node, true);
    for (uint32_t i = n->first; i < n->first + n->count; i++)
        sim_log(world, SIM_DEVICE, SIM_NONE, i, world->devices[i].memory);
    if (host->fails || reclaim < UINT64_MAX / 2)
        sim_nodes_plan(world, node, sim_now(world) + (host->fails ? failure : notice));
    for (uint32_t i = n->first; i < n->first + n->count; i++)
        sim_serve(world, i);
}

/* ---- what is saved ---- */

void sim_save(struct sim_world *world, uint32_t task, bool leaves)
{
    struct sim_program *program = &world->shared->programs[task];
    struct policy_program *slot = sim_slot(world, task);
    uint64_t takes = sim_store(world, sim_node(world, slot->device), sim_size(world, task));

    program->saves = true;
    program->leaves = leaves;
    slot->busy_moving = true;
    sim_set_mode(world, task, SIM_STEPPING);
    if (takes)
        sim_push(world, sim_now(world) + takes, SIM_DUE_STEP, task, program->generation);
    else
        sim_saved(world, task);
}

/* Save the next program within the notice: the smallest first, so that as many as possible are
 * saved. */
static void sim_nodes_save_next(struct sim_world *world, uint32_t node)
{
    const struct sim_host *host = &world->hosts[node];
    uint32_t best = SIM_NONE;

    for (uint32_t i = 0; i < world->slot_count; i++) {
        uint32_t task = world->tasks[i];
        if (world->shared->programs[task].mode == SIM_RUNNING &&
            sim_node(world, world->slots[i].device) == node &&
            (best == SIM_NONE || sim_size(world, task) < sim_size(world, best)))
            best = task;
    }
    if (best == SIM_NONE)
        return;
    uint64_t start = host->storage_ms > sim_now(world) ? host->storage_ms : sim_now(world);
    uint64_t link = world->options->storage;
    uint64_t takes = link ? (sim_size(world, best) + link - 1) / link : 0;
    if (start + takes <= host->taken_ms)
        sim_save(world, best, true);
}

void sim_saved(struct sim_world *world, uint32_t task)
{
    struct sim_program *program = &world->shared->programs[task];
    uint32_t node = sim_node(world, sim_slot(world, task)->device);
    bool leaves = program->leaves;

    program->generation++;
    program->saves = program->leaves = false;
    program->kept = program->progress;
    sim_log(world, SIM_SAVE, task, SIM_NONE, program->kept);
    if (!leaves) {
        world->shared->result->checkpoints++;
        sim_go_on(world, task);
    } else {
        world->shared->result->saves++;
        sim_put_off(world, task);
        sim_send(world->shared, task);
    }
    if (world->hosts[node].phase == SIM_NOTICED && world->saves)
        sim_nodes_save_next(world, node);
}

/* ---- notices and reclaims ---- */

static void sim_nodes_leave(struct sim_world *world, uint32_t node)
{
    const struct sim_node *n = &world->trace.nodes[node];

    for (uint32_t i = n->first; i < n->first + n->count; i++) {
        uint32_t first = world->devices[i].first;
        uint32_t task = first == POLICY_NONE ? SIM_NONE : world->tasks[first];
        if (task != SIM_NONE && sim_task(world, task)->more &&
            world->shared->programs[task].mode == SIM_RUNNING)
            sim_move_whole(world, task);
        world->devices[i].drains = true;
    }
    for (uint32_t i = n->first; i < n->first + n->count; i++)
        sim_drain(world, i);
}

static void sim_nodes_noticed(struct sim_world *world, uint32_t node)
{
    struct sim_host *host = &world->hosts[node];

    host->phase = SIM_NOTICED;
    host->in_use = sim_nodes_is_used(world, node);
    sim_nodes_open_devices(world, node, false);
    sim_nodes_plan(world, node, host->taken_ms);
    if (!host->in_use || !world->options->notice_ms)
        return;
    if (world->regime == SIM_RECONFIGURATION && world->options->between_hosts)
        sim_nodes_leave(world, node);
    if (world->saves)
        sim_nodes_save_next(world, node);
}

/* ---- what is lost ---- */

/* The target of a step is gone: the program stays where it was. */
static void sim_nodes_roll_back(struct sim_world *world, uint32_t task)
{
    struct sim_program *program = &world->shared->programs[task];
    bool queues = program->step == POLICY_DO_RESUME || program->waits;

    sim_unreserve(world, program->target, program->reserved);
    sim_log(world, SIM_HOLD, task, program->target, 0);
    sim_unreserve_others(world, task, sim_node(world, program->target), program->target_others);
    program->target = SIM_NONE;
    program->target_others = 0;
    program->generation++;
    sim_slot(world, task)->busy_moving = sim_task(world, task)->more > 0;
    if (sim_slot(world, task)->device != POLICY_NONE) {
        sim_host_keep(world, task, sim_node(world, sim_slot(world, task)->device),
                      sim_in_host(world, task));
    } else {
        sim_host_keep(world, task, program->home,
                      sim_task(world, task)->host + sim_slot(world, task)->wanted);
    }
    sim_set_mode(world, task,
                 program->step == POLICY_DO_RESUME ? SIM_QUEUED
                 : program->waits                  ? SIM_BLOCKED
                                                   : SIM_RUNNING);
    program->step = POLICY_NOTHING;
    if (queues)
        sim_queue_add(world, task, false);
}

/* True when everything that the program has is on the node, or nowhere yet. */
static bool sim_nodes_is_lost(const struct sim_world *world, uint32_t task, uint32_t node)
{
    const struct sim_program *program = &world->shared->programs[task];
    const struct policy_program *slot = sim_slot(world, task);

    if (slot->device != POLICY_NONE)
        return sim_node(world, slot->device) == node;
    if (program->home != SIM_NONE)
        return program->home == node;
    return program->target != SIM_NONE && sim_node(world, program->target) == node;
}

static void sim_nodes_lose(struct sim_world *world, uint32_t task)
{
    bool had = sim_slot(world, task)->device != POLICY_NONE ||
               world->shared->programs[task].home != SIM_NONE;

    sim_settle(world, task);
    if (world->shared->programs[task].progress >= sim_task(world, task)->work) {
        sim_end(world, task, false);
        return;
    }
    world->shared->result->terminations += had;
    sim_put_off(world, task);
    sim_queue_up(world->shared, task);
}

/* Lose a node with all programs that are on it or move there. */
static void sim_nodes_lose_node(struct sim_world *world, uint32_t node)
{
    for (uint32_t i = 0; i < world->slot_count;) {
        uint32_t task = world->tasks[i], target = world->shared->programs[task].target;
        if (sim_nodes_is_lost(world, task, node)) {
            sim_nodes_lose(world, task); /* The last slot has taken the number i. */
            continue;
        }
        if (target != SIM_NONE && sim_node(world, target) == node)
            sim_nodes_roll_back(world, task);
        i++;
    }
}

static void sim_nodes_gone(struct sim_world *world, uint32_t node)
{
    const struct sim_node *n = &world->trace.nodes[node];
    struct sim_host *host = &world->hosts[node];
    bool failed = host->phase == SIM_UP;

    if (failed ? sim_nodes_is_used(world, node) : host->in_use) {
        world->shared->result->failures += failed;
        world->shared->result->reclaims += !failed;
    }
    host->phase = SIM_AWAY;
    sim_nodes_open_devices(world, node, false);
    sim_nodes_lose_node(world, node);
    for (uint32_t i = n->first; i < n->first + n->count; i++)
        sim_log(world, SIM_DEVICE, SIM_NONE, i, 0);
    uint64_t away = sim_nodes_draw(world, node, (double)world->options->away_ms);
    sim_nodes_plan(world, node, sim_now(world) + (failed ? world->options->repair_ms : away));
    sim_cluster_tick(world->shared);
}

void sim_on_node(struct sim_world *world, uint32_t node)
{
    const struct sim_host *host = &world->hosts[node];

    if (host->phase == SIM_LATE || host->phase == SIM_AWAY)
        sim_nodes_up(world, node);
    else if (host->phase == SIM_UP && !host->fails)
        sim_nodes_noticed(world, node);
    else
        sim_nodes_gone(world, node);
}

void sim_nodes_start(struct sim_world *world)
{
    for (uint32_t i = 0; i < world->trace.node_count; i++) {
        uint64_t from = world->trace.nodes[i].from_ms;
        if (from)
            sim_nodes_plan(world, i, from);
        else
            sim_nodes_up(world, i);
    }
}
