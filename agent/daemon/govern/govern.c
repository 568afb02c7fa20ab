#include "agent/daemon/govern/govern.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/config/bytes.h"
#include "agent/daemon/govern/govern_priv.h"
#include "agent/daemon/peers.h"
#include "agent/daemon/programs/program_wish.h"

#define STEPS_MAX    256 /* Of one run; what is left follows with the next. */
#define TICK_MS      1000
#define WITHHOLDS_MS 10000
#define RECONCILE_MS 1000
/* Programs look for an agent twice a second, and those that wait give up after three. */
#define AWAIT_MS 5000

int govern_init(struct agent *agent)
{
    struct governor *governor = calloc(1, sizeof(*governor));

    if (!governor) {
        return -ENOMEM;
    }
    agent->governor = governor;
    ledger_init(&governor->ledger);
    governor->await_until_ms = uv_now(&agent->loop) + AWAIT_MS;
    int result = limits_load(agent);
    if (result) {
        agent_log("%s: cannot read the limits of devices (%s); none hold", governor->state_path,
                  strerror(-result));
    }
    govern_devices(agent);
    return 0;
}

void govern_finish(struct agent *agent)
{
    struct governor *governor = agent->governor;

    while (governor->needs) {
        need_drop(governor, governor->needs);
    }
    while (governor->followers) {
        struct follower *follower = governor->followers;
        governor->followers = follower->next;
        free(follower);
    }
    resume_finish(governor);
    world_finish(&governor->world);
    ledger_finish(&governor->ledger);
    free(governor->histories);
    free(governor);
    agent->governor = NULL;
}

void govern_more(const struct agent *agent, const struct ledger_device *device, uint64_t before)
{
    char text[PROTOCOL_TEXT_MAX], bytes[32];
    uint64_t now = ledger_lasting(device);

    if (now > before) {
        bytes_text(now, bytes, sizeof(bytes));
        snprintf(text, sizeof(text), "programs may have %s of %s", bytes, device->name);
        programs_notify_added(agent, now, text);
    }
}

/** A device that is listed: one that was not before, or of which there is more, is told of. */
static void list_device(struct agent *agent, const struct inventory_entry *entry,
                        struct ledger_device *device)
{
    uint64_t before = ledger_lasting(device);
    uint64_t own = devinfo_scalar(&entry->info, CL_DEVICE_GLOBAL_MEM_SIZE, 0);
    uint64_t said = settings_memory(agent, entry);
    char text[PROTOCOL_TEXT_MAX];

    own = own && own < LEDGER_BYTES_MAX ? own : LEDGER_BYTES_MAX;
    device->own = said < own ? said : own;
    if (device->listed) {
        govern_more(agent, device, before);
    } else {
        snprintf(text, sizeof(text), "%s (%s) is there", device->name, entry->key.device);
        programs_notify_added(agent, ledger_lasting(device), text);
    }
}

void govern_devices(struct agent *agent)
{
    struct ledger *ledger = &agent->governor->ledger;
    const struct inventory *inventory = &agent->devices.inventory;

    for (size_t i = 0; i < inventory->count; i++) {
        uint32_t index;
        if (!ledger_device(ledger, inventory->entries[i].name, &index)) {
            list_device(agent, &inventory->entries[i], &ledger->devices[index]);
        }
    }
    for (uint32_t i = 0; i < ledger->count; i++) {
        ledger->devices[i].listed = govern_entry(agent, i) != NULL;
    }
    agent->governor->dirty = true;
}

void govern_know(struct agent *agent, struct program *program)
{
    program->policy.ways = (1u << POLICY_WAYS) - 1;
    program->policy.quota = LEDGER_NO_LIMIT;
    for (size_t i = 0; i < PROTOCOL_SEATS_MAX; i++) {
        ledger_open(&agent->governor->ledger, &program->seats[i].account);
        program->seats[i].only = LEDGER_NONE;
    }
}

/** Remember what it needed, for `reseat report`. */
static void remember(struct governor *governor, const struct program *program)
{
    struct ended *ended = &governor->ended[governor->ended_count % ENDED_MAX];
    const struct ledger_account *account = &program->seats[0].account;

    if (!program->connected) {
        return;
    }
    *ended =
        (struct ended){.waits = program->governed.waits, .waited_ms = program->governed.waited_ms};
    memcpy(ended->id, program->id, sizeof(ended->id));
    memcpy(ended->name, program->name, sizeof(ended->name));
    for (size_t i = 0; i < program->seat_count; i++) {
        ended->wanted_peak += program->seats[i].wanted_peak;
        ended->held_peak += program->seats[i].account.held_peak;
        ended->granted_peak += program->seats[i].account.granted_peak;
    }
    if (account->device != LEDGER_NONE) {
        const struct ledger_device *device = &governor->ledger.devices[account->device];
        memcpy(ended->device, device->name, sizeof(ended->device));
        ended->own = device->own;
    }
    governor->ended_count++;
}

