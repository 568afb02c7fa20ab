#include "agent/daemon/messages/messages.h"
#include "agent/daemon/operations/grants.h"
#include "agent/daemon/operations/verbs.h"
#include "agent/daemon/power/power.h"
#include "agent/daemon/servers/servers.h"

#include <string.h>

#include "state/base/files/access.h"

void describe_entry(const struct agent *agent, const struct ledger_device *device,
                    struct frame *frame)
{
    frame_u64(frame, "capacity_bytes", ledger_capacity(device));
    frame_bool(frame, "limited", device->limit != LEDGER_NO_LIMIT);
    frame_u64(frame, "granted_bytes", device->reserved);
    frame_u64(frame, "granted_peak_bytes", device->reserved_peak);
    frame_u64(frame, "held_peak_bytes", device->held_peak);
    frame_bool(frame, "drained", device->drains);
    frame_bool(frame, "draining", device->drains_ms != 0);
    frame_u64(frame, "drains_in_ns", devices_drain_in_ns(agent, device));
    power_put_device(agent, (uint32_t)(device - agent->ledger.devices), frame);
}

static void describe_put_ways(struct frame *frame, unsigned ways)
{
    frame_array(frame, "on_full");
    for (unsigned i = 0; i < POLICY_WAYS; i++)
        if (ways & (1u << i))
            frame_string(frame, NULL, policy_way_name((enum policy_way)(1u << i)));
    frame_end(frame);
}

/** The fields that the ledger and the policy have for a program. */
static void describe_managed(const struct agent *agent, const struct program *program,
                             struct frame *frame)
{
    uint64_t granted = 0, wanted = 0, spilled = 0, peak = 0, wanted_peak = 0, least = 0;
    const struct pending *pending = pending_of(agent, program, UINT_MAX);
    uint64_t ticket = pending ? pending->ticket : 0;
    char priority[16];
    bool displaced = false;

