#include <stdlib.h>
#include <string.h>

#include "remote/driver/objects/objects.h"
#include "remote/rings/area.h"
#include "state/base/clock.h"
#include "state/opencl/checks.h"

/* Events. The server tells the ends of commands in the order in which its driver calls back. The
 * program must never see a command end before one that it waited for, so an end that comes early is
 * kept until the others have come (`blockers`). */

struct event_callback {
    struct event_callback *next;
    struct event *event; /* Used. */
    cl_int at, status;
    void(CL_CALLBACK *function)(cl_event, cl_int, void *);
    void *data;
};

struct event *event_get(cl_event event)
{
    return object_get(event, ID_EVENT);
}

const void *event_context_of(cl_event handle)
{
    const struct event *event = event_get(handle);
    return event ? event->context : NULL;
}

static void event_handle_finish(struct handle *handle)
{
    struct event *event = container_of(handle, struct event, base);
    if (event->named)
        (void)POST(handle->client, release, {.object = handle->id});
    free(event->dependents);
    free(event->owned);
    handle_unuse(event->context);
    handle_unuse(event->queue);
}

static void event_lost(struct handle *handle);

static const struct handle_class event_class = {sizeof(struct event), event_handle_finish,
                                                event_lost};

struct event *event_make(struct context *context, struct queue *queue, cl_command_type command)
{
    struct event *event = handle_create(context->base.client, ID_EVENT, &event_class);
    if (!event)
        return NULL;
    event->context = context;
    event->queue = queue;
    event->type = command;
    object_hold(context);
    if (queue)
        object_hold(queue);
    event->posted_ns = clock_now_ns();
    atomic_store(&event->status, queue ? CL_QUEUED : CL_SUBMITTED);
    return event;
}

/* ---- ends ---- */

static void event_callback_call(void *data)
{
    struct event_callback *callback = data;
    callback->function((cl_event)callback->event, callback->status, callback->data);
}

static void event_callback_called(struct event_callback *callback)
{
    handle_unuse(callback->event);
    free(callback);
}

/* A callback ended its thread: the job is still posted, and calls the others in another one. */
static void event_callback_gone(void *data)
{
    struct event_callback *callback = data;
    callback_post(&callback->event->job);
    event_callback_called(callback);
}

static struct event_callback *event_next_due(struct event *event)
{
    struct client *client = event->base.client;
    pthread_mutex_lock(&client->lock);
    struct event_callback *callback = event->due;
    if (callback)
        event->due = callback->next;
    else
        event->posted = false;
    pthread_mutex_unlock(&client->lock);
    return callback;
}

/* One job for each event, so that its callbacks are never called side by side or out of order. */
static void event_call_due(struct callback_job *job)
{
    struct event *event = container_of(job, struct event, job);
    struct event_callback *callback;
    while ((callback = event_next_due(event))) {
        callback_program(event_callback_call, event_callback_gone, callback);
        event_callback_called(callback);
    }
    handle_unuse(event); /* The job's use. */
}

/* Have a thread call the callback. Under the client's lock, once the event has ended. */
static void event_callback_due(struct event_callback *callback, cl_int status)
{
    struct event *event = callback->event;
    struct event_callback **last = &event->due;
    while (*last)
        last = &(*last)->next;
    callback->next = NULL;
    callback->status = status < 0 ? status : callback->at;
    *last = callback;
    if (event->posted)
        return;
    event->posted = true;
    event->job.run = event_call_due;
    object_hold(event);
    callback_post(&event->job);
}

/* Let the program see that the event's command has ended, and the commands that had ended before it
 * but were ordered after it (event_block). Under the client's lock. */
