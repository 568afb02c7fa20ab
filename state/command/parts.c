#include "state/command/parts.h"

#include <stdlib.h>

#include "state/base/clock.h"
#include "state/base/threads/fork.h"
#include "state/command/command.h"
#include "state/command/event.h"
#include "state/object/lost.h"

/* Number of driver objects of all commands of parts: one event and one queue for each part. */
static _Atomic size_t part_count;

/* Shorter times are dominated by the clock and by polling. */
#define MEASURE_LEAST_NS 20000u

struct parts *parts_create(unsigned count)
{
    struct parts *parts = calloc(1, sizeof(*parts) + count * sizeof(parts->of[0]));
    if (!parts)
        return NULL;
    atomic_init(&parts->refs, 1);
    pthread_mutex_init(&parts->lock, NULL);
    parts->count = parts->left = count;
    for (unsigned i = 0; i < count; i++) {
        parts->of[i].all = parts;
        atomic_init(&parts->of[i].status, CL_SUBMITTED);
    }
    atomic_fetch_add(&part_count, count);
    return parts;
}

struct parts *parts_create_open(unsigned count)
{
    struct parts *parts = parts_create(count);
    if (!parts)
        return NULL;
    for (unsigned i = 0; i < count; i++)
        atomic_init(&parts->of[i].status, CL_COMPLETE);
    parts->left = 0;
    parts->pieces = true;
    atomic_init(&parts->open, true);
    return parts;
}

static void parts_unref(struct parts *parts)
{
    if (atomic_fetch_sub_explicit(&parts->refs, 1, memory_order_acq_rel) != 1)
        return;
    atomic_fetch_sub(&part_count, parts->count);
    pthread_mutex_destroy(&parts->lock);
    free(parts);
}

size_t parts_real_count(void)
{
    return 2 * atomic_load(&part_count);
}

cl_int part_issue(struct part *part, struct context *context, uint8_t residence_index,
                  bool profiled,
                  cl_int (*issue)(void *data, struct residence *residence, uint8_t residence_index,
                                  cl_command_queue queue, cl_event *ret_event),
                  void *data)
{
    struct residence *residence = context->at[residence_index];
    cl_int error = CL_SUCCESS;
    part->residence_index = residence_index;
    part->queue =
        residence->cl->clCreateCommandQueue(residence->context, residence->device->id,
                                            profiled ? CL_QUEUE_PROFILING_ENABLE : 0, &error);
    if (part->queue)
        error = issue(data, residence, residence_index, part->queue, &part->real);
    if (error == CL_SUCCESS) {
        residence_flush(residence, part->queue);
        return CL_SUCCESS;
    }
    part->real = NULL;
    atomic_store(&part->status, error);
    part->all->left--; /* not visible to other threads yet */
    return error;
}

