#include "state/command/event.h"

#include <stdlib.h>

#include "state/base/threads/callback.h"
#include "state/base/threads/fork.h"
#include "state/command/journal.h"
#include "state/command/parts.h"
#include "state/object/lost.h"
#include "state/object/upcalls.h"

struct event *event_create(struct context *context, struct queue *queue, cl_command_type type)
{
    struct event *event = object_create(OBJECT_EVENT);
    if (!event)
        return NULL;
    event->context = context;
    event->queue = queue;
    event->type = type;
    event->user = queue == NULL;
    event->profiled = queue && (queue->properties & CL_QUEUE_PROFILING_ENABLE);
    atomic_init(&event->state, EVENT_DEFERRED);
    atomic_init(&event->status, queue ? CL_QUEUED : CL_SUBMITTED);
    object_hold(queue ? (void *)queue : (void *)context);
    return event;
}

void event_discard(struct event *event)
{
    if (!event)
        return;
    object_unhold(event->queue ? (void *)event->queue : (void *)event->context);
    object_discard(event);
}

static void event_leave(struct object *object)
{
    struct event *event = (struct event *)object;
    if (event->real)
        event->context->at[event->residence_index]->cl->clReleaseEvent(event->real);
    if (UNLIKELY(event->parts != NULL))
        parts_release(event->parts, event->context);
}

static void event_destroy(struct object *object)
{
    struct event *event = (struct event *)object;
    watch_leave(event);
    if (UNLIKELY(event->parts != NULL))
        parts_leave(event->parts);
    object_unhold(event->queue ? (void *)event->queue : (void *)event->context);
}

void event_issued(struct event *event, uint8_t residence_index, cl_event real)
{
    event->real = real;
    event->residence_index = residence_index;
    atomic_store_explicit(&event->doubt, 0, memory_order_relaxed);
    atomic_store_explicit(&event->seen, CL_QUEUED, memory_order_relaxed);
    atomic_store_explicit(&event->given, queue_order(event->queue), memory_order_relaxed);
    atomic_store_explicit(&event->state, EVENT_ISSUED, memory_order_release);
}

void event_issued_late(struct event *event, uint8_t residence_index, cl_event real)
{
    pthread_mutex_lock(&engine_lock);
    event_issued(event, residence_index, real);
    pthread_cond_broadcast(&engine_changed);
    pthread_mutex_unlock(&engine_lock);
    watch_issued(event);
}

/* DEFERRED or ISSUED becomes DONE; pending callbacks become due. */
static void event_set_done(struct event *event, cl_int status)
{
    pthread_mutex_lock(&engine_lock);
    if (atomic_load(&event->ended))
        status = atomic_load(&event->status); /* the status that the program may have seen */
    atomic_store(&event->status, status);
    atomic_store_explicit(&event->state, EVENT_DONE, memory_order_release);
    watch_advance(event, status);
    pthread_cond_broadcast(&engine_changed);
    pthread_mutex_unlock(&engine_lock);
}

void event_finish(struct event *event, cl_int status)
{
    event_set_done(event, status);
}

cl_int event_set_user_status(struct event *event, cl_int status)
{
    if (!event->user)
        return CL_INVALID_EVENT;
    if (status > CL_COMPLETE)
        return CL_INVALID_VALUE;
    /* 5.11: the status can be changed only once. */
    pthread_mutex_lock(&engine_lock);
    bool first =
        event_state(event) == EVENT_DEFERRED && atomic_load(&event->status) == CL_SUBMITTED;
    if (first)
        atomic_store(&event->status, status);
    pthread_mutex_unlock(&engine_lock);
    if (!first)
        return CL_INVALID_OPERATION;
    object_hold(event);
    event_set_done(event, status);
    defer_pump();
    object_unhold(event);
    return CL_SUCCESS;
}

