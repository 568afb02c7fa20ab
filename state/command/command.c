#include "state/command/command.h"

#include <stdlib.h>
#include <string.h>

#include "state/base/clock.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/thread.h"
#include "state/command/elsewhere.h"
#include "state/command/journal.h"
#include "state/object/lost.h"
#include "state/object/upcalls.h"

struct memory *command_use_more(const struct command *command, unsigned *cursor, bool *ret_writes)
{
    *cursor -= command->use_count; /* `more` counts its cursor from 0 */
    struct memory *memory = command->more(command, cursor, ret_writes);
    *cursor += command->use_count;
    return memory;
}

struct range command_range(const struct command *command, unsigned use, const struct memory *memory)
{
    size_t left = memory->root->size - memory->origin;
    struct range range = {0, memory->size};
    if (command->ops->range)
        command->ops->range(command, use, &range);
    if (range.end > left) /* a view may end before the last row's padding */
        range.end = left;
    return (struct range){memory->origin + range.begin, memory->origin + range.end};
}

/*
 * True when @residence_index is the writer of what @command writes. Two devices may write parts of
 * one buffer at once, each through its own sub-buffer, so one must not take over what the other was
 * just given to write: the writer of a range changes only with the gate closed.
 */
static bool command_may_write(const struct command *command, const struct memory *root,
                              uint8_t residence_index)
{
    return command->queue->context->vdev_count == 1 ||
           atomic_load_explicit(&root->writer, memory_order_relaxed) == residence_index;
}

/* True when @residence_index lacks the latest bytes for what @command does with the object at
 * cursor @use. Called after the check of the whole object failed: ranges of it may have different
 * states. */
static NOINLINE bool command_lacks(const struct command *command, unsigned use,
                                   const struct memory *memory, bool writes,
                                   uint8_t residence_index)
{
    const struct memory *root = memory->root;
    if (!memory->real[residence_index])
        return true;
    struct range range = command_range(command, use, memory);
    return !extents_latest(root, residence_index, range) ||
           (writes && !command_may_write(command, root, residence_index) &&
            !extents_written_by(root, residence_index, range));
}

/* Bringing that failed is not repeated forever: a deferred command ends with that error. */
static cl_int command_absent(const struct command *command)
{
    return command->refused != CL_SUCCESS ? command->refused : COMMAND_ABSENT;
}

/* Bytes that the command uses, counting an object that is used twice once. */
static uint64_t command_distinct_bytes(const struct command *command)
{
    struct memory *one, *before;
    uint64_t bytes = 0;
    bool writes;
    for (unsigned i = 0; (one = command_use(command, &i, &writes));) {
        unsigned at = i, j = 0;
        while ((before = command_use(command, &j, &writes)) && j < at && before->root != one->root)
            ;
        if (j == at)
            bytes += one->root->size;
    }
    return bytes;
}

HOT cl_int command_ready(struct command *command, struct residence *residence,
                         uint8_t residence_index)
{
    struct memory *memory;
    struct budget *budget = &residence->device->budget;
    bool writes, tight = budget_is_tight(budget);
    uint64_t bytes = 0;
    if (command->ops->gather)
        command->ops->gather(command);
    for (unsigned i = 0; (memory = command_use(command, &i, &writes));) {
        struct memory *root = memory->root;
        bytes += root->size;
        if (UNLIKELY(tight))
            memory_stamp(root);
        if (UNLIKELY(!memory->real[residence_index] ||
                     !replica_is_latest_whole(root, residence_index) ||
                     (writes && !command_may_write(command, root, residence_index))) &&
            command_lacks(command, i - 1, memory, writes, residence_index))
            return command_absent(command);
        if (UNLIKELY(!atomic_load_explicit(&root->used, memory_order_relaxed)))
            atomic_store_explicit(&root->used, true, memory_order_relaxed);
    }
    /* The agent, which limits the program's memory, must know how much one command needs. */
    if (UNLIKELY(bytes > atomic_load_explicit(&budget->least, memory_order_relaxed)) &&
        budget_limit(budget) != BUDGET_UNLIMITED)
        mark_raise(&budget->least, command_distinct_bytes(command));
    cl_int error =
        command->ops->ready ? command->ops->ready(command, residence, residence_index) : CL_SUCCESS;
    return UNLIKELY(error == COMMAND_ABSENT) ? command_absent(command) : error;
}

static HOT void command_given(const struct command *command, uint8_t residence_index)
{
    struct memory *memory;
    bool writes;
    for (unsigned i = 0; (memory = command_use(command, &i, &writes));)
        if (writes && LIKELY(!replica_is_apart(memory->root)))
            replica_written_whole(memory->root, residence_index);
        else if (writes)
            extents_written(memory->root, residence_index, command_range(command, i - 1, memory));
}

