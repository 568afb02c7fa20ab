#include "simulate/sim_world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void sim_heap_finish(struct sim_heap *heap)
{
    free(heap->items);
    *heap = (struct sim_heap){0};
}

static bool sim_world_sooner(const struct sim_due *a, const struct sim_due *b)
{
    return a->time_ms != b->time_ms ? a->time_ms < b->time_ms : a->number < b->number;
}

static int sim_world_heap_push(struct sim_heap *heap, struct sim_due due)
{
    if (heap->count == heap->room) {
        size_t room = heap->room ? 2 * heap->room : 256;
        struct sim_due *items = reallocarray(heap->items, room, sizeof(*items));
        if (!items)
            return -ENOMEM;
        heap->items = items;
        heap->room = room;
    }
    due.number = heap->numbers++;
    size_t at = heap->count++;
    for (; at && sim_world_sooner(&due, &heap->items[(at - 1) / 2]); at = (at - 1) / 2)
        heap->items[at] = heap->items[(at - 1) / 2];
    heap->items[at] = due;
    return 0;
}

const struct sim_due *sim_heap_peek(const struct sim_heap *heap)
{
    return heap->count ? &heap->items[0] : NULL;
}

void sim_heap_pop(struct sim_heap *heap)
{
    struct sim_due last = heap->items[--heap->count];
    size_t at = 0;

    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= heap->count)
            break;
        child += child + 1 < heap->count &&
                 sim_world_sooner(&heap->items[child + 1], &heap->items[child]);
        if (!sim_world_sooner(&heap->items[child], &last))
            break;
        heap->items[at] = heap->items[child];
        at = child;
    }
    heap->items[at] = last;
}

/* Longest interval between two examinations by the policy, and the factor for cells with many
 * devices. */
#define LOOK_MAX_MS 3600000
#define LARGE_TIMES 60

static int sim_world_allocate(struct sim_world *world)
{
    const struct sim_trace *trace = &world->trace;
    size_t budget = world->settings.budget;

    world->move_room = (uint32_t)(budget ? budget : 1) * 2;
    world->devices = calloc(trace->device_count, sizeof(*world->devices));
    world->uses = calloc(trace->device_count, sizeof(*world->uses));
    world->hosts = calloc(trace->node_count, sizeof(*world->hosts));
    world->moves = calloc(world->move_room, sizeof(*world->moves));
    return world->devices && world->uses && world->hosts && world->moves ? 0 : -ENOMEM;
}

int sim_world_init(struct sim_world *world, struct sim_shared *shared, uint32_t cell, size_t level)
{
    static const unsigned ways[] = {
        [SIM_TERMINATION] = POLICY_WAIT,
        [SIM_CHEAPEST] = POLICY_WAIT,
        [SIM_SAVING] = POLICY_WAIT,
        [SIM_OVERCOMMIT] = POLICY_SPILL | POLICY_WAIT,
        [SIM_RECONFIGURATION] = POLICY_UPGRADE | POLICY_SPILL | POLICY_WAIT | POLICY_SUSPEND,
    };
    const struct sim_trace *trace = shared->trace;
    const struct sim_options *options = shared->options;
    enum sim_regime regime = shared->result->regime;

    *world =
        (struct sim_world){.shared = shared,
                           .cell = cell,
                           .options = options,
                           .settings = options->settings,
                           .regime = regime,
                           .level = options->levels[level],
                           .ways = ways[regime],
                           .saves = regime == SIM_SAVING || (options->save && regime > SIM_SAVING)};
    world->settings.automatic = world->settings.automatic && regime == SIM_RECONFIGURATION;
    if (sim_trace_part(trace, cell, shared->cells, &world->trace) || sim_world_allocate(world))
        return -ENOMEM;
    for (uint32_t i = 0; i < world->trace.device_count; i++) {
        const struct sim_model *model = &trace->models.items[world->trace.devices[i].model];
        world->devices[i] = (struct policy_device){.name = model->name,
                                                   .kind = PLACE_GPU,
                                                   .memory = model->memory,
                                                   .speed = model->speed,
                                                   .price = model->price,
                                                   .first = POLICY_NONE,
                                                   .closed = true};
    }
    return 0;
}

