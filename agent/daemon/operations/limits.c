#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "agent/daemon/agent_messages.h"
#include "agent/daemon/event_log.h"
#include "agent/daemon/operations/governor.h"
#include "agent/daemon/operations/operation.h"
#include "agent/daemon/power/power.h"
#include "state/base/bytes/size.h"
#include "state/base/clock.h"

/* Tell programs that they may use more of @device than @before, of ledger_lasting(). */
static void limits_capacity_notify_more(const struct agent *agent,
                                        const struct ledger_device *device, uint64_t before)
{
    char text[PROTOCOL_TEXT_MAX], bytes[32];
    uint64_t now = ledger_lasting(device);

    if (now > before) {
        bytes_text(now, bytes, sizeof(bytes));
        snprintf(text, sizeof(text), "programs may have %s of %s", bytes, device->name);
        programs_notify_added(agent, now, text);
    }
}

/** Update a listed device. Programs are told if it is new or has more memory. */
static void limits_list_device(struct agent *agent, const struct inventory_entry *entry,
                               struct ledger_device *device)
{
    uint64_t before = ledger_lasting(device);
    uint64_t own = devinfo_scalar(&entry->info, CL_DEVICE_GLOBAL_MEM_SIZE, 0);
    uint64_t said = device_settings_said(agent, entry).memory;
    char text[PROTOCOL_TEXT_MAX];

    own = own && own < LEDGER_BYTES_MAX ? own : LEDGER_BYTES_MAX;
    device->own = said < own ? said : own;
    if (device->listed) {
        limits_capacity_notify_more(agent, device, before);
    } else {
        snprintf(text, sizeof(text), "%s (%s) is there", device->name, entry->key.device);
        programs_notify_added(agent, ledger_lasting(device), text);
    }
}

void capacity_update(struct agent *agent)
{
    struct ledger *ledger = &agent->ledger;
    const struct inventory *inventory = &agent->devices.inventory;

    for (size_t i = 0; i < inventory->count; i++) {
        uint32_t index;
        if (inventory->entries[i].lost)
            continue;
        if (!ledger_device(ledger, inventory->entries[i].name, &index))
            limits_list_device(agent, &inventory->entries[i], &ledger->devices[index]);
    }
    for (uint32_t i = 0; i < ledger->count; i++) {
        const struct inventory_entry *entry = devices_entry(agent, i);
        ledger->devices[i].listed = entry && !entry->lost;
    }
    agent->changed = true;
}

static int limits_take(void *data, char *const words[])
{
    struct agent *agent = data;
    const char *name = words[0], *what = words[1];
    uint32_t index;

    if (strlen(name) >= sizeof(agent->ledger.devices->name) ||
        ledger_device(&agent->ledger, name, &index))
        return 0;
    struct ledger_device *device = &agent->ledger.devices[index];
    uint64_t number = 0, now = clock_wall_ms();
    bool numbered = number_parse(words[2], UINT64_MAX, &number);
    if (strcmp(what, "drain") == 0)
        device->drains = true;
    else if (strcmp(what, "cordon") == 0)
        device->cordoned = true;
    else if (strcmp(what, "drain-at") == 0 && numbered)
        device->drains_ms = uv_now(&agent->loop) + 1 + (number > now ? number - now : 0);
    else if (strcmp(what, "memory") == 0 && numbered)
        device->limit = number;
    else if (strcmp(what, "power") == 0 && numbered)
        device->cap_mw = number;
    return 0;
}

int limits_load(struct agent *agent)
{
    struct governor *governor = agent->governor;
    char folder[PATH_MAX];
    int error = paths_state(folder);

    if (!error)
        error = paths_join(folder, "limits", governor->state_path);
    if (!error)
        error = paths_read_lines(governor->state_path, 3, limits_take, agent);
    return error == -ENOENT ? 0 : error;
}

