#include <errno.h>
#include <stdlib.h>

#include "agent/daemon/agent_messages.h"
#include "agent/daemon/peers.h"
#include "agent/daemon/power/power_priv.h"
#include "policy/power.h"

/** How often a program that may launch is told so again. */
#define POWER_RENEW_MS 1000

/** The input of power_choose(), and the program that each row is of. */
struct rows {
    struct power_world world;
    struct power_device *devices;
    struct power_program *programs;
    struct power_choice *choices;
    struct program **owners;
};

int power_init(struct agent *agent)
{
    agent->power = calloc(1, sizeof(*agent->power));
    return agent->power ? 0 : -ENOMEM;
}

void power_finish(struct agent *agent)
{
    for (uint32_t i = 0; agent->power && i < agent->power->count; i++)
        meter_destroy(agent->power->devices[i].meter);
    if (agent->power)
        free(agent->power->devices);
    free(agent->power);
    agent->power = NULL;
}

static uint64_t power_host_cap(const struct agent *agent)
{
    return config_policy(&agent->config)->power_cap * MW_PER_W;
}

/** True when a cap concerns @program (NULL: any program) on at least one device. */
static bool power_any_cap(const struct agent *agent, const struct program *program)
{
    if (power_host_cap(agent) || (program && program->policy.cap_mw))
        return true;
    for (uint32_t i = 0; i < agent->ledger.count; i++)
        if (agent->ledger.devices[i].cap_mw)
            return true;
    return false;
}

bool power_is_at_work(const struct agent *agent)
{
    return power_any_cap(agent, NULL) || agent->power->tells || agent->capped;
}

/* ---- the world ---- */

/** The learnt peak of @program on @device above idle, in mW; 0: not known. */
static uint64_t power_learnt(const struct program *program, uint32_t device)
{
    const struct program_peak *peak =
        power_peak_of((struct program_power *)(uintptr_t)&program->power, device);

    return peak && peak->samples >= POWER_SAMPLES ? peak->mw : 0;
}

bool power_may_run(const struct program *program)
{
    const struct program_power *power = &program->power;
    bool heard = program->peer && power->capped && power->heard == power->turn;

    return !program->peer || power->granted || (!program->unresponsive && (!heard || power->runs));
}

bool power_awaits(const struct program *program)
{
    return program->power.capped && !program->power.granted && !program->unresponsive &&
           power_may_run(program);
}

static struct power_program power_row(const struct program *program, uint32_t device)
{
    const struct program_power *power = &program->power;

    return (struct power_program){
        .device = device,
        .peak_mw = power_learnt(program, device),
        .cap_mw = program->policy.cap_mw,
        .granted = program->peer && power->capped && power->granted,
        .runs = power_may_run(program),
        .wants = program->peer && power->wants && !program->unresponsive,
        .since_ms = power->since_ms,
    };
}

static void power_add_row(struct rows *rows, struct program *program, uint32_t device)
{
    uint32_t at = rows->world.program_count;

    for (uint32_t i = at; i-- > 0 && rows->owners[i] == program;)
        if (rows->programs[i].device == device)
            return;
    rows->programs[at] = power_row(program, device);
    rows->owners[at] = program;
    rows->world.program_count++;
}

static void power_rows_finish(struct rows *rows)
{
    free(rows->devices);
    free(rows->programs);
    free(rows->choices);
    free(rows->owners);
}

/** Add a row for each device that a program is on or moves to. Returns 0 or -ENOMEM. */
static int power_rows_init(struct agent *agent, struct rows *rows)
{
    size_t most = 1;

    *rows = (struct rows){0};
    if (!power_grow(agent))
        return -ENOMEM;
    for (const struct program *program = agent->programs; program; program = program->next)
        most += 2 * program->vdev_count;
    rows->devices = calloc(agent->ledger.count + 1, sizeof(*rows->devices));
    rows->programs = calloc(most, sizeof(*rows->programs));
    rows->choices = calloc(most, sizeof(*rows->choices));
    rows->owners = calloc(most, sizeof(*rows->owners));
    if (!rows->devices || !rows->programs || !rows->choices || !rows->owners) {
        power_rows_finish(rows);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < agent->ledger.count; i++) {
        const struct metered *metered = &agent->power->devices[i];
        const struct ledger_device *device = &agent->ledger.devices[i];
        rows->devices[i] = (struct power_device){.name = device->name,
                                                 .idle_mw = metered->idle_mw,
                                                 .most_mw = metered->most_mw,
                                                 .foreign_mw = metered->foreign_mw,
                                                 .cap_mw = device->cap_mw};
    }
    rows->world = (struct power_world){.devices = rows->devices,
                                       .device_count = agent->ledger.count,
                                       .programs = rows->programs,
                                       .cap_mw = power_host_cap(agent),
                                       .now_ms = uv_now(&agent->loop)};
    for (struct program *program = agent->programs; program; program = program->next) {
        for (size_t i = 0; program->connected && i < program->vdev_count; i++) {
            const struct ledger_entry *entry = &program->vdevs[i].entry;
            if (entry->device != LEDGER_NONE)
                power_add_row(rows, program, entry->device);
            if (entry->target != LEDGER_NONE)
                power_add_row(rows, program, entry->target);
        }
    }
    return 0;
}

