#include <string.h>

#include "agent/daemon/agent_messages.h"
#include "agent/daemon/programs/registry.h"
#include "state/base/array.h"

/* Reads programs' reports on their virtual devices, and describes these. */

static void program_vdevs_take_vdev(struct agent *agent, struct program *program, size_t index,
                                    const msgpack_object *map)
{
    struct program_device *vdev = &program->vdevs[index];
    uint64_t moves = vdev->moves, downtime = vdev->last_downtime_ns;
    uint64_t wanted = vdev->wanted, least = vdev->least;
    const msgpack_object *items;

    take_vdev(agent, map, vdev);
    vdev->seeks = program->status.protect.seeks && vdev->lost && !vdev->suspended;
    /* It may be counted before its end is known. */
    if (moves != vdev->moves || downtime != vdev->last_downtime_ns || !program->status.known)
        program->status.last_downtime_ns = vdev->last_downtime_ns;
    vdev->wanted = vdev->tells_grants ? vdev->wanted : vdev->device_bytes;
    vdev->least = field_get(map, "least") ? vdev->least : vdev->wanted;
    vdev->peak = field_get(map, "peak") ? vdev->peak : vdev->device_bytes;
    /* Suspended, it has no device memory: keep the amount to resume it with. */
    vdev->wanted = vdev->suspended && vdev->wanted < wanted ? wanted : vdev->wanted;
    vdev->least = vdev->suspended && vdev->least < least ? least : vdev->least;
    uint64_t most = vdev->wanted > vdev->device_bytes ? vdev->wanted : vdev->device_bytes;
    vdev->wanted_peak = most > vdev->wanted_peak ? most : vdev->wanted_peak;
    if (vdev->fetched > vdev->to_fetch)
        vdev->fetched = vdev->to_fetch;
    vdev->busy = vdev->busy < 1000 ? vdev->busy : 1000;
    size_t count = field_array(map, "sources", &items);
    vdev->source_count = 0;
    for (size_t i = 0; i < count && vdev->source_count < PROGRAM_SOURCES_MAX; i++) {
        struct program_source *source = &vdev->sources[vdev->source_count];
        take_source(agent, &items[i], source);
        vdev->source_count += source->device != LEDGER_NONE;
    }
}

/** Keep the agent's own state of devices that the program reports again. */
static void program_vdevs_take_ready(struct agent *agent, struct program *program,
                                     const msgpack_object *message)
{
    const msgpack_object *items;
    size_t count = message_items(message, "ready", &items, PROGRAM_READY_MAX);
    size_t before = program->ready_count;
    struct program_ready known[PROGRAM_READY_MAX];

    memcpy(known, program->ready, sizeof(known));
    program->ready_count = 0;
    for (size_t i = 0; i < count; i++) {
        struct program_ready *ready = &program->ready[program->ready_count], said = {0};
        take_ready(agent, &items[i], &said);
        if (said.device == LEDGER_NONE)
            continue;
        *ready = said;
        for (size_t j = 0; j < before; j++)
            if (known[j].device == said.device)
                *ready = known[j];
        ready->behind = said.behind;
        program->ready_count++;
    }
}

static void program_vdevs_take_whole(struct program *program, const msgpack_object *message)
{
    const msgpack_object *items;
    size_t count = message_items(message, "whole", &items, PROGRAM_WHOLE_MAX);

    program->whole_count = 0;
    if (count == 0 || !array_allot(&program->whole, PROGRAM_WHOLE_MAX, sizeof(*program->whole)))
        return;
    while (program->whole_count < count) {
        take_whole(&items[program->whole_count], &program->whole[program->whole_count]);
        program->whole_count++;
    }
}

/** The program reports how it is protected; one that no agent knew is to stay so. */
static void program_vdevs_note_protection(struct program *program)
{
    struct program_protect *protect = &program->status.protect;

    if (protect->as.word == PROTECTION_UNSAID) {
        *protect = (struct program_protect){.seeks = protect->seeks};
        return;
    }
    if (program->stranger && protect->as.word == PROTECTION_ON) {
        program->policy.protect = protect->as;
        program->policy.overrides |= OVERRIDE_PROTECT;
    }
    program->stranger = false;
}

