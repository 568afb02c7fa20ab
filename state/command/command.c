#include "state/command/command_inline.h"

#include <string.h>

#include "state/object/lost.h"
#include "state/object/pinned.h"
#include "state/object/upcalls.h"

/* The driver refused it. @kept: journal_prepare was called, and gave @entry. Inside the gate,
 * which is left. */
cl_int command_give_failed(struct command_call *call, struct residence *residence, bool kept,
                           struct journal_entry *entry, cl_int error)
{
    command_hold_cancel(call);
    if (kept)
        journal_drop(entry);
    residence_ref(residence);
    gate_leave();
    if (residence_failed(residence, error))
        error = the_upcalls->await_recovery(residence) ? GIVE_AGAIN : CL_OUT_OF_RESOURCES;
    residence_unref(residence);
    return error;
}

/* After *@error, outside the gate. True: the command is to be given once more. False: its event is
 * gone, and the program is told *@error. */
bool command_retry(struct command_call *call, unsigned *tries, cl_int *error)
{
    struct command *command = call->command;
    if (*error == COMMAND_ABSENT)
        *error = the_upcalls->bring(command);
    if (*error == CL_SUCCESS)
        return true;
    if (context_outlives(command->queue->context, *error, tries)) {
        command_begin_anew(command);
        return true;
    }
    residency_token_release(command);
    event_discard(call->event);
    return false;
}

/* A blocking call: wait in the driver, with references that outlive a move (G2). The call's event,
 * held, has the real one; without it the real one is ours. */
cl_int command_wait_outside(const struct command_call *call, struct residence *residence,
                            cl_event real)
{
    struct queue *queue = call->command->queue;
    cl_int error = residence_wait(residence, 1, &real);
    bool lost = UNLIKELY(error != CL_SUCCESS) && residence_is_lost(residence);
    if (lost && call->event && the_upcalls->await_recovery(residence))
        error = event_wait(1, &call->event);
    else if (lost)
        error = CL_OUT_OF_RESOURCES;
    if (error == CL_SUCCESS && queue->in_order)
        queue_ended(queue, call->begun);
    if (error == CL_SUCCESS && call->event)
        event_waited(call->event);
    if (call->event)
        object_unhold(call->event);
    else
        residence->cl->clReleaseEvent(real);
    residence_unref(residence);
    return error;
}

static void command_release_event(void *event)
{
    object_release(event);
}

/* Wait until the program lets the command go. The program may cancel the thread meanwhile, and gets
 * no event then. */
static cl_int command_wait_for_deferred(const struct command_call *call, struct event *event)
{
    cl_int error;
    pthread_cleanup_push(command_release_event, event);
    cancel_allow(call->cancel);
    error = event_wait(1, &event);
    (void)cancel_hold();
    pthread_cleanup_pop(0);
    return error;
}

/* Defer a command that cannot be given to the driver yet. A blocking call gets an event to wait for
 * if the program did not ask for one. Inside the gate, which is left. */
cl_int command_run_deferred(struct command_call *call)
{
    struct queue *queue = call->command->queue;
    struct event *event = call->event;
    cl_int error = CL_OUT_OF_HOST_MEMORY;
    command_hold_cancel(call);
    residency_token_release(call->command);
    if (!event && call->blocking)
        event = event_create(queue->context, queue, call->command->ops->type);
    if (event || !call->blocking)
        error = defer_add(call->command, call->waits, call->wait_list, event);
    if (error != CL_SUCCESS) {
        gate_leave();
        event_discard(event);
        return error;
    }
    if (event)
        object_publish(event);
    gate_leave();
    defer_pump(); /* its wait list may have completed meanwhile */
    if (call->blocking)
        error = command_wait_for_deferred(call, event);
    if (call->event)
        *call->ret_event = (cl_event)event;
    else if (event)
        object_release(event);
    return error;
}

/* The driver's error for the first piece, if the driver refused it within this call. If another
 * thread gives it, only the event gets the error. */
static cl_int command_refusal(const struct event *event)
{
    if (event_state(event) != EVENT_DONE || event->parts || atomic_load(&event->status) >= 0)
        return CL_SUCCESS;
    cl_int status = atomic_load(&event->status);
    return status == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST ? CL_SUCCESS : status;
}

