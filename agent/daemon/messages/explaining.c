#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "agent/config/bytes.h"
#include "agent/daemon/govern/govern_priv.h"
#include "agent/daemon/messages/registering.h"
#include "agent/daemon/peers.h"
#include "agent/wire/access.h"

/* What the ledger and the policy know, told to clients. */

#define EXPLAIN_MAX 2048

/** A name that is none of a device may be one that nobody has listed yet. */
static bool awaits_devices(struct peer *client, struct message *message)
{
    const struct inventory *inventory = &client->agent->devices.inventory;
    const msgpack_object *map = &message->root;
    bool drains = field_is(map, "type", MSG_DRAIN);
    char name[PROTOCOL_WORD_MAX], error[PROTOCOL_TEXT_MAX];
    const struct inventory_entry *entry;
    struct program *program;
    size_t seat;

    if (!drains && !field_is(map, "type", MSG_LIMIT) && !field_is(map, "type", MSG_USE)) {
        return false;
    }
    field_string(map, drains ? "device" : "what", name, sizeof(name));
    if (!name[0] || device_resolve(inventory, name, &entry, error, sizeof(error)) != -ENODEV ||
        (!drains && programs_find(client->agent, client, name, &program, &seat, error,
                                  sizeof(error)) != -ESRCH)) {
        client->retried = false;
        return false;
    }
    return registering_await(client, message);
}

bool govern_client(struct peer *client, struct message *whole)
{
    const msgpack_object *message = &whole->root;

    if (awaits_devices(client, whole)) {
        return true;
    }
    if (field_is(message, "type", MSG_LIMIT)) {
        limits_handle(client, message);
    } else if (field_is(message, "type", MSG_DRAIN) || field_is(message, "type", MSG_BALANCE)) {
        follow_handle(client, message);
    } else if (field_is(message, "type", MSG_EXPLAIN)) {
        tell_explain(client, message);
    } else if (field_is(message, "type", MSG_USE)) {
        tell_use(client, message);
    } else {
        return false;
    }
    return true;
}

void govern_describe_device(const struct agent *agent, const char *name, struct frame *frame)
{
    const struct ledger *ledger = &agent->governor->ledger;

    for (uint32_t i = 0; i < ledger->count; i++) {
        const struct ledger_device *device = &ledger->devices[i];
        if (strcmp(device->name, name) == 0) {
            frame_u64(frame, "capacity_bytes", ledger_capacity(device));
            frame_bool(frame, "limited", device->limit != LEDGER_NO_LIMIT);
            frame_u64(frame, "granted_bytes", device->reserved);
            frame_u64(frame, "granted_peak_bytes", device->reserved_peak);
            frame_u64(frame, "held_peak_bytes", device->held_peak);
            frame_bool(frame, "drained", device->drains);
            frame_bool(frame, "draining", device->drains_ms != 0);
            frame_u64(frame, "drains_in_ns", drain_in_ns(agent, device));
            return;
        }
    }
}

static void put_ways(struct frame *frame, unsigned ways)
{
    frame_array(frame, "on_full");
    for (unsigned i = 0; i < POLICY_WAYS; i++) {
        if (ways & (1u << i)) {
            frame_string(frame, NULL, policy_way_name((enum policy_way)(1u << i)));
        }
    }
    frame_end(frame);
}

void govern_describe_program(const struct agent *agent, const struct program *program,
                             struct frame *frame)
{
    uint64_t granted = 0, wanted = 0, spilled = 0, peak = 0, wanted_peak = 0, least = 0;
    const struct need *need = need_of(agent->governor, program, UINT_MAX);
    uint64_t ticket = need ? need->ticket : 0;
    char priority[16];
    bool displaced = false;

    for (size_t i = 0; i < program->seat_count; i++) {
        const struct program_device *seat = &program->seats[i];
        granted += ledger_reserved(&seat->account);
        wanted += seat->wanted;
        wanted_peak += seat->wanted_peak;
        least = seat->least > least ? seat->least : least;
        spilled += seat->spilled;
        peak += seat->account.held_peak > seat->peak ? seat->account.held_peak : seat->peak;
        bool queues = seat->displaced && seat->suspended;
        displaced = displaced || queues;
        if (queues && (!ticket || seat->ticket < ticket)) {
            ticket = seat->ticket;
        }
    }
    snprintf(priority, sizeof(priority), "%d", (int)program->policy.priority);
    frame_u64(frame, "granted_bytes", granted);
    frame_u64(frame, "wanted_bytes", wanted);
    frame_u64(frame, "spilled_bytes", spilled);
    frame_u64(frame, "peak_bytes", peak);
    frame_u64(frame, "wanted_peak_bytes", wanted_peak);
    frame_u64(frame, "least_bytes", least);
    frame_bool(frame, "limited", program->policy.quota != LEDGER_NO_LIMIT);
    frame_u64(frame, "quota_bytes",
              program->policy.quota == LEDGER_NO_LIMIT ? 0 : program->policy.quota);
    frame_string(frame, "priority", priority);
    frame_bool(frame, "preemptible", program->policy.preemptible);
    put_ways(frame, program->policy.ways);
    frame_u64(frame, "waiting", program->governed.waiting);
    frame_u64(frame, "ticket", ticket);
    frame_bool(frame, "displaced", displaced);
    frame_u64(frame, "waits", program->governed.waits);
    frame_u64(frame, "waited_ms", program->governed.waited_ms);
    frame_u64(frame, "refusals", program->governed.refusals);
    frame_string(frame, "why", program->governed.why);
}

