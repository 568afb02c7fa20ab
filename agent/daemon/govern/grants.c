#include "agent/daemon/govern/govern.h"

#define WITHHOLDS_MS 10000

/* ---- messages ---- */

void grants_add(struct agent *agent, struct program *program, uint32_t index, uint64_t bytes)
{
    struct program_device *seat = &program->seats[index];
    struct frame frame;

    ledger_set_granted(&agent->ledger, &seat->account, seat->account.granted + bytes);
    seat->exchanged_ms = seat->granted_ms = uv_now(&agent->loop);
    frame_init(&frame, MSG_GRANT);
    frame_u64(&frame, "seat", index);
    frame_u64(&frame, "bytes", bytes);
    peer_send(program->peer, &frame);
}

void grants_shrink(struct agent *agent, struct program *program, uint32_t seat, uint64_t bytes,
                   uint64_t patience_ms, bool trims)
{
    struct frame frame;

    frame_init(&frame, MSG_SHRINK);
    frame_u64(&frame, "seat", seat);
    frame_u64(&frame, "bytes", bytes);
    peer_send(program->peer, &frame);
    program->seats[seat].exchanged_ms = uv_now(&agent->loop);
    program->governed.shrinks = true;
    program->governed.trims = trims;
    program->governed.shrink_to = bytes;
    program->governed.shrink_until_ms = uv_now(&agent->loop) + patience_ms;
}

/** It kept what it should have given up, so that it is not asked again for a while. */
static void withhold(struct agent *agent, struct program *program)
{
    if (!program->governed.trims) {
        program->governed.withholds = true;
        program->governed.withholds_until_ms = uv_now(&agent->loop) + WITHHOLDS_MS;
    }
    agent->changed = true;
}

/** What it was told to give has come, or as much of it as it could give. */
static void end_shrink(struct agent *agent, struct program *program, uint32_t device)
{
    uint64_t granted = 0;

    for (size_t i = 0; i < program->seat_count; i++) {
        granted +=
            program->seats[i].account.device == device ? program->seats[i].account.granted : 0;
    }
    program->governed.shrinks = false;
    if (granted > program->governed.shrink_to)
        withhold(agent, program);
}

void grants_return(struct peer *peer, struct message *message)
{
    struct agent *agent = peer->agent;
    struct program *program = peer->program;
    uint64_t index = field_u64(&message->root, "seat", 0);
    uint64_t bytes = field_u64(&message->root, "bytes", 0);

    if (index >= program->seat_count)
        return;
    struct program_device *seat = &program->seats[index];
    uint64_t granted = seat->account.granted;
    ledger_set_granted(&agent->ledger, &seat->account, bytes < granted ? granted - bytes : 0);
    /* What it holds of that is gone as well, though its status has yet to say so. */
    if (seat->account.held > seat->account.granted)
        ledger_set_held(&agent->ledger, &seat->account, seat->account.granted);
    seat->exchanged_ms = uv_now(&agent->loop);
    if (program->governed.shrinks) {
        end_shrink(agent, program, seat->account.device);
    } else if (seat->wanted > seat->account.granted) {
        /* Nobody asked: it needs no more, though its status has yet to say so. */
        seat->wanted = seat->account.granted;
        seat->device_bytes = seat->account.held;
    }
    agent->changed = true;
}

void grants_tick(struct agent *agent)
{
    uint64_t now = uv_now(&agent->loop);

    for (struct program *program = agent->programs; program; program = program->next) {
        struct governed *governed = &program->governed;
        if (governed->shrinks && now >= governed->shrink_until_ms) {
            /* Nothing came back: of what it does not use there is none, of the rest it may not. */
            governed->shrinks = false;
            withhold(agent, program);
        }
        governed->withholds = governed->withholds && now < governed->withholds_until_ms;
    }
}
