#include "state/command/parts.h"

#include <stdlib.h>

#include "state/command/command.h"
#include "state/command/watch.h"
#include "state/object/lost.h"

/* Of every command of parts that there is: one event and one queue each. */
static _Atomic size_t part_count;

struct parts *parts_create(unsigned count)
{
    struct parts *parts = calloc(1, sizeof(*parts) + count * sizeof(parts->of[0]));
    if (!parts)
        return NULL;
    atomic_init(&parts->refs, 1);
    parts->count = parts->left = count;
    for (unsigned i = 0; i < count; i++) {
        parts->of[i].all = parts;
        atomic_init(&parts->of[i].status, CL_SUBMITTED);
    }
    atomic_fetch_add(&part_count, count);
    return parts;
}

static void parts_unref(struct parts *parts)
{
    if (atomic_fetch_sub_explicit(&parts->refs, 1, memory_order_acq_rel) != 1)
        return;
    atomic_fetch_sub(&part_count, parts->count);
    free(parts);
}

size_t parts_real_count(void)
{
    return 2 * atomic_load(&part_count);
}

cl_int part_issue(struct part *part, struct context *context, uint8_t place, bool profiled,
                  cl_int (*issue)(void *data, struct residence *residence, uint8_t place,
                                  cl_command_queue queue, cl_event *ret_event),
                  void *data)
{
    struct residence *residence = context->at[place];
    cl_int error = CL_SUCCESS;
    part->place = place;
    part->queue =
        residence->cl->clCreateCommandQueue(residence->context, residence->device->id,
                                            profiled ? CL_QUEUE_PROFILING_ENABLE : 0, &error);
    if (part->queue)
        error = issue(data, residence, place, part->queue, &part->real);
    if (error == CL_SUCCESS) {
        residence_flush(residence, part->queue);
        return CL_SUCCESS;
    }
    part->real = NULL;
    atomic_store(&part->status, error);
    part->all->left--; /* nobody else has them yet */
    return error;
}

void parts_release(struct parts *parts, const struct context *context)
{
    for (unsigned i = 0; i < parts->count; i++) {
        struct part *part = &parts->of[i];
        /* A place that was left may be a mover's by now: looked at only for what is still there. */
        if (part->real)
            context->at[part->place]->cl->clReleaseEvent(part->real);
        if (part->queue)
            context->at[part->place]->cl->clReleaseCommandQueue(part->queue);
        part->real = NULL;
        part->queue = NULL;
    }
}

void parts_leave(struct parts *parts)
{
    pthread_mutex_lock(&engine_lock);
    parts->event = NULL;
    pthread_mutex_unlock(&engine_lock);
    parts_unref(parts);
}

void event_issued_in_parts(struct event *event, struct parts *parts)
{
    pthread_mutex_lock(&engine_lock);
    parts->event = event;
    event->parts = parts;
    atomic_store_explicit(&event->state, EVENT_ISSUED, memory_order_release);
    watch_advance(event, CL_SUBMITTED);
    pthread_cond_broadcast(&engine_changed);
    pthread_mutex_unlock(&engine_lock);
    watch_issued(event);
}

/* All have ended. */
static cl_int result(const struct parts *parts)
{
    cl_int status = CL_COMPLETE;
    for (unsigned i = parts->count; i-- > 0;)
        if (atomic_load(&parts->of[i].status) < CL_COMPLETE)
            status = atomic_load(&parts->of[i].status);
    return status;
}

/* Under engine_lock. */
static void part_reached(struct part *part, cl_int status)
{
    struct parts *parts = part->all;
    if (status <= CL_COMPLETE && atomic_load(&part->status) > CL_COMPLETE) {
        atomic_store(&part->status, status);
        parts->left--;
    }
    if (parts->event && parts->left == 0)
        watch_advance(parts->event, result(parts));
    else if (parts->event && status <= CL_RUNNING)
        watch_advance(parts->event, CL_RUNNING);
}

static void part_reaches(struct part *part, cl_int status)
{
    pthread_mutex_lock(&engine_lock);
    part_reached(part, status);
    pthread_mutex_unlock(&engine_lock);
}

/* A driver's thread: whatever it says, the part has ended. */
static void CL_CALLBACK part_has_ended(cl_event real, cl_int status, void *data)
{
    struct part *part = data;
    (void)real;
    /* With the release in parts_ask: how a driver hands it over is not ours to see. */
    (void)atomic_load_explicit(&part->all->refs, memory_order_acquire);
    part_reaches(part, status < CL_COMPLETE ? status : CL_COMPLETE);
    parts_unref(part->all);
}

static bool runs(const struct part *part)
{
    return part->real && atomic_load(&part->status) > CL_COMPLETE;
}

void parts_ask(struct event *event)
{
    struct parts *parts = event->parts;
    for (unsigned i = 0; i < parts->count; i++) {
        struct part *part = &parts->of[i];
        if (!runs(part))
            continue;
        atomic_fetch_add_explicit(&parts->refs, 1, memory_order_release);
        if (event->context->at[part->place]->cl->clSetEventCallback(
                part->real, CL_COMPLETE, part_has_ended, part) != CL_SUCCESS)
            /* Then we look. It is not the last: the event has one. */
            atomic_fetch_sub_explicit(&parts->refs, 1, memory_order_relaxed);
    }
}

uint8_t parts_place(const struct event *event)
{
    const struct parts *parts = event->parts;
    for (unsigned i = 0; i < parts->count; i++)
        if (runs(&parts->of[i]))
            return parts->of[i].place;
    return PLACE_NONE;
}