/* ---- explain ---- */

static void put_bar(const struct agent *agent, uint32_t device, bool for_now, const char *reason,
                    struct frame *frame)
{
    frame_map(frame, NULL);
    frame_string(frame, "device", agent->governor->ledger.devices[device].name);
    frame_bool(frame, "for_now", for_now);
    frame_string(frame, "reason", reason);
    frame_end(frame);
}

static void put_bars(const struct agent *agent, const struct program *program, struct frame *frame)
{
    char reason[POLICY_REASON];

    frame_array(frame, "refused_by");
    for (unsigned i = 0; i < program->governed.bar_count; i++) {
        const struct program_bar *one = &program->governed.bars[i];
        if (step_barred(agent, program, one)) {
            put_bar(agent, one->device, one->cause == BAR_FAILED, one->reason, frame);
        }
    }
    for (uint32_t i = 0; i < agent->governor->ledger.count; i++) {
        if (!govern_device_suffices(agent, program, i, reason, sizeof(reason))) {
            put_bar(agent, i, false, reason, frame);
        }
    }
    frame_end(frame);
}

/** The policy's lines, one string each, and before them what it does not know. */
static void put_lines(const struct agent *agent, const struct program_device *seat,
                      struct frame *frame, char *text)
{
    const struct ledger_device *device =
        seat->account.device == LEDGER_NONE
            ? NULL
            : &agent->governor->ledger.devices[seat->account.device];
    uint64_t in_ns = device ? drain_in_ns(agent, device) : 0;

    frame_array(frame, "lines");
    if (in_ns) {
        char line[PROTOCOL_TEXT_MAX];
        snprintf(line, sizeof(line), "%s will be drained in %llu s.", device->name,
                 (unsigned long long)(in_ns + 999999999) / 1000000000);
        frame_string(frame, NULL, line);
    }
    if (seat->suspended && seat->displaced && seat->only != LEDGER_NONE) {
        char line[PROTOCOL_TEXT_MAX];
        snprintf(line, sizeof(line), "It queues for %s alone, which an operator named.",
                 agent->governor->ledger.devices[seat->only].name);
        frame_string(frame, NULL, line);
    }
    for (char *line = strsep(&text, "\n"); line; line = strsep(&text, "\n")) {
        if (line[0]) {
            frame_string(frame, NULL, line);
        }
    }
    frame_end(frame);
}

void tell_explain(struct peer *client, const msgpack_object *message)
{
    struct agent *agent = client->agent;
    const struct world *world = &agent->governor->world;
    char name[PROTOCOL_WORD_MAX], error[PROTOCOL_TEXT_MAX], text[EXPLAIN_MAX];
    struct frame frame;
    struct program *program;
    size_t seat;

    if (!field_text(message, "app", name, sizeof(name)) || !name[0]) {
        peer_error(client, ERR_USAGE, "the request names no program");
        return;
    }
    int result = programs_find(agent, client, name, &program, &seat, error, sizeof(error));
    if (result) {
        peer_error(client,
                   result == -ESRCH    ? ERR_NO_APP
                   : result == -ENODEV ? ERR_NO_DEVICE
                                       : ERR_AMBIGUOUS,
                   "%s", error);
        return;
    }
    if (world_build(agent)) {
        peer_error(client, ERR_FAILED, "the agent has no memory for the request; try again");
        return;
    }
    frame_init(&frame, MSG_EXPLAIN);
    program_describe(agent, program, &frame);
    frame_bool(&frame, "named", seat != PROGRAM_ALL_SEATS);
    put_bars(agent, program, &frame);
    frame_array(&frame, "devices");
    for (uint32_t i = 0; i < program->seat_count; i++) {
        uint32_t index = world_find(world, program, i);
        /* Those on one device are one to the policy: told of once, or of the one that is named. */
        if (index == POLICY_NONE ||
            (seat == PROGRAM_ALL_SEATS ? world->groups[index].seat != i : seat != i)) {
            continue;
        }
        policy_explain(&world->policy, config_policy(&agent->config), index, text, sizeof(text));
        frame_map(&frame, NULL);
        frame_u64(&frame, "seat", i);
        frame_string(&frame, "device", seat_device_name(agent, &program->seats[i]));
        put_lines(agent, &program->seats[i], &frame, text);
        frame_end(&frame);
    }
    frame_end(&frame);
    peer_send(client, &frame);
}

/* ---- use over time ---- */

static void put_history(const struct agent *agent, const struct history *history,
                        struct frame *frame)
{
    uint64_t age = uv_now(&agent->loop) - history->begin_ms;