void govern_forget(struct agent *agent, struct program *program)
{
    struct governor *governor = agent->governor;

    remember(governor, program);
    needs_drop(governor, program);
    resume_forget(agent, program);
    for (size_t i = 0; i < PROTOCOL_SEATS_MAX; i++) {
        ledger_close(&governor->ledger, &program->seats[i].account);
    }
    governor->dirty = true;
}

void govern_lost(struct agent *agent, struct program *program)
{
    needs_drop(agent->governor, program);
    program->governed.shrinks = false;
    agent->governor->dirty = true;
}

void govern_liveness(struct agent *agent, struct program *program)
{
    program->governed.shrinks = program->governed.shrinks && !program->unresponsive;
    agent->governor->dirty = true;
}

/* ---- what programs say of what they have ---- */

static uint32_t device_of(struct agent *agent, const struct program_device *seat)
{
    const struct device_names *names = &agent->devices.names;
    uint32_t device;

    /* Also one that is not listed any more: the program has it all the same. */
    for (size_t i = 0; seat->has_device && !seat->suspended && i < names->count; i++) {
        if (device_key_equal(&names->names[i].key, &seat->device)) {
            return ledger_device(&agent->governor->ledger, names->names[i].name, &device)
                       ? LEDGER_NONE
                       : device;
        }
    }
    return LEDGER_NONE;
}

static void place(struct agent *agent, struct program_device *seat)
{
    struct ledger *ledger = &agent->governor->ledger;
    uint32_t device = device_of(agent, seat);

    if (device == seat->account.device) {
        return;
    }
    if (device != LEDGER_NONE && device == seat->account.target) {
        seat->arrived = true; /* Its report follows. */
        return;
    }
    ledger_place(ledger, &seat->account, device);
    seat->placed_ms = uv_now(&agent->loop);
    agent->governor->dirty = true;
}

/** Of virtual devices on one device only the first says what they hold: spread it over grants. */
static void spread_held(struct ledger *ledger, struct program *program, size_t first)
{
    struct program_device *seat = &program->seats[first];
    uint32_t device = seat->account.device;
    uint64_t held = 0;

    for (size_t i = 0; i < program->seat_count; i++) {
        bool same = program->seats[i].account.device == device && !program->seats[i].arrived;
        if (same && i < first) {
            return;
        }
        held += same ? program->seats[i].device_bytes : 0;
    }
    for (size_t i = program->seat_count; i-- > first;) {
        struct ledger_account *account = &program->seats[i].account;
        if (account->device != device || program->seats[i].arrived) {
            continue;
        }
        uint64_t share = i == first || held < account->granted ? held : account->granted;
        ledger_set_held(ledger, account, share);
        held -= share;
    }
}

/**
 * Grants and returns cross on their way, so what it says counts only where it says more than we
 * know, or where nothing has been on its way for long.
 */
static void adopt(struct agent *agent, struct program *program, uint32_t index)
{
    struct program_device *seat = &program->seats[index];
    struct ledger *ledger = &agent->governor->ledger;
    struct ledger_account *account = &seat->account;
    uint64_t unanswered = uv_now(&agent->loop) - seat->exchanged_ms;

    if (!seat->tells_grants) {
        ledger_set_granted(ledger, account, 0);
        return;
    }
    if (!seat->limited) {
        /* What it was granted first is its own once it uses OpenCL; and one that had nobody to ask
         * takes what it likes, until it is granted something, be it nothing. */
        if (seat->device_bytes && unanswered > RECONCILE_MS) {
            step_grant(agent, program, index, 0);
        }
        return;
    }
    if (seat->granted > account->granted ||
        (seat->granted < account->granted && account->target == LEDGER_NONE &&
         unanswered > RECONCILE_MS)) {
        ledger_set_granted(ledger, account, seat->granted);
        agent->governor->dirty = true;
    }
}

void govern_status(struct agent *agent, struct program *program)
{
    struct ledger *ledger = &agent->governor->ledger;

    for (uint32_t i = 0; i < PROTOCOL_SEATS_MAX; i++) {
        struct program_device *seat = &program->seats[i];
        if (i >= program->seat_count) {
            ledger_place(ledger, &seat->account, LEDGER_NONE);
            continue;
        }
        place(agent, seat);
        if (!seat->arrived) {
            adopt(agent, program, i);
        }
    }
    for (size_t i = 0; i < program->seat_count; i++) {
        if (program->seats[i].account.device != LEDGER_NONE && !program->seats[i].arrived) {
            spread_held(ledger, program, i);
        }
    }
    for (uint32_t i = 0; i < ledger->count; i++) {
        struct ledger_device *device = &ledger->devices[i];
        if (device->tight != LEDGER_NO_LIMIT && device->held > device->tight) {
            device->tight = device->held;
        }
    }
}

