#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/daemon/devices/device_list.h"
#include "agent/daemon/govern/govern_priv.h"
#include "agent/daemon/programs/program_wish.h"
#include "policy/wish.h"
#include "state/object/offer.h"

/* The world as the policy sees it. Made anew for each question: programs are few and it is cheap.
 */

void world_finish(struct world *world)
{
    free(world->devices);
    free(world->programs);
    free(world->units);
    free(world->queue);
    free(world->barred);
    free(world->offers);
    *world = (struct world){0};
}

const struct inventory_entry *govern_entry(const struct agent *agent, uint32_t device)
{
    const struct inventory *inventory = &agent->devices.inventory;

    if (device >= agent->governor->ledger.count) {
        return NULL;
    }
    for (size_t i = 0; i < inventory->count; i++) {
        if (strcmp(inventory->entries[i].name, agent->governor->ledger.devices[device].name) == 0) {
            return &inventory->entries[i];
        }
    }
    return NULL;
}

uint32_t govern_index(const struct agent *agent, const struct inventory_entry *entry)
{
    uint32_t index;

    return ledger_device(&agent->governor->ledger, entry->name, &index) ? LEDGER_NONE : index;
}

bool govern_meets(const struct agent *agent, const struct app *app, uint32_t device,
                  char *ret_reason, size_t size)
{
    const struct inventory_entry *entry = govern_entry(agent, device);

    return !entry || app_wish_fits(app, &entry->info,
                                   ledger_lasting(&agent->governor->ledger.devices[device]),
                                   ret_reason, size);
}

unsigned policy_moves_since(const uint64_t *times, unsigned count, unsigned size, uint64_t since)
{
    unsigned recent = 0;

    for (unsigned i = 0; i < count && i < size; i++) {
        recent += times[i] >= since;
    }
    return recent;
}

static void put_devices(struct agent *agent, struct world *world)
{
    const struct governor *governor = agent->governor;

    for (uint32_t i = 0; i < governor->ledger.count; i++) {
        const struct ledger_device *own = &governor->ledger.devices[i];
        const struct inventory_entry *entry = govern_entry(agent, i);
        struct policy_device *device = &world->devices[i];
        *device = (struct policy_device){
            .kind = PLACE_OTHER, .speed = 1, .price = 1000, .closed = true, .first = POLICY_NONE};
        if (entry) {
            struct plan_offer offer;
            settings_device(agent, entry, device);
            offer_from_devinfo(&entry->info, &offer);
            wish_limits(&offer, &world->offers[i]);
        }
        device->has = &world->offers[i];
        device->name = own->name;
        device->memory = ledger_capacity(own);
        device->whole = own->own < own->tight ? own->own : own->tight;
        device->reserved = own->reserved;
        device->step = ledger_step(own);
        device->drains = own->drains;
        device->closed = device->closed || own->drains || own->drains_ms;
    }
}

static bool has_requests(const struct agent *agent, const struct app *app)
{
    for (const struct request *request = agent->requests; request; request = request->next) {
        if (request->app == app && !request->dry_run) {
            return true;
        }
    }
    return false;
}

static void bar(uint64_t *barred, uint32_t device)
{
    barred[device / 64] |= 1ull << (device % 64);
}

/** Where it would not run: what refused it or failed a moment ago, but for @own where it runs now;
 * what its environment does not show; what has less than it asked for, and all that it is not bound
 * to or does not queue for. */
static void put_bars(const struct agent *agent, const struct unit *unit, uint32_t own,
                     uint64_t *barred)
{
    const struct app *app = unit->app;
    const struct app_seat *seat = &app->seats[unit->seat];
    const struct governor *governor = agent->governor;

    for (unsigned i = 0; i < app->fate.bar_count; i++) {
        const struct app_bar *one = &app->fate.bars[i];
        if (one->device != own && step_barred(agent, app, one)) {
            bar(barred, one->device);
        }
    }
    for (uint32_t i = 0; app->wish.aware && i < governor->ledger.count; i++) {
        char ignored[POLICY_REASON];
        if (!govern_meets(agent, app, i, ignored, sizeof(ignored))) {
            bar(barred, i);
        }
    }
    for (uint32_t i = 0; app->environment && i < governor->ledger.count; i++) {
        const struct inventory_entry *entry = govern_entry(agent, i);
        if (i != own && entry && !devices_shown(agent, app->environment, entry)) {
            bar(barred, i);
        }
    }
    for (uint32_t i = 0; seat->suspended && seat->only != LEDGER_NONE && i < governor->ledger.count;
         i++) {
        if (i != seat->only) {
            bar(barred, i);
        }
    }
    for (uint32_t i = 0; app->policy.pinned_to[0] && i < governor->ledger.count; i++) {
        const struct inventory_entry *entry = govern_entry(agent, i), *meant;
        char ignored[PROTOCOL_TEXT_MAX];
        if (!entry ||
            device_resolve(&agent->devices.inventory, app->policy.pinned_to, &meant, ignored,
                           sizeof(ignored)) ||
            meant != entry) {
            bar(barred, i);
        }
    }
}