    frame_u64(frame, "span_ms", history->span_ms);
    frame_u64(frame, "age_ms", history->span_ms ? age : 0);
    frame_array(frame, "granted");
    for (uint32_t i = 0; i < history->count; i++) {
        frame_u64(frame, NULL, history->spans[i].granted);
    }
    frame_end(frame);
    frame_array(frame, "held");
    for (uint32_t i = 0; i < history->count; i++) {
        frame_u64(frame, NULL, history->spans[i].held);
    }
    frame_end(frame);
}

static void put_device(const struct agent *agent, uint32_t index, struct frame *frame)
{
    const struct governor *governor = agent->governor;
    const struct ledger_device *device = &governor->ledger.devices[index];
    const struct history none = {0};

    frame_map(frame, NULL);
    frame_string(frame, "name", device->name);
    govern_describe_device(agent, device->name, frame);
    frame_u64(frame, "held_bytes", device->held);
    frame_u64(frame, "programs", device->accounts);
    put_history(agent, index < governor->history_count ? &governor->histories[index] : &none,
                frame);
    frame_end(frame);
}

static void put_program(const struct agent *agent, const struct program *program,
                        struct frame *frame)
{
    const struct ledger_account *account = &program->seats[0].account;

    frame_map(frame, NULL);
    program_describe(agent, program, frame);
    frame_u64(
        frame, "capacity_bytes",
        account->device == LEDGER_NONE ? 0 : agent->governor->ledger.devices[account->device].own);
    put_history(agent, &program->governed.history, frame);
    frame_end(frame);
}

static void put_ended(const struct governor *governor, struct frame *frame)
{
    unsigned first = governor->ended_count > ENDED_MAX ? governor->ended_count - ENDED_MAX : 0;

    frame_array(frame, "ended");
    for (unsigned i = first; i < governor->ended_count; i++) {
        const struct ended *one = &governor->ended[i % ENDED_MAX];
        frame_map(frame, NULL);
        frame_string(frame, "id", one->id);
        frame_string(frame, "name", one->name);
        frame_string(frame, "device", one->device);
        frame_u64(frame, "capacity_bytes", one->own);
        frame_u64(frame, "wanted_peak_bytes", one->wanted_peak);
        frame_u64(frame, "peak_bytes", one->held_peak);
        frame_u64(frame, "granted_peak_bytes", one->granted_peak);
        frame_u64(frame, "waits", one->waits);
        frame_u64(frame, "waited_ms", one->waited_ms);
        frame_end(frame);
    }
    frame_end(frame);
}

/** What a client may see: all that it names, or all there is. */
static void put_all(const struct peer *client, const struct program *program, uint32_t device,
                    struct frame *frame)
{
    const struct agent *agent = client->agent;
    bool all = !program && device == LEDGER_NONE;

    frame_array(frame, "devices");
    for (uint32_t i = 0; i < agent->governor->ledger.count; i++) {
        const struct ledger_device *one = &agent->governor->ledger.devices[i];
        if (i == device || (all && (govern_entry(agent, i) || one->accounts))) {
            put_device(agent, i, frame);
        }
    }
    frame_end(frame);
    frame_array(frame, "apps");
    for (const struct program *one = agent->programs; one; one = one->next) {
        if (one == program || (all && access_may_act(client->uid, one->uid))) {
            put_program(agent, one, frame);
        }
    }
    frame_end(frame);
    if (all) {
        put_ended(agent->governor, frame);
    } else {
        frame_array(frame, "ended");
        frame_end(frame);
    }
}

void tell_use(struct peer *client, const msgpack_object *message)
{
    struct agent *agent = client->agent;
    char name[PROTOCOL_WORD_MAX], wrong[PROTOCOL_TEXT_MAX], none[PROTOCOL_TEXT_MAX];
    const struct inventory_entry *entry = NULL;
    struct program *program = NULL;
    uint32_t device = LEDGER_NONE;
    struct frame frame;
    size_t seat;

    if (field_string(message, "what", name, sizeof(name)) && name[0]) {
        int found = device_resolve(&agent->devices.inventory, name, &entry, wrong, sizeof(wrong));
        int result = found == 0 && strcmp(entry->name, name) == 0
                         ? -ESRCH
                         : programs_find(agent, client, name, &program, &seat, none, sizeof(none));
        if (result == -ENOTUNIQ || (result && found == -ENOTUNIQ)) {
            peer_error(client, ERR_AMBIGUOUS, "%s", result == -ENOTUNIQ ? none : wrong);
            return;
        }
        if (result && found) {
            peer_error(client, ERR_NO_DEVICE,
                       "\"%s\" is neither a device (reseat devices) nor a program (reseat ps)",
                       name);
            return;
        }
        program = result ? NULL : program;
        if (result && ledger_device(&agent->governor->ledger, entry->name, &device)) {
            peer_error(client, ERR_FAILED, "the agent has no memory for the request; try again");
            return;
        }
    }
    frame_init(&frame, MSG_USE);
    put_all(client, program, device, &frame);
    peer_send(client, &frame);
}
