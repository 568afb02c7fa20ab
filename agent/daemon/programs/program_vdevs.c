#include <string.h>

#include "agent/daemon/programs/registry.h"
#include "state/driver/device_key.h"

/* What is known of programs' virtual devices, and how it is told. */

void program_put_identity(const struct program *program, struct frame *frame)
{
    frame_string(frame, "id", program->id);
    frame_string(frame, "name", program->name);
    frame_u64(frame, "pid", (uint64_t)program->pid);
}

void program_put_devices(const struct program *program, struct frame *frame)
{
    char key[DEVICE_KEY_TEXT_MAX];

    frame_array(frame, "devices");
    for (size_t i = 0; i < program->vdev_count; i++) {
        key[0] = '\0';
        if (program->vdevs[i].has_device)
            device_key_format(&program->vdevs[i].device, key);
        frame_string(frame, NULL, key);
    }
    frame_end(frame);
}

static void program_vdevs_take_key(struct program_device *vdev, const msgpack_object *text)
{
    char key[DEVICE_KEY_TEXT_MAX];
    struct device_key parsed;

    if (object_string(text, key, sizeof(key)) && key[0] && !device_key_parse(key, &parsed)) {
        vdev->device = parsed;
        vdev->has_device = true;
    }
}

void program_take_devices(struct program *program, const msgpack_object *map)
{
    const msgpack_object *keys;
    size_t count = field_array(map, "devices", &keys);

    for (size_t i = 0; i < count && i < PROTOCOL_VDEVS_MAX; i++) {
        program->vdev_count = i + 1;
        program_vdevs_take_key(&program->vdevs[i], &keys[i]);
    }
}

void program_put_spread(const struct program *program, struct frame *frame)
{
    char key[DEVICE_KEY_TEXT_MAX];

    frame_array(frame, "spread");
    for (size_t i = 0; i < program->spread.count; i++) {
        device_key_format(&program->spread.devices[i], key);
        frame_string(frame, NULL, key);
    }
    frame_end(frame);
}

void program_take_spread(struct program *program, const msgpack_object *map)
{
    const msgpack_object *keys;
    size_t count = field_array(map, "spread", &keys);
    struct program_spread *spread = &program->spread;
    char key[DEVICE_KEY_TEXT_MAX];

    spread->count = 0;
    for (size_t i = 0; i < count && spread->count < PROTOCOL_SPREAD_MAX; i++)
        spread->count += object_string(&keys[i], key, sizeof(key)) &&
                         !device_key_parse(key, &spread->devices[spread->count]);
}

static uint64_t program_vdevs_bytes_of(const msgpack_object *map, const char *key,
                                       uint64_t fallback)
{
    uint64_t bytes = field_u64(map, key, fallback);

    return bytes < LEDGER_BYTES_MAX ? bytes : LEDGER_BYTES_MAX;
}

static void program_vdevs_take_sources(struct program_device *vdev, const msgpack_object *map)
{
    const msgpack_object *items;
    size_t count = field_array(map, "sources", &items);
    char key[DEVICE_KEY_TEXT_MAX];

    vdev->source_count = 0;
    for (size_t i = 0; i < count && vdev->source_count < PROGRAM_SOURCES_MAX; i++) {
        struct program_source *source = &vdev->sources[vdev->source_count];
        if (!field_string(&items[i], "device", key, sizeof(key)) ||
            device_key_parse(key, &source->device))
            continue;
        source->bytes = program_vdevs_bytes_of(&items[i], "bytes", 0);
        vdev->source_count++;
    }
}