/** Programs of an agent before have yet to say what they have: what is free is not known. */
static bool awaits(const struct agent *agent)
{
    bool any = false;

    for (const struct program *program = agent->programs; program; program = program->next) {
        any = any || program->awaited;
    }
    return any && uv_now(&agent->loop) < agent->governor->await_until_ms;
}

/** What it may allocate before it asks; or what it took without being granted it. */
static uint64_t first_grant(struct agent *agent, const struct program *program,
                            struct program_device *seat, bool first)
{
    struct ledger *ledger = &agent->governor->ledger;
    struct ledger_account *account = &seat->account;
    uint64_t bytes = 0;

    if (account->device == LEDGER_NONE) {
        return 0;
    }
    if (account->held > account->granted) {
        bytes = account->held - account->granted;
    } else if (first && !account->granted && !awaits(agent)) {
        bytes = ledger_initial(&ledger->devices[account->device]);
        bytes = bytes < program->policy.quota ? bytes : program->policy.quota;
    }
    ledger_set_granted(ledger, account, account->granted + bytes);
    seat->exchanged_ms = uv_now(&agent->loop);
    return bytes;
}

/** A program that has not used OpenCL says as little as one that never did; only where it starts is
 * known then, and stays.
 */
static bool says_something(const msgpack_object *hello)
{
    const msgpack_object *seats;
    size_t count = field_array(hello, "seats", &seats);

    for (size_t i = 0; i < count; i++) {
        if (field_u64(&seats[i], "granted", 0) || field_u64(&seats[i], "device_bytes", 0) ||
            field_bool(&seats[i], "suspended", false)) {
            return true;
        }
    }
    return false;
}

void govern_welcome(struct agent *agent, struct program *program, bool first,
                    const msgpack_object *hello, struct frame *welcome)
{
    bool said = says_something(hello);

    if (said) {
        programs_status(program, hello);
    }
    for (size_t i = 0; i < program->seat_count; i++) {
        program->seats[i].exchanged_ms = uv_now(&agent->loop); /* The welcome goes first. */
    }
    govern_status(agent, program);
    frame_bool(welcome, "alive", true);
    if (!first && !said) {
        return; /* Its first status tells what it was granted. */
    }
    frame_array(welcome, "grants");
    for (size_t i = 0; i < program->seat_count; i++) {
        frame_u64(welcome, NULL, first_grant(agent, program, &program->seats[i], first));
    }
    frame_end(welcome);
}

void govern_greeted(struct agent *agent, const struct program *program)
{
    drain_notify(agent, program);
}

void govern_wish(struct agent *agent, struct program *program, const msgpack_object *message)
{
    bool before = program->wish.aware;

    program_take_wish(program, message);
    if (before) {
        program->governed.wished = ++agent->governor->events;
    } else {
        drain_notify(agent, program);
    }
    agent->governor->dirty = true;
}

/** It kept what it should have given up, so that it is not asked again for a while. */
static void withhold(struct agent *agent, struct program *program)
{
    if (!program->governed.trims) {
        program->governed.withholds = true;
        program->governed.withholds_until_ms = uv_now(&agent->loop) + WITHHOLDS_MS;
    }
    agent->governor->dirty = true;
}

/** What it was told to give has come, or as much of it as it could give. */
static void end_shrink(struct agent *agent, struct program *program, uint32_t device)
{
    uint64_t granted = 0;

    for (size_t i = 0; i < program->seat_count; i++) {
        granted +=
            program->seats[i].account.device == device ? program->seats[i].account.granted : 0;
    }
    program->governed.shrinks = false;
    if (granted > program->governed.shrink_to) {
        withhold(agent, program);
    }
}

static void take_return(struct agent *agent, struct program *program, const msgpack_object *message)
{
    uint64_t index = field_u64(message, "seat", 0), bytes = field_u64(message, "bytes", 0);

    if (index >= program->seat_count) {
        return;
    }
    struct program_device *seat = &program->seats[index];
    uint64_t granted = seat->account.granted;
    ledger_set_granted(&agent->governor->ledger, &seat->account,
                       bytes < granted ? granted - bytes : 0);
    /* What it holds of that is gone as well, though its status has yet to say so. */
    if (seat->account.held > seat->account.granted) {
        ledger_set_held(&agent->governor->ledger, &seat->account, seat->account.granted);
    }
    seat->exchanged_ms = uv_now(&agent->loop);
    if (program->governed.shrinks) {
        end_shrink(agent, program, seat->account.device);
    } else if (seat->wanted > seat->account.granted) {
        /* Nobody asked: it needs no more, though its status has yet to say so. */
        seat->wanted = seat->account.granted;
        seat->device_bytes = seat->account.held;
    }
    agent->governor->dirty = true;
}

