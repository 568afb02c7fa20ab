#include "state/command/event.h"

#include <stdlib.h>

#include "state/base/clock.h"
#include "state/base/threads/callback.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/thread.h"
#include "state/base/threads/work.h"
#include "state/command/command.h"
#include "state/command/parts.h"
#include "state/object/lost.h"

/* How long a driver that has reported nothing is waited for before polling begins, and the interval
 * of polling. */
#define LOOK_FIRST_NS 4000000u
#define LOOK_MOST_NS  32000000u
/* Events polled at a time: a program may have thousands under way. */
#define LOOK_COUNT 64

struct event_callback {
    struct event_callback *next;
    cl_int type;
    cl_int status; /* status to report; set when it is due */
    void(CL_CALLBACK *call)(cl_event, cl_int, void *);
    void *data;
};

struct callback_list {
    struct event_callback *first, **last;
};

struct watch {
    struct callback_job job;       /* posted while `posted` */
    struct event *event;           /* guarded by engine_lock, like all below; NULL: it is gone */
    struct watch *next, *previous; /* list of events that wait for a driver */
    struct callback_list ahead;    /* in the order of registration */
    struct callback_list due;      /* in the order to be called */
    uint8_t asked;                 /* bit per status that the driver was asked to report */
    bool listed;                   /* on the list: the event is held */
    bool posted;                   /* the event is held */
    bool unlisted;                 /* the job is to drop the list's hold */
    uint64_t since; /* when it was listed or its device was tested; by the host's clock */
    const cl_icd_dispatch *asks; /* event_reported_end; written before the driver is asked */
    bool pumps;                  /* deferred commands wait for it in another residence */
    _Atomic cl_int reached;      /* written under engine_lock */
    _Atomic uint32_t refs;       /* the event's, and one for each report to come */
};

static struct {
    pthread_cond_t listed;
    struct watch *first, *last; /* guarded by engine_lock, like all below */
    size_t count;
    bool running;
} watched = {.listed = PTHREAD_COND_INITIALIZER};

static void watch_list_add(struct callback_list *list, struct event_callback *callback)
{
    callback->next = NULL;
    *list->last = callback;
    list->last = &callback->next;
}

static void watch_unref(struct watch *watch)
{
    if (atomic_fetch_sub_explicit(&watch->refs, 1, memory_order_acq_rel) == 1)
        free(watch);
}

/* When the process exits, events that nobody waits for are leaked: the driver may have been
 * destroyed already. */
static void watch_let_go(struct event *event)
{
    if (!work_is_over())
        object_unhold(event);
}

static struct event_callback *watch_next_due(struct watch *watch, struct event *event)
{
    bool unlisted = false;
    pthread_mutex_lock(&engine_lock);
    struct event_callback *callback = watch->due.first;
    if (callback) {
        watch->due.first = callback->next;
        if (!watch->due.first)
            watch->due.last = &watch->due.first;
    } else {
        watch->posted = false;
        unlisted = watch->unlisted;
        watch->unlisted = false;
    }
    pthread_mutex_unlock(&engine_lock);
    if (unlisted)
        watch_let_go(event);
    return callback;
}

struct due {
    struct watch *watch;
    struct event *event; /* held: it stays */
    struct event_callback *callback;
};

static void watch_due_call(void *data)
{
    const struct due *due = data;
    due->callback->call((cl_event)due->event, due->callback->status, due->callback->data);
}

static void watch_due_called(const struct due *due)
{
    free(due->callback);
    atomic_fetch_sub(&due->event->callback_refs, 1);
    if (!work_is_over())
        object_release(due->event);
}

/* A callback ended its thread: the others are called in another one, since the job is still posted.
 */
static void watch_due_gone(void *data)
{
    const struct due *due = data;
    watch_due_called(due);
    callback_post(&due->watch->job);
}

/* One job for each event, so that its callbacks are never called side by side or out of order. */
static void watch_call_due(struct callback_job *job)
{
    struct due due = {.watch = container_of(job, struct watch, job)};
    due.event = due.watch->event;
    while ((due.callback = watch_next_due(due.watch, due.event))) {
        callback_program(watch_due_call, watch_due_gone, &due);
        watch_due_called(&due);
    }
    watch_let_go(due.event); /* the job's hold */
}