bool event_real_status(const struct event *event, cl_int *ret_status)
{
    const struct residence *residence = event->context->at[event->residence_index];
    cl_int status;
    if (UNLIKELY(residence_is_lost(residence))) {
        *ret_status = queue_is_past(event->queue, event) ? CL_COMPLETE : CL_OUT_OF_RESOURCES;
        return true;
    }
    if (residence->cl->clGetEventInfo(event->real, CL_EVENT_COMMAND_EXECUTION_STATUS,
                                      sizeof(status), &status, NULL) != CL_SUCCESS)
        return false;
    /* A driver may report the end of a command later than its own wait for it returned. */
    *ret_status = status > CL_COMPLETE && queue_is_past(event->queue, event) ? CL_COMPLETE : status;
    return true;
}

cl_int event_reported_end(const cl_icd_dispatch *asks, cl_event real, cl_int status)
{
    cl_int own;
    if (status >= CL_COMPLETE && asks &&
        asks->clGetEventInfo(real, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(own), &own, NULL) ==
            CL_SUCCESS)
        status = own;
    return status < CL_COMPLETE ? status : CL_COMPLETE;
}

/* Once the program was told an error it stays, even if the driver's callback reports CL_COMPLETE
 * later. */
static cl_int event_keep_error(struct event *event, cl_int status)
{
    pthread_mutex_lock(&engine_lock);
    watch_advance(event, status);
    if (event_state(event) == EVENT_ISSUED && !atomic_load(&event->ended)) {
        atomic_store(&event->status, status);
        atomic_store(&event->ended, true);
    }
    status = atomic_load(&event->status);
    pthread_mutex_unlock(&engine_lock);
    return status;
}

/* Remember a status that the program was told, so that it stays even if the work is done again; for
 * a completed command also of the earlier ones in its in-order queue. */
static void event_note_seen(struct event *event, cl_int status)
{
    if (status < atomic_load(&event->seen))
        atomic_store(&event->seen, status);
    if (status == CL_COMPLETE && event->queue->in_order)
        queue_ended(event->queue, event->begun);
}

/* Checks the cause of an error on a thread that may wait for the device. */
enum doubt { DOUBT_NONE, DOUBT_ASKED, DOUBT_OVER };
struct doubt_job {
    struct callback_job job;
    struct event *event; /* held */
    cl_int status;
};

/* The residence whose driver reported an error that may be a loss, held; or NULL. Inside the gate.
 */
static struct residence *event_doubted_by(struct event *event)
{
    if (!event_is_doubted(event) || event_state(event) != EVENT_ISSUED)
        return NULL;
    uint8_t residence_index = event->parts ? parts_failing(event) : event->residence_index;
    if (residence_index == RESIDENCE_NONE)
        return NULL;
    struct residence *residence = event->context->at[residence_index];
    residence_ref(residence);
    return residence;
}

static void event_ask(struct callback_job *job)
{
    struct doubt_job *doubt = container_of(job, struct doubt_job, job);
    struct event *event = doubt->event;
    uint8_t asked = DOUBT_ASKED;
    gate_enter();
    struct residence *residence = event_doubted_by(event);
    gate_leave();
    if (residence && !residence_failed(residence, doubt->status)) {
        journal_break("a command ended in an error");
        atomic_store(&event->doubt, DOUBT_OVER);
    } else if (!residence) {
        /* The piece that failed was done again: the next error is one of another piece. */
        (void)atomic_compare_exchange_strong(&event->doubt, &asked, DOUBT_NONE);
    }
    residence_unref(residence);
    object_unhold(event);
    free(doubt);
}

bool event_stands(struct event *event, cl_int status)
{
    uint8_t none = DOUBT_NONE;
    if (journal_broken() || atomic_load(&event->doubt) == DOUBT_OVER)
        return true;
    if (!atomic_compare_exchange_strong(&event->doubt, &none, DOUBT_ASKED))
        return false;
    struct doubt_job *doubt = callback_start() == 0 ? malloc(sizeof(*doubt)) : NULL;
    if (!doubt) {
        atomic_store(&event->doubt, DOUBT_OVER);
        return true;
    }
    *doubt = (struct doubt_job){.job = {.run = event_ask}, .event = event, .status = status};
    object_hold(event);
    callback_post(&doubt->job);
    return false;
}