static void add_seat(struct policy_program *program, const struct app_seat *seat)
{
    program->granted += ledger_reserved(&seat->account);
    program->wanted += seat->wanted;
    program->least = program->least > seat->least ? program->least : seat->least;
    program->busy += seat->busy;
    program->pinned = program->pinned || seat->pinned[0];
    if (!seat->limited) {
        program->ways &= ~(unsigned)POLICY_SPILL;
        program->least = program->wanted;
    }
}

/** A driver that refused what was granted: what the program holds is all that it has there. */
static void put_need(struct world *world, struct policy_program *program, const struct need *need)
{
    program->state = program->device == POLICY_NONE ? program->state : POLICY_WAITING;
    program->least = program->least > need->least ? program->least : need->least;
    program->wanted = program->wanted > need->wanted ? program->wanted : need->wanted;
    program->ticket = need->ticket;
    program->owns = need->owns && !need->failed;
    /* What it says it needs in all: of what was granted it may not have heard yet. */
    program->need = program->device == POLICY_NONE ? program->wanted : need->total;
    if (!need->failed || program->device == POLICY_NONE) {
        return;
    }
    uint64_t held = 0;
    for (unsigned i = 0; i < need->app->seat_count; i++) {
        const struct app_seat *seat = &need->app->seats[i];
        held += seat->account.device == program->device ? seat->account.held : 0;
    }
    if (held < program->granted) {
        world->devices[program->device].reserved -= program->granted - held;
        program->granted = held;
    }
}

static void put_times(const struct agent *agent, const struct unit *unit, const struct need *need,
                      struct policy_program *program)
{
    const struct app_seat *seat = &unit->app->seats[unit->seat];
    uint64_t now = uv_now(&agent->loop), budget = config_policy(&agent->config)->budget_s * 1000;
    bool queues = seat->displaced && seat->suspended;
    uint64_t waited = need     ? now - need->since_ms
                      : queues ? now - seat->queued_ms
                               : seat->earned_ms;

    program->waited_s = waited / 1000;
    program->stayed_s = (now - seat->placed_ms) / 1000;
    program->recent_moves = policy_moves_since(unit->app->fate.moved_ms, unit->app->fate.moved,
                                               APP_MOVES_MAX, now > budget ? now - budget : 0);
}

static void put_program(struct agent *agent, struct world *world, const struct unit *unit,
                        uint32_t device)
{
    struct governor *governor = agent->governor;
    struct app *app = unit->app;
    uint32_t index = world->policy.program_count++;
    struct policy_program *program = &world->programs[index];
    uint64_t *barred = world->barred + (size_t)index * ((governor->ledger.count + 63) / 64);
    const struct need *need = need_of(governor, app, unit->seats);
    bool displaced = app->seats[unit->seat].displaced;

    world->units[index] = *unit;
    *program = (struct policy_program){
        .name = app->name,
        .state = device != LEDGER_NONE ? POLICY_RUNNING
                 : displaced           ? POLICY_SUSPENDED
                                       : POLICY_STOPPED,
        .device = device == LEDGER_NONE ? POLICY_NONE : device,
        .next = POLICY_NONE,
        .quota = app->policy.quota,
        .ticket = app->seats[unit->seat].ticket,
        .priority = app->policy.priority,
        .ways = app->policy.ways,
        .preemptible = app->policy.preemptible,
        .kept = app->seats[unit->seat].chosen,
        .busy_moving = !app->peer || app->silent || has_requests(agent, app) || app->fate.shrinks ||
                       uv_now(&agent->loop) < app->fate.rest_until_ms,
        .silent = app->silent,
        .barred = barred,
        .leaves = drain_leaves(agent, app, device),
        .prefers = app->wish.aware ? &app->wish.preferred : NULL,
    };
    uint64_t held = 0;
    for (unsigned i = 0; i < app->seat_count; i++) {
        if (unit->seats & (1u << i)) {
            add_seat(program, &app->seats[i]);
            held += app->seats[i].device_bytes;
        }
    }
    if (held > program->wanted) {
        program->wanted = held; /* It has not said what it wants. */
    }
    if (app->fate.clings) {
        /* It was asked for memory and had none to give. */
        program->ways &= ~(unsigned)POLICY_SPILL;
    }
    if (need) {
        put_need(world, program, need);
    }
    put_times(agent, unit, need, program);
    put_bars(agent, unit, program->device, barred);
    if (program->device != POLICY_NONE) {
        struct policy_device *on = &world->devices[program->device];
        program->next = on->first;
        on->first = index;
        on->residents++;
        on->busy += program->busy;
    }
}