/* ---- messages to programs ---- */

static void power_send(struct agent *agent, struct program *program)
{
    struct program_power *power = &program->power;
    struct frame frame;

    power->said_ms = uv_now(&agent->loop);
    frame_init(&frame, MSG_POWER);
    put_power(&frame, power);
    peer_send(program->peer, &frame);
}

static void power_tell(struct agent *agent, struct program *program, bool capped, bool granted)
{
    struct program_power *power = &program->power;

    if (granted != power->granted || capped != power->capped)
        power->since_ms = uv_now(&agent->loop);
    power->capped = capped;
    power->granted = granted;
    if (!program->peer)
        return;
    power->turn++;
    power_send(agent, program);
}

/** The lowest of the caps that concern @program; UINT64_MAX: none. */
static uint64_t power_cap_of(const struct agent *agent, const struct program *program)
{
    uint64_t least = program->policy.cap_mw ? program->policy.cap_mw : UINT64_MAX;
    uint64_t host = power_host_cap(agent);

    least = host && host < least ? host : least;
    for (size_t i = 0; i < program->vdev_count; i++) {
        uint32_t on = program->vdevs[i].entry.device;
        uint64_t cap = on == LEDGER_NONE ? 0 : agent->ledger.devices[on].cap_mw;
        least = cap && cap < least ? cap : least;
    }
    return least;
}

/**
 * Send the program a notice if its lowest cap changed, or if it cannot launch under it and needs
 * another @least_mw (0: it can) than before, so that it can adapt.
 */
static void power_notify(const struct agent *agent, struct program *program, uint64_t least_mw)
{
    struct program_power *power = &program->power;
    uint64_t cap_mw = power_cap_of(agent, program);
    char text[PROTOCOL_TEXT_MAX];

    if (cap_mw == (power->noticed_mw ? power->noticed_mw : UINT64_MAX) &&
        least_mw == power->least_mw)
        return;
    power->noticed_mw = cap_mw;
    power->least_mw = least_mw;
    if (cap_mw == UINT64_MAX)
        snprintf(text, sizeof(text), "no power cap concerns it any more");
    else if (least_mw)
        snprintf(text, sizeof(text), "%s", power->why);
    else
        snprintf(text, sizeof(text), "a power cap of %.1f W concerns it",
                 (double)cap_mw / MW_PER_W);
    program_notify(program, PROGRAM_ALL_VDEVS, NOTICE_POWER, 0, cap_mw, text);
}

/** Tell @program its new state. It may launch only if all of its rows are granted. */
static void power_settle(struct agent *agent, struct rows *rows, struct program *program)
{
    struct program_power *power = &program->power;
    const char *why = "";
    uint64_t least_mw = 0;
    bool any = false, capped = false, granted = true;

    for (uint32_t i = 0; i < rows->world.program_count; i++) {
        if (rows->owners[i] != program)
            continue;
        any = true;
        capped = capped || power_program_is_capped(&rows->world, i);
        granted = granted && rows->choices[i].grant;
        least_mw = rows->choices[i].least_mw > least_mw ? rows->choices[i].least_mw : least_mw;
        if (!why[0] || rows->choices[i].least_mw)
            why = rows->choices[i].why;
    }
    if (!any) { /* It is on no device: it waits until it is on one. */
        capped = power_any_cap(agent, program);
        granted = false;
    }
    granted = granted && capped;
    if (program->unresponsive)
        why = "it does not answer (is it stopped?), so others get its power";
    snprintf(power->why, sizeof(power->why), "%s", granted ? "" : why);
    agent->power->tells = agent->power->tells || capped;
    if (capped != power->capped || granted != power->granted)
        power_tell(agent, program, capped, granted);
    power_notify(agent, program, least_mw);
}