static void limits_print(const void *data, FILE *out)
{
    const struct agent *agent = data;

    for (uint32_t i = 0; i < agent->ledger.count; i++) {
        const struct ledger_device *device = &agent->ledger.devices[i];
        if (device->limit != LEDGER_NO_LIMIT)
            fprintf(out, "%s memory %" PRIu64 "\n", device->name, device->limit);
        if (device->cap_mw)
            fprintf(out, "%s power %" PRIu64 "\n", device->name, device->cap_mw);
        if (device->drains)
            fprintf(out, "%s drain\n", device->name);
        if (device->cordoned)
            fprintf(out, "%s cordon\n", device->name);
        if (device->drains_ms) {
            fprintf(out, "%s drain-at %" PRIu64 "\n", device->name,
                    clock_wall_ms() + devices_drain_in_ns(agent, device) / 1000000);
        }
    }
}

int limits_save(const struct agent *agent)
{
    return paths_write_lines(agent->governor->state_path, "What reseat limit and reseat drain set.",
                             limits_print, agent);
}

bool limits_keep(struct peer *client, struct ledger_device *device,
                 const struct ledger_device *before, const char *what)
{
    struct agent *agent = client->agent;
    int error = limits_save(agent);

    if (error) {
        *device = *before;
        peer_error(client, ERR_FAILED, "%s cannot be kept in %s: %s; it stays as it was", what,
                   agent->governor->state_path, strerror(-error));
        return false;
    }
    agent->changed = true;
    return true;
}

static void limits_answer(struct peer *client, const struct limit_answer *answer)
{
    struct event event = event_of(client, MSG_LIMIT, answer->limited ? "set" : "off");
    char reason[64] = "";
    struct frame frame;

    if (answer->limited && answer->memory)
        bytes_text(answer->bytes, reason, sizeof(reason));
    else if (answer->limited)
        snprintf(reason, sizeof(reason), "%.1f W", (double)answer->cap_mw / 1000);
    event.program = answer->program;
    event.device = answer->device;
    event.reason = reason;
    event_log_add(client->agent, &event);
    frame_init(&frame, MSG_LIMIT);
    put_limit(&frame, answer);
    peer_send(client, &frame);
}

static void limits_limit_device(struct peer *client, uint32_t index, uint64_t bytes)
{
    struct agent *agent = client->agent;
    struct ledger_device *device = &agent->ledger.devices[index];
    const struct ledger_device before = *device;
    char what[64];

    device->limit = bytes;
    snprintf(what, sizeof(what), "the limit of %s", device->name);
    if (!limits_keep(client, device, &before, what))
        return;
    limits_capacity_notify_more(agent, device, ledger_lasting(&before));
    limits_answer(client, &(struct limit_answer){.device = device->name,
                                                 .memory = true,
                                                 .limited = bytes != LEDGER_NO_LIMIT,
                                                 .bytes = bytes == LEDGER_NO_LIMIT ? 0 : bytes,
                                                 .capacity = ledger_capacity(device),
                                                 .granted = device->reserved,
                                                 .held = device->held});
}

/** Bytes that virtual devices @vdevs of @program, all on one device, need there at one time. */
static uint64_t limits_needs_at_once(const struct program *program, unsigned vdevs)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < program->vdev_count; i++) {
        const struct program_device *vdev = &program->vdevs[i];
        bool spills = program->policy.ways & POLICY_SPILL && vdev->limited && !vdev->pinned[0];
        if (vdevs & (1u << i))
            bytes += spills ? vdev->least : vdev_wanted(vdev);
    }
    return bytes;
}

uint64_t limits_quota(const struct agent *agent, const struct program *program, unsigned vdevs)
{
    uint64_t needs = limits_needs_at_once(program, vdevs), quota = program->policy.quota;
    uint64_t left = program_user_left(agent, program);

    quota = needs > quota ? needs : quota;
    return quota < left ? quota : left;
}

