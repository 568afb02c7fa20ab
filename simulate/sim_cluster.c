#include "simulate/sim_world.h"

#include <math.h>
#include <string.h>

/*
 * The cluster's scheduler. It sends a program to a node, and the policy of that node takes it from
 * there. Which node: the policy's choice among all devices with room; or (SIM_CHEAPEST) a device
 * where it costs the least. A program of several devices starts when a node has all of them free,
 * and the policy leaves it alone; where it is first in the queue a node is kept for it, so that
 * those behind it do not take what becomes free there for ever.
 */

/* How far the queue is gone through, and how many are tried in vain. */
#define WALK_MAX 256
#define VAIN_MAX 4
/* Between two looks at all of it; what becomes free is offered at once. */
#define TICK_MS 60000
/* Cells that are asked to make room. */
#define TRIES 8

static bool sim_cluster_is_barred(const struct sim_world *world, uint32_t task, uint32_t device)
{
    const uint64_t *barred = world->trace.rules[sim_task(world, task)->rule].barred;

    return barred && barred[device / 64] >> (device % 64) & 1;
}

static uint64_t sim_cluster_free_of(const struct policy_device *device)
{
    return device->reserved < device->memory ? device->memory - device->reserved : 0;
}

static bool sim_cluster_has_room(const struct sim_world *world, uint32_t task, uint32_t device,
                                 uint64_t bytes)
{
    const struct policy_device *d = &world->devices[device];

    return !d->closed && sim_cluster_free_of(d) >= bytes &&
           !sim_cluster_is_barred(world, task, device);
}

/* True when @node may take @task. A node that is kept for another task may not. */
static bool sim_cluster_is_open(const struct sim_world *world, uint32_t task, uint32_t node)
{
    const struct sim_shared *shared = world->shared;
    bool kept = shared->claimer != SIM_NONE && shared->claimer != task &&
                shared->claim.cell == world->cell && sim_node(world, shared->claim.device) == node;

    return world->hosts[node].phase == SIM_UP && !kept &&
           sim_host_fits(world, node, sim_task(world, task)->host);
}

/* A bit for each of the free devices that a task with several devices gets on @node; 0: the node
 * has too few. */
static uint64_t sim_cluster_free_devices(const struct sim_world *world, uint32_t task,
                                         uint32_t node)
{
    const struct sim_node *n = &world->trace.nodes[node];
    uint32_t wanted = sim_task(world, task)->more + 1u;
    uint64_t bits = 0;

    for (uint32_t i = 0; wanted && i < n->count; i++) {
        if (!world->devices[n->first + i].reserved &&
            sim_cluster_has_room(world, task, n->first + i, sim_task(world, task)->bytes)) {
            bits |= 1ull << i;
            wanted--;
        }
    }
    return wanted ? 0 : bits;
}

/* ---- where ---- */

struct search {
    struct sim_shared *shared;
    uint32_t task, count;
    uint64_t idle; /* Models of which an idle device is there already: others are no better. */
};

static void sim_cluster_add(struct search *search, const struct sim_world *world, uint32_t device)
{
    const struct policy_device *d = &world->devices[device];
    uint64_t model = 1ull << world->trace.devices[device].model;

    if (!d->reserved && !d->residents) {
        if (search->idle & model)
            return;
        search->idle |= model;
    }
    search->shared->places[search->count] = (struct sim_place){world->cell, device};
    search->shared->candidates[search->count] = *d;
    search->shared->candidates[search->count++].first = POLICY_NONE;
}

static void sim_cluster_add_node(struct search *search, const struct sim_world *world,
                                 uint32_t node)
{
    const struct sim_node *n = &world->trace.nodes[node];
    uint64_t wanted = sim_wanted(world, search->task);

    if (!sim_cluster_is_open(world, search->task, node))
        return;
    if (sim_task(world, search->task)->more) {
        uint64_t bits = sim_cluster_free_devices(world, search->task, node);
        if (bits)
            sim_cluster_add(search, world, n->first + (uint32_t)__builtin_ctzll(bits));
        return;
    }
    for (uint32_t i = n->first; i < n->first + n->count; i++)
        if (sim_cluster_has_room(world, search->task, i, wanted))
            sim_cluster_add(search, world, i);
}

/*
 * What it costs to have it there: nothing on a device that others use, with time to spare; else the
 * device's price for as long as it takes there, and a little more where it would slow others down.
 */
