#include <errno.h>
#include <stdlib.h>

#include "agent/config/process.h"
#include "agent/daemon/costs/costs.h"
#include "agent/daemon/operations/governor.h"
#include "agent/daemon/operations/verbs.h"
#include "agent/daemon/power/power.h"
#include "policy/reseat_limits.h"
#include "state/driver/links.h"
#include "state/driver/offer.h"

/* How long the figures of a link are used until they are read again. */
#define LINK_MS 60000

/* Builds the policy's world, anew for each question (govern_is_due()). */

void world_finish(struct world *world)
{
    free(world->devices);
    free(world->programs);
    free(world->groups);
    free(world->queue);
    free(world->turns);
    free(world->barred);
    free(world->offers);
    free(world->entries);
    free(world->visits);
    *world = (struct world){0};
}

/** How many of the times in a ring, which has had @count, are not before @since. */
static unsigned world_moves_since(const uint64_t *ring_ms, unsigned size, unsigned count,
                                  uint64_t since)
{
    unsigned recent = 0;

    for (unsigned i = 0; i < count && i < size; i++)
        recent += ring_ms[i] >= since;
    return recent;
}

/** Bytes a millisecond of a device's link, as our user's programs measured it; 0: unknown. */
static uint64_t world_link(const struct agent *agent, struct ledger_device *device,
                           const struct inventory_entry *entry)
{
    struct link_figures figures;
    struct links links;

    if (uv_now(&agent->loop) < device->link_due_ms)
        return device->link;
    device->link_due_ms = uv_now(&agent->loop) + LINK_MS;
    device->link = 0;
    if (!paths_links(links.folder) &&
        !links_find(&links, &entry->key, &entry->info, &figures, NULL)) {
        bool reads = figures.read.bandwidth < figures.write.bandwidth;
        device->link = (uint64_t)(reads ? figures.read : figures.write).bandwidth / 1000;
    }
    return device->link;
}

static void world_put_devices(struct agent *agent, struct world *world)
{
    for (uint32_t i = 0; i < agent->ledger.count; i++) {
        struct ledger_device *own = &agent->ledger.devices[i];
        const struct inventory_entry *entry = world->entries[i] = devices_entry(agent, i);
        struct policy_device *device = &world->devices[i];
        *device = (struct policy_device){.kind = PLACE_OTHER,
                                         .speed = 1,
                                         .price = 1000,
                                         .closed = true,
                                         .gone = !entry || entry->lost,
                                         .first = POLICY_NONE};
        if (entry) {
            struct plan_offer offer;
            device_settings(agent, entry, device);
            device->link = world_link(agent, own, entry);
            offer_from_devinfo(&entry->info, &offer);
            reseat_limits_offered(&offer, &world->offers[i]);
        }
        device->has = &world->offers[i];
        device->name = own->name;
        device->memory = ledger_capacity(own);
        device->whole = own->own < own->tight ? own->own : own->tight;
        device->reserved = own->reserved;
        device->step = ledger_step(own);
        device->free_s = (uv_now(&agent->loop) - own->used_ms) / 1000;
        device->drains = own->drains;
        device->closed = device->closed || device->gone || own->lost || ledger_closed(own);
    }
}

static void world_exclusion(uint64_t *barred, uint32_t device)
{
    barred[device / 64] |= 1ull << (device % 64);
}

/**
 * Bar the devices where the group would not run: those that refused it or failed recently, except
 * @own, where it runs now; those hidden by its environment; those below its requirements or its
 * power cap; and all but those that it is pinned to, or the one that it queues for.
 */
static void world_put_exclusions(const struct agent *agent, const struct world *world,
                                 const struct group *group, uint32_t own, uint64_t *barred)
{
    const struct program *program = group->program;
    const struct program_device *vdev = &program->vdevs[group->vdev];

    for (unsigned i = 0; i < program->managed.exclusion_count; i++) {
        const struct program_exclusion *one = &program->managed.exclusions[i];
        if (one->device != own && exclusions_hold(agent, program, one))
            world_exclusion(barred, one->device);
    }
    const char *pinned_to = program->policy.pinned_to;
    uint64_t digest = program->environment ? devices_digest(agent, program->environment) : 0;
    char ignored[PROTOCOL_TEXT_MAX];
    for (uint32_t i = 0; i < agent->ledger.count; i++) {
        const struct inventory_entry *entry = world->entries[i];
        bool hidden = i != own && entry && !devices_shown(digest, entry);
        bool queues_elsewhere = vdev_is_off(vdev) && vdev->only != LEDGER_NONE && vdev->only != i;
        if (hidden || queues_elsewhere ||
            (pinned_to[0] && !device_listed(&agent->devices.inventory, pinned_to, entry)) ||
            !program_wish_fits(agent, program, i, ignored, sizeof(ignored)) ||
            (world->capped && power_bars(agent, program, i)))
            world_exclusion(barred, i);
    }
}

