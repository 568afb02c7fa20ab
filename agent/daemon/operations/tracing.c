#include <stdlib.h>

#include "agent/daemon/operations/operations.h"
#include "state/base/clock.h"

/* Clients that trace programs: what a program says of itself goes on to the one who asked. */

#define TRACE_MS_MAX 3600000
/* So long after its end a program that says nothing is waited for. */
#define GRACE_MS 5000

struct tracer {
    struct tracer *next;
    struct peer *client;
    struct program *program;
    uint64_t until_ms;
};

static struct tracer *tracing_tracer_of(const struct agent *agent, const struct program *program)
{
    struct tracer *tracer = agent->governor->tracers;

    while (tracer && tracer->program != program)
        tracer = tracer->next;
    return tracer;
}

static void tracing_drop(struct agent *agent, struct tracer *tracer)
{
    struct tracer **at = &agent->governor->tracers;

    while (*at != tracer)
        at = &(*at)->next;
    *at = tracer->next;
    free(tracer);
}

static void tracing_tell(const struct program *program, bool on, uint64_t deadline_ns)
{
    struct frame frame;

    if (!program->peer)
        return;
    frame_init(&frame, MSG_TRACE);
    frame_bool(&frame, "on", on);
    frame_u64(&frame, "deadline_ns", deadline_ns);
    peer_send(program->peer, &frame);
}

/** @how  What ended it: "time", "program" or "silence". */
static void tracing_answer(struct agent *agent, struct tracer *tracer, const char *how,
                           uint64_t lost)
{
    struct peer *client = tracer->client;
    struct frame frame;

    frame_init(&frame, MSG_TRACE);
    report_put_program(&frame, tracer->program);
    frame_string(&frame, "ended_by", how);
    frame_u64(&frame, "lost", lost);
    tracing_drop(agent, tracer);
    peer_send(client, &frame);
}

void trace_handle(struct peer *client, struct message *message)
{
    struct agent *agent = client->agent;
    uint64_t ms = field_u64(&message->root, "duration_ms", 0);
    size_t vdev;
    struct program *program = client_program(client, &message->root, &vdev);
    struct tracer *tracer;

    if (!program)
        return;
    ms = ms < TRACE_MS_MAX ? ms : TRACE_MS_MAX;
    if (!program->peer || tracing_tracer_of(agent, program)) {
        peer_error(client, ERR_REFUSED, "program %s (pid %d) %s", program->name, (int)program->pid,
                   program->peer ? "is traced by another command already"
                                 : "has not used OpenCL yet, or has not found this agent");
        return;
    }
    tracing_cancel(agent, client, true); /* One thing at a time. */
    tracer = calloc(1, sizeof(*tracer));
    if (!tracer) {
        client_no_memory(client);
        return;
    }
    *tracer = (struct tracer){.next = agent->governor->tracers,
                              .client = client,
                              .program = program,
                              .until_ms = uv_now(&agent->loop) + ms + GRACE_MS};
    agent->governor->tracers = tracer;
    tracing_tell(program, true, clock_now_ns() + ms * NS_PER_MS);
}

void tracing_spans(struct peer *peer, struct message *message)
{
    struct agent *agent = peer->agent;
    struct tracer *tracer = tracing_tracer_of(agent, peer->program);
    const msgpack_object *spans = field_get(&message->root, "spans");
    struct frame frame;

    if (!tracer)
        return;
    if (spans) {
        frame_init(&frame, MSG_SPANS);
        frame_object(&frame, "spans", spans);
        peer_send(tracer->client, &frame);
    }
    if (field_bool(&message->root, "end", false))
        tracing_answer(agent, tracer, "time", field_u64(&message->root, "lost", 0));
}

void tracing_cancel(struct agent *agent, const struct peer *client, bool gone)
{
    struct tracer *next;

    for (struct tracer *tracer = agent->governor->tracers; tracer; tracer = next) {
        next = tracer->next;
        if (tracer->client != client)
            continue;
        tracing_tell(tracer->program, false, 0);
        tracer->until_ms = uv_now(&agent->loop) + GRACE_MS;
        if (gone)
            tracing_drop(agent, tracer);
    }
}

void tracing_ends(struct agent *agent, const struct program *program)
{
    struct tracer *tracer = tracing_tracer_of(agent, program);

    if (tracer)
        tracing_answer(agent, tracer, "program", 0);
}

void tracing_tick(struct agent *agent)
{
    struct tracer *next;

    for (struct tracer *tracer = agent->governor->tracers; tracer; tracer = next) {
        next = tracer->next;
        if (uv_now(&agent->loop) >= tracer->until_ms)
            tracing_answer(agent, tracer, "silence", 0);
    }
}

void tracing_finish(struct agent *agent)
{
    while (agent->governor->tracers)
        tracing_drop(agent, agent->governor->tracers);
}
