#ifndef RESEAT_STATE_COMMAND_COMMAND_INLINE_H
#define RESEAT_STATE_COMMAND_COMMAND_INLINE_H

#include <stdlib.h>

#include "state/base/clock.h"
#include "state/base/threads/thread.h"
#include "state/command/command.h"
#include "state/command/elsewhere.h"
#include "state/command/event.h"
#include "state/command/journal.h"
#include "state/command/power.h"
#include "state/opencl/checks.h"

/*
 * The way of a command from the program to the driver, inline. command.c compiles it for commands
 * of every kind; launch.c once more for launches, whose operations the compiler then knows: a
 * launch that waits for nothing calls only the driver. What seldom happens is in command.c.
 */

/* What a call of the program asks for besides its command. */
struct command_call {
    struct command *command;
    bool blocking;
    cl_uint waits;
    struct event *const *wait_list;
    struct event *event; /* unpublished, for *ret_event; or NULL */
    cl_event *ret_event;
    uint64_t begun; /* the queue's order, where there is an event or a wait */
    int cancel;     /* of cancel_hold(), or CANCEL_NOT_HELD */
};

/* Before whatever takes longer than a driver's call that does not block, inside the gate. */
static inline void command_hold_cancel(struct command_call *call)
{
    if (call->cancel == CANCEL_NOT_HELD)
        call->cancel = cancel_hold();
}

/* Of command_give: its device was lost, and the program is on another one now. */
#define GIVE_AGAIN 2

/** For the inline functions below: what seldom happens. */
bool command_lacks(const struct command *command, unsigned use, const struct memory *memory,
                   bool writes, uint8_t residence_index);
cl_int command_absent(const struct command *command);
uint64_t command_distinct_bytes(const struct command *command);
cl_int command_issue_failed(struct command *command, struct residence *residence,
                            uint8_t residence_index, cl_int error);
cl_int command_give_failed(struct command_call *call, struct residence *residence, bool kept,
                           struct journal_entry *entry, cl_int error);
cl_int command_wait_outside(const struct command_call *call, struct residence *residence,
                            cl_event real);
cl_int command_run_deferred(struct command_call *call);
bool command_retry(struct command_call *call, unsigned *tries, cl_int *error);
void command_note_read(struct command *command, struct event *event);
void command_flush_awaited(struct residence *residence, uint8_t residence_index,
                           const struct queue *queue, cl_uint waits,
                           struct event *const *wait_list);

/*
 * Two devices may write parts of one buffer at once, each through a sub-buffer of its own: what one
 * of them was just told to write is not the other's to keep. So who writes which part is changed
 * with the gate closed only.
 */
static inline bool command_may_write(const struct command *command, const struct memory *root,
                                     uint8_t residence_index)
{
    return command->queue->context->vdev_count == 1 ||
           atomic_load_explicit(&root->writer, memory_order_relaxed) == residence_index;
}

static ALWAYS_INLINE cl_int command_ready_as(const struct command_ops *ops, struct command *command,
                                             struct residence *residence, uint8_t residence_index)
{
    struct memory *memory;
    struct budget *budget = &residence->device->budget;
    bool writes, tight = budget_is_tight(budget);
    uint64_t bytes = 0;
    if (ops->gather)
        ops->gather(command);
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
    /* Who says what the program may have there has to know what it needs at once. */
    if (UNLIKELY(bytes > atomic_load_explicit(&budget->least, memory_order_relaxed)) &&
        budget_limit(budget) != BUDGET_UNLIMITED)
        mark_raise(&budget->least, command_distinct_bytes(command));
    cl_int error = ops->ready ? ops->ready(command, residence, residence_index) : CL_SUCCESS;
    return UNLIKELY(error == COMMAND_ABSENT) ? command_absent(command) : error;
}

static ALWAYS_INLINE void command_given(const struct command *command, uint8_t residence_index)
{
    struct memory *memory;
    bool writes;
    for (unsigned i = 0; (memory = command_use(command, &i, &writes));)
        if (writes && LIKELY(!replica_is_apart(memory->root)))
            replica_written_whole(memory->root, residence_index);
        else if (writes)
            extents_written(memory->root, residence_index, command_range(command, i - 1, memory));
}

/* Count what a read or write of the program transfers: of a rectangle, the range that it spans. One
 * of nothing uses no memory. */
