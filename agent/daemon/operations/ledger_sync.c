#include "agent/daemon/messages/messages.h"
#include <unistd.h>

#include "agent/daemon/event_log.h"
#include "agent/daemon/operations/governor.h"
#include "agent/daemon/operations/verbs.h"
#include "agent/protocol/common_messages.h"
#include "state/base/files/access.h"

#define WITHHOLDS_MS 10000

/* ---- messages ---- */

static void ledger_sync_tell(const struct program *program, const char *type, uint32_t vdev,
                             uint64_t bytes)
{
    struct frame frame;

    frame_init(&frame, type);
    put_amount(&frame, &(struct amount){vdev, bytes, true});
    peer_send(program->peer, &frame);
}

void grants_add(struct agent *agent, struct program *program, uint32_t index, uint64_t bytes)
{
    struct program_device *vdev = &program->vdevs[index];

    ledger_set_granted(&agent->ledger, &vdev->entry, vdev->entry.granted + bytes);
    vdev->exchanged_ms = vdev->granted_ms = uv_now(&agent->loop);
    ledger_sync_tell(program, MSG_GRANT, index, bytes);
}

void grants_shrink(struct agent *agent, struct program *program, uint32_t vdev, uint64_t bytes,
                   uint64_t patience_ms, bool trims)
{
    ledger_sync_tell(program, MSG_SHRINK, vdev, bytes);
    program->vdevs[vdev].exchanged_ms = uv_now(&agent->loop);
    program->managed.shrinks = true;
    program->managed.trims = trims;
    program->managed.shrink_to = bytes;
    program->managed.shrink_until_ms = uv_now(&agent->loop) + patience_ms;
}

/** The program kept memory that it should have returned: it is not asked again for a while. */
static void ledger_sync_withhold(struct agent *agent, struct program *program)
{
    if (!program->managed.trims) {
        program->managed.withholds = true;
        program->managed.withholds_until_ms = uv_now(&agent->loop) + WITHHOLDS_MS;
    }
    agent->changed = true;
}

void grants_return(struct peer *peer, struct message *message)
{
    struct agent *agent = peer->agent;
    struct program *program = peer->program;
    struct amount given;

    take_amount(&message->root, &given);
    if (!field_get(&message->root, "vdev"))
        given.vdev = 0;
    if (given.vdev >= program->vdev_count)
        return;
    struct program_device *vdev = &program->vdevs[given.vdev];
    uint64_t granted = vdev->entry.granted;
    ledger_set_granted(&agent->ledger, &vdev->entry,
                       given.bytes < granted ? granted - given.bytes : 0);
    /* The returned memory is no longer held, though the status does not say so yet. */
    if (vdev->entry.held > vdev->entry.granted)
        ledger_set_held(&agent->ledger, &vdev->entry, vdev->entry.granted);
    vdev->exchanged_ms = uv_now(&agent->loop);
    if (program->managed.shrinks) {
        /* It has returned the memory that it was asked for, or as much as it could. */
        granted = 0;
        for (size_t i = 0; i < program->vdev_count; i++)
            if (program->vdevs[i].entry.device == vdev->entry.device)
                granted += program->vdevs[i].entry.granted;
        program->managed.shrinks = false;
        if (granted > program->managed.shrink_to)
            ledger_sync_withhold(agent, program);
    } else if (vdev->wanted > vdev->entry.granted) {
        /* Returned unasked: the program needs no more than the rest. */
        vdev->wanted = vdev->entry.granted;
        vdev->device_bytes = vdev->entry.held;
    }
    agent->changed = true;
}

void grants_look(struct agent *agent, struct program *program)
{
    uint64_t now = uv_now(&agent->loop);
    struct managed *managed = &program->managed;

    if (managed->shrinks && now >= managed->shrink_until_ms) {
        /* Nothing came back: it has no unused memory, and may need what it uses. */
        managed->shrinks = false;
        ledger_sync_withhold(agent, program);
    }
    if (managed->withholds && now >= managed->withholds_until_ms)
        managed->withholds = false;
}

#define RECONCILE_MS 1000

/* ---- what programs say of what they have ---- */

bool ledger_sync_believe(const struct program *program)
{
    return access_may_manage(geteuid(), program->uid);
}

/** The reported bytes that count: of another user's program at most its grant. */
static uint64_t ledger_sync_believed(const struct program *program, uint64_t bytes,
                                     uint64_t granted)
{
    return ledger_sync_believe(program) || bytes < granted ? bytes : granted;
}