static double sim_cluster_cost_of(const struct search *search, uint32_t candidate)
{
    const struct policy_device *device = &search->shared->candidates[candidate];
    uint32_t share = search->shared->trace->tasks[search->task].share;

    if (device->residents && device->busy + sim_busy(device->speed, share) <= 1000)
        return -(double)device->reserved / (double)device->memory;
    return 1000.0 * device->price / sim_rate(device->speed, share) + device->residents / 10.0;
}

static bool sim_cluster_choose_cheapest(const struct search *search, struct sim_place *ret_place)
{
    double least = INFINITY;

    for (uint32_t i = 0; i < search->count; i++) {
        double cost = sim_cluster_cost_of(search, i);
        if (cost < least) {
            least = cost;
            *ret_place = search->shared->places[i];
        }
    }
    return least < INFINITY;
}

/* The one of the candidates that the policy would take. */
static bool sim_cluster_choose(const struct search *search, struct sim_place *ret_place)
{
    const struct sim_world *world = search->shared->worlds;
    const struct sim_task *t = sim_task(world, search->task);
    uint32_t queue = 0;
    const struct policy_program program = {
        .name = "the program",
        .state = POLICY_SUSPENDED,
        .device = POLICY_NONE,
        .next = POLICY_NONE,
        .wanted = sim_wanted(world, search->task),
        .least = sim_wanted(world, search->task),
        .quota = UINT64_MAX,
        .busy = t->share,
        .ways = POLICY_WAIT,
    };
    const struct policy_world seen = {.devices = search->shared->candidates,
                                      .device_count = search->count,
                                      .programs = &program,
                                      .program_count = 1,
                                      .queue = &queue,
                                      .queue_count = 1};
    struct policy_step step = {.action = POLICY_NOTHING};

    if (world->regime == SIM_CHEAPEST)
        return sim_cluster_choose_cheapest(search, ret_place);
    if (search->count)
        policy_answer(&seen, &world->settings, 0, &step);
    if (step.action == POLICY_DO_RESUME)
        *ret_place = search->shared->places[step.device];
    return step.action == POLICY_DO_RESUME;
}

/* On that node the agent says which device: the one that programs start on (policy/decide.h), where
 * that has room for all of it. */
static uint32_t sim_cluster_start_device(const struct sim_world *world, uint32_t task,
                                         uint32_t device)
{
    const struct sim_node *n = &world->trace.nodes[sim_node(world, device)];
    struct place_device devices[SIM_NODE_MAX];
    char reason[POLICY_REASON];
    size_t chosen;

    for (uint32_t i = 0; i < n->count; i++) {
        const struct policy_device *d = &world->devices[n->first + i];
        devices[i] = (struct place_device){
            .name = d->name,
            .kind = d->kind,
            .memory_total = d->memory,
            .memory_used = d->reserved,
            .closed = d->closed || sim_cluster_is_barred(world, task, n->first + i)};
    }
    if (place_choose(devices, n->count, &chosen, reason, sizeof(reason)))
        return device;
    uint32_t start = n->first + (uint32_t)chosen;
    return sim_cluster_has_room(world, task, start, sim_wanted(world, task)) ? start : device;
}

static bool sim_cluster_start_at(struct sim_world *world, uint32_t task, uint32_t device)
{
    struct sim_program *program = &world->shared->programs[task];
    struct policy_step step = {.action = POLICY_DO_RESUME, .device = device};

    if (!sim_enter(world, task))
        return true; /* The run ends. */
    step.program = program->slot;
    step.bytes = world->slots[program->slot].wanted;
    if (sim_task(world, task)->more) {
        uint32_t node = sim_node(world, device), first = world->trace.nodes[node].first;
        program->target_others =
            sim_cluster_free_devices(world, task, node) & ~(1ull << (device - first));
        step.bytes = world->devices[device].memory;
    } else if (world->regime != SIM_CHEAPEST) {
        step.device = sim_cluster_start_device(world, task, device);
    }
    sim_carry_out(world, &step, SIM_NONE);
    return true;
}

/* ---- cells that make room ---- */

/* Room of a cell on the devices that a program may use, minus what waits there; negative infinity
 * if no device could hold the program. */
static double sim_cluster_room_in(const struct sim_world *world, uint32_t task)
{
    double room = -(double)world->queued_bytes;
    bool fits = false;

    for (uint32_t i = 0; i < world->trace.device_count; i++) {
        if (!world->devices[i].closed && !sim_cluster_is_barred(world, task, i) &&
            sim_cluster_is_open(world, task, sim_node(world, i))) {
            fits = fits || world->devices[i].memory >= sim_task(world, task)->bytes;
            room += (double)sim_cluster_free_of(&world->devices[i]);
        }
    }
    return fits ? room : -INFINITY;
}

