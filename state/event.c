#include "state/event.h"

#include <stdlib.h>

#include "state/callback.h"
#include "state/command.h"

pthread_mutex_t engine_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t engine_changed = PTHREAD_COND_INITIALIZER;

/* One clSetEventCallback. Lives until it has been called and its driver has no more use for it. */
struct event_callback {
    struct event_callback *next; /* guarded by engine_lock */
    struct callback_job job;
    struct event *event; /* referred to, so that the handle is valid in the callback */
    cl_int type, status;
    void(CL_CALLBACK *call)(cl_event, cl_int, void *);
    void *data;
    atomic_bool fired;
    _Atomic uint32_t refs; /* the call to come, and the driver's registration */
};

static void callback_unref(struct event_callback *callback)
{
    if (atomic_fetch_sub_explicit(&callback->refs, 1, memory_order_acq_rel) == 1)
        free(callback);
}

static void callback_run(struct callback_job *job)
{
    struct event_callback *callback = container_of(job, struct event_callback, job);
    struct event *event = callback->event;
    callback->call((cl_event)event, callback->status, callback->data);
    atomic_fetch_sub(&event->callback_refs, 1);
    object_release(event);
    callback_unref(callback);
}

/* Exactly once, whoever comes first: the driver, or a mover who saw the event end. */
static void callback_fire(struct event_callback *callback, cl_int status)
{
    if (atomic_exchange(&callback->fired, true))
        return;
    callback->status = status < 0 ? status : callback->type;
    callback_post(&callback->job);
}

static void CL_CALLBACK driver_called(cl_event real, cl_int status, void *data)
{
    (void)real;
    struct event_callback *callback = data;
    /* With the release in callback_register: how a driver hands it over is not ours to see. */
    (void)atomic_load_explicit(&callback->refs, memory_order_acquire);
    callback_fire(callback, status);
    callback_unref(callback);
}

static void callback_register(struct event_callback *callback, const struct residence *residence,
                              cl_event real)
{
    atomic_fetch_add_explicit(&callback->refs, 1, memory_order_release);
    if (residence->cl->clSetEventCallback(real, callback->type, driver_called, callback) !=
        CL_SUCCESS)
        callback_unref(callback);
}

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
    atomic_init(&event->state, EVENT_HELD);
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
        event->context->at[event->place]->cl->clReleaseEvent(event->real);
}

static void event_destroy(struct object *object)
{
    struct event *event = (struct event *)object;
    while (event->callbacks) { /* all fired: each refers to the event until then */
        struct event_callback *next = event->callbacks->next;
        callback_unref(event->callbacks);
        event->callbacks = next;
    }
    object_unhold(event->queue ? (void *)event->queue : (void *)event->context);
}

const struct object_class event_class = {
    .size = sizeof(struct event),
    .leave = event_leave,
    .destroy = event_destroy,
};

static void CL_CALLBACK ended_elsewhere(cl_event real, cl_int status, void *data)
{
    (void)real;
    (void)status;
    struct event *event = data;
    atomic_store(&event->ended, true);
    hold_pump_soon();
    object_unhold(event);
}

void event_watch(struct event *event)
{
    if (event_state(event) != EVENT_ISSUED || atomic_exchange(&event->watched, true))
        return;
    const struct residence *residence = event->context->at[event->place];
    object_hold(event);
    if (callback_start() != 0 ||
        residence->cl->clSetEventCallback(event->real, CL_COMPLETE, ended_elsewhere, event) !=
            CL_SUCCESS) {
        atomic_store(&event->watched, false);
        object_unhold(event);
    }
}

void event_issued(struct event *event, uint8_t place, cl_event real)
{
    event->real = real;
    event->place = place;
    atomic_store_explicit(&event->state, EVENT_ISSUED, memory_order_release);
}

void event_issued_late(struct event *event, uint8_t place, cl_event real)
{
    pthread_mutex_lock(&engine_lock);
    event_issued(event, place, real);
    struct event_callback *callbacks = event->callbacks;
    pthread_cond_broadcast(&engine_changed);
    pthread_mutex_unlock(&engine_lock);
    /* Later ones see the state and register by themselves. */
    for (; callbacks; callbacks = callbacks->next)
        callback_register(callbacks, event->context->at[place], real);
}

