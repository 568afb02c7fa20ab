#include "agent/daemon/govern/govern.h"

#include <string.h>
#include <unistd.h>

#include "agent/wire/access.h"

#define WITHHOLDS_MS 10000

/* ---- messages ---- */

void grants_add(struct agent *agent, struct program *program, uint32_t index, uint64_t bytes)
{
    struct program_device *vdev = &program->vdevs[index];
    struct frame frame;

    ledger_set_granted(&agent->ledger, &vdev->account, vdev->account.granted + bytes);
    vdev->exchanged_ms = vdev->granted_ms = uv_now(&agent->loop);
    frame_init(&frame, MSG_GRANT);
    frame_u64(&frame, "seat", index);
    frame_u64(&frame, "bytes", bytes);
    peer_send(program->peer, &frame);
}

void grants_shrink(struct agent *agent, struct program *program, uint32_t vdev, uint64_t bytes,
                   uint64_t patience_ms, bool trims)
{
    struct frame frame;

    frame_init(&frame, MSG_SHRINK);
    frame_u64(&frame, "seat", vdev);
    frame_u64(&frame, "bytes", bytes);
    peer_send(program->peer, &frame);
    program->vdevs[vdev].exchanged_ms = uv_now(&agent->loop);
    program->managed.shrinks = true;
    program->managed.trims = trims;
    program->managed.shrink_to = bytes;
    program->managed.shrink_until_ms = uv_now(&agent->loop) + patience_ms;
}

/** It kept what it should have given up, so that it is not asked again for a while. */
static void accounts_withhold(struct agent *agent, struct program *program)
{
    if (!program->managed.trims) {
        program->managed.withholds = true;
        program->managed.withholds_until_ms = uv_now(&agent->loop) + WITHHOLDS_MS;
    }
    agent->changed = true;
}

/** What it was told to give has come, or as much of it as it could give. */
static void accounts_end_shrink(struct agent *agent, struct program *program, uint32_t device)
{
    uint64_t granted = 0;

    for (size_t i = 0; i < program->vdev_count; i++) {
        granted +=
            program->vdevs[i].account.device == device ? program->vdevs[i].account.granted : 0;
    }
    program->managed.shrinks = false;
    if (granted > program->managed.shrink_to)
        accounts_withhold(agent, program);
}

void grants_return(struct peer *peer, struct message *message)
{
    struct agent *agent = peer->agent;
    struct program *program = peer->program;
    uint64_t index = field_u64(&message->root, "seat", 0);
    uint64_t bytes = field_u64(&message->root, "bytes", 0);

    if (index >= program->vdev_count)
        return;
    struct program_device *vdev = &program->vdevs[index];
    uint64_t granted = vdev->account.granted;
    ledger_set_granted(&agent->ledger, &vdev->account, bytes < granted ? granted - bytes : 0);
    /* What it holds of that is gone as well, though its status has yet to say so. */
    if (vdev->account.held > vdev->account.granted)
        ledger_set_held(&agent->ledger, &vdev->account, vdev->account.granted);
    vdev->exchanged_ms = uv_now(&agent->loop);
    if (program->managed.shrinks) {
        accounts_end_shrink(agent, program, vdev->account.device);
    } else if (vdev->wanted > vdev->account.granted) {
        /* Nobody asked: it needs no more, though its status has yet to say so. */
        vdev->wanted = vdev->account.granted;
        vdev->device_bytes = vdev->account.held;
    }
    agent->changed = true;
}

void grants_tick(struct agent *agent)
{
    uint64_t now = uv_now(&agent->loop);

    for (struct program *program = agent->programs; program; program = program->next) {
        struct managed *managed = &program->managed;
        if (managed->shrinks && now >= managed->shrink_until_ms) {
            /* Nothing came back: of what it does not use there is none, of the rest it may not. */
            managed->shrinks = false;
            accounts_withhold(agent, program);
        }
        managed->withholds = managed->withholds && now < managed->withholds_until_ms;
    }
}

#define RECONCILE_MS 1000

/* ---- what programs say of what they have ---- */

static uint32_t accounts_device_named(struct agent *agent, const struct device_key *key)
{
    const struct device_names *names = &agent->devices.names;
    uint32_t device;

    /* Also one that is not listed any more: the program has it all the same. */
    for (size_t i = 0; i < names->count; i++) {
        if (device_key_equal(&names->names[i].key, key)) {
            return ledger_device(&agent->ledger, names->names[i].name, &device) ? LEDGER_NONE
                                                                                : device;
        }
    }
    return LEDGER_NONE;
}