/** Memory that the program left on demand is still held on the device that it left. */
static void ledger_sync_place_sources(struct agent *agent, const struct program *program,
                                      struct program_device *vdev, bool exists)
{
    for (uint32_t i = 0; i < PROGRAM_SOURCES_MAX; i++) {
        struct program_source *source = &vdev->sources[i];
        bool holds = exists && i < vdev->source_count;
        uint32_t device = holds ? source->device : LEDGER_NONE;
        uint64_t bytes = ledger_sync_believed(program, source->bytes, vdev->entry.granted_peak);
        if (device == source->entry.device && (!holds || bytes == source->entry.held))
            continue;
        ledger_place(&agent->ledger, &source->entry, device);
        ledger_set_held(&agent->ledger, &source->entry, bytes);
        agent->changed = true;
    }
}

static void ledger_sync_place(struct agent *agent, struct program_device *vdev)
{
    struct ledger *ledger = &agent->ledger;
    uint32_t device = vdev->has_device && !vdev_is_off(vdev)
                          ? devices_index_of_key(agent, &vdev->device)
                          : LEDGER_NONE;

    if (device == vdev->entry.device)
        return;
    if (device != LEDGER_NONE && device == vdev->entry.target) {
        vdev->arrived = true; /* The program's report on the move follows. */
        return;
    }
    ledger_place(ledger, &vdev->entry, device);
    vdev->placed_ms = uv_now(&agent->loop);
    agent->changed = true;
}

/** The first virtual device on a device reports the memory of all: divide it by grants. */
static void ledger_sync_spread_held(struct ledger *ledger, struct program *program, size_t first)
{
    struct program_device *vdev = &program->vdevs[first];
    uint32_t device = vdev->entry.device;
    uint64_t held = 0;

    for (size_t i = 0; i < program->vdev_count; i++) {
        bool same = program->vdevs[i].entry.device == device && !program->vdevs[i].arrived;
        if (same && i < first)
            return;
        held += same ? program->vdevs[i].device_bytes : 0;
    }
    for (size_t i = program->vdev_count; i-- > first;) {
        struct ledger_entry *entry = &program->vdevs[i].entry;
        if (entry->device != device || program->vdevs[i].arrived)
            continue;
        uint64_t share = i == first || held < entry->granted ? held : entry->granted;
        ledger_set_held(ledger, entry, ledger_sync_believed(program, share, entry->granted));
        held -= share;
    }
}

/**
 * Grants and returns may cross on the connection. So a reported grant is adopted only where it is
 * above the known one, or where no grant or return was sent for long.
 */
static void ledger_sync_adopt(struct agent *agent, struct program *program, uint32_t index)
{
    struct program_device *vdev = &program->vdevs[index];
    struct ledger *ledger = &agent->ledger;
    struct ledger_entry *entry = &vdev->entry;
    uint64_t quiet = uv_now(&agent->loop) - vdev->exchanged_ms;

    if (!vdev->tells_grants) {
        ledger_set_granted(ledger, entry, 0);
        return;
    }
    if (vdev->seeks)
        return; /* The grant was for the lost device. */
    if (!vdev->limited) {
        /*
         * A first grant belongs to a program from its first use of OpenCL. A program that ran
         * without an agent allocates without a limit until it gets a grant, which may be 0.
         */
        if (vdev->device_bytes && quiet > RECONCILE_MS)
            grants_add(agent, program, index, 0);
        return;
    }
    if ((vdev->granted > entry->granted && ledger_sync_believe(program)) ||
        (vdev->granted < entry->granted && entry->target == LEDGER_NONE && quiet > RECONCILE_MS)) {
        ledger_set_granted(ledger, entry, vdev->granted);
        agent->changed = true;
    }
}

static void ledger_sync_update(struct agent *agent, struct program *program)
{
    struct ledger *ledger = &agent->ledger;

    for (uint32_t i = 0; i < program->vdev_room; i++) {
        struct program_device *vdev = &program->vdevs[i];
        ledger_sync_place_sources(agent, program, vdev, i < program->vdev_count);
        if (i >= program->vdev_count) {
            ledger_place(ledger, &vdev->entry, LEDGER_NONE);
            continue;
        }
        ledger_sync_place(agent, vdev);
        if (!vdev->arrived)
            ledger_sync_adopt(agent, program, i);
    }
    for (size_t i = 0; i < program->vdev_count; i++)
        if (program->vdevs[i].entry.device != LEDGER_NONE && !program->vdevs[i].arrived)
            ledger_sync_spread_held(ledger, program, i);
    for (uint32_t i = 0; i < ledger->count; i++) {
        struct ledger_device *device = &ledger->devices[i];
        if (device->tight != LEDGER_NO_LIMIT && device->held > device->tight)
            device->tight = device->held;
    }
}