/* Inside the gate with the queue on a device: like context_enter, for one queue. */
static inline struct residence *command_queue_enter(struct queue *queue,
                                                    uint8_t *ret_residence_index)
{
    gate_enter();
    while (UNLIKELY(!queue->real))
        context_enter_slow(queue->context, 1u << queue->vdev_index);
    *ret_residence_index = atomic_load_explicit(&queue->context->residence_index[queue->vdev_index],
                                                memory_order_relaxed);
    return queue->context->at[*ret_residence_index];
}

/* Checks for a wait list (5.11). Handles of events are pointers to the events. */
static HOT cl_int command_check_wait_list(const struct queue *queue, cl_uint waits,
                                          const cl_event *wait_list)
{
    if ((waits == 0) != (wait_list == NULL))
        return CL_INVALID_EVENT_WAIT_LIST;
    for (cl_uint i = 0; i < waits; i++) {
        const struct event *event = event_get(wait_list[i]);
        if (!event)
            return CL_INVALID_EVENT_WAIT_LIST;
        if (event->context != queue->context)
            return CL_INVALID_CONTEXT;
    }
    return CL_SUCCESS;
}

/* List the real events that the driver must wait for; events of other residences have ended. Inside
 * the gate. */
static cl_uint command_real_waits(uint8_t residence_index, cl_uint waits,
                                  struct event *const *wait_list, cl_event *ret_real)
{
    cl_uint count = 0;
    for (cl_uint i = 0; i < waits; i++)
        if (event_state(wait_list[i]) == EVENT_ISSUED && !wait_list[i]->parts &&
            wait_list[i]->residence_index == residence_index)
            ret_real[count++] = wait_list[i]->real;
    return count;
}

/* A driver may find only now that the command's objects do not fit: then room is made, and then the
 * policy is asked. The same error is used for a launch that exceeds the device's compute units,
 * where room does not help. */
static cl_int command_issue_failed(struct command *command, struct residence *residence,
                                   uint8_t residence_index, cl_int error)
{
    const struct command_ops *ops = command->ops;
    if (!is_shortage(error) || command->squeezes > COMMAND_SQUEEZES ||
        (error == CL_OUT_OF_RESOURCES && ops->exceeds &&
         ops->exceeds(command, residence, residence_index)))
        return error;
    command->squeezes++;
    command->shortage = error;
    return COMMAND_ABSENT;
}

HOT cl_int command_issue(struct command *command, struct residence *residence,
                         uint8_t residence_index, cl_uint waits, struct event *const *wait_list,
                         cl_event *ret_real)
{
    return command_issue_in(command, residence, residence_index, command->queue->real, waits,
                            wait_list, ret_real);
}

HOT cl_int command_issue_in(struct command *command, struct residence *residence,
                            uint8_t residence_index, cl_command_queue queue, cl_uint waits,
                            struct event *const *wait_list, cl_event *ret_real)
{
    cl_event on_stack[16], *real = on_stack;
    if (waits > ARRAY_SIZE(on_stack)) {
        real = calloc(waits, sizeof(*real));
        if (!real)
            return CL_OUT_OF_HOST_MEMORY;
    }
    cl_uint count = command_real_waits(residence_index, waits, wait_list, real);
    if (UNLIKELY(residence->runs_at_once))
        budget_wait_begin(&residence->device->budget, clock_now_ns());
    cl_int error = command->ops->issue(command, residence, residence_index, queue, count,
                                       count ? real : NULL, ret_real);
    if (UNLIKELY(residence->runs_at_once))
        budget_wait_end(&residence->device->budget, clock_now_ns());
    if (real != on_stack)
        free(real);
    if (UNLIKELY(error != CL_SUCCESS))
        return command_issue_failed(command, residence, residence_index, error);
    command_given(command, residence_index);
    if (UNLIKELY(command->residency_token != 0))
        residency_token_release(command);
    return CL_SUCCESS;
}

/* The arguments of a call of the program besides its command. */
struct call {
    struct command *command;
    bool blocking;
    cl_uint waits;
    struct event *const *wait_list;
    struct event *event; /* unpublished, for *ret_event; or NULL */
    cl_event *ret_event;
    uint64_t begun; /* the queue's order, if there is an event or a wait */
    int cancel;     /* of cancel_hold(), or CANCEL_NOT_HELD */
};

/* Called before anything inside the gate that takes longer than a non-blocking driver call. */
static void command_hold_cancel(struct call *call)
{
    if (call->cancel == CANCEL_NOT_HELD)
        call->cancel = cancel_hold();
}