static uint32_t accounts_device_of(struct agent *agent, const struct program_device *vdev)
{
    return vdev->has_device && !vdev_is_off(vdev) ? accounts_device_named(agent, &vdev->device)
                                                  : LEDGER_NONE;
}

bool accounts_believe(const struct program *program)
{
    return access_may_manage(geteuid(), program->uid);
}

/** Of what @program says that it holds, what counts: another user's has no more than the agent
 * granted it. */
static uint64_t accounts_believed(const struct program *program, uint64_t bytes, uint64_t granted)
{
    return accounts_believe(program) || bytes < granted ? bytes : granted;
}

/** What it left on demand it holds there still. */
static void accounts_place_sources(struct agent *agent, const struct program *program,
                                   struct program_device *vdev, bool exists)
{
    for (uint32_t i = 0; i < PROGRAM_SOURCES_MAX; i++) {
        struct program_source *source = &vdev->sources[i];
        bool holds = exists && i < vdev->source_count;
        uint32_t device = holds ? accounts_device_named(agent, &source->device) : LEDGER_NONE;
        uint64_t bytes = accounts_believed(program, source->bytes, vdev->account.granted_peak);
        if (device == source->account.device && (!holds || bytes == source->account.held))
            continue;
        ledger_place(&agent->ledger, &source->account, device);
        ledger_set_held(&agent->ledger, &source->account, bytes);
        agent->changed = true;
    }
}

static void accounts_place(struct agent *agent, struct program_device *vdev)
{
    struct ledger *ledger = &agent->ledger;
    uint32_t device = accounts_device_of(agent, vdev);

    if (device == vdev->account.device)
        return;
    if (device != LEDGER_NONE && device == vdev->account.target) {
        vdev->arrived = true; /* Its report follows. */
        return;
    }
    ledger_place(ledger, &vdev->account, device);
    vdev->placed_ms = uv_now(&agent->loop);
    agent->changed = true;
}

/** Of virtual devices on one device only the first says what they hold: spread it over grants. */
static void accounts_spread_held(struct ledger *ledger, struct program *program, size_t first)
{
    struct program_device *vdev = &program->vdevs[first];
    uint32_t device = vdev->account.device;
    uint64_t held = 0;

    for (size_t i = 0; i < program->vdev_count; i++) {
        bool same = program->vdevs[i].account.device == device && !program->vdevs[i].arrived;
        if (same && i < first)
            return;
        held += same ? program->vdevs[i].device_bytes : 0;
    }
    for (size_t i = program->vdev_count; i-- > first;) {
        struct ledger_account *account = &program->vdevs[i].account;
        if (account->device != device || program->vdevs[i].arrived)
            continue;
        uint64_t share = i == first || held < account->granted ? held : account->granted;
        ledger_set_held(ledger, account, accounts_believed(program, share, account->granted));
        held -= share;
    }
}

/**
 * Grants and returns cross on their way, so what it says counts only where it says more than we
 * know, or where nothing has been on its way for long.
 */
static void accounts_adopt(struct agent *agent, struct program *program, uint32_t index)
{
    struct program_device *vdev = &program->vdevs[index];
    struct ledger *ledger = &agent->ledger;
    struct ledger_account *account = &vdev->account;
    uint64_t quiet = uv_now(&agent->loop) - vdev->exchanged_ms;

    if (!vdev->tells_grants) {
        ledger_set_granted(ledger, account, 0);
        return;
    }
    if (vdev->seeks)
        return; /* What it was granted was of the device that is lost. */
    if (!vdev->limited) {
        /* What it was granted first is its own once it uses OpenCL; and one that had nobody to ask
         * takes what it likes, until it is granted something, be it nothing. */
        if (vdev->device_bytes && quiet > RECONCILE_MS)
            grants_add(agent, program, index, 0);
        return;
    }
    if ((vdev->granted > account->granted && accounts_believe(program)) ||
        (vdev->granted < account->granted && account->target == LEDGER_NONE &&
         quiet > RECONCILE_MS)) {
        ledger_set_granted(ledger, account, vdev->granted);
        agent->changed = true;
    }
}

