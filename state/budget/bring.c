#include <stdlib.h>

#include "state/base/array.h"
#include "state/base/log.h"
#include "state/base/span.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/long_lock.h"
#include "state/budget/budget.h"
#include "state/command/elsewhere.h"
#include "state/command/parts.h"
#include "state/memory/mapping.h"
#include "state/memory/replica.h"
#include "state/object/lost.h"

/*
 * Brings the bytes that a command needs to the residence where it runs.
 *
 * The bringing thread waits for the device that wrote the bytes last, and other threads need not
 * wait with it: the gate is closed only to look and to copy, and open in between.
 */

/* Bytes that a command needs, and the residences that have the latest ones. */
struct absent {
    struct memory *root; /* held */
    struct range range;
    uint64_t version; /* newest version in the range when it was listed */
    uint64_t from;    /* bit p: residence p */
    bool writes;
};

struct marker {
    struct residence *residence; /* with a reference */
    cl_event event;
};

/* Spilling frees at least this part of the limit at a time. */
#define SPILL_SHARE 16
/* Commands often use small adjacent ranges of a spilled or left object, one after the other. So
 * this many bytes are brought at once, whose copying takes about as long as the overhead of
 * bringing. */
#define BRING_WORTH ((size_t)1 << 20)
/* How often one command spills after the policy said so, before it exceeds the limit. */
#define SPILLS_MAX 8

struct bringing {
    struct command *command;
    struct context *context;
    uint64_t missing;        /* bytes that there is no room for */
    bool later;              /* try again when the present move has ended */
    bool copies;             /* the first object need not be there (elsewhere_copies) */
    uint8_t residence_index; /* residence of its queue when we looked */
    struct absent *absent;
    size_t count;
    struct marker *markers;
    size_t marker_count;
};

static void bring_finish(struct bringing *b)
{
    for (size_t i = 0; i < b->count; i++)
        object_unhold(b->absent[i].root);
    free(b->absent);
    for (size_t i = 0; i < b->marker_count; i++) {
        b->markers[i].residence->cl->clReleaseEvent(b->markers[i].event);
        residence_unref(b->markers[i].residence);
    }
    free(b->markers);
}

static uint8_t bring_holder_of(const struct memory *root, const struct extent *extent)
{
    const struct context *context = root->context;
    uint8_t residence_index =
        context_is_readable(context, extent->writer) ? extent->writer : RESIDENCE_HOST;
    for (uint8_t i = 0; residence_index == RESIDENCE_HOST && i < context->residences; i++)
        if (root->real[i] && (extent->latest & residence_bit(i)) && context_is_readable(context, i))
            residence_index = i;
    return residence_index;
}

static bool bring_push(struct bringing *b, struct absent absent, uint8_t residence_index)
{
    if (!array_make_room(&b->absent, b->count, sizeof(absent)))
        return false;
    for (size_t at = absent.range.begin; at < absent.range.end;) {
        struct extent extent = extent_at(absent.root, at);
        if (!(extent.latest & residence_bit(residence_index)))
            absent.from |= residence_bit(bring_holder_of(absent.root, &extent));
        if (extent.version > absent.version)
            absent.version = extent.version;
        at = extent.range.end;
    }
    object_hold(absent.root);
    b->absent[b->count++] = absent;
    return true;
}

/* True when @residence_index lacks the latest bytes, or when they are to be written and another
 * residence is their writer. */
static bool bring_is_absent(const struct absent *absent, uint8_t residence_index)
{
    return !extents_latest(absent->root, residence_index, absent->range) ||
           (absent->writes && !extents_written_by(absent->root, residence_index, absent->range));
}

/* As command_use, of the objects that are brought. */
static struct memory *bring_use(const struct bringing *b, unsigned *cursor, bool *ret_writes)
{
    *cursor = *cursor == 0 && b->copies ? 1 : *cursor;
    return command_use(b->command, cursor, ret_writes);
}

/*
 * Make the command's objects real in @residence_index. @ret_missing: bytes that there is no room
 * for; @ret_short then has the error. Gate closed.
 */
