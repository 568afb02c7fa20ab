#include "state/command/parts.h"
#include "state/memory/mapping.h"
#include "state/move/move_priv.h"
#include "state/program/kernel.h"
#include "state/program/sampler.h"
#include "state/room/room.h"

/* @drained  Host memory is taken from the residence here and now (queue_drain_siblings). */
static void vacate_memory(struct memory *memory, struct residence *residence, uint8_t place,
                          bool drained)
{
    bool over_host = memory->root->backed & (1u << place);
    if (over_host && drained)
        residence_release(residence->cl, OBJECT_MEMORY, memory->real[place]);
    else
        residence_retire(residence, OBJECT_MEMORY, memory->real[place],
                         memory->root == memory && over_host ? window_ref(memory->window) : NULL);
    memory_left(memory, residence, place);
    extents_dropped(memory, place);
}

/* No object of @context refers to @place any more. Gate closed. */
static void vacate(struct context *context, uint8_t place)
{
    struct residence *residence = context->at[place];
    uintptr_t cursor;
    struct memory *memory;
    bool drained = queue_drain_siblings(residence); /* move_drain waited for what they do */
    for (cursor = 0; (memory = object_next(OBJECT_MEMORY, &cursor)); object_unhold(memory))
        if (memory->context == context && memory->root != memory)
            vacate_memory(memory, residence, place, drained);
    for (cursor = 0; (memory = object_next(OBJECT_MEMORY, &cursor)); object_unhold(memory))
        if (memory->context == context && memory->root == memory)
            vacate_memory(memory, residence, place, drained);
    struct sampler *sampler;
    for (cursor = 0; (sampler = object_next(OBJECT_SAMPLER, &cursor)); object_unhold(sampler))
        if (sampler->context == context) {
            residence_retire(residence, OBJECT_SAMPLER, sampler->real[place], NULL);
            sampler->real[place] = NULL;
        }
    struct kernel *kernel;
    for (cursor = 0; (kernel = object_next(OBJECT_KERNEL, &cursor)); object_unhold(kernel))
        if (kernel->program->context == context) {
            residence_retire(residence, OBJECT_KERNEL, kernel->real[place], NULL);
            kernel->real[place] = NULL;
        }
    struct program *program;
    for (cursor = 0; (program = object_next(OBJECT_PROGRAM, &cursor)); object_unhold(program))
        if (program->context == context) {
            residence_retire(residence, OBJECT_PROGRAM, program->real[place], NULL);
            program->real[place] = NULL;
            atomic_store(&program->made[place], 0);
        }
}

int move_reserve(struct move *move)
{
    size_t all = 0;
    for (int type = OBJECT_CONTEXT + 1; type < OBJECT_TYPES; type++)
        all += object_count(type);
    int error = 0;
    for (size_t i = 0; error == 0 && i < move->context_count; i++)
        if (move->contexts[i].from != PLACE_HOST)
            error = residence_reserve(move->contexts[i].context->at[move->contexts[i].from],
                                      all + parts_real_count());
    return error;
}

/* What was given to the source has ended: events keep their ends and times, and the program's clock
 * goes on from where it is (M3). */
static void settle(struct move *move)
{
    struct device_clock *clock = &move->seat->clock;
    struct residence *from = NULL, *to = NULL;
    for (size_t i = 0; i < move->context_count; i++) {
        const struct move_context *entry = &move->contexts[i];
        if (entry->from != PLACE_HOST)
            event_settle_all(entry->context, entry->context->at[entry->from], entry->from,
                             move->seat);
    }
    if (move->context_count != 0) {
        const struct move_context *first = &move->contexts[0];
        from = first->from != PLACE_HOST ? first->context->at[first->from] : NULL;
        to = first->to != PLACE_HOST ? first->context->at[first->to] : NULL;
    }
    device_clock_leave(clock, from);
    device_clock_arrive(clock, to);
}

static void commit_queues(struct move *move, const struct move_context *entry)
{
    uintptr_t cursor = 0;
    struct queue *queue;
    while ((queue = object_next(OBJECT_QUEUE, &cursor))) {
        if (queue->context == entry->context && queue->seat == move->seat) {
            if (entry->from != PLACE_HOST)
                residence_retire(entry->context->at[entry->from], OBJECT_QUEUE, queue->real, NULL);
            queue->real = queue->next;
            queue->next = NULL;
        }
        object_unhold(queue);
    }
}

/* What the driver of the source mapped it unmaps; windows that nobody needs any more go. */
static void commit_memory(const struct move_context *entry)
{
    struct context *context = entry->context;
    uintptr_t cursor = 0;
    struct memory *memory;
    while ((memory = object_next(OBJECT_MEMORY, &cursor))) {
        if (memory->context == context && memory->root == memory) {
            if (entry->from != PLACE_HOST)
                (void)map_leave(memory, context->at[entry->from], entry->from);
            map_moved(memory, entry->from, move_carries_maps(entry) ? entry->to : PLACE_HOST);
        }
        object_unhold(memory);
    }
    if (entry->from != PLACE_HOST)
        (void)residence_await_queue(context->at[entry->from], context->at[entry->from]->io);
}

static void drop_windows(const struct move_context *entry)
{
    uintptr_t cursor = 0;
    struct memory *memory;
    while ((memory = object_next(OBJECT_MEMORY, &cursor))) {
        if (memory->context == entry->context && memory->root == memory)
            memory_window_drop(memory, entry->from);
        object_unhold(memory);
    }
}

void move_release_left(struct move *move)
{
    retired_release(move->retired);
    move->retired = NULL;
    while (move->left) {
        struct residence *residence = move->left;
        move->left = residence->next;
        residence_unref(residence);
    }
}

/* What a command of it needs at once is so on every device, unless it let go of what it had. */
static void keep_least(const struct move *move)
{
    const struct device *from = atomic_load(&move->seat->device);
    if (!from)
        from = atomic_load(&move->seat->last);
    if (from && move->target && move->basis != MOVE_BY_REST)
        account_raise(&move->target->account.least, atomic_load(&from->account.least));
}

void move_commit(struct move *move)
{
    program_flush_output();
    settle(move);
    for (size_t i = 0; i < move->context_count; i++) {
        struct move_context *entry = &move->contexts[i];
        struct context *context = entry->context;
        commit_queues(move, entry);
        if (entry->leaves || entry->from == PLACE_HOST)
            commit_memory(entry);
        atomic_store(&context->place[entry->seat_index],
                     entry->to == PLACE_HOST ? PLACE_NONE : entry->to);
        if (entry->leaves) {
            vacate(context, entry->from);
            context->at[entry->from]->next = move->left;
            move->left = context->at[entry->from];
            context->at[entry->from] = NULL;
        }
        drop_windows(entry);
        for (uint8_t place = 0; place < PLACES; place++)
            if (context->at[place])
                residence_take_retired(context->at[place], &move->retired);
        entry->made = false; /* the context's now */
    }
    if (move->target)
        reach_read(&move->target->reach);
    keep_least(move);
    room_arrive(move->seat, move->target, move->request->grant);
    atomic_fetch_add(&move->seat->moves, 1);
}