/* For a blocking call: wait in the driver, with references that outlive a move (G2). If the call
 * has an event, that is held and has the real one; otherwise the real event is ours. */
static cl_int command_wait_outside(const struct call *call, struct residence *residence,
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

/* Result of command_give: the device was lost, and the program is on another one now. */
#define GIVE_AGAIN 2

/* Give a ready command to the driver. Inside the gate, which is left. @ret_real: the event that a
 * blocking call waits for. */
static HOT cl_int command_give(struct call *call, struct residence *residence,
                               uint8_t residence_index, cl_event *ret_real)
{
    if (call->event || call->blocking)
        call->begun = queue_step(call->command->queue);
    bool kept = UNLIKELY(atomic_load_explicit(&journal_is_kept, memory_order_relaxed));
    struct journal_entry *entry =
        kept ? journal_prepare(call->command, false, call->waits, call->wait_list) : NULL;
    cl_int error = command_issue(call->command, residence, residence_index, call->waits,
                                 call->wait_list, call->event || call->blocking ? ret_real : NULL);
    if (UNLIKELY(error != CL_SUCCESS)) {
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
    if (kept)
        (void)journal_add(entry, call->command, call->event);
    if (call->event) {
        call->event->begun = call->begun;
        event_issued(call->event, residence_index, *ret_real);
        object_publish(call->event);
        *call->ret_event = (cl_event)call->event;
    }
    if (call->blocking) {
        residence_ref(residence);
        if (call->event)
            object_hold(call->event);
    }
    gate_leave();
    return CL_SUCCESS;
}

static void command_release_event(void *event)
{
    object_release(event);
}

/* Wait for a deferred command. This may take as long as the program likes, so a thread that is
 * cancelled stops here; it gets no event then. */
static cl_int command_wait_for_deferred(const struct call *call, struct event *event)
{
    cl_int error;
    pthread_cleanup_push(command_release_event, event);
    cancel_allow(call->cancel);
    error = event_wait(1, &event);
    (void)cancel_hold();
    pthread_cleanup_pop(0);
    return error;
}

/* Defer the command. A blocking call needs an event of its own to wait for. Inside the gate, which
 * is left. */
static cl_int command_run_deferred(struct call *call)
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
    defer_pump(); /* what it waits for may have ended in between */
    if (call->blocking)
        error = command_wait_for_deferred(call, event);
    if (call->event)
        *call->ret_event = (cl_event)event;
    else if (event)
        object_release(event);
    return error;
}

static HOT inline cl_int command_run_call(struct call *call)
{
    struct command *command = call->command;
    unsigned tries = 0;
    uint8_t residence_index;

    for (;;) {
        struct residence *residence = command_queue_enter(command->queue, &residence_index);
        if (UNLIKELY(residence->runs_at_once ||
                     atomic_load_explicit(&cancel_is_used, memory_order_relaxed)))
            command_hold_cancel(call);
        if (UNLIKELY(defer_needed(command, residence_index, call->waits, call->wait_list)))
            return command_run_deferred(call);
        cl_int error = command_ready(command, residence, residence_index);
        if (LIKELY(error == CL_SUCCESS)) {
            cl_event real = NULL;
            error = command_give(call, residence, residence_index, &real);
            if (LIKELY(error == CL_SUCCESS))
                return call->blocking ? command_wait_outside(call, residence, real) : CL_SUCCESS;
            if (error == GIVE_AGAIN)
                continue;
        } else if (error == COMMAND_ABSENT && elsewhere_can(command, residence_index)) {
            return command_run_deferred(call);
        } else {
            command_hold_cancel(call);
            gate_leave();
        }
        if (error == COMMAND_ABSENT)
            error = the_upcalls->bring(command);
        if (error == CL_SUCCESS)
            continue;
        if (!context_outlives(command->queue->context, error, &tries)) {
            residency_token_release(command);
            event_discard(call->event);
            return error;
        }
        command_begin_anew(command);
    }
}

/* The driver's error for a first piece that was to be given at once and was refused. If another
 * thread was about to give it, only the event has the error. */
static cl_int command_refusal(const struct event *event)
{
    if (event_state(event) != EVENT_DONE || event->parts || atomic_load(&event->status) >= 0)
        return CL_SUCCESS;
    cl_int status = atomic_load(&event->status);
    return status == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST ? CL_SUCCESS : status;
}

/* Errors that the command would always have are found now, as for a command that is given whole. */
static cl_int command_hold_pieces(struct call *call)
{
    struct command *command = call->command;
    cl_int error;
    uint8_t residence_index;
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
        if (error == COMMAND_ABSENT)
            error = the_upcalls->bring(command);
    } while (error == CL_SUCCESS);
    residency_token_release(command);
    event_discard(call->event);
    return error;
}