static cl_int bring_make_real(const struct bringing *b, uint8_t residence_index,
                              uint64_t *ret_missing, cl_int *ret_short)
{
    struct memory *memory;
    bool writes;
    *ret_missing = 0;
    for (unsigned i = 0; (memory = bring_use(b, &i, &writes));) {
        cl_int error = memory_make_real(memory, b->context->at[residence_index], residence_index);
        if (is_shortage(error)) {
            *ret_missing += memory->root->size;
            *ret_short = error;
        } else if (error != CL_SUCCESS) {
            return error;
        }
    }
    return CL_SUCCESS;
}

/* More than is missing, so that the next commands find room without draining the device again. */
static uint64_t bring_to_free(const struct budget *budget, uint64_t missing)
{
    uint64_t limit = budget_limit(budget), held = atomic_load(&budget->held);
    uint64_t over = held + missing > limit ? held + missing - limit : missing;
    uint64_t share = limit == BUDGET_UNLIMITED ? 0 : limit / SPILL_SHARE;
    return over > share ? over : share;
}

/* After a driver refused the command for want of memory, without saying how much it lacks: spill a
 * little, twice as much each time the command fails again, at last everything. False when there is
 * nothing left to spill. */
static bool bring_squeeze(struct bringing *b, struct residence *residence)
{
    struct command *command = b->command;
    uint64_t held = atomic_load(&residence->device->budget.held);
    if (command->squeezes <= COMMAND_SQUEEZES) {
        unsigned left = COMMAND_SQUEEZES - command->squeezes;
        if (budget_make(residence, left ? held >> left : UINT64_MAX, command, &b->later) != 0)
            return true;
    }
    command->squeezes = COMMAND_SQUEEZES + 1;
    return false;
}

/* Make all objects real, spilling others once the command has the residency token. OVER_BUDGET or a
 * driver's error, with b->missing set: there is not enough room. Gate closed. */
static cl_int bring_find_room(struct bringing *b, uint8_t residence_index)
{
    struct residence *residence = b->context->at[residence_index];
    cl_int reason = OVER_BUDGET;
    if (b->command->shortage != CL_SUCCESS) {
        reason = b->command->shortage;
        b->command->shortage = CL_SUCCESS;
        if (!bring_squeeze(b, residence)) {
            b->missing = budget_least(b->command);
            return reason;
        }
    }
    for (;;) {
        cl_int error = bring_make_real(b, residence_index, &b->missing, &reason);
        if (error != CL_SUCCESS || b->missing == 0)
            return error;
        if (!residency_token_has(b->command) ||
            budget_make(residence, bring_to_free(&residence->device->budget, b->missing),
                        b->command, &b->later) == 0)
            return reason;
    }
}

/* Find room for the objects and list those that are absent in @residence_index. Gate closed. */
static cl_int bring_look(struct bringing *b, uint8_t residence_index)
{
    struct memory *memory;
    bool writes;
    cl_int error = bring_find_room(b, residence_index);
    for (unsigned i = 0; error == CL_SUCCESS && (memory = bring_use(b, &i, &writes));) {
        struct absent absent = {.root = memory->root,
                                .range = command_range(b->command, i - 1, memory),
                                .writes = writes};
        if (bring_is_absent(&absent, residence_index) && !bring_push(b, absent, residence_index))
            error = CL_OUT_OF_HOST_MEMORY;
    }
    return error;
}

static bool bring_is_source(const struct bringing *b, uint8_t residence_index)
{
    bool source = false;
    for (size_t i = 0; i < b->count; i++)
        source = source || (residence_index < b->context->residences &&
                            (b->absent[i].from & residence_bit(residence_index)));
    return source;
}

/* Add the event of a piece that runs outside the queues. */
static void bring_mark_piece(void *data, const struct event *event, uint8_t residence_index,
                             cl_event real)
{
    struct bringing *b = data;
    if (event->context != b->context || !bring_is_source(b, residence_index))
        return;
    struct residence *residence = b->context->at[residence_index];
    (void)residence->cl->clRetainEvent(real);
    residence_ref(residence);
    b->markers[b->marker_count++] = (struct marker){residence, real};
}

/* Put a marker in each queue that may have written what is absent. Gate closed: POCL's basic device
 * deadlocks when two threads enqueue in one queue. */
