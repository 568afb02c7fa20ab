#include "agent/daemon/messages/messages.h"

#include <string.h>

#include "agent/daemon/govern/govern.h"
#include "agent/wire/access.h"

/* ---- use over time ---- */

static void put_history(const struct agent *agent, const struct history *history,
                        struct frame *frame)
{
    uint64_t age = uv_now(&agent->loop) - history->begin_ms;

    frame_u64(frame, "span_ms", history->span_ms);
    frame_u64(frame, "age_ms", history->span_ms ? age : 0);
    frame_array(frame, "granted");
    for (uint32_t i = 0; i < history->count; i++)
        frame_u64(frame, NULL, history->spans[i].granted);
    frame_end(frame);
    frame_array(frame, "held");
    for (uint32_t i = 0; i < history->count; i++)
        frame_u64(frame, NULL, history->spans[i].held);
    frame_end(frame);
}

static void put_device(const struct agent *agent, uint32_t index, struct frame *frame)
{
    const struct governor *governor = agent->governor;
    const struct ledger_device *device = &agent->ledger.devices[index];
    const struct history none = {0};

    frame_map(frame, NULL);
    frame_string(frame, "name", device->name);
    describe_account(agent, device, frame);
    frame_u64(frame, "held_bytes", device->held);
    frame_u64(frame, "programs", device->accounts);
    put_history(agent, index < governor->history_count ? &governor->histories[index] : &none,
                frame);
    frame_end(frame);
}

static void put_program(const struct agent *agent, const struct program *program,
                        struct frame *frame)
{
    const struct ledger_account *account = &program->seats[0].account;

    frame_map(frame, NULL);
    describe_program(agent, program, frame);
    frame_u64(frame, "capacity_bytes",
              account->device == LEDGER_NONE ? 0 : agent->ledger.devices[account->device].own);
    put_history(agent, &program->governed.history, frame);
    frame_end(frame);
}

static void put_ended(const struct governor *governor, struct frame *frame)
{
    unsigned first = governor->ended_count > ENDED_MAX ? governor->ended_count - ENDED_MAX : 0;

    frame_array(frame, "ended");
    for (unsigned i = first; i < governor->ended_count; i++) {
        const struct ended *one = &governor->ended[i % ENDED_MAX];
        frame_map(frame, NULL);
        frame_string(frame, "id", one->id);
        frame_string(frame, "name", one->name);
        frame_string(frame, "device", one->device);
        frame_u64(frame, "capacity_bytes", one->own);
        frame_u64(frame, "wanted_peak_bytes", one->wanted_peak);
        frame_u64(frame, "peak_bytes", one->held_peak);
        frame_u64(frame, "granted_peak_bytes", one->granted_peak);
        frame_u64(frame, "waits", one->waits);
        frame_u64(frame, "waited_ms", one->waited_ms);
        frame_end(frame);
    }
    frame_end(frame);
}

/** What a client may see: all that it names, or all there is. */
static void put_all(const struct peer *client, const struct program *program, uint32_t device,
                    struct frame *frame)
{
    const struct agent *agent = client->agent;
    bool all = !program && device == LEDGER_NONE;

    frame_array(frame, "devices");
    for (uint32_t i = 0; i < agent->ledger.count; i++) {
        const struct ledger_device *one = &agent->ledger.devices[i];
        if (i == device || (all && (devices_entry(agent, i) || one->accounts)))
            put_device(agent, i, frame);
    }
    frame_end(frame);
    frame_array(frame, "apps");
    for (const struct program *one = agent->programs; one; one = one->next)
        if (one == program || (all && access_may_act(client->uid, one->uid)))
            put_program(agent, one, frame);
    frame_end(frame);
    if (all) {
        put_ended(agent->governor, frame);
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
    size_t seat;

    if (field_string(&message->root, "what", name, sizeof(name)) && name[0] &&
        !client_program_or_device(client, &message->root, &program, &seat, &device))
        return;
    frame_init(&frame, MSG_USE);
    put_all(client, program, device, &frame);
    peer_send(client, &frame);
}
