#include "agent/daemon/messages/messages.h"

#include <stdio.h>
#include <string.h>

#include "agent/daemon/govern/govern.h"

/* What the ledger and the policy know, told to clients. */

#define EXPLAIN_MAX 2048

/* ---- explain ---- */

static void put_bar(const struct agent *agent, uint32_t device, bool for_now, const char *reason,
                    struct frame *frame)
{
    frame_map(frame, NULL);
    frame_string(frame, "device", agent->ledger.devices[device].name);
    frame_bool(frame, "for_now", for_now);
    frame_string(frame, "reason", reason);
    frame_end(frame);
}

static void put_bars(const struct agent *agent, const struct program *program, struct frame *frame)
{
    char reason[POLICY_REASON];

    frame_array(frame, "refused_by");
    for (unsigned i = 0; i < program->governed.bar_count; i++) {
        const struct program_bar *one = &program->governed.bars[i];
        if (bars_hold(agent, program, one))
            put_bar(agent, one->device, one->cause == BAR_FAILED, one->reason, frame);
    }
    for (uint32_t i = 0; i < agent->ledger.count; i++)
        if (!program_wish_fits(agent, program, i, reason, sizeof(reason)))
            put_bar(agent, i, false, reason, frame);
    frame_end(frame);
}

/** The policy's lines, one string each, and before them what it does not know. */
static void put_lines(const struct agent *agent, const struct program_device *seat,
                      struct frame *frame, char *text)
{
    const struct ledger_device *device =
        seat->account.device == LEDGER_NONE ? NULL : &agent->ledger.devices[seat->account.device];
    uint64_t in_ns = device ? devices_drain_in_ns(agent, device) : 0;

    frame_array(frame, "lines");
    if (in_ns) {
        char line[PROTOCOL_TEXT_MAX];
        snprintf(line, sizeof(line), "%s will be drained in %llu s.", device->name,
                 (unsigned long long)(in_ns + 999999999) / 1000000000);
        frame_string(frame, NULL, line);
    }
    if (seat->suspended && seat->displaced && seat->only != LEDGER_NONE) {
        char line[PROTOCOL_TEXT_MAX];
        snprintf(line, sizeof(line), "It queues for %s alone, which an operator named.",
                 agent->ledger.devices[seat->only].name);
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
    const struct world *world = &agent->governor->world;
    char text[EXPLAIN_MAX];
    struct frame frame;
    size_t seat;
    const struct program *program = client_program(client, &message->root, &seat);

    if (!program)
        return;
    if (world_build(agent)) {
        client_no_memory(client);
        return;
    }
    frame_init(&frame, MSG_EXPLAIN);
    describe_program(agent, program, &frame);
    frame_bool(&frame, "named", seat != PROGRAM_ALL_SEATS);
    put_bars(agent, program, &frame);
    frame_array(&frame, "devices");
    for (uint32_t i = 0; i < program->seat_count; i++) {
        uint32_t index = world_find(world, program, i);
        /* Those on one device are one to the policy: told of once, or of the one that is named. */
        if (index == POLICY_NONE ||
            (seat == PROGRAM_ALL_SEATS ? world->groups[index].seat != i : seat != i))
            continue;
        policy_explain(&world->policy, config_policy(&agent->config), index, text, sizeof(text));
        frame_map(&frame, NULL);
        frame_u64(&frame, "seat", i);
        frame_string(&frame, "device", seat_device_name(agent, &program->seats[i]));
        put_lines(agent, &program->seats[i], &frame, text);
        frame_end(&frame);
    }
    frame_end(&frame);
    peer_send(client, &frame);
}