void power_run(struct agent *agent)
{
    struct rows rows;

    if (!power_is_at_work(agent) || power_rows_init(agent, &rows))
        return;
    power_choose(&rows.world, rows.choices);
    agent->power->tells = false;
    for (struct program *program = agent->programs; program; program = program->next)
        if (program->peer)
            power_settle(agent, &rows, program);
    power_rows_finish(&rows);
}

void power_welcome(const struct agent *agent, struct program *program)
{
    struct program_power *power = &program->power;

    power->capped = power_any_cap(agent, program);
    power->granted = power->runs = power->wants = false;
    power->noticed_mw = power->least_mw = 0;
}

void power_connected(struct agent *agent, struct program *program)
{
    if (program->power.capped)
        power_tell(agent, program, true, false);
}

void power_handle(struct peer *peer, struct message *message)
{
    struct program_power *power = &peer->program->power;

    bool wanted = power->wants;

    take_power_use(&message->root, power);
    if (power->wants && !wanted && !power->granted)
        power->since_ms = uv_now(&peer->agent->loop);
}

void power_tick(struct agent *agent)
{
    struct power *power = agent->power;
    uint64_t all = power_read_all(agent);

    if (power_host_cap(agent) && all > power_host_cap(agent))
        power->exceeded++;
    if (!power_is_at_work(agent))
        return;
    power_run(agent);
    /* Renew the grants, which end by themselves. */
    for (struct program *program = agent->programs; program; program = program->next) {
        const struct program_power *own = &program->power;
        if (program->peer && own->capped && own->granted && !program->unresponsive &&
            uv_now(&agent->loop) - own->said_ms >= POWER_RENEW_MS)
            power_send(agent, program);
    }
}

/* ---- what fits under a cap ---- */

/** Power of @device while only @program (NULL: an unknown program) launches there; 0: not known. */
static uint64_t power_needs(const struct agent *agent, const struct program *program,
                            uint32_t device)
{
    const struct metered *metered = &agent->power->devices[device];
    uint64_t peak = program ? power_learnt(program, device) : 0;

    return peak ? metered->idle_mw + peak : metered->most_mw;
}

/** True if @program may draw what it needs on @device, with nothing else there, under all caps. */
static bool power_fits_at(const struct agent *agent, const struct program *program, uint32_t device)
{
    uint64_t host = power_host_cap(agent), others = 0, room = UINT64_MAX;
    uint64_t needs = power_needs(agent, program, device),
             own = agent->ledger.devices[device].cap_mw;

    for (uint32_t i = 0; host && i < agent->power->count; i++)
        others += i == device ? 0 : agent->power->devices[i].idle_mw;
    if (host)
        room = host > others ? host - others : 0;
    room = own && own < room ? own : room;
    room = program->policy.cap_mw && program->policy.cap_mw < room ? program->policy.cap_mw : room;
    return room == UINT64_MAX || (needs && needs <= room);
}

bool power_bars(const struct agent *agent, const struct program *program, uint32_t device)
{
    if (!power_any_cap(agent, program) || agent->power->count < agent->ledger.count ||
        power_fits_at(agent, program, device))
        return false;
    for (uint32_t i = 0; i < agent->ledger.count; i++)
        if (i != device && agent->ledger.devices[i].listed && power_fits_at(agent, program, i))
            return true;
    return false;
}

/** What a cap is to be of; @program and @device as of power_allows(). */
struct power_scope {
    bool host;
    const struct program *program;
    uint32_t device;
};

/** What a cap of @scope is compared with while only @program launches, on @device; 0: unknown. */
static uint64_t power_needs_in(const struct agent *agent, const struct power_scope *scope,
                               const struct program *program, uint32_t device)
{
    uint64_t needs = power_needs(agent, program, device);
    uint64_t most = agent->power->devices[device].most_mw;
    bool own = !scope->host && scope->device == LEDGER_NONE;

    if (!needs || own)
        return needs;
    needs += agent->power->devices[device].foreign_mw;
    needs = most && needs > most ? most : needs;
    for (uint32_t i = 0; scope->host && i < agent->power->count; i++)
        if (i != device)
            needs += agent->power->devices[i].idle_mw + agent->power->devices[i].foreign_mw;
    return needs;
}

