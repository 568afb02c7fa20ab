#include "agent/daemon/agent_messages.h"
#include "agent/daemon/clients.h"
#include "agent/daemon/event_log.h"
#include "agent/daemon/messages/messages.h"
#include "agent/daemon/operations/governor.h"
#include "agent/daemon/power/power.h"

#include <string.h>

/* Reports to clients from the ledger and the policy. */

#define EXPLAIN_MAX 2048

/* ---- explain ---- */

static void reporting_put_exclusion(const struct agent *agent, uint32_t device, bool for_now,
                                    const char *reason, struct frame *frame)
{
    frame_map(frame, NULL);
    frame_string(frame, "device", agent->ledger.devices[device].name);
    frame_bool(frame, "for_now", for_now);
    frame_string(frame, "reason", reason);
    frame_end(frame);
}

static void reporting_put_exclusions(const struct agent *agent, const struct program *program,
                                     struct frame *frame)
{
    char reason[POLICY_REASON];

    frame_array(frame, "refused_by");
    for (unsigned i = 0; i < program->managed.exclusion_count; i++) {
        const struct program_exclusion *one = &program->managed.exclusions[i];
        if (exclusions_hold(agent, program, one))
            reporting_put_exclusion(agent, one->device, one->cause == EXCLUSION_FAILED, one->reason,
                                    frame);
    }
    for (uint32_t i = 0; i < agent->ledger.count; i++)
        if (!program_wish_fits(agent, program, i, reason, sizeof(reason)))
            reporting_put_exclusion(agent, i, false, reason, frame);
    frame_end(frame);
}

/** The policy's explanation, one string a line, after a note of the facts that are not known. */
static void reporting_put_lines(const struct agent *agent, const struct program_device *vdev,
                                struct frame *frame, char *text)
{
    const struct ledger_device *device =
        vdev->entry.device == LEDGER_NONE ? NULL : &agent->ledger.devices[vdev->entry.device];
    uint64_t in_ns = device ? devices_drain_in_ns(agent, device) : 0;

    frame_array(frame, "lines");
    if (in_ns) {
        char line[PROTOCOL_TEXT_MAX];
        snprintf(line, sizeof(line), "%s will be drained in %llu s.", device->name,
                 (unsigned long long)(in_ns + 999999999) / 1000000000);
        frame_string(frame, NULL, line);
    }
    if (vdev->suspended && vdev->displaced && vdev->only != LEDGER_NONE) {
        char line[PROTOCOL_TEXT_MAX];
        snprintf(line, sizeof(line), "It queues for %s alone, which an operator named.",
                 agent->ledger.devices[vdev->only].name);
        frame_string(frame, NULL, line);
    }
    for (char *line = strsep(&text, "\n"); line; line = strsep(&text, "\n"))
        if (line[0])
            frame_string(frame, NULL, line);
    frame_end(frame);
}

void explain_handle(struct peer *client, struct message *message)
{
    struct agent *agent = client->agent;
    struct world *world = &agent->governor->world;
    char text[EXPLAIN_MAX];
    struct frame frame;
    size_t vdev;
    const struct program *program = client_program(client, &message->root, &vdev);

    if (!program)
        return;
    if (world_build(agent)) {
        client_no_memory(client);
        return;
    }
    world->policy.for_all = peer_may(client, RIGHT_PROGRAMS);
    frame_init(&frame, MSG_EXPLAIN);
    describe_program(agent, program, &frame);
    frame_bool(&frame, "named", vdev != PROGRAM_ALL_VDEVS);
    reporting_put_exclusions(agent, program, &frame);
    put_explained(&frame, program);
    event_log_put_moves(agent, program, &frame);
    frame_array(&frame, "devices");
    for (uint32_t i = 0; i < program->vdev_count; i++) {
        uint32_t index = world_find(world, program, i);
        /*
         * The policy decides for all virtual devices of a program on one device together. Explain
         * each such group once, for its first virtual device or for the one that was named.
         */
        if (index == POLICY_NONE ||
            (vdev == PROGRAM_ALL_VDEVS ? world->groups[index].vdev != i : vdev != i))
            continue;
        policy_explain(&world->policy, config_policy(&agent->config), index, text, sizeof(text));
        frame_map(&frame, NULL);
        frame_u64(&frame, "vdev", i);
        frame_string(&frame, "device", vdev_device_name(agent, &program->vdevs[i]));
        uint32_t on = program->vdevs[i].entry.device;
        if (on != LEDGER_NONE) {
            power_put_device(agent, on, &frame);
            utilisation_put_device(agent, on, &frame);
        }
        power_explain(agent, program, text + strlen(text), sizeof(text) - strlen(text));
        reporting_put_lines(agent, &program->vdevs[i], &frame, text);
        frame_end(&frame);
    }
    frame_end(&frame);
    peer_send(client, &frame);
}

