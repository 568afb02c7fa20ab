#include "agent/daemon/agent_messages.h"
#include "agent/daemon/messages/messages.h"
#include "agent/daemon/operations/governor.h"
#include "agent/daemon/operations/verbs.h"
#include "agent/daemon/power/power.h"
#include "policy/reseat_limits.h"

#include "state/base/clock.h"

/* What agent/protocol/messages.txt says that clients are told, where that takes a computation. */

static void describe_limits(struct frame *frame, const char *key,
                            const struct reseat_limits *limits)
{
    const char *feature;
    uint32_t bit;

    frame_map(frame, key);
    put_shown_limits(frame, limits);
    frame_array(frame, "features");
    for (size_t i = 0; (feature = reseat_limits_feature(i, &bit)); i++)
        if (limits->features & bit)
            frame_string(frame, NULL, feature);
    frame_end(frame);
    frame_end(frame);
}

/** Sums over the virtual devices of a program, and its place in the queue. */
static void describe_sum(struct described *what)
{
    for (size_t i = 0; i < what->program->vdev_count; i++) {
        const struct program_device *vdev = &what->program->vdevs[i];
        bool queues = vdev->displaced && vdev_is_off(vdev);
        what->device_bytes += vdev->device_bytes;
        what->moves += vdev->moves;
        if (!what->pinned[0])
            what->pinned = vdev->pinned;
        what->granted_bytes += ledger_reserved(&vdev->entry);
        what->wanted_bytes += vdev->wanted;
        what->from_bytes_s += vdev->from_bytes_s;
        what->to_bytes_s += vdev->to_bytes_s;
        what->wanted_peak_bytes += vdev->wanted_peak;
        what->least_bytes = vdev->least > what->least_bytes ? vdev->least : what->least_bytes;
        what->spilled_bytes += vdev->spilled;
        what->peak_bytes += vdev->entry.held_peak > vdev->peak ? vdev->entry.held_peak : vdev->peak;
        what->displaced = what->displaced || queues;
        if (queues && (!what->ticket || vdev->ticket < what->ticket))
            what->ticket = vdev->ticket;
    }
}

/** How long ago that was, by CLOCK_MONOTONIC; 0: never. */
static uint64_t describe_age(uint64_t at_ns)
{
    uint64_t now = clock_now_ns();

    return at_ns && now > at_ns ? now - at_ns : 0;
}

void describe_program(const struct agent *agent, const struct program *program, struct frame *frame)
{
    const struct program_status *status = &program->status;
    const struct pending *pending = pending_of(program, UINT_MAX);
    const struct program_images none = {.every_ms = 0};
    const struct program_images *images = program->images ? program->images : &none;
    struct described what = {
        .program = program,
        .state = program_state(program),
        .device = vdev_device_name(agent, program->vdevs),
        .images = images,
        .moving = asking_moving(agent, program),
        .pinned = "",
        .ticket = pending ? pending->ticket : 0,
        .limited = program->policy.quota != LEDGER_NO_LIMIT,
        .quota_bytes = program->policy.quota == LEDGER_NO_LIMIT ? 0 : program->policy.quota,
        .snapshot_age_ns = describe_age(status->protect.at_ns),
        .protected_ns = status->protect.on ? describe_age(status->protect.since_ns) : 0,
        .loss_age_ns = status->loss.count ? describe_age(status->loss.at_ns) : 0,
        .image_age_ms = images->image[0] ? uv_now(&agent->loop) - images->made_ms : 0,
    };

    describe_sum(&what);
    for (uint32_t i = 0; i < agent->ledger.count; i++)
        what.busy_permil += utilisation_of_program(agent, program, i);
    put_app(frame, agent, &what);
    frame_array(frame, "on_full");
    for (unsigned i = 0; i < POLICY_WAYS; i++)
        if (program->policy.ways & (1u << i))
            frame_string(frame, NULL, policy_way_name((enum policy_way)(1u << i)));
    frame_end(frame);
    spreading_put_names(agent, program, frame);
    power_put_program(program, frame);
    frame_array(frame, "use");
    for (uint32_t i = 0; i < agent->ledger.count; i++) {
        uint32_t busy = utilisation_of_program(agent, program, i);
        if (!busy)
            continue;
        frame_map(frame, NULL);
        frame_string(frame, "device", agent->ledger.devices[i].name);
        frame_u64(frame, "busy_permil", busy);
        frame_end(frame);
    }
    frame_end(frame);
    if (program->wish.aware) {
        frame_map(frame, "aware");
        describe_limits(frame, "minimum", &program->wish.minimum);
        describe_limits(frame, "preferred", &program->wish.preferred);
        frame_end(frame);
    }
    frame_array(frame, "vdevs");
    for (size_t i = 0; i < program->vdev_count; i++) {
        frame_map(frame, NULL);
        frame_u64(frame, "vdev", i);
        frame_string(frame, "device", vdev_device_name(agent, &program->vdevs[i]));
        put_shown_vdev(frame, agent, &program->vdevs[i]);
        frame_end(frame);
    }
    frame_end(frame);
}