/** Describe a pending request. Memory that the driver refused cannot be had there. */
static void world_put_pending(struct world *world, struct policy_program *row,
                              const struct pending *pending)
{
    row->state = row->device == POLICY_NONE ? row->state : POLICY_WAITING;
    row->least = row->least > pending->least ? row->least : pending->least;
    row->wanted = row->wanted > pending->wanted ? row->wanted : pending->wanted;
    row->ticket = pending->ticket;
    row->owns = pending->owns && !pending->failed;
    /* The total need as the program reports it: it may not have received all of its grants yet. */
    row->need = row->device == POLICY_NONE ? row->wanted : pending->total;
    if (!pending->failed || row->device == POLICY_NONE)
        return;
    uint64_t held = 0;
    for (unsigned i = 0; i < pending->program->vdev_count; i++) {
        const struct program_device *vdev = &pending->program->vdevs[i];
        held += vdev->entry.device == row->device ? vdev->entry.held : 0;
    }
    if (held < row->granted) {
        world->devices[row->device].reserved -= row->granted - held;
        row->granted = held;
    }
}

static void world_put_times(const struct agent *agent, const struct group *group,
                            const struct pending *pending, struct policy_program *row)
{
    const struct program_device *vdev = &group->program->vdevs[group->vdev];
    const struct managed *managed = &group->program->managed;
    uint64_t now = uv_now(&agent->loop), budget = config_policy(&agent->config)->budget_s * 1000;
    bool queues = vdev->displaced && vdev_is_off(vdev);
    uint64_t waited = pending  ? now - pending->since_ms
                      : queues ? now - vdev->queued_ms
                               : vdev->earned_ms;

    row->waited_s = waited / 1000;
    row->stayed_s = (now - vdev->placed_ms) / 1000;
    row->recent_moves = world_moves_since(managed->moved_ms, PROGRAM_MOVES_MAX, managed->moved,
                                          now > budget ? now - budget : 0);
}

/** The combined visits of a group's virtual devices. */
static void world_put_visits(const struct group *group, struct policy_visits *ret_visits)
{
    const struct program_device *vdevs = group->program->vdevs;

    *ret_visits = vdevs[group->vdev].visits;
    for (uint32_t i = group->vdev + 1; i < group->program->vdev_count; i++) {
        if (!(group->vdevs & (1u << i)))
            continue;
        ret_visits->settled += vdevs[i].visits.settled;
        for (uint32_t at = 0; at < ret_visits->count; at++) {
            const struct policy_visit *other =
                visits_find(&vdevs[i].visits, ret_visits->visits[at].device);
            ret_visits->visits[at].busy += other ? other->busy : 0;
        }
    }
}

/* What the virtual devices of the group have and want, all together. */
static void world_put_vdevs(const struct group *group, struct policy_program *row)
{
    uint64_t held = 0;
    for (unsigned i = 0; i < group->program->vdev_count; i++) {
        const struct program_device *vdev = &group->program->vdevs[i];
        if (!(group->vdevs & (1u << i)))
            continue;
        held += vdev->device_bytes;
        row->granted += ledger_reserved(&vdev->entry);
        row->wanted += vdev->wanted;
        row->least = row->least > vdev->least ? row->least : vdev->least;
        row->busy += vdev->busy;
        row->pinned = row->pinned || vdev->pinned[0];
        if (!vdev->limited) {
            row->ways &= ~(unsigned)POLICY_SPILL;
            row->least = row->wanted;
        }
    }
    if (held > row->wanted)
        row->wanted = held; /* The program has not reported yet what it wants. */
}

/* Make program @index one of those on its device. */
static void world_put_resident(struct agent *agent, struct world *world, uint32_t index)
{
    struct policy_program *row = &world->programs[index];
    struct policy_device *on = &world->devices[row->device];
    row->next = on->first;
    on->first = index;
    on->residents++;
    on->busy += row->busy;
    agent->ledger.devices[row->device].used_ms = uv_now(&agent->loop);
}

