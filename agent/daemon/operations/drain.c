#include <string.h>

#include "agent/daemon/event_log.h"
#include "agent/daemon/operations/governor.h"
#include "agent/daemon/operations/verbs.h"
#include "agent/protocol/common_messages.h"

#define IN_MS_MAX 10000000000ull

bool drain_leaves(const struct agent *agent, const struct program *program, uint32_t device)
{
    const struct ledger_device *own = device == LEDGER_NONE ? NULL : &agent->ledger.devices[device];

    return own && own->drains_ms && program->wish.aware && program->managed.wished > own->announced;
}

bool drain_refuses(const struct agent *agent, const char *name, char *ret_reason, size_t size)
{
    if (servers_refuse(agent, name, ret_reason, size))
        return true;
    const struct ledger_device *device = ledger_find(&agent->ledger, name);
    if (!device || !ledger_closed(device))
        return false;
    char when[64] = "is drained";
    if (device->cordoned) {
        snprintf(when, sizeof(when), "is cordoned");
    } else if (!device->drains) {
        snprintf(when, sizeof(when), "will be drained in %llu s",
                 (unsigned long long)(devices_drain_in_ns(agent, device) + 999999999) / 1000000000);
    }
    snprintf(ret_reason, size,
             "%s %s and takes no programs; choose another device, or let it take them again "
             "(reseat drain %s --off)",
             name, when, name);
    return true;
}

/** The reason why it is kept where it is, if known; else its last step's reason. */
const char *drain_stay_reason(const struct agent *agent, const struct program *program)
{
    const struct managed *managed = &program->managed;
    const char *reason = managed->why[0] ? managed->why : "no other device has room for it";

    if (!program->peer)
        return "it has not found this agent yet";
    if (program->unresponsive)
        return "it does not answer (is it stopped?)";
    if (program->status.fenced)
        return program->status.right_problem;
    for (unsigned i = 0; i < managed->exclusion_count; i++)
        reason = exclusions_hold(agent, program, &managed->exclusions[i])
                     ? managed->exclusions[i].reason
                     : reason;
    return reason;
}

/* ---- what programs are told ---- */

/** Notify the virtual devices of @program that are on @device. True when there is one. */
static bool drain_notify_there(const struct program *program, uint32_t device, uint64_t in_ns,
                               const char *text)
{
    bool there = false;

    for (size_t vdev = 0; vdev < program->vdev_count; vdev++) {
        if (program->vdevs[vdev].entry.device == device) {
            program_notify(program, vdev, NOTICE_TAKEN, in_ns, 0, text);
            there = true;
        }
    }
    return there;
}

static void drain_notify_taken(const struct agent *agent, uint32_t device, unsigned *ret_there,
                               unsigned *ret_told)
{
    uint64_t in_ns = devices_drain_in_ns(agent, &agent->ledger.devices[device]);

    *ret_there = *ret_told = 0;
    for (const struct program *program = agent->programs; program; program = program->next) {
        if (drain_notify_there(program, device, in_ns, "an operator drains the device")) {
            ++*ret_there;
            *ret_told += program->peer && program->wish.aware;
        }
    }
}

static void drain_notify_undone(const struct agent *agent, uint32_t device)
{
    const struct ledger_device *own = &agent->ledger.devices[device];
    char text[64];

    snprintf(text, sizeof(text), "%s takes programs again", own->name);
    for (const struct program *program = agent->programs; program; program = program->next)
        if (!drain_notify_there(program, device, UINT64_MAX,
                                "the operator stopped draining the device"))
            program_notify(program, PROGRAM_NO_VDEV, NOTICE_ADDED, 0, ledger_lasting(own), text);
}

void drain_notify(const struct agent *agent, const struct program *program)
{
    const struct ledger *ledger = &agent->ledger;

    for (uint32_t i = 0; i < ledger->count; i++) {
        uint64_t in_ns = devices_drain_in_ns(agent, &ledger->devices[i]);
        if (in_ns)
            drain_notify_there(program, i, in_ns, "an operator drains the device");
    }
}

/* ---- when ---- */

void drain_tick(struct agent *agent)
{
    struct governor *governor = agent->governor;
    uint64_t now = uv_now(&agent->loop);

    for (uint32_t i = 0; i < agent->ledger.count; i++) {
        struct ledger_device *device = &agent->ledger.devices[i];
        if (!device->drains_ms ||
            (now < device->drains_ms && (device->accounts || device->reserved)))
            continue;
        unsigned there, told;
        device->drains = true;
        device->drains_ms = 0;
        drain_notify_taken(agent, i, &there, &told);
        agent->changed = true;
        event_log_device(agent, device->name, "drain", "its announced drain begins");
        int error = limits_save(agent);
        if (error) {
            agent_log("that %s drains cannot be kept in %s: %s; the next agent drains it when its "
                      "time comes",
                      device->name, governor->state_path, strerror(-error));
        }
    }
}

static bool drain_keep(struct peer *client, struct ledger_device *device,
                       const struct ledger_device *before)
{
    struct event event = event_of(client, MSG_DRAIN,
                                  device->drains      ? "begun"
                                  : device->drains_ms ? "announced"
                                  : device->cordoned  ? "cordoned"
                                                      : "off");
    char what[64];

    snprintf(what, sizeof(what), "that %s drains", device->name);
    if (!limits_keep(client, device, before, what))
        return false;
    event.device = device->name;
    event_log_add(client->agent, &event);
    return true;
}

/** Let the device take programs again, or only keep new ones away. */
static void drain_undo(struct peer *client, uint32_t index, bool stay)
{
    struct agent *agent = client->agent;
    struct ledger_device *device = &agent->ledger.devices[index], before = *device;

    device->drains = false;
    device->drains_ms = 0;
    device->cordoned = stay;
    if (!drain_keep(client, device, &before))
        return;
    if (before.drains || before.drains_ms) {
        drain_notify_undone(agent, index);
        followers_undone(agent, index);
    }
    followers_answer(client, &(struct operation){.verb = REQUEST_DRAIN, .target = index}, false);
}

static void drain_begin(struct peer *client, uint32_t index, const struct request *asked)
{
    uint64_t in_ms = asked->in_ns / 1000000;
    struct agent *agent = client->agent;
    struct ledger_device *device = &agent->ledger.devices[index], before = *device;
    unsigned there, told;
    struct frame frame;

    in_ms = in_ms < IN_MS_MAX ? in_ms : IN_MS_MAX;
    if (in_ms && !device->drains && (device->accounts || device->reserved)) {
        device->drains_ms = uv_now(&agent->loop) + in_ms;
        device->announced = ++agent->governor->events;
    } else {
        device->drains = true;
        device->drains_ms = 0;
    }
    device->cordoned = false;
    if (!drain_keep(client, device, &before))
        return;
    drain_notify_taken(agent, index, &there, &told);
    if (device->drains_ms) {
        frame_init(&frame, MSG_NOTICE);
        frame_string(&frame, "device", device->name);
        frame_u64(&frame, "in_ns", devices_drain_in_ns(agent, device));
        frame_u64(&frame, "programs", there);
        frame_u64(&frame, "told", told);
        peer_send(client, &frame);
    }
    followers_add(client, REQUEST_DRAIN, index, asked->timeout_ms);
}

void drain_request(struct peer *client, uint32_t device, const struct request *asked)
{
    if (asked->undo || asked->stay)
        drain_undo(client, device, asked->stay);
    else
        drain_begin(client, device, asked);
}
