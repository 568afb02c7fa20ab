#include "tests/bench/policy_fleet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB  (UINT64_C(1) << 30)
#define HARD (POLICY_UPGRADE | POLICY_WAIT | POLICY_SUSPEND)

static uint64_t state = 1;

uint64_t fleet_random(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

static bool chance(unsigned percent)
{
    return fleet_random(100) < percent;
}

int fleet_init(struct fleet *fleet, uint32_t devices, uint32_t programs)
{
    *fleet = (struct fleet){.devices = calloc(devices, sizeof(*fleet->devices)),
                            .programs = calloc(programs, sizeof(*fleet->programs)),
                            .queue = calloc(programs, sizeof(*fleet->queue)),
                            .names = calloc(devices, sizeof(*fleet->names)),
                            .has = calloc(devices, sizeof(*fleet->has)),
                            .prefers = calloc(programs, sizeof(*fleet->prefers)),
                            .words = devices / 64 + 1};
    fleet->barred = calloc(programs * fleet->words, sizeof(*fleet->barred));
    fleet->world = (struct policy_world){.devices = fleet->devices,
                                         .device_count = devices,
                                         .programs = fleet->programs,
                                         .program_count = programs,
                                         .queue = fleet->queue};
    if (devices && programs && fleet->devices && fleet->programs && fleet->queue && fleet->names &&
        fleet->has && fleet->prefers && fleet->barred)
        return 0;
    fleet_finish(fleet);
    return -1;
}

void fleet_finish(struct fleet *fleet)
{
    free(fleet->barred);
    free(fleet->prefers);
    free(fleet->has);
    free(fleet->names);
    free(fleet->queue);
    free(fleet->programs);
    free(fleet->devices);
}

/* ---- books ---- */

static const struct policy_program *sorted_programs;

static int compare_queued(const void *a, const void *b)
{
    const struct policy_program *x = &sorted_programs[*(const uint32_t *)a];
    const struct policy_program *y = &sorted_programs[*(const uint32_t *)b];

    if (x->priority != y->priority)
        return x->priority > y->priority ? -1 : 1;
    return x->ticket < y->ticket ? -1 : x->ticket > y->ticket;
}

static void put(struct fleet *fleet, uint32_t program, uint32_t device, uint64_t bytes)
{
    struct policy_program *p = &fleet->programs[program];
    struct policy_device *d = &fleet->devices[device];

    d->reserved += bytes;
    d->busy += p->busy;
    d->residents++;
    p->state = POLICY_RUNNING;
    p->device = device;
    p->granted = bytes;
    p->next = d->first;
    d->first = program;
}

static void take_off(struct fleet *fleet, uint32_t program)
{
    struct policy_program *p = &fleet->programs[program];
    uint32_t *at;

    if (p->device == POLICY_NONE)
        return;
    at = &fleet->devices[p->device].first;
    while (*at != program)
        at = &fleet->programs[*at].next;
    *at = p->next;
    fleet->devices[p->device].reserved -= p->granted;
    fleet->devices[p->device].busy -= p->busy;
    fleet->devices[p->device].residents--;
    p->device = POLICY_NONE;
    p->state = POLICY_SUSPENDED;
    p->granted = 0;
}

static void line_up(struct fleet *fleet)
{
    fleet->world.queue_count = 0;
    for (uint32_t i = 0; i < fleet->world.program_count; i++) {
        enum policy_state at = fleet->programs[i].state;

        if (at == POLICY_WAITING || at == POLICY_SUSPENDED)
            fleet->queue[fleet->world.queue_count++] = i;
    }
    sorted_programs = fleet->programs;
    qsort(fleet->queue, fleet->world.queue_count, sizeof(*fleet->queue), compare_queued);
}

bool fleet_do(struct fleet *fleet, const struct policy_step *step)
{
    struct policy_program *p = &fleet->programs[step->program];

    switch (step->action) {
    case POLICY_NOTHING:
    case POLICY_DO_PREWARM:
    case POLICY_DO_WAIT:
        return false;
    case POLICY_GRANT:
        fleet->devices[p->device].reserved += step->bytes;
        p->granted += step->bytes;
        break;
    case POLICY_DO_SPILL:
        fleet->devices[p->device].reserved += step->bytes - p->granted;
        p->granted = step->bytes;
        break;
    case POLICY_DO_MOVE:
    case POLICY_DO_RESUME:
        take_off(fleet, step->program);
        put(fleet, step->program, step->device, step->bytes);
        p->stayed_s = 0;
        break;
    case POLICY_DO_SUSPEND:
        take_off(fleet, step->program);
        line_up(fleet);
        return true;
    case POLICY_DO_REFUSE:
        p->wanted = p->granted;
        break;
    }
    p->need = 0;
    p->state = p->device == POLICY_NONE ? POLICY_SUSPENDED : POLICY_RUNNING;
    line_up(fleet);
    return true;
}

/* ---- worlds ---- */

static void fill_devices(struct fleet *fleet)
{
    for (uint32_t i = 0; i < fleet->world.device_count; i++) {
        static const uint32_t speeds[] = {500, 1000, 2000, 4000};
        unsigned kind = (unsigned)fleet_random(4);

        snprintf(fleet->names[i], sizeof(*fleet->names), "gpu%u", i);
        fleet->devices[i] = (struct policy_device){.name = fleet->names[i],
                                                   .memory = (8u << kind) * GIB,
                                                   .speed = speeds[kind],
                                                   .price = speeds[kind],
                                                   .first = POLICY_NONE};
    }
}

static void place(struct fleet *fleet, const struct scene *scene, uint32_t i)
{
    struct policy_program *p = &fleet->programs[i];
    uint32_t count = fleet->world.device_count, start = (uint32_t)fleet_random(count);
    bool queues = chance(scene->queued_percent);

    for (uint32_t tries = 0; tries < count && !queues; tries++) {
        uint32_t device = (start + tries) % count;
        struct policy_device *d = &fleet->devices[device];

        if (d->reserved + p->wanted > d->memory / 100 * scene->fill_percent)
            continue;
        put(fleet, i, device, p->wanted);
        return;
    }
}

void fleet_fill(struct fleet *fleet, const struct scene *scene)
{
    settings_init(&fleet->settings);
    fill_devices(fleet);
    for (uint32_t i = 0; i < fleet->world.program_count; i++) {
        uint64_t wanted = (1 + fleet_random(8)) * GIB;

        fleet->programs[i] = (struct policy_program){.name = "program",
                                                     .state = POLICY_SUSPENDED,
                                                     .device = POLICY_NONE,
                                                     .wanted = wanted,
                                                     .least = wanted / 2,
                                                     .quota = UINT64_MAX,
                                                     .ticket = i + 1,
                                                     .stayed_s = fleet_random(100),
                                                     .busy = (uint32_t)fleet_random(scene->busy),
                                                     .priority = (int32_t)fleet_random(3),
                                                     .ways = scene->ways};
        place(fleet, scene, i);
    }
    if (scene->twist)
        scene->twist(fleet);
    line_up(fleet);
}

/* ---- what makes them hard ---- */

/* The first of those on a device behind @last, or of all (NULL); NULL: none. */
static struct policy_program *next_placed(const struct fleet *fleet, struct policy_program *last)
{
    struct policy_program *end = fleet->programs + fleet->world.program_count;

    for (last = last ? last + 1 : fleet->programs; last < end; last++)
        if (last->device != POLICY_NONE)
            return last;
    return NULL;
}

static void fill_up(struct fleet *fleet)
{
    for (uint32_t i = 0; i < fleet->world.device_count; i++)
        fleet->devices[i].memory = fleet->devices[i].reserved;
}

/* Nothing is free; whoever waits has waited for some time. */
static void wait_long(struct fleet *fleet)
{
    fill_up(fleet);
    for (uint32_t i = 0; i < fleet->world.program_count; i++)
        fleet->programs[i].waited_s = fleet_random(5000);
}

/* Nothing is free, and half of them would make room for the other half. */
static void preempt(struct fleet *fleet)
{
    wait_long(fleet);
    for (uint32_t i = 0; i < fleet->world.program_count; i++) {
        fleet->programs[i].preemptible = chance(50);
        fleet->programs[i].priority = 0;
    }
}

/* Small ones everywhere, and those that queue want a whole device. */
static void want_whole(struct fleet *fleet)
{
    preempt(fleet);
    for (uint32_t i = 0; i < fleet->world.program_count; i++) {
        struct policy_program *p = &fleet->programs[i];

        if (p->device == POLICY_NONE) {
            p->wanted = (20 + fleet_random(20)) * GIB;
            p->least = p->wanted - GIB;
            p->priority = (int32_t)fleet_random(3);
        }
    }
}

/* Everyone asks for more where it is. */
static void ask(struct fleet *fleet)
{
    wait_long(fleet);
    for (struct policy_program *p = next_placed(fleet, NULL); p; p = next_placed(fleet, p)) {
        p->state = POLICY_WAITING;
        p->need = p->wanted = p->granted + (1 + fleet_random(4)) * GIB;
        p->least = p->wanted;
    }
}

static void spill_some(struct fleet *fleet)
{
    fill_up(fleet);
    for (struct policy_program *p = next_placed(fleet, NULL); p; p = next_placed(fleet, p))
        p->wanted = p->granted + GIB;
    for (uint32_t i = 0; i < fleet->world.device_count; i++)
        fleet->devices[i].memory += GIB / 16;
}

static void drain_half(struct fleet *fleet)
{
    wait_long(fleet);
    for (uint32_t i = 0; i < fleet->world.device_count; i++)
        fleet->devices[i].drains = i % 2;
}

/* Half of the devices will be taken, all there would leave, and only small ones could. */
static void leave_half(struct fleet *fleet)
{
    fill_up(fleet);
    for (struct policy_program *p = next_placed(fleet, NULL); p; p = next_placed(fleet, p)) {
        p->leaves = true;
        p->least = p->granted;
    }
    for (uint32_t i = 0; i < fleet->world.device_count; i++) {
        fleet->devices[i].closed = i % 2;
        fleet->devices[i].memory += GIB - 1;
    }
}

static void bar(struct fleet *fleet, uint32_t program, uint32_t device)
{
    fleet->barred[program * fleet->words + device / 64] |= UINT64_C(1) << device % 64;
}

static void bar_some(struct fleet *fleet, unsigned percent)
{
    memset(fleet->barred, 0, fleet->world.program_count * fleet->words * sizeof(*fleet->barred));
    for (uint32_t i = 0; i < fleet->world.program_count; i++) {
        for (uint32_t d = 0; d < fleet->world.device_count; d++)
            if (chance(percent))
                bar(fleet, i, d);
        fleet->programs[i].barred = &fleet->barred[i * fleet->words];
    }
}

/* There is room, but not for those that would leave: not where they may go. */
static void leave_to_nowhere(struct fleet *fleet)
{
    bar_some(fleet, 0);
    for (struct policy_program *p = next_placed(fleet, NULL); p; p = next_placed(fleet, p)) {
        p->leaves = true;
        for (uint32_t d = 0; d < fleet->world.device_count; d += 2)
            bar(fleet, (uint32_t)(p - fleet->programs), d);
    }
    for (uint32_t i = 0; i < fleet->world.device_count; i++)
        fleet->devices[i].closed = i % 2;
}

/* Nobody who queues may use a device that could ever hold it. */
static void fit_nowhere(struct fleet *fleet)
{
    wait_long(fleet);
    bar_some(fleet, 0);
    for (uint32_t i = 0; i < fleet->world.program_count; i++) {
        struct policy_program *p = &fleet->programs[i];

        if (p->device != POLICY_NONE)
            continue;
        p->wanted = p->least = 12 * GIB;
        for (uint32_t d = 0; d < fleet->world.device_count; d++)
            if (fleet->devices[d].memory >= p->least)
                bar(fleet, i, d);
    }
}

static void bar_half(struct fleet *fleet)
{
    preempt(fleet);
    bar_some(fleet, 50);
}

/* One device holds nearly everyone. */
static void crowd(struct fleet *fleet)
{
    uint32_t most = fleet->world.program_count / 10 * 8;

    for (uint32_t i = 0; i < fleet->world.program_count; i++)
        take_off(fleet, i);
    for (uint32_t i = 0; i < most; i++)
        put(fleet, i, 0, fleet->programs[i].wanted);
    wait_long(fleet);
    for (uint32_t i = 0; i < fleet->world.program_count; i++) {
        struct policy_program *p = &fleet->programs[i];

        p->preemptible = p->device != POLICY_NONE;
        if (!p->preemptible) {
            p->wanted = 1000 * GIB;
            p->least = p->wanted / 2;
        }
        p->priority = 0;
    }
}

/* Programs there were granted more than their devices have now, but none of them can leave. */
static void lower(struct fleet *fleet)
{
    wait_long(fleet);
    for (uint32_t i = 0; i < fleet->world.device_count; i++)
        fleet->devices[i].memory /= 2;
    for (struct policy_program *p = next_placed(fleet, NULL); p; p = next_placed(fleet, p))
        p->pinned = true;
}

/* Nobody queues, so that all that is decided is what nobody asked for. */
static void stop_rest(struct fleet *fleet)
{
    for (uint32_t i = 0; i < fleet->world.program_count; i++)
        if (fleet->programs[i].device == POLICY_NONE)
            fleet->programs[i].state = POLICY_STOPPED;
}

static void have_things(struct fleet *fleet)
{
    for (uint32_t i = 0; i < fleet->world.device_count; i++) {
        fleet->has[i] = (struct reseat_limits){.allocation = (1 + fleet_random(16)) * GIB,
                                               .local_memory = (1 + fleet_random(4)) << 15,
                                               .work_group_size = 256 << fleet_random(3),
                                               .compute_units = 8 + (uint32_t)fleet_random(120),
                                               .features = (uint32_t)fleet_random(64)};
        fleet->devices[i].has = &fleet->has[i];
    }
}

static void prefer_more(struct fleet *fleet)
{
    for (uint32_t i = 0; i < fleet->world.program_count; i++) {
        fleet->prefers[i] = (struct reseat_limits){.memory = (1 + fleet_random(100)) * GIB,
                                                   .allocation = 20 * GIB,
                                                   .local_memory = 1 << 18,
                                                   .work_group_size = 2048,
                                                   .compute_units = 200,
                                                   .features = 63};
        fleet->programs[i].prefers = &fleet->prefers[i];
        fleet->programs[i].stayed_s = 100;
    }
}

/* Everyone prefers more than there is anywhere, and some of it is elsewhere. */
static void prefer(struct fleet *fleet)
{
    have_things(fleet);
    prefer_more(fleet);
    stop_rest(fleet);
}

/* And nowhere is more of one thing and no less of another. */
static void prefer_in_vain(struct fleet *fleet)
{
    prefer(fleet);
    for (uint32_t i = 0; i < fleet->world.device_count; i++) {
        fleet->has[i].compute_units = 1 + i % 150;
        fleet->has[i].local_memory = 1000 - i % 150;
        fleet->devices[i].busy += 400;
    }
}

/* More of it is there, and room, but it would be slower. */
static void prefer_held_up(struct fleet *fleet)
{
    prefer(fleet);
    for (uint32_t i = 0; i < fleet->world.device_count; i++)
        fleet->devices[i].busy += 2000;
    fleet->settings.busy_low = 0;
}

/* All devices are too busy, and no other is less so by enough. */
static void heat(struct fleet *fleet)
{
    for (uint32_t i = 0; i < fleet->world.device_count; i++) {
        fleet->devices[i].busy = 4000 + 5 * (uint32_t)fleet_random(100);
        fleet->devices[i].speed = 1000;
    }
    for (struct policy_program *p = next_placed(fleet, NULL); p; p = next_placed(fleet, p)) {
        p->stayed_s = 100;
        p->busy = 500;
    }
}

static void heat_all(struct fleet *fleet)
{
    heat(fleet);
    stop_rest(fleet);
}

/* One device is idle, so that others hope for it, but may not go there. */
static void heat_all_but_one(struct fleet *fleet)
{
    heat(fleet);
    stop_rest(fleet);
    bar_some(fleet, 0);
    fleet->devices[0].busy = 0;
    for (uint32_t i = 0; i < fleet->world.program_count; i++)
        bar(fleet, i, 0);
}

/* All would do with less, and less costs as much. */
static void idle(struct fleet *fleet)
{
    heat(fleet);
    stop_rest(fleet);
    for (struct policy_program *p = next_placed(fleet, NULL); p; p = next_placed(fleet, p))
        p->busy = 100;
    for (uint32_t i = 0; i < fleet->world.device_count; i++)
        fleet->devices[i].price = 1000 + (uint32_t)fleet_random(100);
}

/* The first could go where any one is that runs, and nobody finds another place as good. */
static void shift_in_vain(struct fleet *fleet)
{
    heat(fleet);
    for (uint32_t i = 0; i < fleet->world.program_count; i++) {
        struct policy_program *p = &fleet->programs[i];

        p->priority = 0;
        if (p->device == POLICY_NONE)
            p->wanted = p->least = 64 * GIB;
    }
    for (uint32_t i = 0; i < fleet->world.device_count; i++) {
        fleet->devices[i].speed = 1000000 - i;
        fleet->devices[i].memory = fleet->devices[i].reserved + 63 * GIB;
    }
}

/* Everything at once. */
static void mix(struct fleet *fleet)
{
    bar_some(fleet, 30);
    have_things(fleet);
    prefer_more(fleet);
    for (uint32_t i = 0; i < fleet->world.device_count; i++) {
        fleet->devices[i].closed = chance(20);
        fleet->devices[i].memory = fleet->devices[i].reserved + fleet_random(3) * GIB / 2;
    }
    for (uint32_t i = 0; i < fleet->world.program_count; i++) {
        struct policy_program *p = &fleet->programs[i];

        p->ways = (unsigned)fleet_random(16);
        p->waited_s = fleet_random(5000);
        p->preemptible = chance(30);
        p->pinned = p->device != POLICY_NONE && chance(10);
        p->busy_moving = chance(1);
        p->leaves = chance(10);
        if (p->device == POLICY_NONE || !chance(30))
            continue;
        p->state = POLICY_WAITING;
        p->wanted = p->need = p->granted + GIB;
    }
}

const struct scene fleet_scenes[] = {
    {"room for all", 2, 60, HARD | POLICY_SPILL, 300, NULL},
    {"full, by priority", 30, 98, HARD, 300, NULL},
    {"full, everyone spills", 30, 98, HARD | POLICY_SPILL, 300, NULL},
    {"full, nobody gives way", 30, 98, POLICY_WAIT, 300, NULL},
    {"half used, all busy", 10, 50, HARD, 1000, NULL},
    {"full, a long queue that ages", 50, 98, HARD, 300, wait_long},
    {"full, half is preemptible", 30, 98, HARD, 300, preempt},
    {"full, whole devices are wanted", 30, 98, HARD | POLICY_SPILL, 300, want_whole},
    {"everyone waits for more", 10, 98, HARD, 300, ask},
    {"everyone waits and spills", 10, 98, HARD | POLICY_SPILL, 300, ask},
    {"everyone spills a little", 0, 98, HARD | POLICY_SPILL, 300, spill_some},
    {"half of the devices drain", 10, 98, HARD | POLICY_SPILL, 300, drain_half},
    {"half will be taken, full", 10, 98, HARD | POLICY_SPILL, 300, leave_half},
    {"half will be taken, barred", 10, 60, HARD | POLICY_SPILL, 300, leave_to_nowhere},
    {"who queues fits nowhere", 40, 98, HARD, 300, fit_nowhere},
    {"full, barred from half", 40, 98, HARD, 300, bar_half},
    {"all on one device", 0, 98, HARD | POLICY_SPILL, 300, crowd},
    {"limits lowered, all pinned", 10, 98, HARD, 300, lower},
    {"everyone prefers more", 0, 70, HARD, 1000, prefer},
    {"prefer more in vain", 0, 70, HARD, 1000, prefer_in_vain},
    {"prefer more that is busy", 0, 70, HARD, 1000, prefer_held_up},
    {"all devices too busy", 0, 80, HARD, 1000, heat_all},
    {"all too busy but one", 0, 80, HARD, 1000, heat_all_but_one},
    {"all light, nothing saved", 0, 80, HARD, 300, idle},
    {"the first shifts in vain", 2, 60, HARD, 300, shift_in_vain},
    {"something of everything", 20, 98, HARD, 500, mix},
};
const size_t fleet_scene_count = sizeof(fleet_scenes) / sizeof(*fleet_scenes);