static void event_publish(struct event *event)
{
    struct client *client = event->base.client; /* The event may be freed once it is published. */
    struct event *ready = event;
    event->previous = NULL; /* Below, `previous` links the events that are to be published. */
    while (ready) {
        event = ready;
        ready = event->previous;
        if (event->before) {
            if (event->before->end < 0)
                event->end = event->before->end;
            /* Both are parts of one command, which began when its first part did. */
            memcpy(event->times, event->before->times, 3 * sizeof(event->times[0]));
            handle_unuse_later(event->before);
            event->before = NULL;
        }
        atomic_store(&event->status, event->end);
        while (event->callbacks) {
            struct event_callback *callback = event->callbacks;
            event->callbacks = callback->next;
            event_callback_due(callback, event->end);
        }
        for (unsigned i = 0; i < event->dependent_count; i++) {
            struct event *dependent = event->dependents[i];
            /* The end of the session has set it to 0 already. */
            if (dependent->blockers != 0 && --dependent->blockers == 0 && dependent->ended) {
                dependent->previous = ready;
                ready = dependent;
            }
            handle_unuse_later(dependent);
        }
        event->dependent_count = 0;
        handle_unuse_later(event); /* The reference that is held until the end. */
    }
    pthread_cond_broadcast(&client->changed);
}

static void event_unlist(struct event *event)
{
    if (!event->listed)
        return;
    struct queue *queue = event->queue;
    if (event->next)
        event->next->previous = event->previous;
    else
        queue->pending = event->previous;
    if (event->previous)
        event->previous->next = event->next;
    event->listed = false;
    event->next = event->previous = NULL;
}

/* The server told that the command has ended: free what was kept for it, and publish the end unless
 * commands before it are still to end. Under the client's lock. */
static void event_end_locked(struct event *event, cl_int status)
{
    if (event->ended || event->arriving)
        return;
    event->ended = true;
    event->end = status;
    if (status == CL_COMPLETE && event->queue && event->covers > event->queue->covered)
        event->queue->covered = event->covers;
    atomic_fetch_sub(&event->base.client->stream.longest, event->asked);
    if (event->keeps)
        handle_unuse_later(event->keeps);
    event->keeps = NULL;
    block_give(event->base.client, &event->block);
    bulk_return(event->owned_loan);
    event->owned_loan = NULL;
    event_unlist(event);
    if (event->blockers == 0)
        event_publish(event);
}

void event_end(struct event *event, cl_int status)
{
    struct client *client = event->base.client;
    pthread_mutex_lock(&client->lock);
    event_end_locked(event, status);
    pthread_mutex_unlock(&client->lock);
}

void event_keep_loan(struct event *event, struct bulk_loan *loan)
{
    struct client *client = event->base.client;
    pthread_mutex_lock(&client->lock);
    if (event->ended)
        bulk_return(loan);
    else
        event->owned_loan = loan;
    pthread_mutex_unlock(&client->lock);
}

/* The program sees @event end after @before. Under the client's lock. */
static void event_block(struct event *event, struct event *before)
{
    if (before->ended && before->blockers == 0)
        return;
    struct event **dependents =
        reallocarray(before->dependents, before->dependent_count + 1, sizeof(struct event *));
    if (!dependents)
        return; /* Without memory the end may be told a little early, as some drivers do. */
    before->dependents = dependents;
    before->dependents[before->dependent_count++] = event;
    event->blockers++;
    object_hold(event);
}