/* A process that executes another program keeps the lease, which the new program then has. */
static void program_vdevs_take_right(struct program *program, const msgpack_object *map)
{
    struct program_lease lease = {.folder = ""};

    if (field_path(map, "folder", lease.folder, sizeof(lease.folder)) && lease.folder[0] &&
        field_string(map, "id", lease.id, sizeof(lease.id)) &&
        array_allot(&program->lease, 1, sizeof(lease)))
        *program->lease = lease;
}

void program_take_status(struct agent *agent, struct program *program,
                         const msgpack_object *message)
{
    const msgpack_object *vdevs;
    size_t count = message_items(message, "vdevs", &vdevs, PROTOCOL_VDEVS_MAX);
    struct program_status *status = &program->status;

    program->awaited = false;
    status->loss.device.icd[0] = '\0';
    take_status(agent, message, program);
    if (!status->loss.device.icd[0])
        status->loss = (struct program_loss){.count = 0};
    program_vdevs_note_protection(program);
    program_vdevs_take_ready(agent, program, message);
    program_vdevs_take_whole(program, message);
    /* A starting program reports no virtual devices: it keeps those it registered. */
    if (count != 0 && program_set_vdev_count(agent, program, count)) {
        for (size_t i = 0; i < count; i++)
            program_vdevs_take_vdev(agent, program, i, &vdevs[i]);
        /* These values are of the whole program. */
        take_objects(&vdevs[0], status);
    }
    status->known = true;
    program_vdevs_take_right(program, field_get(message, "right"));
}

bool program_suspended(const struct program *program)
{
    for (size_t i = 0; i < program->vdev_count; i++)
        if (!program->vdevs[i].suspended)
            return false;
    return true;
}

bool program_moving(const struct program *program)
{
    for (size_t i = 0; i < program->vdev_count; i++)
        if (program->vdevs[i].moving)
            return true;
    return false;
}

bool program_launches_on(const struct program *program, uint32_t device)
{
    for (size_t i = 0; i < program->vdev_count; i++)
        if (program->vdevs[i].entry.device == device)
            return true;
    for (size_t i = 0; i < program->spread.count; i++)
        if (program->spread_told & 1u << i && program->spread.devices[i] == device)
            return true;
    return false;
}

const char *program_state(const struct program *program)
{
    bool lost = false, spilled = false;

    for (size_t i = 0; i < program->vdev_count; i++) {
        const struct program_device *vdev = &program->vdevs[i];
        lost = lost || (!vdev->suspended && vdev->lost);
        spilled = spilled || (!vdev->suspended && vdev->spilled);
    }
    if (!program->connected)
        return "starting";
    if (!program->peer || program->unresponsive)
        return "away";
    if (program->status.fenced)
        return "fenced";
    if (program_moving(program))
        return "moving";
    if (lost)
        return "lost";
    if (program_suspended(program))
        return "suspended";
    if (program->managed.waiting)
        return "waiting";
    return spilled ? "spilled" : "running";
}

const char *vdev_device_name(const struct agent *agent, const struct program_device *vdev)
{
    const struct inventory_entry *entry =
        vdev->has_device ? device_by_key(&agent->devices.inventory, &vdev->device) : NULL;

    return entry ? entry->name : "";
}

void program_device_names(const struct agent *agent, const struct program *program, size_t vdev,
                          bool present, char *ret, size_t size)
{
    size_t used = 0;
    bool any = false;

    ret[0] = '\0';
    for (size_t i = 0; i < program->vdev_count; i++) {
        const struct program_device *one = &program->vdevs[i];
        if (vdev != PROGRAM_ALL_VDEVS && vdev != i)
            continue;
        bool away = present && one->suspended;
        const char *name = away ? "-" : vdev_device_name(agent, one);
        any = any || !away;
        int length = snprintf(ret + used, size - used, "%s%s", used ? "," : "", name);
        if (length < 0 || (size_t)length >= size - used)
            break;
        used += (size_t)length;
    }
    if (!any)
        ret[0] = '\0';
}

/* Room for what operators ask, and what becomes of room that was kept when a request ends. */

uint64_t vdev_wanted(const struct program_device *vdev)
{
    return vdev->wanted > vdev->device_bytes ? vdev->wanted : vdev->device_bytes;
}