bool event_is_doubted(const struct event *event)
{
    return atomic_load(&event->doubt) == DOUBT_ASKED;
}

/* The last status that the program was told, by a query or by a callback. */
static cl_int event_told(const struct event *event)
{
    cl_int seen = atomic_load(&event->seen), reached = watch_reached(event);
    return reached < seen ? reached : seen;
}

cl_int event_status_inside(struct event *event)
{
    if (event_state(event) != EVENT_ISSUED || atomic_load(&event->ended))
        return atomic_load(&event->status);
    if (UNLIKELY(event->parts != NULL))
        return parts_status(event);
    /* A query may return less than a callback has reported. */
    cl_int status, reached = watch_reached(event);
    if (!event_real_status(event, &status))
        status = CL_OUT_OF_RESOURCES;
    if (UNLIKELY(status < 0))
        return event_stands(event, status) ? event_keep_error(event, status) : event_told(event);
    if (UNLIKELY(atomic_load_explicit(&journal_is_kept, memory_order_relaxed)))
        event_note_seen(event, reached < status ? reached : status);
    if (status == CL_COMPLETE) /* stays true even if the device is lost */
        atomic_store_explicit(&event->given, 0, memory_order_relaxed);
    return reached < status ? reached : status;
}

bool event_is_lost(struct event *event)
{
    gate_enter();
    struct residence *doubted = event_doubted_by(event);
    gate_leave();
    bool lost = doubted && residence_failed(doubted, CL_OUT_OF_RESOURCES);
    residence_unref(doubted);
    return lost;
}

cl_int event_status(struct event *event)
{
    for (;;) {
        gate_enter();
        cl_int status = event_status_inside(event);
        struct residence *doubted = event_doubted_by(event);
        gate_leave();
        if (LIKELY(!doubted))
            return status;
        /* A later command may have told the program that this one has ended; the recovery then
         * treats it as ended. */
        bool again = residence_outlives(doubted, CL_OUT_OF_RESOURCES);
        residence_unref(doubted);
        if (!again)
            return status;
    }
}

/* Events that a thread waits for in one driver. */
struct wait_batch {
    struct residence *residence;
    cl_uint count;
    cl_event *real;
};

/* Collect the ISSUED events of one residence, from *@at on. Inside the gate. The caller holds the
 * events, and the residence keeps what a mover retires, so the real events live until the wait
 * ends. */
static void event_collect(struct wait_batch *batch, cl_uint count, struct event *const *events,
                          cl_uint *at)
{
    batch->residence = NULL;
    batch->count = 0;
    for (; *at < count; ++*at) {
        struct event *event = events[*at];
        if (event_state(event) != EVENT_ISSUED || event->parts)
            continue;
        struct residence *residence = event->context->at[event->residence_index];
        if (batch->residence && batch->residence != residence)
            break;
        if (!batch->residence)
            residence_ref(residence);
        batch->residence = residence;
        batch->real[batch->count++] = event->real;
    }
}

/* Result of event_wait_batch: the device was lost, and the work was done again. */
#define WAIT_AGAIN 2

/* @events Those that the batch was collected from. */
static cl_int event_wait_batch(const struct wait_batch *batch, cl_uint count,
                               struct event *const *events)
{
    cl_int error = residence_wait(batch->residence, batch->count, batch->real);
    if (UNLIKELY(error != CL_SUCCESS) && residence_is_lost(batch->residence) &&
        the_upcalls->await_recovery(batch->residence))
        error = WAIT_AGAIN;
    for (cl_uint i = 0; error == CL_SUCCESS && i < count; i++)
        event_waited(events[i]);
    residence_unref(batch->residence);
    return error;
}

void event_waited(struct event *event)
{
    if (event_state(event) != EVENT_ISSUED || event->parts)
        return; /* its end is known already, or it was given up before it was given to a driver */
    atomic_store_explicit(&event->given, 0, memory_order_relaxed);
    if (event->queue->in_order)
        queue_ended(event->queue, event->begun);
}