static void world_put_group(struct agent *agent, struct world *world, const struct group *group,
                            uint32_t device)
{
    struct program *program = group->program;
    uint32_t index = world->policy.program_count++;
    struct policy_program *row = &world->programs[index];
    uint64_t *barred = world->barred + (size_t)index * ((agent->ledger.count + 63) / 64);
    const struct pending *pending = pending_of(program, group->vdevs);
    bool displaced = program->vdevs[group->vdev].displaced;

    world->groups[index] = *group;
    *row = (struct policy_program){
        .name = program->name,
        .owner = program->uid,
        .state = device != LEDGER_NONE ? POLICY_RUNNING
                 : displaced           ? POLICY_SUSPENDED
                                       : POLICY_STOPPED,
        .device = device == LEDGER_NONE ? POLICY_NONE : device,
        .next = POLICY_NONE,
        .quota = limits_quota(agent, program, group->vdevs),
        .ticket = program->vdevs[group->vdev].ticket,
        .priority = program->policy.priority,
        .ways = program->policy.ways,
        .preemptible = program->policy.preemptible,
        .kept = program->vdevs[group->vdev].chosen,
        .elastic = program->spread.free && program_acts(program),
        .any_float = program->spread.any_float,
        .busy_moving = !program_acts(program) || operation_moves(agent, program) ||
                       program->managed.shrinks ||
                       uv_now(&agent->loop) < program->managed.rest_until_ms,
        .silent = program->unresponsive || program->status.fenced,
        .barred = barred,
        .leaves = drain_leaves(agent, program, device),
        .prefers = program->wish.aware ? &program->wish.preferred : NULL,
        .ready = prewarm_device(agent, program), /* LEDGER_NONE is POLICY_NONE */
        .ready_s = program->managed.ready_ms
                       ? (uv_now(&agent->loop) - program->managed.ready_ms) / 1000
                       : UINT64_MAX,
        .visits = &world->visits[index],
        .measured = costs_measured(agent, program, device),
        .age_s = process_age_s(program->start),
        .move_ms = program->vdevs[group->vdev].move_ms,
    };
    world_put_visits(group, &world->visits[index]);
    row->peak = costs_peak(agent, program->uid, program->name) / program->vdev_count *
                (unsigned)__builtin_popcount(group->vdevs);
    world_put_vdevs(group, row);
    if (program->managed.withholds && !pending) {
        /* It was asked for memory and returned none. */
        row->ways &= ~(unsigned)POLICY_SPILL;
    }
    if (pending)
        world_put_pending(world, row, pending);
    if (row->ways & POLICY_SPILL && !row->pinned && row->least > row->quota) {
        /* It reports for the first time what one call needs. */
        uint64_t left = program_user_left(agent, program);
        row->quota = row->least < left ? row->least : left;
    }
    world_put_times(agent, group, pending, row);
    world_put_exclusions(agent, world, group, row->device, barred);
    if (row->device != POLICY_NONE)
        world_put_resident(agent, world, index);
}

/** Virtual devices on one device share their grants: to the policy they are one program. */
static void world_put_program_groups(struct agent *agent, struct world *world,
                                     struct program *program)
{
    unsigned done = 0;

    for (uint32_t i = 0; program->connected && i < program->vdev_count; i++) {
        const struct program_device *vdev = &program->vdevs[i];
        struct group group = {.program = program, .vdev = i, .vdevs = 1u << i};
        if (done & group.vdevs || (!vdev_is_off(vdev) && vdev->entry.device == LEDGER_NONE))
            continue;
        for (uint32_t j = i + 1; !vdev_is_off(vdev) && j < program->vdev_count; j++)
            if (program->vdevs[j].entry.device == vdev->entry.device &&
                !vdev_is_off(&program->vdevs[j]))
                group.vdevs |= 1u << j;
        done |= group.vdevs;
        world_put_group(agent, world, &group, vdev_is_off(vdev) ? LEDGER_NONE : vdev->entry.device);
    }
}

static int world_compare(const void *a, const void *b, void *data)
{
    const struct world *world = data;
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const struct policy_program *one = &world->programs[i], *other = &world->programs[j];

    if (one->priority != other->priority)
        return one->priority > other->priority ? -1 : 1;
    if (world->turns[i] != world->turns[j])
        return world->turns[i] < world->turns[j] ? -1 : 1;
    return one->ticket < other->ticket ? -1 : one->ticket > other->ticket;
}