static void program_vdevs_take_vdev(struct program *program, size_t index,
                                    const msgpack_object *map, bool seeks)
{
    struct program_device *vdev = &program->vdevs[index];
    uint64_t moves = field_u64(map, "moves", 0);
    uint64_t downtime = field_u64(map, "last_downtime_ns", 0);

    vdev->suspended = field_bool(map, "suspended", false);
    vdev->moving = field_bool(map, "moving", false);
    vdev->lost = field_bool(map, "lost", false);
    vdev->seeks = seeks && vdev->lost && !vdev->suspended;
    vdev->device_bytes = program_vdevs_bytes_of(map, "device_bytes", 0);
    /* It may be counted before its end is known. */
    if (moves != vdev->moves || downtime != vdev->last_downtime_ns || !program->status.known)
        program->status.last_downtime_ns = downtime;
    vdev->last_downtime_ns = downtime;
    vdev->moves = moves;
    field_text(map, "pinned", vdev->pinned, sizeof(vdev->pinned));
    if (field_get(map, "device"))
        program_vdevs_take_key(vdev, field_get(map, "device"));
    vdev->tells_grants = field_get(map, "wanted") != NULL;
    vdev->limited = field_get(map, "granted") != NULL;
    vdev->granted = program_vdevs_bytes_of(map, "granted", 0);
    uint64_t wanted = program_vdevs_bytes_of(map, "wanted", vdev->device_bytes);
    uint64_t least = program_vdevs_bytes_of(map, "least", wanted);
    /* On no device nothing counts as wanted: what it had is what it comes back with. */
    vdev->wanted = vdev->suspended && wanted < vdev->wanted ? vdev->wanted : wanted;
    vdev->least = vdev->suspended && least < vdev->least ? vdev->least : least;
    uint64_t most = vdev->wanted > vdev->device_bytes ? vdev->wanted : vdev->device_bytes;
    vdev->wanted_peak = most > vdev->wanted_peak ? most : vdev->wanted_peak;
    vdev->peak = program_vdevs_bytes_of(map, "peak", vdev->device_bytes);
    vdev->spilled = program_vdevs_bytes_of(map, "spilled", 0);
    vdev->to_fetch = program_vdevs_bytes_of(map, "to_fetch", 0);
    vdev->fetched = program_vdevs_bytes_of(map, "fetched", 0);
    if (vdev->fetched > vdev->to_fetch)
        vdev->fetched = vdev->to_fetch;
    program_vdevs_take_sources(vdev, map);
    uint64_t busy = field_u64(map, "busy", 0);
    vdev->busy = (uint32_t)(busy < 1000 ? busy : 1000);
}

/** What is known of those that it names again stays. */
static void program_vdevs_take_ready(struct program *program, const msgpack_object *message)
{
    const msgpack_object *items;
    size_t count = field_array(message, "ready", &items), before = program->ready_count;
    struct program_ready known[PROGRAM_READY_MAX];

    memcpy(known, program->ready, sizeof(known));
    program->ready_count = 0;
    for (size_t i = 0; i < count && program->ready_count < PROGRAM_READY_MAX; i++) {
        struct program_ready *ready = &program->ready[program->ready_count];
        char key[DEVICE_KEY_TEXT_MAX];
        struct device_key parsed;
        if (!field_string(&items[i], "device", key, sizeof(key)) || device_key_parse(key, &parsed))
            continue;
        *ready = (struct program_ready){.device = parsed};
        for (size_t j = 0; j < before; j++)
            if (device_key_equal(&known[j].device, &parsed))
                *ready = known[j];
        ready->behind = field_u64(&items[i], "behind", 0);
        program->ready_count++;
    }
}

static void program_vdevs_take_whole(struct program *program, const msgpack_object *message)
{
    const msgpack_object *items;
    size_t count = field_array(message, "whole", &items);

    program->whole_count = 0;
    for (size_t i = 0; i < count && program->whole_count < PROGRAM_WHOLE_MAX; i++) {
        struct program_whole *whole = &program->whole[program->whole_count];
        program->whole_count +=
            field_string(&items[i], "kernel", whole->kernel, sizeof(whole->kernel)) &&
            field_string(&items[i], "reason", whole->reason, sizeof(whole->reason));
    }
}

static void program_vdevs_take_protect(struct program *program, const msgpack_object *message)
{
    const msgpack_object *map = field_get(message, "protect");
    struct program_protect protect = {.as.word = PROTECTION_UNSAID};
    char text[PROTECTION_TEXT_MAX], reason[PROTOCOL_TEXT_MAX];

    if (field_string(map, "as", text, sizeof(text)) &&
        protection_parse(text, &protect.as, reason, sizeof(reason)) == 0) {
        protect.on = field_bool(map, "on", false);
        field_text(map, "broken", protect.broken, sizeof(protect.broken));
        field_text(map, "recovery", protect.recovery, sizeof(protect.recovery));
        protect.points = field_u64(map, "snapshots", 0);
        protect.recoveries = field_u64(map, "recoveries", 0);
        protect.differences = field_u64(map, "differences", 0);
        protect.point_bytes = field_u64(map, "snapshot_bytes", 0);
        protect.downtime_ns = field_u64(map, "downtime_ns", 0);
        protect.at_ns = field_u64(map, "at_ns", 0);
        protect.paused_ns = field_u64(map, "paused_ns", 0);
        protect.since_ns = field_u64(map, "since_ns", 0);
        protect.put_off_ns = field_u64(map, "put_off_ns", 0);
        if (program->stranger && protect.as.word == PROTECTION_ON) {
            program->policy.protect = protect.as;
            program->policy.overrides |= OVERRIDE_PROTECT;
        }
        program->stranger = false;
    }
    program->status.protect = protect;
}