    for (size_t i = 0; i < program->vdev_count; i++) {
        const struct program_device *vdev = &program->vdevs[i];
        granted += ledger_reserved(&vdev->entry);
        wanted += vdev->wanted;
        wanted_peak += vdev->wanted_peak;
        least = vdev->least > least ? vdev->least : least;
        spilled += vdev->spilled;
        peak += vdev->entry.held_peak > vdev->peak ? vdev->entry.held_peak : vdev->peak;
        bool queues = vdev->displaced && vdev_is_off(vdev);
        displaced = displaced || queues;
        if (queues && (!ticket || vdev->ticket < ticket))
            ticket = vdev->ticket;
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
    describe_put_ways(frame, program->policy.ways);
    frame_u64(frame, "waiting", program->managed.waiting);
    frame_u64(frame, "ticket", ticket);
    frame_bool(frame, "displaced", displaced);
    frame_u64(frame, "waits", program->managed.waits);
    frame_u64(frame, "waited_ms", program->managed.waited_ms);
    frame_u64(frame, "refusals", program->managed.refusals);
    frame_string(frame, "why", program->managed.why);
    power_put_program(program, frame);
}

/** The name of a device; for a device that is not listed, the name that its driver gives it. */
static const char *describe_name_of(const struct agent *agent, const struct device_key *key)
{
    const struct inventory_entry *entry = device_by_key(&agent->devices.inventory, key);

    return entry ? entry->name : key->device;
}

static void describe_sources(const struct agent *agent, const struct program_device *vdev,
                             struct frame *frame)
{
    frame_array(frame, "sources");
    for (uint32_t i = 0; i < vdev->source_count; i++) {
        frame_map(frame, NULL);
        frame_string(frame, "device", describe_name_of(agent, &vdev->sources[i].device));
        frame_u64(frame, "device_bytes", vdev->sources[i].bytes);
        frame_end(frame);
    }
    frame_end(frame);
}

static void describe_vdev(const struct agent *agent, const struct program_device *vdev,
                          size_t index, struct frame *frame)
{
    frame_map(frame, NULL);
    frame_u64(frame, "vdev", index);
    frame_string(frame, "device", vdev_device_name(agent, vdev));
    frame_string(frame, "device_driver_name", vdev->has_device ? vdev->device.device : "");
    frame_bool(frame, "suspended", vdev->suspended);
    frame_bool(frame, "moving", vdev->moving);
    frame_bool(frame, "lost", vdev->lost);
    frame_u64(frame, "device_bytes", vdev->device_bytes);
    frame_u64(frame, "moves", vdev->moves);
    frame_u64(frame, "last_downtime_ns", vdev->last_downtime_ns);
    frame_string(frame, "pinned", vdev->pinned);
    frame_bool(frame, "chosen", vdev->chosen);
    frame_u64(frame, "granted_bytes", ledger_reserved(&vdev->entry));
    frame_u64(frame, "wanted_bytes", vdev->wanted);
    frame_u64(frame, "spilled_bytes", vdev->spilled);
    frame_u64(frame, "fetched_bytes", vdev->fetched);
    frame_u64(frame, "to_fetch_bytes", vdev->to_fetch);
    describe_sources(agent, vdev, frame);
    frame_end(frame);
}

static void describe_ready(const struct agent *agent, const struct program *program,
                           struct frame *frame)
{
    frame_array(frame, "ready");
    for (size_t i = 0; i < program->ready_count; i++)
        frame_string(frame, NULL, describe_name_of(agent, &program->ready[i].device));
    frame_end(frame);
}

void describe_program(const struct agent *agent, const struct program *program, struct frame *frame)
{
    const struct program_status *status = &program->status;
    const struct program_device *first = &program->vdevs[0];
    const char *pinned = "";
    uint64_t bytes = 0, moves = 0;

    for (size_t i = 0; i < program->vdev_count; i++) {
        bytes += program->vdevs[i].device_bytes;
        moves += program->vdevs[i].moves;
        pinned = pinned[0] ? pinned : program->vdevs[i].pinned;
    }
    program_put_identity(program, frame);
    frame_u64(frame, "uid", program->uid);
    frame_string(frame, "state", program_state(program));
    frame_string(frame, "device", vdev_device_name(agent, first));
    frame_string(frame, "device_driver_name", first->has_device ? first->device.device : "");
    frame_u64(frame, "device_bytes", bytes);
    frame_u64(frame, "moves", moves);
    frame_u64(frame, "last_downtime_ns", status->last_downtime_ns);
    frame_u64(frame, "contexts", status->contexts);
    frame_u64(frame, "queues", status->queues);
    frame_u64(frame, "memories", status->memories);
    frame_u64(frame, "programs", status->programs);
    frame_u64(frame, "kernels", status->kernels);
    frame_u64(frame, "events", status->events);
    frame_u64(frame, "warm_bytes", status->warm);
    frame_u64(frame, "slice_ns", status->slice_ns);
    frame_u64(frame, "spread_launches", status->spread_launches);
    frame_u64(frame, "spread_items", status->spread_items);
    frame_u64(frame, "stored_bytes", status->stored);
    frame_u64(frame, "losses", status->loss.count);
    frame_bool(frame, "fenced", status->fenced);
    frame_string(frame, "right_problem", status->right_problem);
    frame_string(frame, "pinned", pinned);
    protecting_put(agent, program, frame);
    checkpointing_put(agent, program, frame);
    describe_managed(agent, program, frame);
    program_put_wish(program, frame);
    asking_put_progress(agent, program, frame);
    describe_ready(agent, program, frame);
    spreading_put_names(agent, program, frame);
    frame_array(frame, "vdevs");
    for (size_t i = 0; i < program->vdev_count; i++)
        describe_vdev(agent, &program->vdevs[i], i, frame);
    frame_end(frame);
}

/**
 * True when a virtual device of @program is on the device, or left memory there; @ret_bytes then
 * receives the amount.
 */
static bool describe_uses(const struct program *program, const struct device_key *key,
                          uint64_t *ret_bytes)
{
    bool any = false;

    *ret_bytes = 0;
    for (size_t i = 0; i < program->vdev_count; i++) {
        const struct program_device *vdev = &program->vdevs[i];
        if (vdev->has_device && !vdev->suspended && device_key_equal(&vdev->device, key)) {
            *ret_bytes += vdev->device_bytes;
            any = true;
        }
        for (uint32_t j = 0; j < vdev->source_count; j++) {
            bool left = device_key_equal(&vdev->sources[j].device, key);
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
        if (!program->connected || !access_may_act(peer->uid, program->uid) ||
            !describe_uses(program, &entry->key, &bytes))
            continue;
        used += bytes;
        frame_map(frame, NULL);
        program_put_identity(program, frame);
        frame_u64(frame, "device_bytes", bytes);
        frame_end(frame);
    }
    frame_end(frame);
    frame_u64(frame, "used_bytes", used);
}

/** The device's server and the link to it. Local devices have neither. */
static void describe_place(const struct agent *agent, const struct inventory_entry *entry,
                           struct frame *frame)
{
    const struct server *server = servers_of(agent, entry);

    frame_string(frame, "host", server ? server->name : "");
    frame_string(frame, "address", server ? server->address : "");
    frame_string(frame, "state", server ? server_device_state(server, entry) : "up");
    frame_string(frame, "problem", server ? server->problem : "");
    frame_u64(frame, "round_trip_ns", server ? server->round_trip_ns : 0);
    frame_u64(frame, "read_bytes_s", server ? server->read : 0);
    frame_u64(frame, "write_bytes_s", server ? server->write : 0);
}

void describe_devices(struct agent *agent, const struct peer *peer, struct frame *frame)
{
    const struct inventory *inventory = &agent->devices.inventory;

    programs_sweep(agent);
    servers_ask(agent);
    frame_string(frame, "problem", agent->devices.problem);
    frame_string(frame, "inventory", agent->devices.own_path);
    frame_array(frame, "devices");
    for (size_t i = 0; i < inventory->count; i++) {
        const struct inventory_entry *entry = &inventory->entries[i];
        const struct devinfo *info = &entry->info;
        frame_map(frame, NULL);
        frame_string(frame, "name", entry->name);
        frame_string(frame, "kind", device_kind(info));
        frame_string(frame, "device", entry->key.device);
        frame_string(frame, "vendor", devinfo_string(info, CL_DEVICE_VENDOR));
        frame_string(frame, "platform", entry->key.platform);
        frame_string(frame, "driver", devinfo_string(info, CL_DRIVER_VERSION));
        frame_string(frame, "version", devinfo_string(info, CL_DEVICE_VERSION));
        frame_u64(frame, "compute_units", devinfo_scalar(info, CL_DEVICE_MAX_COMPUTE_UNITS, 0));
        frame_u64(frame, "memory_bytes", devinfo_scalar(info, CL_DEVICE_GLOBAL_MEM_SIZE, 0));
        frame_string(frame, "uuid", entry->key.uuid);
        frame_string(frame, "pci", entry->key.pci);
        frame_string(frame, "icd", entry->key.icd);
        describe_place(agent, entry, frame);
        uint32_t index = devices_index(agent, entry);
        if (index != LEDGER_NONE)
            describe_entry(agent, &agent->ledger.devices[index], frame);
        describe_users(agent, peer, entry, frame);
        frame_end(frame);
    }
    frame_end(frame);
}