/* Ask a cell's policy to start the program or to make room for it. Returns whether it did. */
static bool sim_cluster_ask_cell(struct sim_world *world, uint32_t task)
{
    struct sim_program *program = &world->shared->programs[task];

    if (!sim_enter(world, task))
        return true;
    if (sim_ask(world, task) || program->slot == SIM_NONE || program->mode != SIM_QUEUED)
        return true;
    sim_queue_remove(world, task);
    program->rests = false;
    sim_leave(world, task);
    return false;
}

static bool sim_cluster_ask_cells(struct sim_shared *shared, uint32_t task)
{
    uint32_t cells[TRIES + 1], count = 0;
    double rooms[TRIES + 1];

    for (uint32_t i = 0; i < shared->cells; i++) {
        double room = sim_cluster_room_in(&shared->worlds[i], task);
        uint32_t at = count;
        for (; at && room > rooms[at - 1]; at--) {
            cells[at] = cells[at - 1];
            rooms[at] = rooms[at - 1];
        }
        cells[at] = i;
        rooms[at] = room;
        count += count < TRIES;
    }
    for (uint32_t i = 0; i < count && rooms[i] > -INFINITY; i++)
        if (sim_cluster_ask_cell(&shared->worlds[cells[i]], task))
            return true;
    return false;
}

/* ---- the queue ---- */

static bool sim_cluster_try(struct sim_shared *shared, uint32_t task)
{
    struct search search = {.shared = shared, .task = task};
    struct sim_place place = {0};

    for (uint32_t i = 0; i < shared->cells; i++)
        for (uint32_t j = 0; j < shared->worlds[i].trace.node_count; j++)
            sim_cluster_add_node(&search, &shared->worlds[i], j);
    if (sim_cluster_choose(&search, &place))
        return sim_cluster_start_at(&shared->worlds[place.cell], task, place.device);
    return !sim_is_rigid(shared->worlds) && !shared->trace->tasks[task].more &&
           sim_cluster_ask_cells(shared, task);
}

/* Waiting counts as priority, as with the policy, so that the order of two programs does not change
 * over time. */
static int64_t sim_cluster_key_of(const struct sim_shared *shared, uint32_t task)
{
    uint64_t age = shared->options->settings.age_s * 1000;

    return (int64_t)shared->programs[task].since_ms -
           shared->trace->tasks[task].priority * (int64_t)(age ? age : INT64_MAX / 1024);
}

void sim_cluster_wait(struct sim_shared *shared)
{
    if (!shared->ticking) {
        shared->ticking = true;
        sim_push(shared->worlds, shared->now_ms + TICK_MS, SIM_DUE_CLUSTER, 0, 0);
    }
}

static bool sim_cluster_could_hold(const struct sim_world *world, uint32_t task, uint32_t node)
{
    const struct sim_node *n = &world->trace.nodes[node];
    uint32_t devices = 0;

    for (uint32_t i = n->first; i < n->first + n->count; i++) {
        devices += world->devices[i].memory >= sim_task(world, task)->bytes &&
                   !sim_cluster_is_barred(world, task, i);
    }
    return devices > sim_task(world, task)->more && n->host >= sim_task(world, task)->host;
}

/* Keep the node with the least on it for one of several devices that is first in the queue. */
static void sim_cluster_claim(struct sim_shared *shared)
{
    uint32_t task = shared->queue_count ? shared->queue[0].task : SIM_NONE;
    uint64_t least = UINT64_MAX;

    if (task != SIM_NONE && task == shared->claimer) {
        const struct sim_world *world = &shared->worlds[shared->claim.cell];
        if (world->hosts[sim_node(world, shared->claim.device)].phase == SIM_UP)
            return;
    }
    shared->claimer = SIM_NONE;
    for (uint32_t i = 0; task != SIM_NONE && shared->trace->tasks[task].more && i < shared->cells;
         i++) {
        const struct sim_world *world = &shared->worlds[i];
        for (uint32_t j = 0; j < world->trace.node_count; j++) {
            const struct sim_node *n = &world->trace.nodes[j];
            uint64_t reserved = 0;
            for (uint32_t k = n->first; k < n->first + n->count; k++)
                reserved += world->devices[k].reserved;
            if (world->hosts[j].phase == SIM_UP && sim_cluster_could_hold(world, task, j) &&
                reserved < least) {
                least = reserved;
                shared->claimer = task;
                shared->claim = (struct sim_place){i, n->first};
            }
        }
    }
}