cl_int command_run_in_pieces(struct command *command, cl_uint waits, const cl_event *wait_list,
                             cl_event *ret_event)
{
    struct queue *queue = command->queue;
    cl_event made;
    struct call call = {command, false, waits, (struct event *const *)wait_list, NULL, &made, 0, 0};
    cl_int error = command_check_wait_list(queue, waits, wait_list);
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

/* Remember a digest of the bytes that the program was given, so that a replayed read can be
 * compared. */
static void command_note_read(struct command *command, struct event *event)
{
    size_t size;
    void **output = command->ops->output ? command->ops->output(command, &size) : NULL;
    if (output)
        event->digest = journal_digest(*output, size);
}

HOT cl_int command_run(struct command *command, bool blocking, cl_uint waits,
                       const cl_event *wait_list, cl_event *ret_event)
{
    struct queue *queue = command->queue;
    struct call call = {.command = command,
                        .blocking = blocking,
                        .waits = waits,
                        .wait_list = (struct event *const *)wait_list,
                        .ret_event = ret_event,
                        .cancel = CANCEL_NOT_HELD};

    cl_int error = command_check_wait_list(queue, waits, wait_list);
    if (error != CL_SUCCESS)
        return error;
    command->wait_list_empty = waits == 0;
    /* In a protected program a blocking call may have to wait for a second device. */
    cl_event own = NULL;
    if (blocking && !ret_event &&
        UNLIKELY(atomic_load_explicit(&journal_is_kept, memory_order_relaxed)))
        call.ret_event = &own;
    if (call.ret_event) {
        call.event = event_create(queue->context, queue, command->ops->type);
        if (!call.event)
            return CL_OUT_OF_HOST_MEMORY;
    }
    if (blocking)
        command_hold_cancel(&call);
    error = command_run_call(&call);
    if (blocking && error == CL_SUCCESS && UNLIKELY(call.event && call.event->kept))
        command_note_read(command, call.event);
    if (UNLIKELY(own != NULL))
        object_release(own);
    cancel_allow(call.cancel);
    return error;
}

cl_int command_marker_issue(struct command *command, struct residence *residence,
                            uint8_t residence_index, cl_command_queue queue, cl_uint waits,
                            const cl_event *wait_list, cl_event *ret_event)
{
    (void)command, (void)residence_index;
    if (LIKELY(residence->cl->clEnqueueMarkerWithWaitList))
        return residence->cl->clEnqueueMarkerWithWaitList(queue, waits, wait_list, ret_event);
    return waits == 0 && ret_event ? residence->cl->clEnqueueMarker(queue, ret_event)
                                   : CL_INVALID_OPERATION;
}

cl_int command_nothing_to_hold(struct command *command)
{
    (void)command;
    return CL_SUCCESS;
}

void command_nothing_to_drop(struct command *command)
{
    (void)command;
}

static struct {
    pthread_mutex_t lock;
    pthread_cond_t free;
    uint64_t last;            /* serial number */
    _Atomic uint64_t current; /* 0: free */
} residency_token = {.lock = PTHREAD_MUTEX_INITIALIZER, .free = PTHREAD_COND_INITIALIZER};

uint64_t residency_token_current(void)
{
    return atomic_load(&residency_token.current);
}

bool residency_token_has(const struct command *command)
{
    return command->residency_token != 0 && command->residency_token == residency_token_current();
}

void residency_token_take(struct command *command)
{
    pthread_mutex_lock(&residency_token.lock);
    while (!residency_token_has(command) && residency_token.current != 0)
        (void)clock_wait(&residency_token.free, &residency_token.lock, 0);
    if (residency_token.current == 0)
        residency_token.current = command->residency_token = ++residency_token.last;
    pthread_mutex_unlock(&residency_token.lock);
}

void residency_token_release_of(uint64_t serial)
{
    pthread_mutex_lock(&residency_token.lock);
    if (residency_token.current == serial) {
        residency_token.current = 0;
        pthread_cond_broadcast(&residency_token.free);
    }
    pthread_mutex_unlock(&residency_token.lock);
}

void residency_token_release(struct command *command)
{
    if (command->residency_token != 0)
        residency_token_release_of(command->residency_token);
    command->residency_token = 0;
}

static void residency_token_in_child(void)
{
    residency_token.current = 0;
}

FORK_PART = {.rank = FORK_TABLE,
             .long_lock = &residency_token.lock,
             .changed = {&residency_token.free},
             .in_child = residency_token_in_child};