/* ---- use over time ---- */

static void reporting_put_history(const struct agent *agent, const struct history *history,
                                  struct frame *frame)
{
    uint64_t age = uv_now(&agent->loop) - history->begin_ms;

    frame_u64(frame, "age_ms", history->span_ms ? age : 0);
    put_history(frame, history);
}

static void reporting_put_ended(const struct peer *client, struct frame *frame)
{
    const struct governor *governor = client->agent->governor;
    unsigned first = governor->ended_count > ENDED_MAX ? governor->ended_count - ENDED_MAX : 0;

    frame_array(frame, "ended");
    for (unsigned i = first; i < governor->ended_count; i++) {
        const struct ended *one = &governor->ended[i % ENDED_MAX];
        if (!peer_sees(client, one->uid))
            continue;
        frame_map(frame, NULL);
        put_ended(frame, one);
        frame_end(frame);
    }
    frame_end(frame);
}

/** Put all objects that @client may see, of those that its request names, or of all. */
static void reporting_put_all(const struct peer *client, const struct program *program,
                              uint32_t device, struct frame *frame)
{
    const struct agent *agent = client->agent;
    const struct governor *governor = agent->governor;
    const struct history none = {0};
    bool all = !program && device == LEDGER_NONE;

    frame_array(frame, "devices");
    for (uint32_t i = 0; i < agent->ledger.count; i++) {
        const struct ledger_device *one = &agent->ledger.devices[i];
        if (i != device && !(all && (devices_entry(agent, i) || one->accounts)))
            continue;
        frame_map(frame, NULL);
        frame_string(frame, "name", one->name);
        describe_entry(agent, i, frame);
        frame_u64(frame, "held_bytes", one->held);
        frame_u64(frame, "programs", one->accounts);
        reporting_put_history(agent, i < governor->history_count ? &governor->histories[i] : &none,
                              frame);
        frame_end(frame);
    }
    frame_end(frame);
    frame_array(frame, "apps");
    for (const struct program *one = agent->programs; one; one = one->next) {
        uint32_t on = one->vdevs[0].entry.device;
        if (one != program && !(all && peer_sees(client, one->uid)))
            continue;
        frame_map(frame, NULL);
        describe_program(agent, one, frame);
        frame_u64(frame, "capacity_bytes", on == LEDGER_NONE ? 0 : agent->ledger.devices[on].own);
        reporting_put_history(agent, &one->managed.history, frame);
        frame_end(frame);
    }
    frame_end(frame);
    if (all) {
        reporting_put_ended(client, frame);
    } else {
        frame_array(frame, "ended");
        frame_end(frame);
    }
}

void use_handle(struct peer *client, struct message *message)
{
    char name[PROTOCOL_WORD_MAX];
    struct program *program = NULL;
    uint32_t device = LEDGER_NONE;
    struct frame frame;
    size_t vdev;

    if (field_string(&message->root, "what", name, sizeof(name)) && name[0] &&
        !client_program_or_device(client, &message->root, &program, &vdev, &device))
        return;
    frame_init(&frame, MSG_USE);
    reporting_put_all(client, program, device, &frame);
    peer_send(client, &frame);
}