/** The most that @program needs at one time on one of its devices. */
static uint64_t limits_most_at_once(const struct program *program)
{
    uint64_t most = 0;

    for (size_t i = 0; i < program->vdev_count; i++) {
        unsigned beside = 0;
        for (size_t j = 0; j < program->vdev_count; j++)
            beside |=
                program->vdevs[j].entry.device == program->vdevs[i].entry.device ? 1u << j : 0;
        uint64_t needs = limits_needs_at_once(program, beside);
        most = needs > most ? needs : most;
    }
    return most;
}

static void limits_limit_program(struct peer *client, struct program *program, uint64_t bytes)
{
    struct agent *agent = client->agent;
    uint64_t needs = limits_most_at_once(program);

    if (bytes < needs) {
        char least[32];
        bytes_text(needs, least, sizeof(least));
        client_refuse(client, ERR_REFUSED, program,
                      "needs %s at once and could not go on with less; set a "
                      "limit of that at least, or take it off its device (reseat suspend %s)",
                      least, program->id);
        return;
    }
    program->policy.overrides |= OVERRIDE_QUOTA;
    program_set_quota(agent, program, bytes, "an operator set its limit");
    program_configure(agent, program); /* The configuration may allow less to the user. */
    bytes = program->policy.quota;
    struct limit_answer answer = {.program = program,
                                  .memory = true,
                                  .limited = bytes != LEDGER_NO_LIMIT,
                                  .bytes = bytes == LEDGER_NO_LIMIT ? 0 : bytes,
                                  .least = needs};
    for (size_t i = 0; i < program->vdev_count; i++) {
        answer.granted += ledger_reserved(&program->vdevs[i].entry);
        answer.held += program->vdevs[i].entry.held;
    }
    limits_answer(client, &answer);
}

/** Set the power cap of a program, or (NULL) of a device; 0: none. */
static void limits_cap(struct peer *client, struct program *program, uint32_t index,
                       uint64_t cap_mw)
{
    struct agent *agent = client->agent;
    struct ledger_device *device = program ? NULL : &agent->ledger.devices[index];
    char text[PROTOCOL_TEXT_MAX];

    if (cap_mw && !power_allows(agent, program, index, cap_mw, text, sizeof(text))) {
        peer_error(client, ERR_REFUSED, "%s", text);
        return;
    }
    if (program) {
        program->policy.overrides |= OVERRIDE_CAP;
        program->policy.cap_mw = cap_mw;
        program_configure(agent, program); /* The configuration may allow less to the user. */
        cap_mw = program->policy.cap_mw;
    } else {
        const struct ledger_device before = *device;
        device->cap_mw = cap_mw;
        snprintf(text, sizeof(text), "the power cap of %s", device->name);
        if (!limits_keep(client, device, &before, text))
            return;
    }
    agent->changed = true;
    limits_answer(client, &(struct limit_answer){.program = program,
                                                 .device = device ? device->name : NULL,
                                                 .power = true,
                                                 .limited = cap_mw != 0,
                                                 .cap_mw = cap_mw});
}

void limits_handle(struct peer *client, struct message *message)
{
    const msgpack_object *cap = field_get(&message->root, "cap_mw");
    bool limited = field_bool(&message->root, "limited", false);
    uint64_t bytes = field_u64(&message->root, "memory_bytes", 0);
    struct program *program;
    uint32_t device;
    size_t vdev;

    bytes = !limited ? LEDGER_NO_LIMIT : bytes < LEDGER_BYTES_MAX ? bytes : LEDGER_BYTES_MAX;
    if (!client_program_or_device(client, &message->root, &program, &vdev, &device))
        return;
    if (cap && (!program || vdev == PROGRAM_ALL_VDEVS)) {
        limits_cap(client, program, device, field_u64(&message->root, "cap_mw", 0));
    } else if (!program) {
        limits_limit_device(client, device, bytes);
    } else if (vdev == PROGRAM_ALL_VDEVS) {
        limits_limit_program(client, program, bytes);
    } else {
        peer_error(client, ERR_USAGE,
                   "a limit is for a whole program, not for one virtual device; name it as %s",
                   program->id);
    }
}