void event_list(struct event *event, bool after_all, cl_uint count, const cl_event *waits)
{
    struct client *client = event->base.client;
    struct queue *queue = event->queue;
    bool in_order = !(queue->properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    pthread_mutex_lock(&client->lock);
    if (in_order && queue->pending)
        event_block(event, queue->pending);
    else if (after_all)
        for (struct event *before = queue->pending; before; before = before->previous)
            event_block(event, before);
    for (cl_uint i = 0; i < count; i++)
        event_block(event, event_get(waits[i]));
    event->previous = queue->pending;
    if (queue->pending)
        queue->pending->next = event;
    queue->pending = event;
    event->listed = true;
    object_hold(event); /* Until its end: event_publish(). */
    pthread_mutex_unlock(&client->lock);
}

void event_hold(struct event *event)
{
    struct client *client = event->base.client;
    object_hold(event);
    pthread_mutex_lock(&client->lock);
    event->blockers++;
    pthread_mutex_unlock(&client->lock);
}

void event_let_go(struct event *event)
{
    struct client *client = event->base.client;
    pthread_mutex_lock(&client->lock);
    /* None are left where the session ended first. */
    if (event->blockers != 0 && --event->blockers == 0 && event->ended)
        event_publish(event);
    pthread_mutex_unlock(&client->lock);
    handle_unuse(event);
}

static void event_lost(struct handle *handle)
{
    struct event *event = container_of(handle, struct event, base);
    struct client *client = handle->client;
    if (!event->queue)
        return;
    pthread_mutex_lock(&client->lock);
    bool kept = event->ended && event->blockers != 0;
    event->blockers = 0;
    if (kept)
        event_publish(event);
    else
        event_end_locked(event, CL_DEVICE_NOT_AVAILABLE);
    pthread_mutex_unlock(&client->lock);
}

/* Translate times to the host's clock. The distance of the clocks is the smallest that any command
 * showed between the device's end time and the arrival of its message, since no message arrives
 * before the end that it tells. */
static void event_translate(struct event *event, const struct msg_done *done, uint64_t now)
{
    struct device_object *device = event->queue->device;
    int64_t away = (int64_t)(now - done->ended);
    if (!device->clock_known || device->away > away)
        device->away = away;
    device->clock_known = true;
    uint64_t submitted = done->submitted + (uint64_t)device->away;
    uint64_t started = done->started + (uint64_t)device->away;
    if (done->submitted == 0 || submitted < event->posted_ns)
        submitted = event->posted_ns;
    if (done->started == 0 || started < submitted)
        started = submitted;
    event->times[0] = event->posted_ns;
    event->times[1] = submitted;
    event->times[2] = started;
    event->times[3] =
        done->ended > done->started ? started + (done->ended - done->started) : started;
}

/* The bytes that the command read are in place: the event may end. Gives a use back. */
static void event_arrived(struct event *event, cl_int status)
{
    struct client *client = event->base.client;
    pthread_mutex_lock(&client->lock);
    if (event->done.ended)
        event_translate(event, &event->done, event->arrived_ns);
    event->arriving = false;
    event_end_locked(event, status > 0 ? CL_OUT_OF_RESOURCES : status);
    if (--client->arriving == 0 && client_state(client))
        pthread_cond_broadcast(&client->changed);
    pthread_mutex_unlock(&client->lock);
    handle_unuse_later(event);
}

static void event_scatter(const struct event *event, const void *content)
{
    if (event->user_memory)
        layout_refresh(&event->layout, content, event->target);
    else
        layout_scatter(&event->layout, content, event->target);
}

static void event_scatter_block(struct copy *copy)
{
    struct event *event = container_of(copy, struct event, copy);
    event_scatter(event, event->block.bytes);
    event_arrived(event, CL_COMPLETE);
}

/* False: the event has ended, and its target may be in use for something else, or freed; or it is a
 * user event, which only the program ends. */
static bool event_arrives(struct event *event, const struct msg_done *message)
{
    struct client *client = event->base.client;
    pthread_mutex_lock(&client->lock);
    bool over =
        !event->queue || event->ended || event->arriving || client_state(client) != CL_SUCCESS;
    if (!over) {
        event->arriving = true;
        client->arriving++;
        event->arrived_ns = clock_now_ns();
        event->done = *message;
        event->done.content = NULL;
    }
    pthread_mutex_unlock(&client->lock);
    return !over;
}

void client_done(struct client *client, const struct msg_done *message)
{
    struct event *event = handle_of_id(client, message->event);
    cl_int status = message->status;
    size_t expected = 0;
    if (!event)
        return;
    if (!event_arrives(event, message)) {
        handle_unuse_later(event);
        return;
    }
    bool shared = event->block.size != 0;
    if (status != CL_COMPLETE || !event->target) {
        event_arrived(event, status);
    } else if (!layout_size(&event->layout, &expected) ||
               (!shared && expected != message->content_size)) {
        event_arrived(event, CL_OUT_OF_RESOURCES);
    } else {
        event->copy.run = event_scatter_block;
        if (shared && expected >= COPY_LEAST && copy_post(&event->copy))
            return;
        event_scatter(event, shared ? event->block.bytes : message->content);
        event_arrived(event, status);
    }
}

static bool event_is_over(void *data)
{
    const struct event *event = data;
    return atomic_load(&event->status) <= CL_COMPLETE;
}

cl_int event_await(struct event *event)
{
    struct client *client = event->base.client;
    cl_int status = atomic_load(&event->status);
    if (status <= CL_COMPLETE)
        return status;
    if (client->process !=
        process_mark()) /* In the child of a fork, where a thread that is gone may hold the lock. */
        return CL_DEVICE_NOT_AVAILABLE;
    client_flush(client);
    if (client_state(client) == CL_SUCCESS)
        client_attend(client, event_is_over, event);
    pthread_mutex_lock(&client->lock);
    /* After a loss wait until the event was ended: until then bytes may still be copied into memory
     * that the program would free. */
    while ((status = atomic_load(&event->status)) > CL_COMPLETE &&
           (client_state(client) == CL_SUCCESS || !event->queue || !client->over))
        pthread_cond_wait(&client->changed, &client->lock);
    pthread_mutex_unlock(&client->lock);
    return status > CL_COMPLETE ? CL_DEVICE_NOT_AVAILABLE : status;
}

/* ---- calls ---- */

cl_int clWaitForEvents(cl_uint num_events, const cl_event *event_list)
{
    cl_int result = check_awaited(num_events, event_list, event_context_of);
    if (result)
        return result;
    for (cl_uint i = 0; i < num_events; i++) {
        struct event *event = event_get(event_list[i]);
        cl_int status = event ? event_await(event) : CL_INVALID_EVENT;
        if (status == CL_DEVICE_NOT_AVAILABLE)
            result = status;
        else if (status < 0 && result == CL_SUCCESS)
            result = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
    }
    return result;
}

cl_int event_check_profile(const struct event *event)
{
    return event->queue && (event->queue->properties & CL_QUEUE_PROFILING_ENABLE) &&
                   atomic_load(&event->status) == CL_COMPLETE
               ? CL_SUCCESS
               : CL_PROFILING_INFO_NOT_AVAILABLE;
}

cl_int event_create_user(struct context *context, struct event **ret_event)
{
    struct event *event = event_make(context, NULL, CL_COMMAND_USER);
    if (!event)
        return CL_OUT_OF_HOST_MEMORY;
    event->named = true;
    cl_int error = POST(event->base.client, create_user_event,
                        {.event = handle_id(event), .context = handle_id(context)});
    return created_if(event, error, ret_event);
}

cl_int event_set_user_status(struct event *e, cl_int execution_status)
{
    cl_int error = CL_SUCCESS;
    if (e->queue)
        return CL_INVALID_EVENT;
    if (execution_status > CL_COMPLETE)
        return CL_INVALID_VALUE;
    struct client *client = e->base.client;
    pthread_mutex_lock(&client->lock);
    if (e->ended) {
        error = CL_INVALID_OPERATION;
    } else {
        object_hold(e); /* Given back when it is told. */
        event_end_locked(e, execution_status);
    }
    pthread_mutex_unlock(&client->lock);
    if (error == CL_SUCCESS) {
        /* The event counts as set even if the session has ended, which ends its commands. */
        (void)POST(client, set_user_event, {.event = handle_id(e), .status = execution_status});
        client_flush(client);
    }
    return error;
}

cl_int event_set_callback(struct event *e, cl_int command_exec_callback_type,
                          void(CL_CALLBACK *pfn_notify)(cl_event, cl_int, void *), void *user_data)
{
    if (!pfn_notify || command_exec_callback_type < CL_COMPLETE ||
        command_exec_callback_type > CL_SUBMITTED)
        return CL_INVALID_VALUE;
    struct event_callback *callback = calloc(1, sizeof(*callback));
    if (!callback)
        return CL_OUT_OF_HOST_MEMORY;
    *callback = (struct event_callback){
        .event = e, .at = command_exec_callback_type, .function = pfn_notify, .data = user_data};
    object_hold(e);
    struct client *client = e->base.client;
    pthread_mutex_lock(&client->lock);
    cl_int status = atomic_load(&e->status);
    if (status <= CL_COMPLETE || status <= callback->at) {
        event_callback_due(callback, status <= CL_COMPLETE ? status : callback->at);
    } else {
        /* Sorted by status: the callback for the status that is reached first comes first. */
        struct event_callback **at = &e->callbacks;
        while (*at && (*at)->at >= callback->at)
            at = &(*at)->next;
        callback->next = *at;
        *at = callback;
    }
    pthread_mutex_unlock(&client->lock);
    client_flush(client);
    return CL_SUCCESS;
}