static void program_vdevs_take_loss(struct program_loss *loss, const msgpack_object *map)
{
    char key[DEVICE_KEY_TEXT_MAX];

    *loss = (struct program_loss){.count = 0};
    if (!field_string(map, "device", key, sizeof(key)) || device_key_parse(key, &loss->device))
        return;
    loss->count = field_u64(map, "count", 1);
    field_text(map, "reason", loss->reason, sizeof(loss->reason));
    loss->at_ns = field_u64(map, "at_ns", 0);
    loss->isolated = field_bool(map, "isolated", false);
}

/* The process may execute another program, which has it then. */
static void program_vdevs_take_right(struct program *program, const msgpack_object *map)
{
    char folder[PATH_MAX], id[sizeof(program->right_id)];

    if (!field_path(map, "folder", folder, sizeof(folder)) || !folder[0] ||
        !field_string(map, "id", id, sizeof(id)))
        return;
    memcpy(program->right_folder, folder, sizeof(folder));
    memcpy(program->right_id, id, sizeof(id));
}

void program_put_right(const struct program *program, struct frame *frame)
{
    if (!program->right_folder[0])
        return;
    frame_map(frame, "right");
    frame_string(frame, "folder", program->right_folder);
    frame_string(frame, "id", program->right_id);
    frame_end(frame);
}

void program_take_status(struct program *program, const msgpack_object *message)
{
    const msgpack_object *vdevs;
    size_t count = field_array(message, "vdevs", &vdevs);
    struct program_status *status = &program->status;

    bool seeks = field_bool(field_get(message, "protect"), "seeks", false);

    program->awaited = false;
    program_vdevs_take_ready(program, message);
    program_vdevs_take_whole(program, message);
    /* One that starts has none yet, and keeps those that it was registered with. */
    if (count != 0) {
        const msgpack_object *first = &vdevs[0];
        program->vdev_count = count < PROTOCOL_VDEVS_MAX ? count : PROTOCOL_VDEVS_MAX;
        for (size_t i = 0; i < program->vdev_count; i++)
            program_vdevs_take_vdev(program, i, &vdevs[i], seeks);
        /* These are of the whole program. */
        status->contexts = field_u64(first, "contexts", 0);
        status->queues = field_u64(first, "queues", 0);
        status->memories = field_u64(first, "memories", 0);
        status->programs = field_u64(first, "programs", 0);
        status->kernels = field_u64(first, "kernels", 0);
        status->events = field_u64(first, "events", 0);
    }
    status->known = true;
    status->warm = field_u64(message, "warm", 0);
    status->slice_ns = field_u64(message, "slice_ns", 0);
    status->spread_launches = field_u64(message, "spread_launches", 0);
    status->spread_items = field_u64(message, "spread_items", 0);
    status->stored = program_vdevs_bytes_of(message, "stored", 0);
    program_vdevs_take_protect(program, message);
    program_vdevs_take_loss(&status->loss, field_get(message, "loss"));
    status->fenced = field_bool(field_get(message, "right"), "fenced", false);
    program_vdevs_take_right(program, field_get(message, "right"));
    field_text(field_get(message, "right"), "problem", status->right_problem,
               sizeof(status->right_problem));
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

static bool program_vdevs_program_lost(const struct program *program)
{
    for (size_t i = 0; i < program->vdev_count; i++)
        if (!program->vdevs[i].suspended && program->vdevs[i].lost)
            return true;
    return false;
}

static bool program_vdevs_program_spilled(const struct program *program)
{
    for (size_t i = 0; i < program->vdev_count; i++)
        if (!program->vdevs[i].suspended && program->vdevs[i].spilled)
            return true;
    return false;
}

const char *program_state(const struct program *program)
{
    if (!program->connected)
        return "starting";
    if (!program->peer || program->unresponsive)
        return "away";
    if (program->status.fenced)
        return "fenced";
    if (program_moving(program))
        return "moving";
    if (program_vdevs_program_lost(program))
        return "lost";
    if (program_suspended(program))
        return "suspended";
    if (program->managed.waiting)
        return "waiting";
    return program_vdevs_program_spilled(program) ? "spilled" : "running";
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