static cl_int bring_mark(struct bringing *b)
{
    cl_int error = CL_SUCCESS;
    uintptr_t cursor = 0;
    struct queue *queue;
    b->markers = calloc(object_count(OBJECT_QUEUE) + parts_real_count() + 1, sizeof(*b->markers));
    if (!b->markers)
        return CL_OUT_OF_HOST_MEMORY;
    while (error == CL_SUCCESS && (queue = object_next(OBJECT_QUEUE, &cursor))) {
        uint8_t residence_index = atomic_load(&queue->context->residence_index[queue->vdev_index]);
        if (queue->context == b->context && queue->real && bring_is_source(b, residence_index)) {
            struct residence *residence = b->context->at[residence_index];
            cl_event event = NULL;
            error = residence->cl->clEnqueueMarkerWithWaitList(queue->real, 0, NULL, &event);
            if (error == CL_SUCCESS) {
                residence_ref(residence);
                b->markers[b->marker_count++] = (struct marker){residence, event};
                error = residence->cl->clFlush(queue->real);
            }
        }
        object_unhold(queue);
    }
    if (error == CL_SUCCESS)
        parts_each_beside(bring_mark_piece, b);
    return error;
}

/* True when the markers cover every write to the range. Gate closed. */
static bool bring_has_settled(const struct absent *absent, uint8_t from)
{
    if (from == RESIDENCE_HOST)
        return true;
    uint64_t newest = 0;
    for (size_t at = absent->range.begin; at < absent->range.end;) {
        struct extent extent = extent_at(absent->root, at);
        newest = extent.version > newest ? extent.version : newest;
        at = extent.range.end;
    }
    return (absent->from & residence_bit(from)) && newest == absent->version;
}

/* Residence with the first bytes that @residence_index lacks; RESIDENCE_NONE when it lacks none. */
static uint8_t bring_next_holder(const struct absent *absent, uint8_t residence_index)
{
    for (size_t at = absent->range.begin; at < absent->range.end;) {
        struct extent extent = extent_at(absent->root, at);
        if (!(extent.latest & residence_bit(residence_index)))
            return bring_holder_of(absent->root, &extent);
        at = extent.range.end;
    }
    return RESIDENCE_NONE;
}

/* Copy what one other residence, or host memory, has. */
static cl_int bring_copy_from(const struct bringing *b, const struct absent *absent, uint8_t from,
                              uint8_t residence_index)
{
    struct memory *root = absent->root;
    struct range range = absent->range;
    cl_int error = CL_SUCCESS;
    uint64_t bytes = 0;
    if (from == RESIDENCE_HOST || context_life(b->context, from) == RESIDENCE_SOURCE) {
        range.begin -= range.begin % BRING_WORTH;
        range.end += BRING_WORTH - 1 - (range.end - 1) % BRING_WORTH;
        range.end = range.end < root->size ? range.end : root->size;
    }
    struct replica_batch batch = {.context = b->context,
                                  .from = from,
                                  .to = residence_index,
                                  .quiet = true,
                                  .roots = &root,
                                  .ranges = &range,
                                  .count = 1};
    if (!bring_has_settled(absent, batch.from))
        error = queue_drain(b->context, batch.from);
    if (error == CL_SUCCESS && replica_refresh(&batch, &bytes, &error) != 0 && error == CL_SUCCESS)
        error = CL_OUT_OF_RESOURCES;
    if (error == CL_SUCCESS && bytes == 0)
        error = CL_OUT_OF_RESOURCES;
    if (error != CL_SUCCESS && context_life(b->context, from) == RESIDENCE_SOURCE)
        (void)residence_failed(b->context->at[from], CL_OUT_OF_RESOURCES);
    return error;
}

/* Copy what @residence_index lacks, and make it the writer of the range if the command writes.
 * Writes since the markers are waited for. Gate closed. */
static cl_int bring_copy(const struct bringing *b, const struct absent *absent,
                         uint8_t residence_index)
{
    cl_int error = CL_SUCCESS;
    struct memory *root = absent->root;
    uint8_t from;
    map_visit_await(root);
    while (error == CL_SUCCESS &&
           (from = bring_next_holder(absent, residence_index)) != RESIDENCE_NONE)
        error = bring_copy_from(b, absent, from, residence_index);
    if (error == CL_SUCCESS && absent->writes)
        extents_claim(root, residence_index, absent->range);
    if (error != CL_SUCCESS)
        log_warn("an object of %zu bytes cannot be brought to %s (error %d)", root->size,
                 b->context->at[residence_index]->device->key.device, error);
    return error;
}