static void accounts_update(struct agent *agent, struct program *program)
{
    struct ledger *ledger = &agent->ledger;

    for (uint32_t i = 0; i < PROTOCOL_VDEVS_MAX; i++) {
        struct program_device *vdev = &program->vdevs[i];
        accounts_place_sources(agent, program, vdev, i < program->vdev_count);
        if (i >= program->vdev_count) {
            ledger_place(ledger, &vdev->account, LEDGER_NONE);
            continue;
        }
        accounts_place(agent, vdev);
        if (!vdev->arrived)
            accounts_adopt(agent, program, i);
    }
    for (size_t i = 0; i < program->vdev_count; i++)
        if (program->vdevs[i].account.device != LEDGER_NONE && !program->vdevs[i].arrived)
            accounts_spread_held(ledger, program, i);
    for (uint32_t i = 0; i < ledger->count; i++) {
        struct ledger_device *device = &ledger->devices[i];
        if (device->tight != LEDGER_NO_LIMIT && device->held > device->tight)
            device->tight = device->held;
    }
}

/** Programs of an agent before have yet to say what they have: what is free is not known. */
bool accounts_awaited(const struct agent *agent)
{
    bool any = false;

    for (const struct program *program = agent->programs; program; program = program->next)
        any = any || program->awaited;
    return any && uv_now(&agent->loop) < agent->governor->await_until_ms;
}

/** What it may allocate before it asks; or what it took without being granted it. */
static uint64_t accounts_first_grant(struct agent *agent, const struct program *program,
                                     struct program_device *vdev, bool first)
{
    struct ledger *ledger = &agent->ledger;
    struct ledger_account *account = &vdev->account;
    uint64_t bytes = 0;

    if (account->device == LEDGER_NONE)
        return 0;
    if (account->held > account->granted) {
        bytes = account->held - account->granted;
    } else if (first && !account->granted && !accounts_awaited(agent)) {
        bytes = ledger_initial(&ledger->devices[account->device]);
        bytes = bytes < program->policy.quota ? bytes : program->policy.quota;
    }
    ledger_set_granted(ledger, account, account->granted + bytes);
    vdev->exchanged_ms = uv_now(&agent->loop);
    return bytes;
}

/** A program that has not used OpenCL says as little as one that never did; only where it starts is
 * known then, and stays.
 */
static bool accounts_says_something(const msgpack_object *hello)
{
    const msgpack_object *vdevs;
    size_t count = field_array(hello, "seats", &vdevs);

    for (size_t i = 0; i < count; i++)
        if (field_u64(&vdevs[i], "granted", 0) || field_u64(&vdevs[i], "device_bytes", 0) ||
            field_bool(&vdevs[i], "suspended", false))
            return true;
    return false;
}

void accounts_welcome(struct agent *agent, struct program *program, bool first,
                      const msgpack_object *hello, struct frame *welcome)
{
    bool said = accounts_says_something(hello);

    if (said)
        program_take_status(program, hello);
    for (size_t i = 0; i < program->vdev_count; i++)
        program->vdevs[i].exchanged_ms = uv_now(&agent->loop); /* The welcome goes first. */
    accounts_update(agent, program);
    frame_bool(welcome, "alive", true);
    frame_bool(welcome, "places", true);
    if (!first && !said)
        return; /* Its first status tells what it was granted. */
    frame_array(welcome, "grants");
    for (size_t i = 0; i < program->vdev_count; i++)
        frame_u64(welcome, NULL, accounts_first_grant(agent, program, &program->vdevs[i], first));
    frame_end(welcome);
}

void accounts_status(struct peer *peer, struct message *message)
{
    struct program *program = peer->program;
    struct program_device before[PROTOCOL_VDEVS_MAX];

    memcpy(before, program->vdevs, sizeof(before));
    bool fenced = program->status.fenced;
    program_take_status(program, &message->root);
    if (program->status.fenced != fenced)
        agent_log(
            "%s: %s (pid %d) %s%s", program->id, program->name, (int)program->pid,
            fenced ? "may run again" : "is fenced: ", fenced ? "" : program->status.right_problem);
    accounts_update(peer->agent, program);
    for (uint32_t i = 0; i < program->vdev_count; i++)
        losses_note(peer->agent, program, i, &before[i],
                    accounts_device_named(peer->agent, &program->vdevs[i].device));
}