/* What a thread that waits holds; it may be canceled. */
struct waiter {
    cl_uint count, held;
    struct event *const *events;
    cl_event on_stack[16], *real;
    cl_int result;
};

static void event_wait_ends(void *data)
{
    struct waiter *waiter = data;
    for (cl_uint i = 0; i < waiter->held; i++)
        object_unhold(waiter->events[i]);
    if (waiter->real != waiter->on_stack)
        free(waiter->real);
}

static void event_wait_for_all(struct waiter *waiter)
{
    struct wait_batch batch = {.real = waiter->real};
    for (cl_uint i = 0; i < waiter->count; i++) {
        object_hold(waiter->events[i]);
        waiter->held++;
        defer_wait_event(waiter->events[i]);
    }
    for (cl_uint at = 0, from; at < waiter->count;) {
        from = at;
        gate_enter();
        event_collect(&batch, waiter->count, waiter->events, &at);
        gate_leave();
        if (batch.count == 0)
            continue;
        cl_int error = event_wait_batch(&batch, at - from, waiter->events + from);
        if (error == WAIT_AGAIN) {
            for (cl_uint i = from; i < at; i++)
                defer_wait_event(waiter->events[i]);
            at = from;
        } else if (waiter->result == CL_SUCCESS) {
            waiter->result = error;
        }
    }
    for (cl_uint i = 0; i < waiter->count; i++)
        if (UNLIKELY(waiter->events[i]->parts != NULL)) {
            parts_wait(waiter->events[i]);
            defer_pump(); /* what is held behind it */
        }
    for (cl_uint i = 0; i < waiter->count; i++)
        if (event_failed(waiter->events[i]))
            waiter->result = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
}

cl_int event_wait(cl_uint count, struct event *const *events)
{
    struct waiter waiter = {.count = count, .events = events, .result = CL_SUCCESS};
    pthread_testcancel(); /* waits in a driver cannot be canceled: a loop of them can, here */
    waiter.real = waiter.on_stack;
    if (count > ARRAY_SIZE(waiter.on_stack)) {
        waiter.real = calloc(count, sizeof(*waiter.real));
        if (!waiter.real)
            return CL_OUT_OF_HOST_MEMORY;
    }
    pthread_cleanup_push(event_wait_ends, &waiter);
    event_wait_for_all(&waiter);
    pthread_cleanup_pop(1);
    return waiter.result;
}

/* A real event, where it is. */
struct there {
    const struct event *event;
    uint8_t residence_index;
    cl_event real;
};

/* As the driver has it. Inside the gate, ISSUED. */
static cl_int event_device_time(struct there at, cl_profiling_info name, cl_ulong *ret_time)
{
    const struct event *event = at.event;
    struct residence *residence = event->context->at[at.residence_index];
    cl_int error =
        residence->cl->clGetEventProfilingInfo(at.real, name, sizeof(*ret_time), ret_time, NULL);
    /* It ended, and its driver has not noticed: asked for this one it will, at once. */
    if (error == CL_PROFILING_INFO_NOT_AVAILABLE && queue_is_past(event->queue, event) &&
        residence_await_events(residence, 1, &at.real) == CL_SUCCESS)
        error = residence->cl->clGetEventProfilingInfo(at.real, name, sizeof(*ret_time), ret_time,
                                                       NULL);
    /* 2.0 added COMPLETE: without child kernels it is END. */
    if (error == CL_INVALID_VALUE && name == CL_PROFILING_COMMAND_COMPLETE)
        return event_device_time(at, CL_PROFILING_COMMAND_END, ret_time);
    return error;
}

/* NVIDIA's driver says 0 of when some commands (barriers, migrations) were queued, or of all there
 * is to say: then it was as late as what followed. 0 where nothing is known. */
static cl_int event_told_time(struct there at, cl_profiling_info name, cl_ulong *ret_time)
{
    cl_int error = event_device_time(at, name, ret_time);
    while (error == CL_SUCCESS && *ret_time == 0 && name < CL_PROFILING_COMMAND_END)
        error = event_device_time(at, ++name, ret_time);
    return error;
}