/* HELD or ISSUED becomes DONE; the callbacks that did not fire yet do. */
static void end(struct event *event, cl_int status)
{
    pthread_mutex_lock(&engine_lock);
    atomic_store(&event->status, status);
    atomic_store_explicit(&event->state, EVENT_DONE, memory_order_release);
    struct event_callback *callbacks = event->callbacks;
    event->callbacks = NULL;
    pthread_cond_broadcast(&engine_changed);
    pthread_mutex_unlock(&engine_lock);
    while (callbacks) {
        struct event_callback *next = callbacks->next;
        callback_fire(callbacks, status);
        callback_unref(callbacks);
        callbacks = next;
    }
}

void event_finish(struct event *event, cl_int status)
{
    end(event, status);
}

cl_int event_set_user_status(struct event *event, cl_int status)
{
    if (!event->user)
        return CL_INVALID_EVENT;
    if (status > CL_COMPLETE)
        return CL_INVALID_VALUE;
    /* 5.11: the status can be changed only once. */
    pthread_mutex_lock(&engine_lock);
    bool first = event_state(event) == EVENT_HELD && atomic_load(&event->status) == CL_SUBMITTED;
    if (first)
        atomic_store(&event->status, status);
    pthread_mutex_unlock(&engine_lock);
    if (!first)
        return CL_INVALID_OPERATION;
    object_hold(event);
    end(event, status);
    hold_pump();
    object_unhold(event);
    return CL_SUCCESS;
}

/* Inside the gate, ISSUED. */
static cl_int real_status(const struct event *event)
{
    cl_int status = CL_QUEUED;
    const struct residence *residence = event->context->at[event->place];
    if (residence->cl->clGetEventInfo(event->real, CL_EVENT_COMMAND_EXECUTION_STATUS,
                                      sizeof(status), &status, NULL) != CL_SUCCESS)
        return CL_OUT_OF_RESOURCES;
    return status;
}

cl_int event_status_inside(const struct event *event)
{
    return event_state(event) == EVENT_ISSUED ? real_status(event) : atomic_load(&event->status);
}

cl_int event_status(struct event *event)
{
    gate_enter();
    cl_int status = event_status_inside(event);
    gate_leave();
    return status;
}

/* What a thread waits for in one driver. */
struct wait_batch {
    struct residence *residence;
    cl_uint count;
    cl_event *real;
};

/* Collect the events of one residence that are ISSUED, from *@at on. Inside the gate. The caller
 * holds the events, and the residence keeps what a mover sets aside: the real ones live until the
 * wait ends. */
static void collect(struct wait_batch *batch, cl_uint count, struct event *const *events,
                    cl_uint *at)
{
    batch->residence = NULL;
    batch->count = 0;
    for (; *at < count; ++*at) {
        struct event *event = events[*at];
        if (event_state(event) != EVENT_ISSUED)
            continue;
        struct residence *residence = event->context->at[event->place];
        if (batch->residence && batch->residence != residence)
            break;
        if (!batch->residence)
            residence_ref(residence);
        batch->residence = residence;
        batch->real[batch->count++] = event->real;
    }
}

static cl_int wait_batch(const struct wait_batch *batch)
{
    cl_int error = residence_wait(batch->residence, batch->count, batch->real);
    residence_unref(batch->residence);
    return error;
}

cl_int event_wait(cl_uint count, struct event *const *events)
{
    cl_event on_stack[16];
    struct wait_batch batch = {.real = on_stack};
    cl_int result = CL_SUCCESS;
    if (count > ARRAY_SIZE(on_stack)) {
        batch.real = calloc(count, sizeof(*batch.real));
        if (!batch.real)
            return CL_OUT_OF_HOST_MEMORY;
    }
    for (cl_uint i = 0; i < count; i++) {
        object_hold(events[i]);
        hold_wait_event(events[i]);
    }
    for (cl_uint at = 0; at < count;) {
        gate_enter();
        collect(&batch, count, events, &at);
        gate_leave();
        if (batch.count == 0)
            continue;
        cl_int error = wait_batch(&batch);
        if (result == CL_SUCCESS)
            result = error;
    }
    for (cl_uint i = 0; i < count; i++) {
        if (event_state(events[i]) == EVENT_DONE && atomic_load(&events[i]->status) < 0)
            result = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
        object_unhold(events[i]);
    }
    if (batch.real != on_stack)
        free(batch.real);
    return result;
}