bool govern_message(struct agent *agent, struct program *program, const msgpack_object *message)
{
    if (field_is(message, "type", MSG_NEED)) {
        need_take(agent, program, message);
    } else if (field_is(message, "type", MSG_RETURN)) {
        take_return(agent, program, message);
    } else if (field_is(message, "type", MSG_ALIVE)) {
        struct frame frame;
        frame_init(&frame, MSG_ALIVE);
        peer_send(program->peer, &frame);
    } else {
        return false;
    }
    return true;
}

/* ---- what follows ---- */

/** One step for those who wait, in their order. False when all of them go on waiting. */
static bool serve_queue(struct agent *agent)
{
    struct governor *governor = agent->governor;
    struct world *world = &governor->world;

    for (uint32_t i = 0; i < world->policy.queue_count; i++) {
        uint32_t index = world->queue[i];
        struct governed *governed = &world->groups[index].program->governed;
        struct policy_step step;
        if (world->programs[index].busy_moving) {
            continue;
        }
        if (step_trim(agent, index)) {
            world->programs[index].busy_moving = true; /* Room is on its way. */
            continue;
        }
        policy_answer(&world->policy, config_policy(&agent->config), index, &step);
        if (step.action == POLICY_DO_WAIT || step.action == POLICY_NOTHING) {
            memcpy(governed->why, step.reason, sizeof(governed->why));
        } else if (step_do(agent, &step)) {
            governed->displaces =
                governed->displaces || (step.program != index && step.action == POLICY_DO_SPILL);
            return true;
        }
    }
    return false;
}

static bool serve_others(struct agent *agent)
{
    struct governor *governor = agent->governor;
    struct policy_settings settings = *config_policy(&agent->config);
    struct policy_step step;

    settings.automatic = settings.automatic && governor->automatic;
    policy_next(&governor->world.policy, &settings, &step);
    return step.action != POLICY_NOTHING && step.action != POLICY_DO_WAIT && step_do(agent, &step);
}

void govern_run(struct agent *agent)
{
    struct governor *governor = agent->governor;

    if (governor->running || agent->stopping || !governor->dirty || awaits(agent)) {
        return;
    }
    governor->running = true;
    for (unsigned i = 0; i < STEPS_MAX && governor->dirty; i++) {
        governor->dirty = false;
        if (world_build(agent)) {
            break;
        }
        governor->dirty =
            step_quota(agent) || serve_queue(agent) || serve_others(agent) || governor->dirty;
    }
    governor->running = false;
    governor->automatic = false;
    follow_tick(agent);
}

static void sample(struct agent *agent)
{
    struct governor *governor = agent->governor;
    const struct ledger *ledger = &governor->ledger;
    uint64_t now = uv_now(&agent->loop);

    if (ledger->count > governor->history_count) {
        struct history *grown =
            realloc(governor->histories, ledger->count * sizeof(*governor->histories));
        if (!grown) {
            return;
        }
        memset(grown + governor->history_count, 0,
               (ledger->count - governor->history_count) * sizeof(*grown));
        governor->histories = grown;
        governor->history_count = ledger->count;
    }
    for (uint32_t i = 0; i < ledger->count; i++) {
        history_add(&governor->histories[i], now, ledger->devices[i].reserved,
                    ledger->devices[i].held);
    }
    for (struct program *program = agent->programs; program; program = program->next) {
        uint64_t granted = 0, held = 0;
        for (size_t i = 0; i < program->seat_count; i++) {
            granted += ledger_reserved(&program->seats[i].account);
            held += program->seats[i].account.held;
        }
        if (program->connected) {
            history_add(&program->governed.history, now, granted, held);
        }
    }
}

void govern_tick(struct agent *agent)
{
    struct governor *governor = agent->governor;
    uint64_t now = uv_now(&agent->loop);

    for (uint32_t i = 0; i < governor->ledger.count; i++) {
        struct ledger_device *device = &governor->ledger.devices[i];
        if (device->tight != LEDGER_NO_LIMIT && now >= device->tight_until_ms) {
            device->tight = LEDGER_NO_LIMIT;
        }
    }
    for (struct program *program = agent->programs; program; program = program->next) {
        if (program->governed.shrinks && now >= program->governed.shrink_until_ms) {
            /* Nothing came back: of what it does not use there is none, of the rest it may not. */
            program->governed.shrinks = false;
            withhold(agent, program);
        }
        program->governed.withholds =
            program->governed.withholds && now < program->governed.withholds_until_ms;
    }
    drain_tick(agent);
    resume_tick(agent);
    if (now - governor->ticked_ms >= TICK_MS) {
        governor->ticked_ms = now;
        governor->automatic = true;
        governor->dirty = true;
        sample(agent);
    }
    govern_run(agent);
}
