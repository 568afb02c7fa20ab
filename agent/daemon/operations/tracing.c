#include "agent/daemon/operations/verbs.h"
#include "agent/protocol/common_messages.h"
#include "state/base/clock.h"

/* Clients that trace programs: a program's spans are forwarded to the client that traces it. */

#define TRACE_MS_MAX 3600000
/* How long to wait after a trace's end for a program that does not answer. */
#define GRACE_MS 5000

static struct operation *tracing_find(const struct agent *agent, const struct program *program)
{
    return operation_sent(agent, program, OPERATION_BIT(REQUEST_TRACE));
}

static void tracing_tell(const struct program *program, bool on, uint64_t deadline_ns)
{
    const struct trace_request asked = {.on = on, .deadline_ns = deadline_ns};
    struct frame frame;

    if (!program->peer)
        return;
    frame_init(&frame, MSG_TRACE);
    put_trace(&frame, &asked);
    peer_send(program->peer, &frame);
}

/** @how  The reason for the end: "time", "program" or "silence". */
static void tracing_answer(struct agent *agent, struct operation *op, const char *how,
                           uint64_t lost)
{
    struct peer *client = op->client;
    struct frame frame;

    frame_init(&frame, MSG_TRACE);
    report_put_program(&frame, op->program);
    frame_string(&frame, "ended_by", how);
    frame_u64(&frame, "lost", lost);
    operation_settle(agent, op, &(struct operation_end){.result = RESULT_DONE});
    peer_send(client, &frame);
}

void trace_handle(struct peer *client, struct message *message)
{
    struct agent *agent = client->agent;
    struct trace_request asked;
    size_t vdev;
    struct program *program = client_program(client, &message->root, &vdev);

    if (!program)
        return;
    take_trace(&message->root, &asked);
    uint64_t ms = asked.duration_ms < TRACE_MS_MAX ? asked.duration_ms : TRACE_MS_MAX;
    if (!program->peer || tracing_find(agent, program)) {
        client_refuse(client, ERR_REFUSED, program, "%s",
                      program->peer ? "is traced by another command already"
                                    : "has not used OpenCL yet, or has not found this agent");
        return;
    }
    struct operation wish = operation_of(program, REQUEST_TRACE, PROGRAM_ALL_VDEVS, client);
    wish.asked.timeout_ms = ms + GRACE_MS;
    struct operation *op = operation_follow(agent, &wish, OPERATION_BIT(REQUEST_TRACE));
    if (!op || !operation_enter(agent, op, OPERATION_SENT))
        return;
    tracing_tell(program, true, clock_now_ns() + ms * NS_PER_MS);
}

void tracing_spans(struct peer *peer, struct message *message)
{
    struct agent *agent = peer->agent;
    struct operation *op = tracing_find(agent, peer->program);
    const msgpack_object *spans = field_get(&message->root, "spans");
    struct frame frame;

    if (!op)
        return;
    if (spans) {
        frame_init(&frame, MSG_SPANS);
        frame_object(&frame, "spans", spans);
        peer_send(op->client, &frame);
    }
    if (field_bool(&message->root, "end", false))
        tracing_answer(agent, op, "time", field_u64(&message->root, "lost", 0));
}

void tracing_cancel(struct agent *agent, struct operation *op, bool gone)
{
    tracing_tell(op->program, false, 0);
    op->expires_ms = uv_now(&agent->loop) + GRACE_MS;
    if (gone)
        operation_settle(agent, op, NULL);
}

void tracing_ends(struct agent *agent, const struct program *program)
{
    struct operation *op = tracing_find(agent, program);

    if (op)
        tracing_answer(agent, op, "program", 0);
}

void tracing_expire(struct agent *agent, struct operation *op)
{
    tracing_answer(agent, op, "silence", 0);
}