void parts_release(struct parts *parts, const struct context *context)
{
    for (unsigned i = 0; i < parts->count; i++) {
        struct part *part = &parts->of[i];
        /* A residence index may have been reused by a mover: use it only while the part has objects
         * there. */
        if (part->real)
            context->at[part->residence_index]->cl->clReleaseEvent(part->real);
        if (part->queue)
            context->at[part->residence_index]->cl->clReleaseCommandQueue(part->queue);
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

/* True when pieces may still be given, or helpers have groups. With engine_lock. */
static bool parts_goes_on(const struct parts *parts)
{
    return atomic_load(&parts->open) || parts->sharers != 0;
}

/* The result when all parts have ended. */
static cl_int parts_result(const struct parts *parts)
{
    cl_int status = parts->failed ? parts->error : CL_COMPLETE;
    for (unsigned i = parts->count; !parts->pieces && i-- > 0;)
        if (atomic_load(&parts->of[i].status) < CL_COMPLETE)
            status = atomic_load(&parts->of[i].status);
    return status;
}

/* With engine_lock. After a failed piece no more are given, since the launch has failed. */
static void parts_piece_failed(struct parts *parts, uint64_t serial, cl_int error)
{
    if (parts->failed == 0 || serial < parts->failed) {
        parts->failed = serial;
        parts->error = error;
    }
    atomic_store(&parts->open, false);
}

/* With engine_lock. While two pieces are with the driver, the time counts from the end of one to
 * the end of the next. */
static void parts_piece_ended(struct part *part, cl_int status)
{
    struct parts *parts = part->all;
    uint64_t now = clock_now_ns();
    uint64_t since = part->given > parts->ended ? part->given : parts->ended;
    parts->items += part->items;
    parts->ns += now > since ? now - since : 0;
    parts->ended = now;
    if (status < CL_COMPLETE)
        parts_piece_failed(parts, part->serial, status);
}

/* With engine_lock. */
static void parts_reach(struct parts *parts, bool running)
{
    if (parts->event && parts->left == 0 && parts->sharers == 0 && !atomic_load(&parts->open))
        watch_advance(parts->event, parts_result(parts));
    else if (parts->event && running)
        watch_advance(parts->event, CL_RUNNING);
    pthread_cond_broadcast(&engine_changed);
}

/* With engine_lock. */
static void parts_part_reached(struct part *part, uint64_t serial, cl_int status)
{
    struct parts *parts = part->all;
    if (part->serial != serial)
        return; /* a report about a former piece */
    /* Of a protected program: its device may be lost, and then the piece is given again. Else it is
     * asked again. */
    if (status < CL_COMPLETE && parts->pieces && parts->event &&
        !event_stands(parts->event, status))
        return;
    if (status <= CL_COMPLETE && atomic_load(&part->status) > CL_COMPLETE) {
        atomic_store(&part->status, status);
        parts->left--;
        if (parts->pieces)
            parts_piece_ended(part, status);
        if (parts->pieces && parts->event)
            defer_pump_soon(); /* gives the next piece */
    }
    parts_reach(parts, status <= CL_RUNNING);
}

static void parts_part_reaches(struct part *part, uint64_t serial, cl_int status)
{
    pthread_mutex_lock(&engine_lock);
    parts_part_reached(part, serial, status);
    pthread_mutex_unlock(&engine_lock);
}

/* A report that a driver was asked for, about one part. */
struct report {
    struct part *part;
    uint64_t serial;
    const cl_icd_dispatch *asks; /* event_reported_end */
};

/* Callback in a driver's thread: whatever the status, the part has ended. */
static void CL_CALLBACK parts_part_has_ended(cl_event real, cl_int status, void *data)
{
    struct report *report = data;
    struct parts *parts = report->part->all;
    /* Pairs with the release in ask: ThreadSanitizer cannot see how the driver passes the pointer.
     */
    (void)atomic_load_explicit(&parts->refs, memory_order_acquire);
    parts_part_reaches(report->part, report->serial,
                       event_reported_end(report->asks, real, status));
    free(report);
    parts_unref(parts);
}

static bool parts_runs(const struct part *part)
{
    return part->real && atomic_load(&part->status) > CL_COMPLETE;
}

/* Ask the driver to report its end; polling finds what is not reported. Inside the gate; the event
 * keeps the parts alive. */
static void parts_ask_one(const struct event *event, struct part *part)
{
    struct report *report = malloc(sizeof(*report));
    if (!report)
        return;
    const struct residence *residence = event->context->at[part->residence_index];
    *report = (struct report){part, part->serial, event_asks_in_callback(residence)};
    atomic_fetch_add_explicit(&part->all->refs, 1, memory_order_release);
    if (residence->cl->clSetEventCallback(part->real, CL_COMPLETE, parts_part_has_ended, report) ==
        CL_SUCCESS)
        return;
    atomic_fetch_sub_explicit(&part->all->refs, 1, memory_order_relaxed);
    free(report);
}

/* Pieces are asked about when they are given. */
void parts_ask(struct event *event)
{
    struct parts *parts = event->parts;
    for (unsigned i = 0; !parts->pieces && i < parts->count; i++)
        if (parts_runs(&parts->of[i]))
            parts_ask_one(event, &parts->of[i]);
}

uint8_t parts_residence_index(const struct event *event)
{
    struct parts *parts = event->parts;
    uint8_t residence_index = RESIDENCE_NONE;
    pthread_mutex_lock(&parts->lock);
    for (unsigned i = 0; i < parts->count && residence_index == RESIDENCE_NONE; i++)
        if (parts_runs(&parts->of[i]))
            residence_index = parts->of[i].residence_index;
    pthread_mutex_unlock(&parts->lock);
    return residence_index;
}

/* The driver's status of a part that runs, if it answers. Inside the gate. */
static cl_int parts_ask_status(const struct event *event, const struct part *part)
{
    cl_int status;
    if (residence_is_lost(event->context->at[part->residence_index]))
        return CL_OUT_OF_RESOURCES;
    cl_int error = event->context->at[part->residence_index]->cl->clGetEventInfo(
        part->real, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL);
    return error == CL_SUCCESS ? status : CL_SUBMITTED;
}

uint8_t parts_failing(const struct event *event)
{
    struct parts *parts = event->parts;
    uint8_t residence_index = RESIDENCE_NONE;
    pthread_mutex_lock(&parts->lock);
    for (unsigned i = 0; i < parts->count && residence_index == RESIDENCE_NONE; i++)
        if (parts_runs(&parts->of[i]) && parts_ask_status(event, &parts->of[i]) < CL_COMPLETE)
            residence_index = parts->of[i].residence_index;
    pthread_mutex_unlock(&parts->lock);
    return residence_index;
}

cl_int parts_status(struct event *event)
{
    struct parts *parts = event->parts;
    for (unsigned i = 0; i < parts->count; i++) {
        struct part *part = &parts->of[i];
        pthread_mutex_lock(&parts->lock);
        uint64_t serial = part->serial;
        cl_int status = parts_runs(part) ? parts_ask_status(event, part) : CL_SUBMITTED;
        pthread_mutex_unlock(&parts->lock);
        if (status <= CL_RUNNING)
            parts_part_reaches(part, serial, status);
    }
    /* The parts were given to drivers, so the command is CL_SUBMITTED at least, even if nobody
     * noted how far they are. */
    cl_int reached = watch_reached(event);
    return reached < CL_SUBMITTED ? reached : CL_SUBMITTED;
}

/* A running part, with references for the wait: another piece may take its place meanwhile. */
struct awaited {
    struct residence *residence;
    cl_event real;
    uint64_t serial;
};

/* Inside the gate. */
static bool parts_keep(const struct event *event, struct part *part, struct awaited *ret_awaited)
{
    pthread_mutex_lock(&part->all->lock);
    bool any = parts_runs(part);
    if (any) {
        *ret_awaited =
            (struct awaited){event->context->at[part->residence_index], part->real, part->serial};
        residence_ref(
            ret_awaited->residence); /* a mover retires the real event in this residence */
        (void)ret_awaited->residence->cl->clRetainEvent(part->real);
    }
    pthread_mutex_unlock(&part->all->lock);
    return any;
}

/* Wait for a part. Returns whether it ran. */
static bool parts_wait_for_part(struct event *event, struct part *part)
{
    struct awaited awaited;
    gate_enter();
    bool any = parts_keep(event, part, &awaited);
    gate_leave();
    if (!any)
        return false;
    cl_int status = residence_wait(awaited.residence, 1, &awaited.real);
    if (UNLIKELY(status != CL_SUCCESS) && residence_outlives(awaited.residence, status)) {
        awaited.residence->cl->clReleaseEvent(awaited.real);
        residence_unref(awaited.residence);
        return true;
    }
    gate_enter();
    pthread_mutex_lock(&part->all->lock);
    bool is_there = part->real == awaited.real && part->serial == awaited.serial;
    if (status != CL_SUCCESS && is_there && parts_ask_status(event, part) < CL_COMPLETE)
        status = parts_ask_status(event, part);
    pthread_mutex_unlock(&part->all->lock);
    parts_part_reaches(part, awaited.serial, status);
    gate_leave();
    awaited.residence->cl->clReleaseEvent(awaited.real);
    residence_unref(awaited.residence);
    return true;
}

static void parts_unlock_engine(void *unused)
{
    (void)unused;
    pthread_mutex_unlock(&engine_lock);
}

/* Wait until a piece after @serial was given, or lost ones were given again, or no more will come:
 * the program may be moving or suspended. */
static void parts_wait_for_more(const struct parts *parts, uint64_t serial)
{
    pthread_mutex_lock(&engine_lock);
    pthread_cleanup_push(parts_unlock_engine, NULL);
    while (parts->lost != 0 ||
           (parts_goes_on(parts) && parts->serial == serial && parts->left == 0))
        defer_await_change();
    pthread_cleanup_pop(1);
}

void parts_wait(struct event *event)
{
    struct parts *parts = event->parts;
    bool more;
    do {
        bool any = false;
        pthread_mutex_lock(&engine_lock);
        more = parts_goes_on(parts) || parts->lost != 0;
        uint64_t serial = parts->serial;
        pthread_mutex_unlock(&engine_lock);
        for (unsigned i = 0; i < parts->count; i++)
            any = parts_wait_for_part(event, &parts->of[i]) || any;
        if (more)
            defer_pump();
        if (more && !any)
            parts_wait_for_more(parts, serial);
        /* A doubt that is left when the program is not protected any more leads nowhere. */
    } while (more || (event_is_doubted(event) && !event_has_ended(event)));
}

/* Start and end times since it was queued; 0 if the driver does not tell. */
static void parts_ask_times(const struct residence *residence, const struct part *part,
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

/* In the program's clock. What the driver does not tell is a guess that may come too late. */
static cl_ulong parts_piece_time(struct event *event, const struct part *part,
                                 cl_profiling_info name)
{
    cl_ulong time;
    if (event_real_time(event, part->residence_index, part->real, name, &time) == CL_SUCCESS &&
        time != 0)
        return time;
    return device_clock_guess(&event->queue->vdev->clock);
}

/* Save the times of a piece that has ended, once, as guesses differ. With the parts' lock, or by a
 * mover. */
static void parts_piece_leave_times(struct event *event, struct part *part)
{
    struct parts *parts = part->all;
    if (!event->profiled || part->timed || atomic_load(&part->status) < CL_COMPLETE)
        return;
    part->timed = true;
    cl_ulong start = parts_piece_time(event, part, CL_PROFILING_COMMAND_START);
    cl_ulong end = parts_piece_time(event, part, CL_PROFILING_COMMAND_END);
    cl_ulong queued = parts_piece_time(event, part, CL_PROFILING_COMMAND_QUEUED);
    cl_ulong submit = parts_piece_time(event, part, CL_PROFILING_COMMAND_SUBMIT);
    end = end < start ? start : end;
    submit = submit > start ? start : submit;
    queued = queued > submit ? submit : queued;
    queued -= queued > event->times[0] ? event->times[0] : 0; /* it was deferred that long */
    if (parts->queued == 0 || queued < parts->queued)
        parts->queued = queued;
    if (parts->submit == 0 || submit < parts->submit)
        parts->submit = submit;
    if (parts->start == 0 || start < parts->start)
        parts->start = start;
    if (end > parts->end)
        parts->end = end;
}

struct part *parts_vacant(struct event *event, struct parts *parts)
{
    struct part *vacant = NULL;
    pthread_mutex_lock(&parts->lock);
    /* Save times in the order in which the pieces were given, which is the order of their ends. */
    for (unsigned i = 0; i < parts->count; i++)
        if (atomic_load(&parts->of[i].status) <= CL_COMPLETE &&
            (!vacant || parts->of[i].serial < vacant->serial))
            vacant = &parts->of[i];
    if (vacant && vacant->real) {
        parts_piece_leave_times(event, vacant);
        event->context->at[vacant->residence_index]->cl->clReleaseEvent(vacant->real);
        vacant->real = NULL;
    }
    pthread_mutex_unlock(&parts->lock);
    return vacant;
}

static bool parts_runs_beside(const struct residence *residence)
{
    return (devinfo_scalar(&residence->device->info, CL_DEVICE_TYPE, 0) & CL_DEVICE_TYPE_GPU) &&
           !residence->runs_in_caller;
}

cl_command_queue parts_queue(struct event *event, struct part *part, struct residence *residence,
                             uint8_t residence_index)
{
    struct parts *parts = part->all;
    cl_int error;
    if (!parts_runs_beside(residence))
        return NULL;
    pthread_mutex_lock(&engine_lock);
    bool begun = parts->ended != 0;
    pthread_mutex_unlock(&engine_lock);
    pthread_mutex_lock(&parts->lock);
    if (begun && !part->queue) {
        part->residence_index = residence_index;
        part->queue = residence->cl->clCreateCommandQueue(
            residence->context, residence->device->id,
            event->profiled ? CL_QUEUE_PROFILING_ENABLE : 0, &error);
    }
    cl_command_queue queue = begun ? part->queue : NULL;
    pthread_mutex_unlock(&parts->lock);
    return queue;
}

void parts_give(struct event *event, struct part *part, uint8_t residence_index, cl_event real,
                uint64_t given, uint64_t items)
{
    struct parts *parts = part->all;
    pthread_mutex_lock(&parts->lock);
    pthread_mutex_lock(&engine_lock);
    part->residence_index = residence_index;
    part->real = real;
    part->timed = false;
    part->serial = ++parts->serial;
    part->given = given;
    part->items = items;
    atomic_store(&part->status, CL_SUBMITTED);
    parts->left++;
    pthread_cond_broadcast(&engine_changed);
    pthread_mutex_unlock(&engine_lock);
    parts_ask_one(event, part);
    pthread_mutex_unlock(&parts->lock);
}

void parts_close(struct parts *parts, cl_int error)
{
    pthread_mutex_lock(&engine_lock);
    if (error != CL_SUCCESS)
        parts_piece_failed(parts, parts->serial + 1, error);
    atomic_store(&parts->open, false);
    parts_reach(parts, false);
    pthread_mutex_unlock(&engine_lock);
}

void parts_share(struct parts *parts)
{
    parts->sharers++;
}

void parts_unshare(struct event *event)
{
    struct parts *parts = event->parts;
    pthread_mutex_lock(&parts->lock);
    if (event->profiled) {
        cl_ulong now = device_clock_guess(&event->queue->vdev->clock);
        parts->end = now > parts->end ? now : parts->end;
    }
    pthread_mutex_lock(&engine_lock);
    parts->sharers--;
    parts_reach(parts, false);
    pthread_mutex_unlock(&engine_lock);
    pthread_mutex_unlock(&parts->lock);
}

bool parts_measure(struct parts *parts, uint64_t *ret_items, uint64_t *ret_ns)
{
    pthread_mutex_lock(&engine_lock);
    bool measured = parts->items != 0 && parts->ns >= MEASURE_LEAST_NS;
    if (measured) {
        *ret_items = parts->items;
        *ret_ns = parts->ns;
        parts->items = parts->ns = 0;
    }
    pthread_mutex_unlock(&engine_lock);
    return measured;
}

/* The error with which a device that may be lost answers when it is asked for @part's times. */
static cl_int parts_piece_doubt(struct event *event, const struct part *part)
{
    cl_ulong time;
    cl_int error = part->timed ? CL_SUCCESS
                               : event_real_time(event, part->residence_index, part->real,
                                                 CL_PROFILING_COMMAND_END, &time);
    return lost_may_say(error) ? error : CL_SUCCESS;
}

/* The program's time of the first piece's start and of the last piece's end. */
static cl_int parts_pieces_time(struct event *event, cl_profiling_info name, cl_ulong *ret_time)
{
    struct parts *parts = event->parts;
    cl_int error = CL_SUCCESS;
    pthread_mutex_lock(&parts->lock);
    for (unsigned i = 0; i < parts->count && error == CL_SUCCESS; i++)
        if (parts->of[i].real && (error = parts_piece_doubt(event, &parts->of[i])) == CL_SUCCESS)
            parts_piece_leave_times(event, &parts->of[i]);
    const cl_ulong times[] = {parts->queued, parts->submit, parts->start, parts->end, parts->end};
    pthread_mutex_unlock(&parts->lock);
    if (error == CL_SUCCESS)
        *ret_time = times[name - CL_PROFILING_COMMAND_QUEUED];
    return error;
}

cl_ulong parts_start_so_far(const struct event *event)
{
    struct parts *parts = event->parts;
    pthread_mutex_lock(&parts->lock);
    cl_ulong start = parts->pieces ? parts->start : 0;
    pthread_mutex_unlock(&parts->lock);
    return start;
}

cl_int parts_time(struct event *event, cl_profiling_info name, cl_ulong *ret_time)
{
    const struct parts *parts = event->parts;
    if (!atomic_load(&event->ended) || atomic_load(&event->status) != CL_COMPLETE)
        return CL_PROFILING_INFO_NOT_AVAILABLE;
    if (parts->pieces)
        return parts_pieces_time(event, name, ret_time);
    cl_ulong first = 0, last = 0;
    for (unsigned i = 0; i < parts->count; i++) {
        const struct part *part = &parts->of[i];
        cl_ulong start = part->start, end = part->end;
        if (part->real)
            parts_ask_times(event->context->at[part->residence_index], part, &start, &end);
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
            event->context->at[part->residence_index]->cl->clReleaseCommandQueue(part->queue);
        part->queue = NULL;
    }
}

void parts_drain(const struct context *context, uint8_t residence_index)
{
    uintptr_t cursor = 0;
    struct event *event;
    while (parts_real_count() != 0 && (event = object_next(OBJECT_EVENT, &cursor))) {
        struct parts *parts =
            event->context == context && event_state(event) == EVENT_ISSUED ? event->parts : NULL;
        for (unsigned i = 0; parts && i < parts->count; i++)
            if (parts->of[i].residence_index == residence_index && parts_runs(&parts->of[i]))
                (void)residence_wait(context->at[residence_index], 1, &parts->of[i].real);
        object_unhold(event);
    }
}

void parts_each_beside(void (*visit)(void *data, const struct event *event, uint8_t residence_index,
                                     cl_event real),
                       void *data)
{
    uintptr_t cursor = 0;
    struct event *event;
    while (parts_real_count() != 0 && (event = object_next(OBJECT_EVENT, &cursor))) {
        struct parts *parts = event_state(event) == EVENT_ISSUED ? event->parts : NULL;
        for (unsigned i = 0; parts && i < parts->count; i++)
            if (parts->of[i].queue && parts_runs(&parts->of[i]))
                visit(data, event, parts->of[i].residence_index, parts->of[i].real);
        object_unhold(event);
    }
}

/* It runs on a lost device, whose driver may still report its end: to nobody. */
static void parts_lose(struct part *part)
{
    pthread_mutex_lock(&engine_lock);
    if (atomic_load(&part->status) > CL_COMPLETE) {
        part->all->lost++;
        part->serial = 0;
    }
    pthread_mutex_unlock(&engine_lock);
}

/* Something of the launch ended at @time, of which nothing else is known. */
static void parts_ended_at(struct parts *parts, cl_ulong time)
{
    parts->end = time > parts->end ? time : parts->end;
    parts->start = parts->start != 0 ? parts->start : time;
    parts->submit = parts->submit != 0 ? parts->submit : parts->start;
    parts->queued = parts->queued != 0 ? parts->queued : parts->submit;
}

/* @residence is left. A lost device does not tell the times of its last pieces. */
static void parts_piece_settle_times(struct event *event, struct part *part,
                                     const struct residence *residence)
{
    struct parts *parts = part->all;
    if (!residence_is_lost(residence))
        parts_piece_leave_times(event, part);
    else if (event->profiled && !part->timed)
        parts_ended_at(parts, event_lost_time(event));
}

bool parts_settle(struct event *event, struct residence *residence, uint8_t residence_index,
                  bool recovers)
{
    struct parts *parts = event->parts;
    bool gone = !parts_goes_on(parts); /* only movers use helpers */
    for (unsigned i = 0; i < parts->count; i++) {
        struct part *part = &parts->of[i];
        if (part->residence_index != residence_index) {
            gone = gone && !part->real;
            continue;
        }
        if (parts_runs(part) && recovers && parts->pieces) {
            parts_lose(part);
        } else if (parts_runs(part)) {
            cl_int status = parts_ask_status(event, part);
            parts_part_reaches(part, part->serial, status < CL_COMPLETE ? status : CL_COMPLETE);
        }
        if (part->real && parts->pieces)
            parts_piece_settle_times(event, part, residence);
        else if (part->real && event->profiled)
            parts_ask_times(residence, part, &part->start, &part->end);
        if (part->real)
            residence_retire(residence, OBJECT_EVENT, part->real, NULL);
        if (part->queue)
            residence_retire(residence, OBJECT_QUEUE, part->queue, NULL);
        part->real = NULL;
        part->queue = NULL;
    }
    return gone && parts->lost == 0;
}

void parts_end_lost(struct event *event, cl_int status)
{
    struct parts *parts = event->parts;
    pthread_mutex_lock(&engine_lock);
    bool any = parts->lost != 0;
    for (unsigned i = 0; any && i < parts->count; i++)
        if (!parts->of[i].real && atomic_load(&parts->of[i].status) > CL_COMPLETE) {
            atomic_store(&parts->of[i].status, status);
            parts->left--;
        }
    parts->lost = 0;
    if (any && status < CL_COMPLETE)
        parts_piece_failed(parts, parts->serial, status);
    if (any && event->profiled)
        parts_ended_at(parts, device_clock_guess(&event->queue->vdev->clock));
    if (any)
        event_trust(event);
    if (any)
        parts_reach(parts, true);
    pthread_mutex_unlock(&engine_lock);
}

bool parts_note_ends(struct event *event)
{
    struct parts *parts = event->parts;
    for (unsigned i = 0; i < parts->count; i++) {
        struct part *part = &parts->of[i];
        /* A driver may report the end of a command later than its own wait for it returned. */
        if (parts_runs(part) &&
            residence_wait(event->context->at[part->residence_index], 1, &part->real) == CL_SUCCESS)
            parts_part_reaches(part, part->serial, CL_COMPLETE);
    }
    (void)parts_status(event);
    pthread_mutex_lock(&engine_lock);
    bool ended = parts->left == 0;
    pthread_mutex_unlock(&engine_lock);
    return ended;
}

/* The threads that held the lock, and those of helpers, do not exist in the child. The queue does,
 * and lets events end in its order. */
static void parts_in_child(void)
{
    uintptr_t cursor = 0;
    struct event *event;
    for (; (event = object_next(OBJECT_EVENT, &cursor)); object_unhold(event))
        if (event->parts) {
            pthread_mutex_init(&event->parts->lock, NULL);
            event->parts->sharers = event->parts->held;
        }
}

FORK_PART = {.rank = FORK_TABLE, .in_child = parts_in_child};