/* Errors that would refuse a whole launch are given now, within the call. */
static cl_int command_hold_pieces(struct command_call *call)
{
    struct command *command = call->command;
    cl_int error;
    uint8_t residence_index;
    unsigned tries = 0;
    do {
        struct residence *residence = command_queue_enter(command->queue, &residence_index);
        if (defer_needed(command, residence_index, call->waits, call->wait_list))
            return command_run_deferred(call);
        error = command_ready(command, residence, residence_index);
        if (error == CL_SUCCESS) {
            error = command_run_deferred(call);
            cl_int refused = error == CL_SUCCESS ? command_refusal(call->event) : CL_SUCCESS;
            if (refused != CL_SUCCESS)
                object_release(call->event);
            return refused != CL_SUCCESS ? refused : error;
        }
        gate_leave();
    } while (command_retry(call, &tries, &error));
    return error;
}

cl_int command_run_in_pieces(struct command *command, cl_uint waits, const cl_event *wait_list,
                             cl_event *ret_event)
{
    struct queue *queue = command->queue;
    cl_event made;
    struct command_call call = {command, false, waits, (struct event *const *)wait_list,
                                NULL,    &made, 0,     0};
    cl_int error = check_wait_list(waits, wait_list, queue->context, event_context_of);
    if (error != CL_SUCCESS)
        return error;
    command->wait_list_empty = waits == 0;
    call.event = event_create(queue->context, queue, command->ops->type);
    if (!call.event)
        return CL_OUT_OF_HOST_MEMORY;
    call.cancel = cancel_hold();
    error = command_hold_pieces(&call);
    if (error == CL_SUCCESS && ret_event)
        *ret_event = made;
    else if (error == CL_SUCCESS)
        object_release(call.event);
    cancel_allow(call.cancel);
    return error;
}

/* Keep a digest of what the program has now read: a repeat after a loss has to read the same. */
void command_note_read(struct command *command, struct event *event)
{
    size_t size;
    void **output = command->ops->output ? command->ops->output(command, &size) : NULL;
    if (output)
        event->digest = journal_digest(*output, size);
}

/* The residence of @queue, with a reference, if its driver copies over a link and can register
 * host memory; else NULL. */
static struct residence *command_staging(const struct queue *queue)
{
    gate_enter();
    struct residence *residence =
        queue->real
            ? queue->context->at[atomic_load(&queue->context->residence_index[queue->vdev_index])]
            : NULL;
    if (residence && residence->maps_host_ptr && residence_has_link(residence) &&
        !residence_is_lost(residence))
        residence_ref(residence);
    else
        residence = NULL;
    gate_leave();
    return residence;
}

/*
 * Read a few bytes, and wait for them. Drivers read into registered memory sooner than into the
 * program's, where the call itself may not block: NVIDIA's by 40 us, which is as long as the read
 * takes. If the virtual device moves meanwhile, the memory is as good as any other.
 */
static cl_int command_run_staged(struct command *command, cl_uint waits, const cl_event *wait_list)
{
    size_t size;
    void **output = command->ops->output(command, &size), *given = *output;
    struct residence *residence = size <= PINNED_SLOT ? command_staging(command->queue) : NULL;
    char *slot = residence ? pinned_slot_take(residence) : NULL;
    if (slot)
        *output = slot;
    cl_int error = command_run_as(command->ops, command, true, waits, wait_list, NULL);
    /* After an error, something may still write to the slot: nobody gets it again. */
    if (slot && error == CL_SUCCESS) {
        memcpy(given, slot, size);
        pinned_slot_give(residence, slot);
    }
    residence_unref(residence);
    return error;
}

/* True when nobody but the caller knows of the command, and the caller waits until it has ended:
 * not where the thread may be cancelled, nor where the journal keeps the command. */
static bool command_is_alone(const struct command *command, const cl_event *ret_event)
{
    return command->ops->output && !ret_event &&
           !atomic_load_explicit(&cancel_is_used, memory_order_relaxed) &&
           !atomic_load_explicit(&journal_is_kept, memory_order_relaxed);
}

HOT cl_int command_run(struct command *command, bool blocking, cl_uint waits,
                       const cl_event *wait_list, cl_event *ret_event)
{
    if (blocking && command_is_alone(command, ret_event))
        return command_run_staged(command, waits, wait_list);
    return command_run_as(command->ops, command, blocking, waits, wait_list, ret_event);
}