static struct there event_there_of(const struct event *event)
{
    return (struct there){event, event->residence_index, event->real};
}

/* In the program's clock; 0 of what has not ended, or says nothing, or is not known. */
static cl_ulong event_known_time(struct event *event, cl_profiling_info name)
{
    struct device_clock *clock = &event->queue->vdev->clock;
    enum event_state state = event_state(event);
    cl_ulong time;
    if (state == EVENT_DONE)
        return event->times[name - CL_PROFILING_COMMAND_QUEUED];
    if (state == EVENT_ISSUED && event->parts)
        return parts_time(event, name, &time) == CL_SUCCESS ? time
               : name == CL_PROFILING_COMMAND_START         ? parts_start_so_far(event)
                                                            : 0;
    if (state != EVENT_ISSUED)
        return 0;
    time = __atomic_load_n(&event->times[ARRAY_SIZE(event->times) - 1], __ATOMIC_RELAXED);
    if (time != 0) /* guessed before */
        return time;
    time = __atomic_load_n(&event->times[name - CL_PROFILING_COMMAND_QUEUED], __ATOMIC_RELAXED);
    if (time != 0 && name != CL_PROFILING_COMMAND_QUEUED) /* told before */
        return time;
    if (!device_clock_is_known(clock) ||
        event_told_time(event_there_of(event), name, &time) != CL_SUCCESS || time == 0)
        return 0;
    return device_clock_translate(clock, time);
}

/* Each event that a lost device leaves without times looks at all others, with the gate closed.
 * With more of them that would take the program longer than the order of their times is worth. */
#define NEIGHBOURS_MOST 1024

/* A guess at when @event ended may come long after that: it lies behind what ended before it in
 * order, and in front of what began after it. */
static cl_ulong event_among_neighbours(const struct event *event, cl_ulong guess)
{
    cl_ulong low = 0, high = CL_ULONG_MAX, time;
    uintptr_t cursor = 0;
    struct event *other;
    while (event->queue->in_order && (other = object_next(OBJECT_EVENT, &cursor))) {
        bool before = other->begun < event->begun;
        if (other->queue == event->queue && other != event && other->profiled) {
            time = event_known_time(other,
                                    before ? CL_PROFILING_COMMAND_END : CL_PROFILING_COMMAND_START);
            if (before && time > low)
                low = time;
            else if (!before && time != 0 && time < high)
                high = time;
        }
        object_unhold(other);
    }
    return guess > high ? high : guess < low ? low : guess;
}

cl_ulong event_lost_time(const struct event *event)
{
    cl_ulong last = device_clock_last(&event->queue->vdev->clock);
    return object_count(OBJECT_EVENT) <= NEIGHBOURS_MOST ? event_among_neighbours(event, last)
                                                         : last;
}

