#include <stdlib.h>

#include "state/command.h"
#include "state/log.h"
#include "state/map.h"
#include "state/replica.h"

/*
 * Programs with several residences: what a command needs is copied to where it runs.
 *
 * Who brings waits for the device that wrote last, and other threads need not wait with it: the
 * gate is closed to look and to copy, and open in between.
 */

/* One object that a command needs, and the place where its latest bytes are. */
struct absent {
    struct memory *root; /* held */
    uint64_t version;
    uint8_t from;
    bool writes;
};

struct marker {
    struct residence *residence; /* referred to */
    cl_event event;
};

struct bringing {
    struct command *command;
    struct context *context;
    uint8_t place; /* where it was to run when we looked */
    struct absent *absent;
    size_t count, capacity;
    struct marker *markers;
    size_t marker_count;
};

static void finish(struct bringing *b)
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

static uint8_t holder_of(const struct memory *root)
{
    uint8_t place = atomic_load_explicit(&root->writer, memory_order_relaxed);
    for (uint8_t i = 0; place >= PLACE_HOST && i < PLACES; i++)
        if (root->real[i] && replica_is_latest(root, i))
            place = i;
    return place >= PLACE_HOST ? PLACE_HOST : place;
}

static bool push(struct bringing *b, struct memory *root, bool writes)
{
    if (b->count == b->capacity) {
        size_t capacity = b->capacity ? 2 * b->capacity : 8;
        struct absent *grown = reallocarray(b->absent, capacity, sizeof(*grown));
        if (!grown)
            return false;
        b->absent = grown;
        b->capacity = capacity;
    }
    object_hold(root);
    b->absent[b->count++] =
        (struct absent){root, atomic_load(&root->version), holder_of(root), writes};
    return true;
}

/* What lacks its latest bytes in @place, or is written by another place. */
static bool is_absent(const struct memory *root, uint8_t place, bool writes)
{
    return replica_needs(root, place) || (writes && atomic_load(&root->writer) != place);
}

/* Make everything real in @place, and list what is absent there. Gate closed. */
static cl_int look(struct bringing *b, uint8_t place)
{
    cl_int error = CL_SUCCESS;
    struct memory *memory;
    bool writes;
    for (unsigned i = 0; error == CL_SUCCESS && (memory = command_use(b->command, &i, &writes));) {
        error = memory_make_real(memory, b->context->at[place], place);
        if (error == CL_SUCCESS && is_absent(memory->root, place, writes) &&
            !push(b, memory->root, writes))
            error = CL_OUT_OF_HOST_MEMORY;
    }
    return error;
}

static bool is_source(const struct bringing *b, uint8_t place)
{
    bool source = false;
    for (size_t i = 0; i < b->count; i++)
        source = source || b->absent[i].from == place;
    return source;
}

/* An event behind everything given so far to the queues that may have written. Gate closed: POCL's
 * basic device deadlocks when two threads enqueue in one queue. */
static cl_int mark(struct bringing *b)
{
    cl_int error = CL_SUCCESS;
    uintptr_t cursor = 0;
    struct queue *queue;
    b->markers = calloc(object_count(OBJECT_QUEUE) + 1, sizeof(*b->markers));
    if (!b->markers)
        return CL_OUT_OF_HOST_MEMORY;
    while (error == CL_SUCCESS && (queue = object_next(OBJECT_QUEUE, &cursor))) {
        uint8_t place = atomic_load(&queue->context->place[queue->seat_index]);
        if (queue->context == b->context && queue->real && is_source(b, place)) {
            struct residence *residence = b->context->at[place];
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
    return error;
}

/* What was written there before we marked has ended. Gate closed. */
static bool has_settled(const struct absent *absent, uint8_t from)
{
    return from == PLACE_HOST ||
           (from == absent->from && atomic_load(&absent->root->version) == absent->version);
}

/* Copy one object, and make @place the one that writes it if it is to be written. What others wrote
 * to it since the markers were set has not ended. Gate closed. */
static cl_int copy(const struct bringing *b, const struct absent *absent, uint8_t place)
{
    cl_int error = CL_SUCCESS;
    uint64_t bytes;
    struct memory *root = absent->root;
    map_visit_await(root);
    struct replica_batch batch = {.context = b->context,
                                  .from = holder_of(root),
                                  .to = place,
                                  .quiet = true,
                                  .roots = &root,
                                  .count = 1};
    if (!has_settled(absent, batch.from))
        error = queue_drain(b->context, batch.from);
    if (error == CL_SUCCESS && replica_refresh(&batch, &bytes, &error) != 0 && error == CL_SUCCESS)
        error = CL_OUT_OF_RESOURCES;
    if (error == CL_SUCCESS && absent->writes)
        replica_claim(root, place);
    if (error != CL_SUCCESS)
        log_warn("an object of %zu bytes cannot be brought to %s (error %d)", root->size,
                 b->context->at[place]->device->key.device, error);
    return error;
}

static bool is_real(const struct command *command, uint8_t place)
{
    bool writes, real = place != PLACE_NONE;
    struct memory *memory;
    for (unsigned i = 0; real && (memory = command_use(command, &i, &writes));)
        real = memory->real[place] != NULL;
    return real;
}

/* Where the seat is now: it may have moved in between, and then what is absent there is seen at the
 * next look. */
static cl_int copy_all(struct bringing *b)
{
    const struct command_ops *ops = b->command->ops;
    cl_int error = CL_SUCCESS;
    if (gate_close(0) != 0)
        return CL_OUT_OF_RESOURCES;
    uint8_t place = atomic_load(&b->context->place[b->command->queue->seat_index]);
    for (size_t i = 0; error == CL_SUCCESS && place != PLACE_NONE && i < b->count; i++)
        if (b->absent[i].root->real[place] &&
            is_absent(b->absent[i].root, place, b->absent[i].writes))
            error = copy(b, &b->absent[i], place);
    if (error == CL_SUCCESS && ops->bring && is_real(b->command, place))
        error = ops->bring(b->command, place);
    gate_open();
    return error;
}

cl_int command_bring(struct command *command)
{
    struct bringing b = {.command = command, .context = command->queue->context};
    cl_int error = CL_SUCCESS;
    if (command->ops->relocate)
        command->ops->relocate(command);
    if (gate_close(0) != 0)
        return command->refused = CL_OUT_OF_RESOURCES;
    b.place = atomic_load(&b.context->place[command->queue->seat_index]);
    if (b.place != PLACE_NONE)
        error = look(&b, b.place);
    if (error == CL_SUCCESS && b.count > 0)
        error = mark(&b);
    gate_open();
    /* How a command ended is its own event's affair. */
    for (size_t i = 0; error == CL_SUCCESS && i < b.marker_count; i++)
        (void)residence_wait(b.markers[i].residence, 1, &b.markers[i].event);
    if (error == CL_SUCCESS && b.place != PLACE_NONE)
        error = copy_all(&b);
    finish(&b);
    command->refused = error;
    return error;
}