/** Its virtual devices on one device are one program to the policy: they share what is granted. */
static void put_app(struct agent *agent, struct world *world, struct app *app)
{
    unsigned done = 0;

    for (uint32_t i = 0; app->connected && i < app->seat_count; i++) {
        const struct app_seat *seat = &app->seats[i];
        struct unit unit = {.app = app, .seat = i, .seats = 1u << i};
        if (done & unit.seats || (!seat->suspended && seat->account.device == LEDGER_NONE)) {
            continue;
        }
        for (uint32_t j = i + 1; !seat->suspended && j < app->seat_count; j++) {
            if (app->seats[j].account.device == seat->account.device && !app->seats[j].suspended) {
                unit.seats |= 1u << j;
            }
        }
        done |= unit.seats;
        put_program(agent, world, &unit, seat->suspended ? LEDGER_NONE : seat->account.device);
    }
}

static int compare(const void *a, const void *b, void *data)
{
    const struct policy_program *programs = data;
    const struct policy_program *one = &programs[*(const uint32_t *)a];
    const struct policy_program *other = &programs[*(const uint32_t *)b];

    if (one->priority != other->priority) {
        return one->priority > other->priority ? -1 : 1;
    }
    return one->ticket < other->ticket ? -1 : one->ticket > other->ticket;
}

static void put_queue(struct world *world)
{
    struct policy_world *policy = &world->policy;

    for (uint32_t i = 0; i < policy->program_count; i++) {
        enum policy_state state = world->programs[i].state;
        if (state == POLICY_WAITING || state == POLICY_SUSPENDED) {
            world->queue[policy->queue_count++] = i;
        }
    }
    qsort_r(world->queue, policy->queue_count, sizeof(*world->queue), compare, world->programs);
}

static int make_room(struct world *world, size_t devices, size_t programs)
{
    world_finish(world);
    world->devices = calloc(devices + 1, sizeof(*world->devices));
    world->programs = calloc(programs + 1, sizeof(*world->programs));
    world->units = calloc(programs + 1, sizeof(*world->units));
    world->queue = calloc(programs + 1, sizeof(*world->queue));
    world->barred = calloc((programs + 1) * (devices / 64 + 1), sizeof(*world->barred));
    world->offers = calloc(devices + 1, sizeof(*world->offers));
    if (world->devices && world->programs && world->units && world->queue && world->barred &&
        world->offers) {
        return 0;
    }
    world_finish(world);
    return -ENOMEM;
}

int world_build(struct agent *agent)
{
    struct governor *governor = agent->governor;
    struct world *world = &governor->world;
    uint64_t now = uv_now(&agent->loop), budget = config_policy(&agent->config)->budget_s * 1000;
    size_t programs = 0;

    for (const struct app *app = agent->apps; app; app = app->next) {
        programs += app->seat_count;
    }
    int error = make_room(world, governor->ledger.count, programs);
    if (error) {
        return error;
    }
    put_devices(agent, world);
    world->policy = (struct policy_world){
        .devices = world->devices,
        .device_count = governor->ledger.count,
        .programs = world->programs,
        .queue = world->queue,
        .recent_moves = policy_moves_since(governor->moved_ms, governor->moved, GOVERN_MOVES_MAX,
                                           now > budget ? now - budget : 0),
    };
    for (struct app *app = agent->apps; app; app = app->next) {
        put_app(agent, world, app);
    }
    put_queue(world);
    return 0;
}

uint32_t world_find(const struct world *world, const struct app *app, uint32_t seat)
{
    for (uint32_t i = 0; i < world->policy.program_count; i++) {
        if (world->units[i].app == app && world->units[i].seats & (1u << seat)) {
            return i;
        }
    }
    return POLICY_NONE;
}