/* What the driver says of a part that runs, if it answers. Inside the gate. */
static cl_int ask_status(const struct event *event, const struct part *part)
{
    cl_int status;
    if (residence_is_lost(event->context->at[part->place]))
        return CL_OUT_OF_RESOURCES;
    cl_int error = event->context->at[part->place]->cl->clGetEventInfo(
        part->real, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL);
    return error == CL_SUCCESS ? status : CL_SUBMITTED;
}

cl_int parts_status(struct event *event)
{
    struct parts *parts = event->parts;
    for (unsigned i = 0; i < parts->count; i++) {
        struct part *part = &parts->of[i];
        cl_int status = runs(part) ? ask_status(event, part) : CL_SUBMITTED;
        if (status <= CL_RUNNING)
            part_reaches(part, status);
    }
    /* A part that was refused, or one that ended before anybody asked, has run. */
    cl_int reached = watch_reached(event);
    return reached < CL_SUBMITTED ? reached : CL_SUBMITTED;
}

void parts_wait(struct event *event)
{
    struct parts *parts = event->parts;
    for (unsigned i = 0; i < parts->count; i++) {
        struct part *part = &parts->of[i];
        struct residence *residence = NULL;
        gate_enter();
        cl_event real = part->real;
        if (runs(part)) {
            residence = event->context->at[part->place];
            residence_ref(residence); /* a mover retires the real event with it */
        }
        gate_leave();
        if (!residence)
            continue;
        cl_int status = residence_wait(residence, 1, &real);
        residence_unref(residence);
        gate_enter();
        if (status != CL_SUCCESS && part->real && ask_status(event, part) < CL_COMPLETE)
            status = ask_status(event, part);
        part_reaches(part, status);
        gate_leave();
    }
}

/* When it started and ended, since it was queued. 0 of what the driver does not say. */
static void ask_times(const struct residence *residence, const struct part *part,
                      cl_ulong *ret_start, cl_ulong *ret_end)
{
    static const cl_profiling_info names[] = {CL_PROFILING_COMMAND_QUEUED,
                                              CL_PROFILING_COMMAND_START, CL_PROFILING_COMMAND_END};
    cl_ulong times[ARRAY_SIZE(names)];
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (residence->cl->clGetEventProfilingInfo(part->real, names[i], sizeof(times[i]),
                                                   &times[i], NULL) != CL_SUCCESS)
            times[i] = 0;
    *ret_start = times[0] != 0 && times[1] > times[0] ? times[1] - times[0] : 0;
    *ret_end = times[0] != 0 && times[2] > times[0] ? times[2] - times[0] : 0;
    if (*ret_end < *ret_start)
        *ret_end = *ret_start;
}

cl_int parts_time(struct event *event, cl_profiling_info name, cl_ulong *ret_time)
{
    const struct parts *parts = event->parts;
    if (!atomic_load(&event->ended) || atomic_load(&event->status) != CL_COMPLETE)
        return CL_PROFILING_INFO_NOT_AVAILABLE;
    cl_ulong first = 0, last = 0;
    for (unsigned i = 0; i < parts->count; i++) {
        const struct part *part = &parts->of[i];
        cl_ulong start = part->start, end = part->end;
        if (part->real)
            ask_times(event->context->at[part->place], part, &start, &end);
        if (i == 0 || start < first)
            first = start;
        if (end > last)
            last = end;
    }
    const cl_ulong times[] = {parts->queued, parts->submit, parts->due + first, parts->due + last,
                              parts->due + last};
    *ret_time = times[name - CL_PROFILING_COMMAND_QUEUED];
    return CL_SUCCESS;
}

void parts_ended(struct event *event)
{
    struct parts *parts = event->parts;
    for (unsigned i = 0; i < parts->count; i++) {
        struct part *part = &parts->of[i];
        if (part->queue)
            event->context->at[part->place]->cl->clReleaseCommandQueue(part->queue);
        part->queue = NULL;
    }
}

void parts_drain(const struct context *context, uint8_t place)
{
    uintptr_t cursor = 0;
    struct event *event;
    while (parts_real_count() != 0 && (event = object_next(OBJECT_EVENT, &cursor))) {
        struct parts *parts =
            event->context == context && event_state(event) == EVENT_ISSUED ? event->parts : NULL;
        for (unsigned i = 0; parts && i < parts->count; i++)
            if (parts->of[i].place == place && runs(&parts->of[i]))
                (void)residence_wait(context->at[place], 1, &parts->of[i].real);
        object_unhold(event);
    }
}

bool parts_settle(struct event *event, struct residence *residence, uint8_t place)
{
    struct parts *parts = event->parts;
    bool gone = true;
    for (unsigned i = 0; i < parts->count; i++) {
        struct part *part = &parts->of[i];
        if (part->place != place) {
            gone = gone && !part->real;
            continue;
        }
        if (runs(part)) {
            cl_int status = ask_status(event, part);
            part_reaches(part, status < CL_COMPLETE ? status : CL_COMPLETE);
        }
        if (part->real && event->profiled)
            ask_times(residence, part, &part->start, &part->end);
        if (part->real)
            residence_retire(residence, OBJECT_EVENT, part->real, NULL);
        if (part->queue)
            residence_retire(residence, OBJECT_QUEUE, part->queue, NULL);
        part->real = NULL;
        part->queue = NULL;
    }
    return gone;
}