/* With engine_lock. */
static void watch_post(struct watch *watch)
{
    if (watch->posted)
        return;
    watch->posted = true;
    object_hold(watch->event);
    callback_post(&watch->job);
}

/* Callbacks whose status was reached become due, the earliest status first. With engine_lock. */
static void watch_make_due(struct watch *watch)
{
    cl_int reached = atomic_load_explicit(&watch->reached, memory_order_relaxed);
    for (cl_int type = CL_SUBMITTED; type >= CL_COMPLETE && type >= reached; type--)
        for (struct event_callback **link = &watch->ahead.first; *link;) {
            struct event_callback *callback = *link;
            if (callback->type != type) {
                link = &callback->next;
                continue;
            }
            *link = callback->next;
            if (!*link)
                watch->ahead.last = link;
            callback->status = reached < 0 ? reached : type;
            watch_list_add(&watch->due, callback);
        }
    if (watch->due.first)
        watch_post(watch);
}

/* With engine_lock. The job drops the hold, because a driver's thread must not (it could wait at
 * the gate). */
static void watch_unlist(struct watch *watch)
{
    if (!watch->listed)
        return;
    if (watch->previous)
        watch->previous->next = watch->next;
    else
        watched.first = watch->next;
    if (watch->next)
        watch->next->previous = watch->previous;
    else
        watched.last = watch->previous;
    watched.count--;
    watch->listed = false;
    watch->unlisted = true;
    watch_post(watch);
}

/* With engine_lock. */
static void watch_enlist(struct watch *watch)
{
    watch->next = NULL;
    watch->previous = watched.last;
    if (watched.last)
        watched.last->next = watch;
    else
        watched.first = watch;
    watched.last = watch;
    watched.count++;
    if (!watch->listed) {
        object_hold(watch->event);
        watch->since = clock_now_ns();
    }
    watch->listed = true;
    if (watched.count == 1)
        pthread_cond_signal(&watched.listed);
}

static void watch_advance_locked(struct watch *watch, cl_int status)
{
    struct event *event = watch->event;
    cl_int reached = atomic_load_explicit(&watch->reached, memory_order_relaxed);
    if (event && atomic_load(&event->ended))
        status = atomic_load(
            &event->status); /* what the program was told before the event was watched */
    if (!event || status >= reached || reached <= CL_COMPLETE)
        return;
    if (status < 0 && event_state(event) == EVENT_ISSUED && !event->parts &&
        !event_stands(event, status))
        return; /* it is polled again */
    atomic_store(&watch->reached, status);
    if (status <= CL_COMPLETE && event_state(event) == EVENT_ISSUED)
        atomic_store(&event->status, status);
    watch_make_due(watch);
    if (status > CL_COMPLETE)
        return;
    atomic_store(&event->ended, true);
    watch_unlist(watch);
    if (watch->pumps)
        defer_pump_soon();
}

cl_int watch_reached(const struct event *event)
{
    const struct watch *watch = atomic_load_explicit(&event->watch, memory_order_acquire);
    return watch ? atomic_load(&watch->reached) : CL_QUEUED;
}

void watch_advance(struct event *event, cl_int status)
{
    struct watch *watch = atomic_load_explicit(&event->watch, memory_order_acquire);
    if (watch)
        watch_advance_locked(watch, status);
}

static void watch_reported(struct watch *watch, cl_int status)
{
    /* With the release in ask: how a driver hands it over is not ours to see. */
    (void)atomic_load_explicit(&watch->refs, memory_order_acquire);
    pthread_mutex_lock(&engine_lock);
    /* A lost device may still report what is given again elsewhere: to nobody. */
    if (watch->event && event_state(watch->event) == EVENT_ISSUED)
        watch_advance_locked(watch, status);
    pthread_mutex_unlock(&engine_lock);
    watch_unref(watch);
}

/* Callback in a driver's thread: whatever the status, what was asked for has been reached. */
static void CL_CALLBACK watch_is_submitted(cl_event real, cl_int status, void *data)
{
    (void)real;
    watch_reported(data, status < CL_SUBMITTED ? status : CL_SUBMITTED);
}
static void CL_CALLBACK watch_is_running(cl_event real, cl_int status, void *data)
{
    (void)real;
    watch_reported(data, status < CL_RUNNING ? status : CL_RUNNING);
}
static void CL_CALLBACK watch_has_ended(cl_event real, cl_int status, void *data)
{
    struct watch *watch = data;
    /* With the release in ask: how a driver hands it over is not ours to see. */
    (void)atomic_load_explicit(&watch->refs, memory_order_acquire);
    watch_reported(watch, event_reported_end(watch->asks, real, status));
}