static ALWAYS_INLINE void command_crossed(const struct command_ops *ops,
                                          const struct command *command,
                                          struct residence *residence)
{
    bool to = ops->type == CL_COMMAND_WRITE_BUFFER || ops->type == CL_COMMAND_WRITE_BUFFER_RECT ||
              ops->type == CL_COMMAND_WRITE_IMAGE;
    if (!to && ops->type != CL_COMMAND_READ_BUFFER && ops->type != CL_COMMAND_READ_BUFFER_RECT &&
        ops->type != CL_COMMAND_READ_IMAGE)
        return;
    if (command->use_count == 0)
        return;
    struct range range = command_range(command, 0, command->uses[0]);
    budget_crossed(&residence->device->budget, to, range.end - range.begin);
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

/* What the driver has to wait for: events that it knows; those of another residence have ended.
 * Inside the gate. */
static inline cl_uint command_real_waits(uint8_t residence_index, cl_uint waits,
                                         struct event *const *wait_list, cl_event *ret_real)
{
    cl_uint count = 0;
    for (cl_uint i = 0; i < waits; i++)
        if (event_state(wait_list[i]) == EVENT_ISSUED && !wait_list[i]->parts &&
            wait_list[i]->residence_index == residence_index)
            ret_real[count++] = wait_list[i]->real;
    return count;
}

static ALWAYS_INLINE cl_int command_issue_as(const struct command_ops *ops, struct command *command,
                                             struct residence *residence, uint8_t residence_index,
                                             cl_command_queue queue, cl_uint waits,
                                             struct event *const *wait_list, cl_event *ret_real)
{
    cl_event on_stack[16], *real = on_stack;
    cl_uint count = 0;
    if (waits > ARRAY_SIZE(on_stack)) {
        real = calloc(waits, sizeof(*real));
        if (!real)
            return CL_OUT_OF_HOST_MEMORY;
    }
    if (waits != 0)
        count = command_real_waits(residence_index, waits, wait_list, real);
    if (UNLIKELY(count != 0 && residence->holds_back))
        command_flush_awaited(residence, residence_index, command->queue, waits, wait_list);
    if (UNLIKELY(residence->runs_at_once))
        budget_wait_begin(&residence->device->budget, clock_now_ns());
    cl_int error = ops->issue(command, residence, residence_index, queue, count,
                              count ? real : NULL, ret_real);
    if (UNLIKELY(residence->runs_at_once))
        budget_wait_end(&residence->device->budget, clock_now_ns());
    if (UNLIKELY(real != on_stack))
        free(real);
    if (UNLIKELY(error != CL_SUCCESS))
        return command_issue_failed(command, residence, residence_index, error);
    command_given(command, residence_index);
    command_crossed(ops, command, residence);
    if (UNLIKELY(command->residency_token != 0))
        residency_token_release(command);
    return CL_SUCCESS;
}

/* The command can go: give it to the driver. Inside the gate, which is left. @ret_real is for a
 * blocking call to wait for. */
static ALWAYS_INLINE cl_int command_give(const struct command_ops *ops, struct command_call *call,
                                         struct residence *residence, uint8_t residence_index,
                                         cl_event *ret_real)
{
    if (UNLIKELY(call->event || call->blocking))
        call->begun = queue_step(call->command->queue);
    bool kept = UNLIKELY(atomic_load_explicit(&journal_is_kept, memory_order_relaxed));
    struct journal_entry *entry =
        kept ? journal_prepare(call->command, false, call->waits, call->wait_list) : NULL;
    cl_int error = command_issue_as(ops, call->command, residence, residence_index,
                                    call->command->queue->real, call->waits, call->wait_list,
                                    call->event || call->blocking ? ret_real : NULL);
    if (UNLIKELY(error != CL_SUCCESS))
        return command_give_failed(call, residence, kept, entry, error);
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

/* What most commands need to know of defer_needed. */
static ALWAYS_INLINE bool command_is_held_back(const struct command_ops *ops,
                                               const struct command *command,
                                               uint8_t residence_index, cl_uint waits,
                                               struct event *const *wait_list)
{
    return (waits != 0 || (ops->launches && power_is_capped()) ||
            UNLIKELY(atomic_load_explicit(&command->queue->deferred_count, memory_order_acquire) !=
                     0)) &&
           defer_needed(command, residence_index, waits, wait_list);
}

static ALWAYS_INLINE cl_int command_run_call(const struct command_ops *ops,
                                             struct command_call *call)
{
    struct command *command = call->command;
    unsigned tries = 0;
    uint8_t residence_index;

    for (;;) {
        struct residence *residence = command_queue_enter(command->queue, &residence_index);
        if (UNLIKELY(residence->runs_at_once ||
                     atomic_load_explicit(&cancel_is_used, memory_order_relaxed)))
            command_hold_cancel(call);
        if (UNLIKELY(
                command_is_held_back(ops, command, residence_index, call->waits, call->wait_list)))
            return command_run_deferred(call);
        cl_int error = command_ready_as(ops, command, residence, residence_index);
        if (LIKELY(error == CL_SUCCESS)) {
            cl_event real = NULL;
            error = command_give(ops, call, residence, residence_index, &real);
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
        if (!command_retry(call, &tries, &error))
            return error;
    }
}

static ALWAYS_INLINE cl_int command_run_as(const struct command_ops *ops, struct command *command,
                                           bool blocking, cl_uint waits, const cl_event *wait_list,
                                           cl_event *ret_event)
{
    struct queue *queue = command->queue;
    struct command_call call = {.command = command,
                                .blocking = blocking,
                                .waits = waits,
                                .wait_list = (struct event *const *)wait_list,
                                .ret_event = ret_event,
                                .cancel = CANCEL_NOT_HELD};

    cl_int error = check_wait_list(waits, wait_list, queue->context, event_context_of);
    if (error != CL_SUCCESS)
        return error;
    command->wait_list_empty = waits == 0;
    /* Of a program that is protected, what blocks may have to wait for a second device. */
    cl_event own = NULL;
    if (blocking && !ret_event &&
        UNLIKELY(atomic_load_explicit(&journal_is_kept, memory_order_relaxed)))
        call.ret_event = &own;
    if (call.ret_event) {
        call.event = event_create(queue->context, queue, ops->type);
        if (!call.event)
            return CL_OUT_OF_HOST_MEMORY;
    }
    if (blocking)
        command_hold_cancel(&call);
    error = command_run_call(ops, &call);
    if (blocking && error == CL_SUCCESS && UNLIKELY(call.event && call.event->kept))
        command_note_read(command, call.event);
    if (UNLIKELY(own != NULL))
        object_release(own);
    cancel_allow(call.cancel);
    return error;
}

#endif
