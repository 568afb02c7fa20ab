#include "state/command/traced.h"

#include <stdio.h>
#include <stdlib.h>

#include "state/base/span.h"
#include "state/base/threads/work.h"
#include "state/memory/device_tool.h"
#include "state/program/pace.h"

/* A launch whose end the driver was asked to report. */
struct running {
    const cl_icd_dispatch *cl;
    cl_event event; /* ours */
    uint64_t issued_ns;
    uint32_t queue;
    uint32_t share; /* for a piece: its share of the launch, in millionths; else 0 */
    char name[SPAN_NAME];
};

static void CL_CALLBACK traced_ended(cl_event event, cl_int status, void *data)
{
    struct running *running = data;
    uint64_t now = clock_now_ns();
    (void)event;
    /* When the process exits the span is not needed, and the driver must not be called. */
    if (work_begin()) {
        uint64_t ran = device_event_ns(running->cl, running->event);
        bool piece = running->share != 0;
        struct span span = {.category = piece ? "piece" : "kernel",
                            .begin_ns = running->issued_ns,
                            .end_ns = now,
                            .track = SPAN_QUEUE,
                            .of = running->queue,
                            .key = status < 0 ? "error"
                                   : piece    ? "share_ppm"
                                              : "device_ns",
                            .value = status < 0 ? (uint64_t)-status
                                     : piece    ? running->share
                                                : ran};
        if (ran != 0 && now - ran > span.begin_ns)
            span.begin_ns = now - ran;
        (void)!snprintf(span.name, sizeof(span.name), "%s", running->name);
        span_put(&span);
        running->cl->clReleaseEvent(running->event);
    }
    work_end();
    free(running);
}

/* A queue's number in a picture: its slot. */
static uint32_t traced_number_of(const struct queue *queue)
{
    return (uint32_t)(((uintptr_t)queue - object_base) >> 4);
}

/* Room for a kernel's name in a span's name, beside two numbers. */
#define PIECE_NAME_MAX 24

/* At least 1, since 0 means none. */
static uint32_t traced_share_of(const struct pieces *piece)
{
    double share = 1e6 * (double)piece->count / (double)piece->groups;
    return share < 1 ? 1 : (uint32_t)share;
}

void traced_launch(uint64_t issued_ns, cl_event event, const struct residence *residence,
                   const struct queue *queue, const char *kernel, const struct pieces *piece)
{
    struct running *running = calloc(1, sizeof(*running));
    if (!running)
        return;
    *running = (struct running){.cl = residence->cl,
                                .event = event,
                                .issued_ns = issued_ns,
                                .queue = traced_number_of(queue)};
    (void)!snprintf(running->name, sizeof(running->name), "%s", kernel);
    if (piece) {
        running->share = traced_share_of(piece);
        (void)!snprintf(running->name, sizeof(running->name), "%.*s, groups %zu to %zu",
                        PIECE_NAME_MAX, kernel, piece->at, piece->at + piece->count - 1);
    }
    running->cl->clRetainEvent(event);
    if (running->cl->clSetEventCallback(event, CL_COMPLETE, traced_ended, running) == CL_SUCCESS)
        return;
    running->cl->clReleaseEvent(event);
    free(running);
}

void traced_pieces(const struct queue *queue, const struct pieces *pieces)
{
    if (LIKELY(pieces->traced == 0))
        return;
    struct span span = {.category = "launch",
                        .begin_ns = pieces->traced,
                        .end_ns = clock_now_ns(),
                        .track = SPAN_LAUNCH,
                        .of = traced_number_of(queue),
                        .key = "pieces",
                        .value = pieces->given};
    (void)!snprintf(span.name, sizeof(span.name), "%s", pieces->pace->name);
    span_put(&span);
}
