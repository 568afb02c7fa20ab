#include "interpose/control/control_priv.h"

#include "agent/protocol/common_messages.h"
#include "agent/protocol/program_messages.h"

/* The engine's ring holds the spans of a few turns. */
#define TURN_MS    20
#define FRAME_MAX  256
#define FRAMES_MAX 16

/* Used by the control thread only; no lock. */
static struct {
    bool on, ends;
    uint64_t deadline_ns; /* CLOCK_MONOTONIC */
} trace;

void control_trace_take(const msgpack_object *map)
{
    struct trace_request asked;

    take_trace(map, &asked);
    if (!asked.on) {
        trace.ends = true;
        return;
    }
    trace.on = true;
    trace.deadline_ns = asked.deadline_ns;
    trace.ends = span_start() != 0;
}

unsigned control_trace_ms(void)
{
    return trace.on ? TURN_MS : 0;
}

/* Returns whether more spans may be waiting. */
static bool control_trace_put_spans(struct frame *frame)
{
    static struct span spans[FRAME_MAX];
    size_t count = span_take(spans, FRAME_MAX);
    frame_init(frame, MSG_SPANS);
    frame_array(frame, "spans");
    for (size_t i = 0; i < count; i++) {
        frame_map(frame, NULL);
        put_span(frame, &spans[i]);
        frame_end(frame);
    }
    frame_end(frame);
    return count == FRAME_MAX;
}

void control_trace_serve(void *data, void (*send)(void *data, struct frame *frame))
{
    bool ends = trace.on && (trace.ends || clock_now_ns() >= trace.deadline_ns);
    bool more = trace.on;
    struct frame frame;
    if (ends)
        span_stop();
    for (int i = 0; more && i < FRAMES_MAX; i++) {
        more = control_trace_put_spans(&frame);
        if (ends && !more) {
            frame_bool(&frame, "end", true);
            frame_u64(&frame, "lost", span_lost());
            trace.on = false;
        }
        send(data, &frame);
    }
}

void control_trace_drop(void)
{
    span_stop();
    trace.on = false;
}