void sim_queue_up(struct sim_shared *shared, uint32_t task)
{
    int64_t key = sim_cluster_key_of(shared, task);
    uint32_t low = 0, high = shared->queue_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (shared->queue[middle].key <= key)
            low = middle + 1;
        else
            high = middle;
    }
    memmove(&shared->queue[low + 1], &shared->queue[low],
            (shared->queue_count - low) * sizeof(*shared->queue));
    shared->queue[low] = (struct sim_waiter){key, task};
    shared->queue_count++;
    sim_cluster_claim(shared);
    sim_cluster_wait(shared);
}

/* @at  Its former index; others may have been inserted before it since. */
static void sim_cluster_take_from(struct sim_shared *shared, uint32_t at, uint32_t task)
{
    while (shared->queue[at].task != task)
        at++;
    if (shared->claimer == task)
        shared->claimer = SIM_NONE;
    memmove(&shared->queue[at], &shared->queue[at + 1],
            (shared->queue_count - at - 1) * sizeof(*shared->queue));
    shared->queue_count--;
}

void sim_send(struct sim_shared *shared, uint32_t task)
{
    if (!sim_cluster_try(shared, task))
        sim_queue_up(shared, task);
}

bool sim_is_possible(const struct sim_shared *shared, uint32_t task)
{
    for (uint32_t i = 0; i < shared->cells; i++) {
        for (uint32_t j = 0; j < shared->worlds[i].trace.node_count; j++)
            if (sim_cluster_could_hold(&shared->worlds[i], task, j))
                return true;
    }
    return false;
}

void sim_cluster_tick(struct sim_shared *shared)
{
    uint32_t at = 0;

    if (shared->offering)
        return;
    shared->offering = true;
    sim_cluster_claim(shared);
    for (int walked = 0, vain = 0; walked < WALK_MAX && vain < VAIN_MAX; walked++) {
        if (at >= shared->queue_count || shared->error)
            break;
        uint32_t task = shared->queue[at].task;
        if (sim_cluster_try(shared, task)) {
            sim_cluster_take_from(shared, at, task);
        } else {
            vain++;
            at++;
        }
    }
    shared->offering = false;
}

static bool sim_cluster_offer_to(struct sim_world *world, uint32_t task, uint32_t device)
{
    uint32_t node = sim_node(world, device);

    if (!sim_cluster_is_open(world, task, node))
        return false;
    if (sim_task(world, task)->more) {
        uint64_t bits = sim_cluster_free_devices(world, task, node);
        return bits &&
               sim_cluster_start_at(
                   world, task, world->trace.nodes[node].first + (uint32_t)__builtin_ctzll(bits));
    }
    if (sim_cluster_has_room(world, task, device, sim_wanted(world, task)))
        return sim_cluster_start_at(world, task, device);
    return world->ways & POLICY_SPILL &&
           world->devices[device].memory >= sim_task(world, task)->bytes &&
           sim_cluster_has_room(world, task, device, sim_wanted(world, task) / SIM_LEAST_PART) &&
           sim_cluster_ask_cell(world, task);
}

void sim_offer(struct sim_world *world, uint32_t device)
{
    struct sim_shared *shared = world->shared;
    uint32_t at = 0;

    /* Programs that wait in the cell come first: free memory is for them. */
    if (shared->offering || world->queue_count)
        return;
    shared->offering = true;
    sim_cluster_claim(shared);
    for (int walked = 0; walked < WALK_MAX && at < shared->queue_count; walked++) {
        if (world->devices[device].closed || !sim_cluster_free_of(&world->devices[device]))
            break;
        uint32_t task = shared->queue[at].task;
        if (sim_cluster_offer_to(world, task, device))
            sim_cluster_take_from(shared, at, task);
        else
            at++;
    }
    shared->offering = false;
}

bool sim_move_whole(struct sim_world *world, uint32_t task)
{
    struct search search = {.shared = world->shared, .task = task};
    struct sim_program *program = &world->shared->programs[task];
    struct policy_step step = {.action = POLICY_DO_MOVE, .program = program->slot};
    struct sim_place place = {0};

    for (uint32_t i = 0; i < world->trace.node_count; i++)
        sim_cluster_add_node(&search, world, i);
    if (!sim_cluster_choose(&search, &place))
        return false;
    uint32_t node = sim_node(world, place.device), first = world->trace.nodes[node].first;
    program->target_others =
        sim_cluster_free_devices(world, task, node) & ~(1ull << (place.device - first));
    step.device = place.device;
    step.bytes = world->devices[place.device].memory;
    if (!sim_carry_out(world, &step, SIM_NONE)) {
        program->target_others = 0;
        return false;
    }
    return true;
}