static bool bring_is_real(const struct command *command, uint8_t residence_index)
{
    bool writes, real = residence_index != RESIDENCE_NONE;
    struct memory *memory;
    for (unsigned i = 0; real && (memory = command_use(command, &i, &writes));)
        real = memory->real[residence_index] != NULL;
    return real;
}

/* Held while an io queue is used for a command. Movers keep each other away by their own lock. */
static struct long_lock copying = LONG_LOCK_INITIALIZER;

void budget_copy_begin(void)
{
    (void)long_lock_take(&copying, 0);
}

void budget_copy_end(void)
{
    long_lock_release(&copying);
}

/*
 * A source (a device left on demand) can be lost while it has bytes of the program. The program's
 * present device is fine, but commands that need those bytes can never run. A protected program has
 * everything in its snapshot and journal, so its present device is declared lost too, and the
 * normal recovery follows.
 */

static bool bring_lost_data_of(const struct memory *root)
{
    return root->root == root && root->type != CL_MEM_OBJECT_PIPE && object_refs(root) != 0 &&
           memory_only_at(root, RESIDENCE_NONE) != 0;
}

/* True when some context that is on a device has such objects. Inside the gate, or with it closed.
 */
static bool bring_lost_data_any(void)
{
    bool any = false;
    uintptr_t cursor = 0;
    struct memory *memory;
    for (; (memory = object_next(OBJECT_MEMORY, &cursor)); object_unhold(memory))
        any = any || (context_lives(memory->context, context_home(memory->context)) &&
                      bring_lost_data_of(memory));
    return any;
}

/* If bytes of a protected program are lost: declare its present device lost too, once its commands
 * have ended, so that the program is recovered. Returns whether it did. Gate closed. */
static bool bring_declare_lost(void)
{
    uintptr_t cursor = 0;
    struct context *context;
    if (!the_upcalls || !the_upcalls->is_protected() || !bring_lost_data_any())
        return false;
    for (; (context = object_next(OBJECT_CONTEXT, &cursor)); object_unhold(context)) {
        uint8_t residence_index = context_home(context);
        if (!context_lives(context, residence_index))
            continue;
        /* The device is not really lost and still writes to the program's memory: let that end now,
         * not after recovery gave the memory back. */
        (void)queue_drain(context, residence_index);
        residence_lose(context->at[residence_index], "what the program left elsewhere is lost",
                       true);
    }
    return true;
}

/* Copy to the residence where the virtual device is now. It may have moved in between; then
 * command_bring is called again for what is absent there. */
static cl_int bring_copy_all(struct bringing *b)
{
    const struct command_ops *ops = b->command->ops;
    cl_int error = CL_SUCCESS;
    if (gate_close(0) != 0)
        return CL_OUT_OF_RESOURCES;
    budget_copy_begin();
    uint8_t residence_index =
        atomic_load(&b->context->residence_index[b->command->queue->vdev_index]);
    for (size_t i = 0; error == CL_SUCCESS && residence_index != RESIDENCE_NONE && i < b->count;
         i++)
        if (b->absent[i].root->real[residence_index] &&
            bring_is_absent(&b->absent[i], residence_index))
            error = bring_copy(b, &b->absent[i], residence_index);
    if (error == CL_SUCCESS && ops->bring && bring_is_real(b->command, residence_index))
        error = ops->bring(b->command, residence_index);
    budget_copy_end();
    if (error != CL_SUCCESS)
        (void)bring_declare_lost();
    gate_open();
    return error;
}