cl_int event_set_callback(struct event *event, cl_int type,
                          void(CL_CALLBACK *call)(cl_event, cl_int, void *), void *data)
{
    if (!call || (type != CL_SUBMITTED && type != CL_RUNNING && type != CL_COMPLETE))
        return CL_INVALID_VALUE;
    struct event_callback *callback = calloc(1, sizeof(*callback));
    if (!callback || callback_start() != 0) {
        free(callback);
        return CL_OUT_OF_HOST_MEMORY;
    }
    callback->event = event;
    callback->type = type;
    callback->call = call;
    callback->data = data;
    callback->job.run = callback_run;
    atomic_init(&callback->refs, 2); /* the call, and the event's list */
    object_retain(event);
    atomic_fetch_add(&event->callback_refs, 1);
    gate_enter();
    pthread_mutex_lock(&engine_lock);
    enum event_state state = event_state(event);
    if (state != EVENT_DONE) {
        callback->next = event->callbacks;
        event->callbacks = callback;
    }
    pthread_mutex_unlock(&engine_lock);
    if (state == EVENT_DONE) {
        callback_fire(callback, atomic_load(&event->status));
        callback_unref(callback);
    } else if (state == EVENT_ISSUED) {
        callback_register(callback, event->context->at[event->place], event->real);
    }
    gate_leave();
    return CL_SUCCESS;
}

static cl_int real_time(const struct event *event, cl_profiling_info name, cl_ulong *ret_time)
{
    const struct residence *residence = event->context->at[event->place];
    cl_ulong time;
    cl_int error =
        residence->cl->clGetEventProfilingInfo(event->real, name, sizeof(time), &time, NULL);
    if (error == CL_SUCCESS)
        *ret_time = time + (cl_ulong)residence->clock_offset;
    return error;
}

cl_int event_profiling(struct event *event, cl_profiling_info name, cl_ulong *ret_time)
{
    if (name < CL_PROFILING_COMMAND_QUEUED || name > CL_PROFILING_COMMAND_COMPLETE)
        return CL_INVALID_VALUE;
    if (!event->profiled)
        return CL_PROFILING_INFO_NOT_AVAILABLE;
    cl_int error = CL_PROFILING_INFO_NOT_AVAILABLE;
    gate_enter();
    if (event_state(event) == EVENT_ISSUED) {
        error = real_time(event, name, ret_time);
        /* 2.0 added COMPLETE: without child kernels it is END. */
        if (error == CL_INVALID_VALUE && name == CL_PROFILING_COMMAND_COMPLETE)
            error = real_time(event, CL_PROFILING_COMMAND_END, ret_time);
    } else if (event_state(event) == EVENT_DONE && atomic_load(&event->status) == CL_COMPLETE) {
        *ret_time = event->times[name - CL_PROFILING_COMMAND_QUEUED];
        error = CL_SUCCESS;
    }
    gate_leave();
    return error;
}

static void settle(struct event *event, struct residence *residence)
{
    cl_int status = real_status(event);
    if (status > CL_COMPLETE)
        status = CL_COMPLETE; /* its queue was finished: a driver that is slow to say so */
    for (unsigned i = 0; event->profiled && status == CL_COMPLETE && i < 5; i++)
        if (real_time(event, CL_PROFILING_COMMAND_QUEUED + i, &event->times[i]) != CL_SUCCESS &&
            i > 0)
            event->times[i] = event->times[i - 1];
    residence_doom(residence, OBJECT_EVENT, event->real, NULL);
    event->real = NULL;
    end(event, status);
}

void event_settle_all(struct context *context, struct residence *residence, uint8_t place)
{
    uintptr_t cursor = 0;
    struct event *event;
    while ((event = object_next(OBJECT_EVENT, &cursor))) {
        if (event->context == context && event->real && event->place == place)
            settle(event, residence);
        object_unhold(event);
    }
}