/**
 * The queue. Of one priority, users take turns: a program's turn is the number of its user's
 * programs that run or are before it, so that nobody waits for all that another user has queued.
 */
static void world_put_queue(struct world *world)
{
    struct policy_world *policy = &world->policy;

    for (uint32_t i = 0; i < policy->program_count; i++) {
        enum policy_state state = world->programs[i].state;
        if (state == POLICY_WAITING || state == POLICY_SUSPENDED)
            world->queue[policy->queue_count++] = i;
    }
    qsort_r(world->queue, policy->queue_count, sizeof(*world->queue), world_compare, world);
    for (uint32_t i = 0; i < policy->queue_count; i++) {
        uint32_t owner = world->programs[world->queue[i]].owner, turn = 0;
        for (uint32_t j = 0; j < policy->program_count; j++)
            turn += world->programs[j].owner == owner && world->programs[j].state == POLICY_RUNNING;
        for (uint32_t j = 0; j < i; j++)
            turn += world->programs[world->queue[j]].owner == owner;
        world->turns[world->queue[i]] = turn;
    }
    qsort_r(world->queue, policy->queue_count, sizeof(*world->queue), world_compare, world);
    for (uint32_t i = 0; i < policy->queue_count; i++)
        world->programs[world->queue[i]].ticket = i + 1;
}

static int world_make_room(struct world *world, size_t devices, size_t programs)
{
    world_finish(world);
    world->devices = calloc(devices + 1, sizeof(*world->devices));
    world->programs = calloc(programs + 1, sizeof(*world->programs));
    world->groups = calloc(programs + 1, sizeof(*world->groups));
    world->queue = calloc(programs + 1, sizeof(*world->queue));
    world->turns = calloc(programs + 1, sizeof(*world->turns));
    world->barred = calloc((programs + 1) * (devices / 64 + 1), sizeof(*world->barred));
    world->offers = calloc(devices + 1, sizeof(*world->offers));
    world->entries = calloc(devices + 1, sizeof(*world->entries));
    world->visits = calloc(programs + 1, sizeof(*world->visits));
    if (world->devices && world->programs && world->groups && world->queue && world->turns &&
        world->barred && world->offers && world->entries && world->visits)
        return 0;
    world_finish(world);
    return -ENOMEM;
}

int world_build(struct agent *agent)
{
    struct governor *governor = agent->governor;
    struct world *world = &governor->world;
    uint64_t now = uv_now(&agent->loop), budget = config_policy(&agent->config)->budget_s * 1000;
    size_t programs = 0;

    for (const struct program *program = agent->programs; program; program = program->next)
        programs += program->vdev_count;
    int error = world_make_room(world, agent->ledger.count, programs);
    if (error)
        return error;
    governor->passes++;
    world->capped = power_is_at_work(agent);
    world_put_devices(agent, world);
    world->policy = (struct policy_world){
        .devices = world->devices,
        .device_count = agent->ledger.count,
        .programs = world->programs,
        .queue = world->queue,
        .recent_moves = world_moves_since(governor->moved_ms, GOVERN_MOVES_MAX, governor->moved,
                                          now > budget ? now - budget : 0),
        .now_s = now / 1000,
    };
    for (struct program *program = agent->programs; program; program = program->next)
        world_put_program_groups(agent, world, program);
    world_put_queue(world);
    return 0;
}

uint64_t world_fill(const struct agent *agent, uint32_t index)
{
    struct world *world = &agent->governor->world;
    const struct group *group = &world->groups[index];
    const struct pending *pending = pending_of(group->program, group->vdevs);
    uint32_t on = world->programs[index].device;

    if (on == POLICY_NONE)
        return 0;
    struct policy_device *device = &world->devices[on];
    uint64_t memory = device->memory;
    if (pending && pending->failed && !ledger_sync_believe(group->program) &&
        uv_now(&agent->loop) - pending->since_ms < TIGHT_MS && device->reserved < memory)
        device->memory = device->reserved;
    return memory;
}

void world_unfill(struct world *world, uint32_t index, uint64_t memory)
{
    if (world->programs[index].device != POLICY_NONE)
        world->devices[world->programs[index].device].memory = memory;
}

uint32_t world_find(const struct world *world, const struct program *program, uint32_t vdev)
{
    for (uint32_t i = 0; i < world->policy.program_count; i++)
        if (world->groups[i].program == program && world->groups[i].vdevs & (1u << vdev))
            return i;
    return POLICY_NONE;
}