/* Ask the policy, because there is no room even after spilling. CL_SUCCESS: try again. */
static cl_int bring_ask(struct bringing *b, struct device *device, cl_int reason)
{
    uint64_t least = 0;
    struct memory *memory;
    bool writes;
    for (unsigned i = 0; (memory = command_use(b->command, &i, &writes));)
        least += memory->root->size;
    residency_token_release(b->command);
    enum budget_answer answer = budget_ask(device, b->missing, least, true, reason);
    /* The limit allows the command if others are spilled. If that failed repeatedly, other threads
     * took the freed room, or the limit was lowered meanwhile: exceed it rather than fail. */
    if (answer == BUDGET_SPILL && reason == OVER_BUDGET) {
        if (++b->command->spills > SPILLS_MAX)
            budget_exceed(device, b->missing);
        return CL_SUCCESS;
    }
    if (answer == BUDGET_AGAIN)
        return CL_SUCCESS;
    return reason == OVER_BUDGET ? CL_MEM_OBJECT_ALLOCATION_FAILURE : reason;
}

/* First step: list what is absent, and put markers. */
static cl_int bring_prepare(struct bringing *b, struct device **ret_device)
{
    cl_int error = CL_SUCCESS;
    if (gate_close(0) != 0)
        return CL_OUT_OF_RESOURCES;
    b->residence_index = atomic_load(&b->context->residence_index[b->command->queue->vdev_index]);
    if (b->residence_index != RESIDENCE_NONE) {
        *ret_device = b->context->at[b->residence_index]->device;
        b->copies = elsewhere_copies(b->command, b->residence_index);
        error = bring_look(b, b->residence_index);
    }
    if (error == CL_SUCCESS && b->count > 0)
        error = bring_mark(b);
    gate_open();
    return error;
}

/* True when the device of @command is lost: then no room is made there or asked for. */
static bool bring_is_lost(const struct command *command, cl_int error)
{
    const struct queue *queue = command->queue;
    struct residence *residence = NULL;
    gate_enter();
    uint8_t residence_index = atomic_load(&queue->context->residence_index[queue->vdev_index]);
    if (residence_index != RESIDENCE_NONE) {
        residence = queue->context->at[residence_index];
        residence_ref(residence);
    }
    gate_leave();
    bool lost = residence && residence_failed(residence, error);
    residence_unref(residence);
    return lost;
}

static cl_int bring(struct bringing *b)
{
    struct device *device = NULL;
    bool had_token = residency_token_has(b->command);
    cl_int error = bring_prepare(b, &device);
    if (error != CL_SUCCESS && bring_is_lost(b->command, error))
        return CL_OUT_OF_RESOURCES;
    if (is_shortage(error) && b->missing != 0) {
        if (had_token && b->later) {
            residency_token_release(b->command);
            the_upcalls->await_move();
            return CL_SUCCESS;
        }
        if (had_token)
            return bring_ask(b, device, error);
        residency_token_take(b->command);
        return CL_SUCCESS; /* the command is checked again, with the token */
    }
    /* If a command before the marker fails, its own event reports that. */
    for (size_t i = 0; error == CL_SUCCESS && i < b->marker_count; i++)
        (void)residence_wait(b->markers[i].residence, 1, &b->markers[i].event);
    if (error == CL_SUCCESS && b->residence_index != RESIDENCE_NONE)
        error = bring_copy_all(b);
    return error;
}

/* Number of threads in command_bring. */
static _Atomic unsigned bringing;

bool budget_is_brought(void)
{
    return atomic_load_explicit(&bringing, memory_order_relaxed) != 0;
}

cl_int command_bring(struct command *command)
{
    struct bringing b = {.command = command, .context = command->queue->context};
    if (bring_is_lost(command, command->shortage))
        return command->refused = CL_OUT_OF_RESOURCES;
    if (command->ops->relocate)
        command->ops->relocate(command);
    if (command->shortage != CL_SUCCESS)
        residency_token_take(command);
    atomic_fetch_add(&bringing, 1);
    uint64_t begun = span_begin();
    cl_int error = bring(&b);
    atomic_fetch_sub(&bringing, 1);
    bring_finish(&b);
    span_end(begun, "room", "bring", NULL, 0);
    command->refused = error;
    return error;
}

bool budget_find_data_lost(void)
{
    gate_enter();
    bool data_lost = bring_lost_data_any();
    gate_leave();
    if (!data_lost || gate_close(0) != 0)
        return false;
    data_lost = bring_declare_lost();
    gate_open();
    return data_lost;
}

static void bring_in_child(void)
{
    long_lock_init(&copying);
    atomic_store(&bringing, 0);
}

FORK_PART = {.rank = FORK_TABLE, .in_child = bring_in_child};