/* Ask the driver to report the statuses that callbacks wait for, and the end. Inside the gate,
 * ISSUED. */
static void watch_ask(struct event *event, struct watch *watch)
{
    static void(CL_CALLBACK *const reports[])(cl_event, cl_int, void *) = {
        watch_has_ended, watch_is_running, watch_is_submitted};
    uint8_t wanted = 1u << CL_COMPLETE;
    pthread_mutex_lock(&engine_lock);
    for (const struct event_callback *c = watch->ahead.first; c; c = c->next)
        wanted |= (uint8_t)(1u << c->type);
    wanted &= (uint8_t)~watch->asked;
    if (atomic_load(&watch->reached) <= CL_COMPLETE)
        wanted = 0;
    else if (!watch->listed)
        watch_enlist(watch);
    watch->asked |= wanted;
    pthread_mutex_unlock(&engine_lock);
    if (event->parts) {
        if (wanted & (1u << CL_COMPLETE))
            parts_ask(event);
        return;
    }
    const struct residence *residence = event->context->at[event->residence_index];
    const cl_icd_dispatch *cl = residence->cl;
    if (wanted & (1u << CL_COMPLETE))
        watch->asks = event_asks_in_callback(residence);
    for (cl_int type = CL_SUBMITTED; type >= CL_COMPLETE; type--) {
        if (!(wanted & (1u << type)))
            continue;
        atomic_fetch_add_explicit(&watch->refs, 1, memory_order_release);
        if (cl->clSetEventCallback(event->real, type, reports[type], watch) != CL_SUCCESS)
            watch_unref(watch); /* polling finds it then */
    }
}

void watch_issued(struct event *event)
{
    struct watch *watch = atomic_load_explicit(&event->watch, memory_order_acquire);
    if (watch)
        watch_ask(event, watch);
}

void watch_leave(struct event *event)
{
    struct watch *watch = atomic_load_explicit(&event->watch, memory_order_relaxed);
    if (!watch)
        return;
    /* Its parts still refer to the event: a report from there must find no watch. */
    pthread_mutex_lock(&engine_lock);
    watch->event = NULL;
    atomic_store(&event->watch, NULL);
    pthread_mutex_unlock(&engine_lock);
    watch_unref(watch);
}

/* Poll one event. Perhaps no thread waits there that would notice a lost device: if nothing happens
 * for long, the device is tested. */
static void watch_look_at(struct event *event)
{
    cl_int status;
    struct residence *doubted = NULL;
    uint8_t residence_index = RESIDENCE_NONE; /* the residence where it runs */
    gate_enter();
    bool issued = event_state(event) == EVENT_ISSUED;
    bool known = issued && !event->parts && event_real_status(event, &status);
    if (known && status > CL_COMPLETE)
        residence_index = event->residence_index;
    else if (issued && event->parts && parts_status(event) > CL_COMPLETE)
        residence_index = parts_residence_index(event);
    pthread_mutex_lock(&engine_lock);
    struct watch *watch = atomic_load_explicit(&event->watch, memory_order_relaxed);
    if (residence_index != RESIDENCE_NONE && clock_now_ns() > watch->since + lost_patience_ns) {
        watch->since = clock_now_ns();
        doubted = event->context->at[residence_index];
        residence_ref(doubted);
    }
    if (known)
        watch_advance(event, status);
    pthread_mutex_unlock(&engine_lock);
    gate_leave();
    if (doubted)
        residence_doubt(doubted);
    residence_unref(doubted);
    watch_let_go(event);
}

/* Poll each event in turn: a polled one goes to the end of the list. */
static void watch_look_at_all(void)
{
    struct event *events[LOOK_COUNT];
    size_t count = 0;
    pthread_mutex_lock(&engine_lock);
    for (size_t all = watched.count; count < LOOK_COUNT && count < all; count++) {
        struct watch *watch = watched.first;
        watched.first = watch->next;
        if (watched.first)
            watched.first->previous = NULL;
        else
            watched.last = NULL;
        watched.count--;
        watch_enlist(watch);
        events[count] = watch->event;
        object_hold(watch->event);
    }
    pthread_mutex_unlock(&engine_lock);
    for (size_t i = 0; i < count; i++)
        watch_look_at(events[i]);
}