/** The lowest cap of @scope under which one of its programs could launch. 0: unknown. */
static uint64_t power_least(const struct agent *agent, const struct power_scope *scope,
                            uint32_t *ret_device)
{
    uint64_t least = 0;

    for (uint32_t i = 0; i < agent->power->count; i++) {
        const struct program *program = scope->program ? scope->program : agent->programs;
        if (scope->device != i &&
            (scope->device != LEDGER_NONE || !agent->ledger.devices[i].listed))
            continue;
        for (bool more = true; more; program = program ? program->next : NULL) {
            uint64_t needs = power_needs_in(agent, scope, program, i);
            if (needs && (!least || needs < least)) {
                least = needs;
                *ret_device = i;
            }
            more = program && !scope->program;
        }
    }
    return least;
}

/** As power_allows(). */
static bool power_allows_in(struct agent *agent, const struct power_scope *scope, uint64_t cap_mw,
                            char *ret_reason, size_t size)
{
    uint32_t device = scope->device;

    (void)power_read_all(agent);
    uint64_t least = power_least(agent, scope, &device);
    const char *name = device == LEDGER_NONE ? "any device" : agent->ledger.devices[device].name;
    if (!least)
        snprintf(ret_reason, size,
                 "it is not known what %s draws at most, so no cap can be kept; say so in the "
                 "configuration (busy-watts)",
                 name);
    else if (cap_mw < least)
        snprintf(ret_reason, size,
                 "nothing fits under a cap of %.1f W; the least that would do is %.1f W, on %s",
                 (double)cap_mw / MW_PER_W, (double)least / MW_PER_W, name);
    return least && cap_mw >= least;
}

bool power_allows(struct agent *agent, const struct program *program, uint32_t device,
                  uint64_t cap_mw, char *ret_reason, size_t size)
{
    struct power_scope scope = {.program = program, .device = program ? LEDGER_NONE : device};

    return power_allows_in(agent, &scope, cap_mw, ret_reason, size);
}

bool power_allows_host(struct agent *agent, uint64_t cap_mw, char *ret_reason, size_t size)
{
    struct power_scope scope = {.host = true, .device = LEDGER_NONE};

    if (!cap_mw || !agent->power)
        return true; /* The agent starts: it knows no devices yet, and the cap holds. */
    return power_allows_in(agent, &scope, cap_mw, ret_reason, size);
}

/* ---- answers to clients ---- */

uint64_t power_idle(const struct agent *agent, uint32_t device)
{
    return device < agent->power->count && agent->power->devices[device].idle_known
               ? agent->power->devices[device].idle_mw
               : 0;
}

uint64_t power_expected(const struct agent *agent, const struct program *program, uint32_t device)
{
    uint64_t idle = power_idle(agent, device), learnt = power_learnt(program, device);

    if (learnt || !idle)
        return learnt;
    uint64_t most = agent->power->devices[device].most_mw;
    return most > idle ? most - idle : 0;
}

bool power_is_modelled(const struct agent *agent, uint32_t device)
{
    return device < agent->power->count && agent->power->devices[device].modelled;
}

bool power_reading(const struct agent *agent, uint32_t device, uint64_t *ret_mw)
{
    bool read = device < agent->power->count && agent->power->devices[device].read;

    if (read)
        *ret_mw = agent->power->devices[device].reading_mw;
    return read;
}

void power_put_device(const struct agent *agent, uint32_t device, struct frame *frame)
{
    const struct metered *metered =
        device < agent->power->count ? &agent->power->devices[device] : &(struct metered){0};

    put_device_power(frame, metered);
}

void power_put_program(const struct program *program, struct frame *frame)
{
    put_app_power(frame, program);
    frame_u64(frame, "power_peak_mw",
              program->vdevs[0].entry.device == LEDGER_NONE
                  ? 0
                  : power_learnt(program, program->vdevs[0].entry.device));
}

void power_explain(const struct agent *agent, const struct program *program, char *ret_line,
                   size_t size)
{
    const struct program_power *power = &program->power;
    uint64_t cap = power_cap_of(agent, program);

    if (!size || !power->capped)
        return;
    if (power->why[0])
        snprintf(ret_line, size, "Power: %s.\n", power->why);
    else
        snprintf(ret_line, size,
                 "Power: it may launch; the least cap that concerns it is %.1f W.\n",
                 cap == UINT64_MAX ? 0.0 : (double)cap / MW_PER_W);
}