/* The one time, in the program's clock, of an event of which nothing is known but that it ended. */
static cl_ulong event_guessed_time(struct event *event)
{
    cl_ulong none = 0;
    cl_ulong guess = event_among_neighbours(event, device_clock_guess(&event->queue->vdev->clock));
    cl_ulong *kept = &event->times[CL_PROFILING_COMMAND_COMPLETE - CL_PROFILING_COMMAND_QUEUED];
    if (__atomic_compare_exchange_n(kept, &none, guess, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return guess;
    return none;
}

cl_int event_real_time(struct event *event, uint8_t residence_index, cl_event real,
                       cl_profiling_info name, cl_ulong *ret_time)
{
    struct device_clock *clock = &event->queue->vdev->clock;
    const struct there at = {event, residence_index, real};
    cl_ulong time, end;
    cl_int error = event_told_time(at, name, &time);
    if (error == CL_SUCCESS && time == 0) {
        *ret_time = 0;
        return CL_SUCCESS;
    }
    if (error == CL_SUCCESS && UNLIKELY(!device_clock_is_known(clock))) {
        error = event_device_time(at, CL_PROFILING_COMMAND_END, &end);
        if (error == CL_SUCCESS)
            device_clock_find(clock, end != 0 ? end : time);
    }
    if (error == CL_SUCCESS)
        *ret_time = device_clock_translate(clock, time);
    return error;
}

/* In the program's clock. A command that was held was enqueued before the driver had it. */
static cl_int event_single_time(struct event *event, cl_profiling_info name, cl_ulong *ret_time)
{
    cl_ulong time;
    cl_int error = event_real_time(event, event->residence_index, event->real, name, &time);
    if (error != CL_SUCCESS)
        return error;
    if (time == 0)
        time = event_guessed_time(event);
    else if (name == CL_PROFILING_COMMAND_QUEUED)
        time -= time > event->times[0] ? event->times[0] : time;
    *ret_time = time;
    return CL_SUCCESS;
}

/* As its driver says it, if it has one. */
static cl_int event_driver_profiling(struct event *event, cl_profiling_info name,
                                     cl_ulong *ret_time, bool *ret_lost)
{
    cl_int error = CL_PROFILING_INFO_NOT_AVAILABLE;
    *ret_lost = false;
    gate_enter();
    if (event_state(event) == EVENT_ISSUED && event->parts) {
        error = parts_time(event, name, ret_time);
        *ret_lost = lost_may_say(error);
    } else if (event_state(event) == EVENT_ISSUED) {
        error = event_single_time(event, name, ret_time);
        *ret_lost = residence_is_lost(event->context->at[event->residence_index]);
        if (error == CL_SUCCESS && name != CL_PROFILING_COMMAND_QUEUED &&
            name != CL_PROFILING_COMMAND_COMPLETE)
            __atomic_store_n(&event->times[name - CL_PROFILING_COMMAND_QUEUED], *ret_time,
                             __ATOMIC_RELAXED);
    } else if (event_state(event) == EVENT_DONE && atomic_load(&event->status) == CL_COMPLETE) {
        *ret_time = event->times[name - CL_PROFILING_COMMAND_QUEUED];
        error = CL_SUCCESS;
    }
    gate_leave();
    return error;
}

cl_int event_profiling(struct event *event, cl_profiling_info name, cl_ulong *ret_time)
{
    unsigned tries = 0;
    bool lost;
    cl_int error;
    if (name < CL_PROFILING_COMMAND_QUEUED || name > CL_PROFILING_COMMAND_COMPLETE)
        return CL_INVALID_VALUE;
    if (!event->profiled)
        return CL_PROFILING_INFO_NOT_AVAILABLE;
    do
        error = event_driver_profiling(event, name, ret_time, &lost);
    while (error != CL_SUCCESS &&
           context_outlives(event->context, lost ? CL_OUT_OF_RESOURCES : error, &tries));
    return error != CL_SUCCESS && lost ? CL_PROFILING_INFO_NOT_AVAILABLE : error;
}

/* Keep the profiling times of a command that ended. A time that the driver does not report is taken
 * from its neighbours. */
static void event_keep_times(struct event *event)
{
    enum { COUNT = ARRAY_SIZE(event->times) };
    cl_ulong times[COUNT], known = 0;
    bool told[COUNT] = {false};
    for (unsigned i = 0; i < COUNT; i++) {
        told[i] =
            event_single_time(event, CL_PROFILING_COMMAND_QUEUED + i, &times[i]) == CL_SUCCESS;
        if (told[i] && !known)
            known = times[i];
    }
    if (!known)
        known = device_clock_guess(&event->queue->vdev->clock);
    for (unsigned i = 0; i < COUNT; i++) {
        if (told[i])
            known = times[i];
        event->times[i] = known;
    }
}

void event_ended_at(struct event *event, cl_ulong time)
{
    for (unsigned i = 0; i < ARRAY_SIZE(event->times); i++)
        event->times[i] = time;
}

/* The times of a command that ended on a device which is lost. What the program was told stays: it
 * was told of later commands by that device, too. Without any, there is one time for all. */
static void event_keep_told_times(struct event *event)
{
    cl_ulong known = 0;
    for (unsigned i = 1; i < ARRAY_SIZE(event->times) && known == 0; i++)
        known = event->times[i];
    if (known == 0)
        known = event_lost_time(event);
    event->times[0] = known;
    for (unsigned i = 1; i < ARRAY_SIZE(event->times); i++) {
        known = event->times[i] != 0 ? event->times[i] : known;
        event->times[i] = known;
    }
}

/* The program may know that it ended. */
static bool event_is_known_ended(const struct event *event)
{
    return event_has_ended(event) || queue_is_past(event->queue, event);
}

/* Its device was lost, and its command is to be given again: it is DEFERRED until event_finish.
 * False: the program may know that it ended. Gate closed. */
static bool event_again(struct event *event)
{
    pthread_mutex_lock(&engine_lock);
    bool again = !event_is_known_ended(event);
    if (again) {
        atomic_store(&event->status, event_told(event));
        atomic_store_explicit(&event->state, EVENT_DEFERRED, memory_order_release);
    }
    pthread_mutex_unlock(&engine_lock);
    return again;
}

static void event_settle(struct event *event, struct residence *residence)
{
    cl_int status;
    /* Its queue was finished: a driver may be slow to say so, or not answer. What was waited for
     * has its times, so that none is guessed beside those of commands that came after it. */
    if (event->profiled)
        (void)residence_await_events(residence, 1, &event->real);
    if (atomic_load(&event->ended))
        status = atomic_load(&event->status);
    else if (!event_real_status(event, &status) || status > CL_COMPLETE)
        status = CL_COMPLETE;
    if (event->profiled && status == CL_COMPLETE && residence_is_lost(residence))
        event_keep_told_times(event);
    else if (event->profiled && status == CL_COMPLETE)
        event_keep_times(event);
    residence_retire(residence, OBJECT_EVENT, event->real, NULL);
    event->real = NULL;
    event_set_done(event, status);
}

void event_trust(struct event *event)
{
    atomic_store(&event->doubt, DOUBT_NONE);
}

/* Where its last part was, it is DONE. */
static void event_settle_parts(struct event *event, struct residence *residence,
                               uint8_t residence_index, bool recovers)
{
    if (!parts_settle(event, residence, residence_index, recovers))
        return;
    for (unsigned i = 0; event->profiled && i < ARRAY_SIZE(event->times); i++)
        (void)parts_time(event, CL_PROFILING_COMMAND_QUEUED + i, &event->times[i]);
    event_set_done(event, atomic_load(&event->status));
}

/* Everything of the virtual device in its place is complete. */
static void event_vacate(struct object *object, const struct move_context *move,
                         uint8_t residence_index)
{
    struct event *event = (struct event *)object;
    if (residence_index != move->from || residence_index == RESIDENCE_HOST)
        return;
    if (move->recovers && event->kept && event->real && event->residence_index == residence_index &&
        event_again(event)) {
        residence_retire(move->context->at[residence_index], OBJECT_EVENT, event->real, NULL);
        event->real = NULL;
        return;
    }
    if (event->real && event->residence_index == residence_index &&
        event->queue->vdev_index == move->vdev_index)
        event_settle(event, move->context->at[residence_index]);
    else if (event_state(event) == EVENT_ISSUED && event->parts)
        event_settle_parts(event, move->context->at[residence_index], residence_index,
                           move->recovers);
}

static void event_release_real(const cl_icd_dispatch *cl, void *real, void *kept)
{
    (void)kept;
    cl->clReleaseEvent(real);
}

OBJECT_CLASS(event_class) = {
    .type = OBJECT_EVENT,
    .size = sizeof(struct event),
    .leave = event_leave,
    .destroy = event_destroy,
    .release = event_release_real,
    .context = offsetof(struct event, context),
    .name = "an event",
    .vacate = event_vacate,
};

FORK_PART = {.rank = FORK_TABLE, .lock = &engine_lock, .changed = {&engine_changed}};