/** Programs of an agent before have yet to say what they have: what is free is not known. */
bool ledger_sync_awaited(const struct agent *agent)
{
    bool any = false;

    for (const struct program *program = agent->programs; program; program = program->next)
        any = any || program->awaited;
    return any && uv_now(&agent->loop) < agent->governor->await_until_ms;
}

/** Bytes that it may allocate before it asks, or that it allocated without a grant. */
static uint64_t ledger_sync_first_grant(struct agent *agent, const struct program *program,
                                        struct program_device *vdev, bool first)
{
    struct ledger *ledger = &agent->ledger;
    struct ledger_entry *entry = &vdev->entry;
    uint64_t bytes = 0;

    if (entry->device == LEDGER_NONE)
        return 0;
    if (entry->held > entry->granted) {
        bytes = entry->held - entry->granted;
    } else if (first && !entry->granted && !ledger_sync_awaited(agent)) {
        bytes = ledger_initial(&ledger->devices[entry->device]);
        uint64_t own = 0, left = program_user_left(agent, program);
        for (size_t i = 0; i < program->vdev_count; i++)
            own += ledger_reserved(&program->vdevs[i].entry);
        left = left > own ? left - own : 0;
        bytes = bytes < program->policy.quota ? bytes : program->policy.quota;
        bytes = bytes < left ? bytes : left;
    }
    ledger_set_granted(ledger, entry, entry->granted + bytes);
    vdev->exchanged_ms = uv_now(&agent->loop);
    return bytes;
}

/** Before it uses OpenCL, a program reports nothing: its start device is kept. */
static bool ledger_sync_says_something(const msgpack_object *hello)
{
    const msgpack_object *vdevs;
    size_t count = field_array(hello, "vdevs", &vdevs);

    for (size_t i = 0; i < count; i++)
        if (field_u64(&vdevs[i], "granted", 0) || field_u64(&vdevs[i], "device_bytes", 0) ||
            field_bool(&vdevs[i], "suspended", false))
            return true;
    return false;
}

void ledger_sync_welcome(struct agent *agent, struct program *program, bool first,
                         const msgpack_object *hello, struct welcome *ret_welcome)
{
    bool said = ledger_sync_says_something(hello);

    if (said)
        program_take_status(agent, program, hello);
    for (size_t i = 0; i < program->vdev_count; i++)
        program->vdevs[i].exchanged_ms = uv_now(&agent->loop); /* The welcome is sent first. */
    ledger_sync_update(agent, program);
    if (!first && !said)
        return; /* Its first status reports its grant. */
    ret_welcome->granted = true;
    for (size_t i = 0; i < program->vdev_count; i++)
        ret_welcome->grants[ret_welcome->grant_count++] =
            ledger_sync_first_grant(agent, program, &program->vdevs[i], first);
}

void ledger_sync_status(struct peer *peer, struct message *message)
{
    struct program *program = peer->program;
    uint32_t lost = 0, sought = 0;

    for (uint32_t i = 0; i < program->vdev_count; i++) {
        lost |= program->vdevs[i].lost ? 1u << i : 0;
        sought |= program->vdevs[i].seeks ? 1u << i : 0;
    }
    bool fenced = program->status.fenced, known = program->status.known;
    uint64_t recoveries = program->status.protect.recoveries;
    program_take_status(peer->agent, program, &message->root);
    if (program->status.fenced != fenced)
        event_log_program(peer->agent, program, fenced ? "unfenced" : "fenced",
                          program->status.right_problem);
    if (known && program->status.protect.recoveries != recoveries)
        event_log_program(peer->agent, program, "recovered",
                          vdev_device_name(peer->agent, program->vdevs));
    ledger_sync_update(peer->agent, program);
    for (uint32_t i = 0; i < program->vdev_count; i++)
        losses_note(peer->agent, program, i, lost >> i & 1, sought >> i & 1,
                    devices_index_of_key(peer->agent, &program->vdevs[i].device));
}