void sim_world_finish(struct sim_world *world)
{
    sim_trace_part_finish(&world->trace);
    free(world->devices);
    free(world->uses);
    free(world->hosts);
    free(world->slots);
    free(world->tasks);
    free(world->queue);
    free(world->moves);
}

void sim_tell(const struct sim_shared *shared, enum sim_event_kind kind, uint32_t task, uint32_t id,
              uint64_t amount)
{
    const struct sim_event event = {kind, task, id, shared->now_ms, amount};

    if (shared->check)
        sim_check_event(shared->check, &event);
}

void sim_log(struct sim_world *world, enum sim_event_kind kind, uint32_t task, uint32_t device,
             uint64_t amount)
{
    sim_tell(world->shared, kind, task, sim_global(world, device), amount);
}

void sim_push(struct sim_world *world, uint64_t time_ms, enum sim_due_kind kind, uint32_t index,
              uint32_t generation)
{
    const struct sim_due due = {.time_ms = time_ms,
                                .generation = generation,
                                .index = index,
                                .cell = world->cell,
                                .kind = kind};

    if (sim_world_heap_push(&world->shared->heap, due))
        world->shared->error = -ENOMEM;
}

/* ---- devices ---- */

void sim_pay(struct sim_world *world, uint32_t node)
{
    const struct sim_node *n = &world->trace.nodes[node];
    struct sim_host *host = &world->hosts[node];

    for (uint32_t i = n->first; host->devices && i < n->first + n->count; i++)
        world->shared->paid_ms[world->trace.devices[i].model] += sim_now(world) - host->paid_ms;
    host->paid_ms = sim_now(world);
}

static void sim_world_note_use(struct sim_world *world, uint32_t device)
{
    struct sim_device_use *use = &world->uses[device];
    bool used = world->devices[device].residents || use->incoming;

    if (used && !use->used) {
        use->used_since_ms = sim_now(world);
    } else if (!used && use->used) {
        world->shared->occupied_ms[world->trace.devices[device].model] +=
            sim_now(world) - use->used_since_ms;
    }
    if (used != use->used) {
        sim_pay(world, sim_node(world, device));
        world->hosts[sim_node(world, device)].devices += used ? 1 : UINT32_MAX;
    }
    use->used = used;
}

void sim_reserve(struct sim_world *world, uint32_t device, uint64_t bytes)
{
    world->devices[device].reserved += bytes;
    world->uses[device].incoming++;
    sim_world_note_use(world, device);
}

void sim_unreserve(struct sim_world *world, uint32_t device, uint64_t bytes)
{
    world->devices[device].reserved -= bytes;
    world->uses[device].incoming--;
    sim_world_note_use(world, device);
}

static uint32_t sim_world_next_bit(uint64_t *bits)
{
    uint32_t bit = (uint32_t)__builtin_ctzll(*bits);

    *bits &= *bits - 1;
    return bit;
}

void sim_reserve_others(struct sim_world *world, uint32_t task, uint32_t node, uint64_t others)
{
    while (others) {
        uint32_t device = world->trace.nodes[node].first + sim_world_next_bit(&others);
        sim_reserve(world, device, world->devices[device].memory);
        sim_log(world, SIM_HOLD, task, device, world->devices[device].memory);
    }
}

void sim_unreserve_others(struct sim_world *world, uint32_t task, uint32_t node, uint64_t others)
{
    while (others) {
        uint32_t device = world->trace.nodes[node].first + sim_world_next_bit(&others);
        sim_unreserve(world, device, world->devices[device].memory);
        sim_log(world, SIM_HOLD, task, device, 0);
    }
}

/* ---- work ---- */

/* The progress at which the task writes its next checkpoint; UINT64_MAX: it writes none. */
static uint64_t sim_world_next_checkpoint(const struct sim_world *world, uint32_t task)
{
    const struct sim_program *program = &world->shared->programs[task];
    uint64_t step = world->options->checkpoint_ms * 1000;

    if (!step)
        return UINT64_MAX;
    uint64_t due = (program->kept / step + 1) * step;
    return due < sim_task(world, task)->work ? due : UINT64_MAX;
}