static void *watch_thread(void *unused)
{
    (void)unused;
    uint64_t pause = LOOK_FIRST_NS;
    for (;;) {
        pthread_mutex_lock(&engine_lock);
        if (watched.count == 0)
            pause = LOOK_FIRST_NS;
        while (watched.count == 0)
            pthread_cond_wait(&watched.listed, &engine_lock);
        pthread_mutex_unlock(&engine_lock);
        clock_sleep(pause);
        /* When the process exits, only drivers' reports tell of events. */
        if (work_begin())
            watch_look_at_all();
        work_end();
        if (pause < LOOK_MOST_NS)
            pause *= 2;
    }
    return NULL;
}

static int watch_start(void)
{
    int error = callback_start();
    pthread_mutex_lock(&engine_lock);
    if (error == 0 && !watched.running) {
        error = thread_start("reseat-watch", 0, watch_thread, NULL, NULL);
        watched.running = error == 0;
    }
    pthread_mutex_unlock(&engine_lock);
    return error;
}

/* @event's watch, made if need be; NULL without memory or threads. */
static struct watch *watch_of(struct event *event)
{
    struct watch *watch = atomic_load_explicit(&event->watch, memory_order_acquire);
    if (watch)
        return watch;
    watch = calloc(1, sizeof(*watch));
    if (!watch || watch_start() != 0) {
        free(watch);
        return NULL;
    }
    watch->event = event;
    watch->job.run = watch_call_due;
    watch->ahead.last = &watch->ahead.first;
    watch->due.last = &watch->due.first;
    atomic_init(&watch->reached, CL_QUEUED);
    atomic_init(&watch->refs, 1);
    struct watch *other = NULL;
    if (atomic_compare_exchange_strong(&event->watch, &other, watch))
        return watch;
    free(watch);
    return other;
}

bool event_watch(struct event *event)
{
    if (event_has_ended(event))
        return true;
    struct watch *watch = watch_of(event);
    if (!watch)
        return false;
    pthread_mutex_lock(&engine_lock);
    bool first = !watch->pumps;
    watch->pumps = true;
    /* When it is issued later, the driver is asked then. */
    bool issued = event_state(event) == EVENT_ISSUED;
    pthread_mutex_unlock(&engine_lock);
    if (!first || !issued)
        return true;
    watch_ask(event, watch);
    /* No thread waits for it in the driver, so it must be flushed here. */
    const struct queue *queue = event->queue;
    if (queue->real &&
        atomic_load(&queue->context->residence_index[queue->vdev_index]) == event->residence_index)
        residence_flush(event->context->at[event->residence_index], queue->real);
    return true;
}

cl_int event_set_callback(struct event *event, cl_int type,
                          void(CL_CALLBACK *call)(cl_event, cl_int, void *), void *data)
{
    if (!call || (type != CL_SUBMITTED && type != CL_RUNNING && type != CL_COMPLETE))
        return CL_INVALID_VALUE;
    struct event_callback *callback = calloc(1, sizeof(*callback));
    struct watch *watch = callback ? watch_of(event) : NULL;
    if (!watch) {
        free(callback);
        return CL_OUT_OF_HOST_MEMORY;
    }
    callback->type = type;
    callback->call = call;
    callback->data = data;
    object_retain(event); /* the handle is valid in the callback */
    atomic_fetch_add(&event->callback_refs, 1);
    gate_enter();
    pthread_mutex_lock(&engine_lock);
    enum event_state state = event_state(event);
    watch_list_add(&watch->ahead, callback);
    if (state != EVENT_ISSUED || atomic_load(&event->ended))
        watch_advance_locked(watch, atomic_load(&event->status));
    watch_make_due(watch);
    pthread_mutex_unlock(&engine_lock);
    if (state == EVENT_ISSUED)
        watch_ask(event, watch);
    gate_leave();
    return CL_SUCCESS;
}

static void watch_forget_in_child(void)
{
    watched.running = false;
}

FORK_PART = {.rank = FORK_TABLE, .changed = {&watched.listed}, .in_child = watch_forget_in_child};