void describe_entry(const struct agent *agent, uint32_t device, struct frame *frame)
{
    put_entry(frame, agent, &agent->ledger.devices[device]);
    power_put_device(agent, device, frame);
    utilisation_put_device(agent, device, frame);
}

/** True when @program is on the device, or left memory there: @ret_bytes. */
static bool describe_uses(const struct agent *agent, const struct program *program,
                          const struct inventory_entry *entry, uint64_t *ret_bytes)
{
    bool any = false;

    *ret_bytes = 0;
    for (size_t i = 0; i < program->vdev_count; i++) {
        const struct program_device *vdev = &program->vdevs[i];
        if (vdev->has_device && !vdev->suspended && device_key_equal(&vdev->device, &entry->key)) {
            *ret_bytes += vdev->device_bytes;
            any = true;
        }
        for (uint32_t j = 0; j < vdev->source_count; j++) {
            bool left = devices_entry(agent, vdev->sources[j].device) == entry;
            *ret_bytes += left ? vdev->sources[j].bytes : 0;
            any = any || left;
        }
    }
    return any;
}

static void describe_users(struct agent *agent, const struct peer *peer,
                           const struct inventory_entry *entry, struct frame *frame)
{
    uint64_t used = 0;

    frame_array(frame, "apps");
    for (const struct program *program = agent->programs; program; program = program->next) {
        uint64_t bytes;
        if (!program->connected || !peer_sees(peer, program->uid) ||
            !describe_uses(agent, program, entry, &bytes))
            continue;
        used += bytes;
        frame_map(frame, NULL);
        put_identity(frame, program);
        frame_u64(frame, "device_bytes", bytes);
        frame_end(frame);
    }
    frame_end(frame);
    frame_u64(frame, "used_bytes", used);
}

void describe_devices(struct agent *agent, const struct peer *peer, struct frame *frame)
{
    static const struct server none; /* Local devices have no server, and no link to it. */
    const struct inventory *inventory = &agent->devices.inventory;

    programs_sweep(agent);
    servers_ask(agent);
    frame_string(frame, "problem", agent->devices.problem);
    frame_string(frame, "inventory", agent->devices.own_path);
    frame_array(frame, "devices");
    for (size_t i = 0; i < inventory->count; i++) {
        const struct inventory_entry *entry = &inventory->entries[i];
        frame_map(frame, NULL);
        put_shown_device(frame, entry);
        const struct server *server = servers_of(agent, entry);
        frame_string(frame, "state", server ? server_device_state(server, entry) : "up");
        put_shown_host(frame, server ? server : &none);
        uint32_t index = devices_index(agent, entry);
        if (index != LEDGER_NONE)
            describe_entry(agent, index, frame);
        describe_users(agent, peer, entry, frame);
        frame_end(frame);
    }
    frame_end(frame);
}