void sim_lose(struct sim_world *world, uint32_t task)
{
    const struct sim_task *t = sim_task(world, task);
    struct sim_program *program = &world->shared->programs[task];
    uint64_t lost = program->progress - program->kept;

    program->progress = program->kept;
    program->lost += lost;
    world->shared->lost += lost;
    world->shared->lost_us += lost / 1000 * t->share * (t->more + 1u);
    sim_log(world, SIM_LOSE, task, SIM_NONE, lost);
}

uint64_t sim_milestone(const struct sim_world *world, uint32_t task)
{
    const struct sim_task *t = &world->trace.tasks[task];
    const struct sim_program *program = &world->shared->programs[task];

    if (sim_is_rigid(world) || program->grown >= t->steps)
        return t->work;
    return t->work / (t->steps + 1u) * (program->grown + 1u);
}

uint64_t sim_wanted(const struct sim_world *world, uint32_t task)
{
    const struct sim_task *t = &world->trace.tasks[task];
    const struct sim_program *program = &world->shared->programs[task];

    /* A program that cannot grow later must ask for all memory at first. */
    if (sim_is_rigid(world) || program->grown >= t->steps)
        return t->bytes;
    return t->bytes / (t->steps + 1u) * (program->grown + 1u);
}

void sim_settle(struct sim_world *world, uint32_t task)
{
    struct sim_program *program = &world->shared->programs[task];
    uint64_t passed = sim_now(world) - program->settled_ms;

    program->settled_ms = sim_now(world);
    if (program->mode == SIM_QUEUED || program->mode == SIM_BLOCKED) {
        program->waited_ms += passed;
    } else if (program->mode == SIM_STEPPING) {
        world->shared->result->stopped_ms += passed;
    } else if (program->mode == SIM_RUNNING && program->rate) {
        uint32_t device = sim_slot(world, task)->device;
        uint64_t done = passed * program->rate;
        program->progress += done;
        const struct sim_task *t = sim_task(world, task);
        world->shared->busy_us += done * t->share * (t->more + 1u) / world->devices[device].speed;
    }
}

/* Rate of a program, in thousandths of the reference, beside the others on its device. */
static uint32_t sim_world_rate_of(const struct sim_world *world, uint32_t task)
{
    const struct policy_program *slot = sim_slot(world, task);
    const struct policy_device *device = &world->devices[slot->device];
    uint64_t touch = world->options->touch_ms;
    uint64_t off = slot->wanted > slot->granted ? slot->wanted - slot->granted : 0;
    uint64_t rate = sim_rate(device->speed, world->trace.tasks[task].share);

    if (device->busy > 1000)
        rate = rate * 1000 / device->busy;
    if (off)
        rate = rate * touch / (touch + 2 * off / world->options->link);
    return rate ? (uint32_t)rate : 1;
}

static void sim_world_set_rate(struct sim_world *world, uint32_t task, uint32_t rate)
{
    struct sim_program *program = &world->shared->programs[task];

    sim_settle(world, task);
    if (program->rate != rate) {
        program->rate = rate;
        sim_log(world, SIM_RATE, task, sim_slot(world, task)->device, rate);
    }
    program->generation++;
    if (rate) {
        uint64_t milestone = sim_milestone(world, task);
        uint64_t checkpoint = sim_world_next_checkpoint(world, task);
        milestone = checkpoint < milestone ? checkpoint : milestone;
        uint64_t left = milestone > program->progress ? milestone - program->progress : 0;
        sim_push(world, sim_now(world) + (left + rate - 1) / rate, SIM_DUE_PROGRAM, task,
                 program->generation);
    }
}

/* Update the rates after programs came, left, stopped or continued on a device, or changed their
 * memory. */
static void sim_world_update_rates(struct sim_world *world, uint32_t device)
{
    struct policy_device *d = &world->devices[device];

    d->busy = 0;
    for (uint32_t at = d->first; at != POLICY_NONE; at = world->slots[at].next)
        if (world->shared->programs[world->tasks[at]].mode == SIM_RUNNING)
            d->busy += world->slots[at].busy;
    for (uint32_t at = d->first; at != POLICY_NONE; at = world->slots[at].next) {
        uint32_t task = world->tasks[at];
        uint32_t rate =
            world->shared->programs[task].mode == SIM_RUNNING ? sim_world_rate_of(world, task) : 0;
        if (rate != world->shared->programs[task].rate)
            sim_world_set_rate(world, task, rate);
    }
}

