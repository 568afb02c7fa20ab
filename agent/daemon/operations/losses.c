#include "agent/daemon/event_log.h"
#include "agent/daemon/operations/governor.h"
#include "agent/daemon/operations/verbs.h"
#include "state/driver/served.h"

/*
 * Devices that programs lost, and protected programs that wait for another device.
 *
 * A lost device accepts no program until it answers: a helper that lists the devices opens the
 * driver to find out, or the watcher of a server reports it. If a program then fails there, the
 * next query comes later than the last one did. A waiting program queues with the policy, in order
 * of arrival. Its grant on the lost device is free at once. If it says that the device works, and
 * that it alone cannot go on there, another device is tried for it.
 *
 * Where a driver runs in a process of its own, usually only that process has ended, and the device
 * works. The program's next session opens the driver in a new process, as the helper would. So the
 * program is sent back once at once, and the device is queried only if the program cannot open it.
 */

#define ASK_MS     100
#define ASK_MS_MAX 60000

/**
 * Mark a device as lost, and send no program there.
 *
 * @longer  Wait twice as long as last time before the next query, so that a program that often
 *          loses the device does not keep all others off it.
 */
static void losses_take_away(struct agent *agent, uint32_t index, bool longer, const char *why)
{
    struct ledger_device *device = &agent->ledger.devices[index];

    device->lost_wait_ms = longer && device->lost_wait_ms ? device->lost_wait_ms * 2 : ASK_MS;
    if (device->lost_wait_ms > ASK_MS_MAX)
        device->lost_wait_ms = ASK_MS_MAX;
    device->lost_ask_ms = uv_now(&agent->loop) + device->lost_wait_ms;
    device->lost = true;
    device->lost_asked = false;
    agent->changed = true;
    event_log_device(agent, device->name, "lost", why);
}

static void losses_give_back(struct agent *agent, struct ledger_device *device, const char *why)
{
    device->lost = false;
    agent->changed = true;
    event_log_device(agent, device->name, "back", why);
}

void losses_note(struct agent *agent, struct program *program, uint32_t index, bool was_lost,
                 bool sought, uint32_t device)
{
    struct program_device *vdev = &program->vdevs[index];
    const struct program_loss *loss = &program->status.loss;

    if (vdev->lost && !was_lost && device != LEDGER_NONE) {
        const char *why = loss->count ? loss->reason : "it does not say why";
        if (ledger_sync_believe(program) && !loss->works)
            losses_take_away(agent, device, false, why);
        else /* Another device is tried. */
            exclusions_add(agent, program, device, EXCLUSION_FAILED, why);
    }
    if (!vdev->seeks || sought)
        return;
    vdev->displaced = true;
    vdev->only = LEDGER_NONE;
    vdev->loss_sought = loss->count;
    pending_queue(agent, pending_of(program, 1u << index), vdev);
    agent->changed = true; /* The device may be known as lost already. */
    event_log_program(agent, program, "lost-device", "waits for another device");
}

bool losses_again(struct agent *agent, struct program *program, uint32_t index)
{
    struct program_device *vdev = &program->vdevs[index];

    if (!vdev->seeks || program->status.loss.count <= vdev->loss_sought)
        return false;
    losses_note(agent, program, index, false, false, vdev->entry.device);
    return true;
}

void losses_arrived(struct agent *agent, uint32_t index)
{
    struct ledger_device *device = &agent->ledger.devices[index];

    device->lost_wait_ms = 0;
    if (device->lost)
        losses_give_back(agent, device, "answers again");
}

void losses_failed(struct agent *agent, uint32_t index)
{
    if (agent->ledger.devices[index].lost_wait_ms)
        losses_take_away(agent, index, true, "a program could not go there");
}

void losses_listed(struct agent *agent)
{
    for (uint32_t i = 0; i < agent->ledger.count; i++) {
        struct ledger_device *device = &agent->ledger.devices[i];
        const struct inventory_entry *entry = devices_entry(agent, i);
        if (!device->lost || !device->lost_asked)
            continue;
        device->lost_asked = false;
        if (entry && !entry->lost && !agent->devices.problem[0])
            losses_give_back(agent, device, "answers again");
        else
            losses_take_away(agent, i, true, "it is not among the devices that there are");
    }
}

/** Find a program that waits for this device because the policy found no other; or NULL. */
static const struct program *losses_waits_for(const struct agent *agent,
                                              const struct inventory_entry *entry)
{
    for (const struct program *program = agent->programs; program; program = program->next)
        for (size_t i = 0; program->peer && i < program->vdev_count; i++)
            if (program->vdevs[i].seeks && !program_moving(program) &&
                device_key_equal(&program->vdevs[i].device, &entry->key))
                return program;
    return NULL;
}

void losses_hurry(struct agent *agent)
{
    uint64_t now = uv_now(&agent->loop);
    bool any = false;

    for (uint32_t i = 0; i < agent->ledger.count; i++) {
        struct ledger_device *device = &agent->ledger.devices[i];
        const struct inventory_entry *entry = devices_entry(agent, i);
        bool first = device->lost && !device->lost_asked && device->lost_wait_ms == ASK_MS &&
                     device->lost_ask_ms > now;
        const struct program *program = entry && first ? losses_waits_for(agent, entry) : NULL;
        const struct program_loss *loss = program ? &program->status.loss : NULL;
        /* It was lost with a driver process that served only that program. */
        if (loss && loss->count && loss->isolated && device_key_equal(&loss->device, &entry->key)) {
            losses_give_back(agent, device, "is tried with its driver in another process");
        } else if (program) {
            device->lost_ask_ms = now;
            any = true;
        }
    }
    if (any)
        losses_tick(agent);
}

void losses_tick(struct agent *agent)
{
    uint64_t now = uv_now(&agent->loop);
    bool list = false;

    for (uint32_t i = 0; i < agent->ledger.count; i++) {
        struct ledger_device *device = &agent->ledger.devices[i];
        if (!device->lost || device->lost_asked || now < device->lost_ask_ms)
            continue;
        const struct inventory_entry *entry = devices_entry(agent, i);
        /* A server's watcher reports its devices; the agent's own lister lists the others. */
        if (!agent->devices.environment || (entry && served_is_address(entry->key.icd))) {
            if (!entry || !entry->lost)
                losses_give_back(agent, device, "answers again");
        } else if (!agent->devices.listing || list) {
            /* A listing that began earlier may show the device's earlier state. */
            device->lost_asked = list = true;
        }
    }
    if (list)
        devices_renew(agent);
}