void sim_set_mode(struct sim_world *world, uint32_t task, enum sim_mode mode)
{
    struct sim_program *program = &world->shared->programs[task];
    uint32_t device = sim_slot(world, task)->device;

    sim_settle(world, task);
    program->mode = mode;
    if (device != POLICY_NONE) {
        if (mode != SIM_RUNNING)
            sim_world_set_rate(world, task, 0);
        sim_world_update_rates(world, device);
    }
}

static bool sim_world_before(const struct sim_world *world, uint32_t a, uint32_t b)
{
    const struct policy_program *pa = &world->slots[a], *pb = &world->slots[b];

    return pa->priority != pb->priority ? pa->priority > pb->priority : pa->ticket < pb->ticket;
}

/* Index of a slot in the queue, or where it belongs. */
static uint32_t sim_world_place_in_queue(const struct sim_world *world, uint32_t slot)
{
    uint32_t low = 0, high = world->queue_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (sim_world_before(world, world->queue[middle], slot))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/*
 * Schedule the policy's next examination of a cell: soon after an event, as the agent does, and
 * then less and less often, since only staying and waiting times change. Cells with many devices
 * are examined less often.
 */
void sim_look(struct sim_world *world, bool again)
{
    uint64_t least = world->options->balance_ms;

    least *= world->trace.device_count > SIM_NODE_MAX ? LARGE_TIMES : 1;
    if (again)
        world->look_ms = 2 * world->look_ms < LOOK_MAX_MS ? 2 * world->look_ms : LOOK_MAX_MS;
    else
        world->look_ms = least;
    uint64_t at = sim_now(world) + world->look_ms;
    if (!world->slot_count || (sim_is_rigid(world) && !world->queue_count) ||
        (world->looks_at_ms && world->looks_at_ms <= at))
        return;
    world->looks_at_ms = at;
    sim_push(world, at, SIM_DUE_BALANCE, 0, ++world->look);
}

/* ---- programs ---- */

static bool sim_world_more_slots(struct sim_world *world)
{
    uint32_t room = world->slot_room ? 2 * world->slot_room : 64;
    struct policy_program *slots = reallocarray(world->slots, room, sizeof(*slots));

    world->slots = slots ? slots : world->slots;
    uint32_t *tasks = slots ? reallocarray(world->tasks, room, sizeof(*tasks)) : NULL;
    if (!tasks) {
        world->shared->error = -ENOMEM;
        return false;
    }
    world->tasks = tasks;
    uint32_t *queue = reallocarray(world->queue, room, sizeof(*queue));
    if (!queue) {
        world->shared->error = -ENOMEM;
        return false;
    }
    world->queue = queue;
    world->slot_room = room;
    return true;
}

bool sim_enter(struct sim_world *world, uint32_t task)
{
    const struct sim_task *t = &world->trace.tasks[task];
    struct sim_program *program = &world->shared->programs[task];

    if (world->slot_count == world->slot_room && !sim_world_more_slots(world))
        return false;
    program->slot = world->slot_count++;
    program->cell = world->cell;
    world->tasks[program->slot] = task;
    uint64_t wanted = sim_wanted(world, task);
    world->slots[program->slot] = (struct policy_program){
        .name = "the program",
        .state = POLICY_SUSPENDED,
        .device = POLICY_NONE,
        .next = POLICY_NONE,
        .wanted = wanted,
        .least = wanted / SIM_LEAST_PART,
        .quota = UINT64_MAX,
        .busy = t->share,
        .priority = t->priority,
        .ways = world->ways,
        .preemptible = t->preemptible && world->regime == SIM_RECONFIGURATION,
        .barred = world->trace.rules[t->rule].barred,
        .ready = POLICY_NONE,
        .ready_s = UINT64_MAX,
        .visits = &program->visits,
    };
    program->visits = (struct policy_visits){0};
    uint64_t since_ms = program->since_ms;
    sim_queue_add(world, task, true);
    program->since_ms = since_ms;
    sim_look(world, false);
    return true;
}

/* Update all references to a slot that gets another number: its device's list and the queue. */
static void sim_world_renumber(struct sim_world *world, uint32_t from, uint32_t to)
{
    const struct policy_program *slot = &world->slots[from];

    if (slot->device != POLICY_NONE) {
        uint32_t *at = &world->devices[slot->device].first;
        while (*at != from)
            at = &world->slots[*at].next;
        *at = to;
    }
    uint32_t place = sim_world_place_in_queue(world, from);
    if (place < world->queue_count && world->queue[place] == from)
        world->queue[place] = to;
}

void sim_leave(struct sim_world *world, uint32_t task)
{
    struct sim_program *program = &world->shared->programs[task];
    uint32_t last = world->slot_count - 1, slot = program->slot;

    if (slot != last) {
        sim_world_renumber(world, last, slot);
        world->slots[slot] = world->slots[last];
        world->tasks[slot] = world->tasks[last];
        world->shared->programs[world->tasks[slot]].slot = slot;
    }
    world->slot_count = last;
    program->slot = SIM_NONE;
    program->generation++;
}

void sim_attach(struct sim_world *world, uint32_t task, uint32_t device, uint64_t bytes)
{
    struct policy_program *slot = sim_slot(world, task);
    struct policy_device *d = &world->devices[device];

    slot->device = device;
    slot->granted = bytes;
    slot->next = d->first;
    slot->busy = sim_busy(d->speed, world->trace.tasks[task].share);
    d->first = world->shared->programs[task].slot;
    d->residents++;
    world->shared->programs[task].others = world->shared->programs[task].target_others;
    world->shared->programs[task].target_others = 0;
    world->shared->programs[task].placed_ms = sim_now(world);
    sim_world_note_use(world, device);
}

void sim_detach(struct sim_world *world, uint32_t task)
{
    struct policy_program *slot = sim_slot(world, task);
    uint32_t device = slot->device, *at = &world->devices[device].first;

    while (*at != world->shared->programs[task].slot)
        at = &world->slots[*at].next;
    *at = slot->next;
    world->devices[device].residents--;
    world->devices[device].reserved -= slot->granted;
    if (world->shared->programs[task].rate)
        sim_world_set_rate(world, task, 0);
    sim_log(world, SIM_HOLD, task, device, 0);
    sim_unreserve_others(world, task, sim_node(world, device),
                         world->shared->programs[task].others);
    world->shared->programs[task].others = 0;
    slot->device = slot->next = POLICY_NONE;
    slot->granted = 0;
    slot->busy = world->trace.tasks[task].share;
    sim_world_note_use(world, device);
    sim_world_update_rates(world, device);
}

void sim_regrant(struct sim_world *world, uint32_t task, uint64_t bytes)
{
    struct policy_program *slot = sim_slot(world, task);

    world->devices[slot->device].reserved += bytes - slot->granted;
    slot->granted = bytes;
    sim_log(world, SIM_HOLD, task, slot->device, bytes);
    sim_world_update_rates(world, slot->device);
}

void sim_queue_add(struct sim_world *world, uint32_t task, bool new_ticket)
{
    uint32_t slot = world->shared->programs[task].slot;

    if (new_ticket) {
        world->slots[slot].ticket = ++world->tickets;
        world->slots[slot].waited_s = 0;
        world->shared->programs[task].since_ms = sim_now(world);
    }
    uint32_t at = sim_world_place_in_queue(world, slot);
    memmove(&world->queue[at + 1], &world->queue[at],
            (world->queue_count - at) * sizeof(*world->queue));
    world->queue[at] = slot;
    world->queue_count++;
    world->queued_bytes += world->slots[slot].wanted;
}

void sim_queue_remove(struct sim_world *world, uint32_t task)
{
    uint32_t at = sim_world_place_in_queue(world, world->shared->programs[task].slot);

    world->queue_count--;
    world->queued_bytes -= sim_slot(world, task)->wanted;
    memmove(&world->queue[at], &world->queue[at + 1],
            (world->queue_count - at) * sizeof(*world->queue));
}
