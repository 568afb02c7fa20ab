#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "state/base/clock.h"
#include "state/base/fork.h"
#include "state/base/thread.h"
#include "state/base/work.h"
#include "state/command/command.h"
#include "state/move/move_priv.h"
#include "state/program/kernel.h"
#include "state/program/sampler.h"

/* How long threads of the program may be kept out for a residence that nobody needs. */
#define PATIENCE_NS 5000000u
/* Between two tries: a call of a driver may last for seconds. */
#define PAUSE_LEAST_NS 10000000
#define PAUSE_MOST_NS  500000000

/* Residences that are still in their contexts' tables, which are held. Guarded by move_run's lock.
 */
static struct residence *vacant;
static bool releasing; /* a thread is at it */

bool move_take_vacant(const struct residence *residence)
{
    struct residence **at = &vacant;
    while (*at && *at != residence)
        at = &(*at)->next;
    if (!*at)
        return false;
    *at = residence->next;
    object_unhold(residence->owner); /* the caller has it from the table of objects */
    return true;
}

static void undo_queues(const struct move *move, const struct move_context *entry)
{
    const struct residence *residence = entry->context->at[entry->to];
    uintptr_t cursor = 0;
    struct queue *queue;
    while ((queue = object_next(OBJECT_QUEUE, &cursor))) {
        if (queue->context == entry->context && queue->seat == move->seat) {
            residence_release(residence->cl, OBJECT_QUEUE, queue->next);
            queue->next = NULL;
        }
        object_unhold(queue);
    }
}

static void empty_memory(struct memory *memory, struct residence *residence, uint8_t place)
{
    residence_release(residence->cl, OBJECT_MEMORY, memory->real[place]);
    memory_left(memory, residence, place);
    extents_dropped(memory, place);
}

/* Nobody but a mover looks at @place: what it holds while it does cannot leave by itself. */
static void empty(struct context *context, uint8_t place)
{
    struct residence *residence = context->at[place];
    uintptr_t cursor;
    struct kernel *kernel;
    for (cursor = 0; (kernel = object_next(OBJECT_KERNEL, &cursor)); object_unhold(kernel))
        if (kernel->program->context == context) {
            residence_release(residence->cl, OBJECT_KERNEL, kernel->real[place]);
            kernel->real[place] = NULL;
        }
    struct program *program;
    for (cursor = 0; (program = object_next(OBJECT_PROGRAM, &cursor)); object_unhold(program))
        if (program->context == context) {
            residence_release(residence->cl, OBJECT_PROGRAM, program->real[place]);
            program->real[place] = NULL;
            atomic_store(&program->made[place], 0);
        }
    struct sampler *sampler;
    for (cursor = 0; (sampler = object_next(OBJECT_SAMPLER, &cursor)); object_unhold(sampler))
        if (sampler->context == context) {
            residence_release(residence->cl, OBJECT_SAMPLER, sampler->real[place]);
            sampler->real[place] = NULL;
        }
    struct memory *memory;
    for (cursor = 0; (memory = object_next(OBJECT_MEMORY, &cursor)); object_unhold(memory))
        if (memory->context == context)
            empty_memory(memory, residence, place);
}

/* Take the first residence out of its context's table; false when threads do not leave in time. */
static bool release_first(void)
{
    struct residence *residence = vacant;
    struct context *context = residence->owner;
    uint8_t place = 0;
    if (gate_close(clock_now_ns() + PATIENCE_NS) != 0)
        return false;
    while (context->at[place] != residence)
        place++;
    context->at[place] = NULL;
    gate_open();
    vacant = residence->next;
    residence_unref(residence);
    object_unhold(context);
    return true;
}

static void *release_thread(void *unused)
{
    uint64_t pause = PAUSE_LEAST_NS;
    bool more = true;
    (void)unused;
    while (more) {
        clock_sleep(pause);
        if (pause < PAUSE_MOST_NS)
            pause += pause / 2;
        move_lock();
        /* Once the process ends, what is left goes with it. */
        bool goes_on = work_begin();
        while (goes_on && vacant && release_first())
            ;
        work_end();
        more = releasing = goes_on && vacant != NULL;
        move_unlock();
    }
    return NULL;
}

void move_release_vacant(void)
{
    while (vacant && release_first())
        ;
    if (!vacant || releasing)
        return;
    /* Without a thread the next move tries again. */
    releasing = thread_start("reseat-undo", 0, release_thread, NULL, NULL) == 0;
}

void move_undo(struct move *move)
{
    for (size_t i = 0; i < move->context_count; i++) {
        struct move_context *entry = &move->contexts[i];
        if (entry->to == PLACE_HOST)
            continue;
        undo_queues(move, entry);
        if (!entry->made)
            continue;
        empty(entry->context, entry->to);
        object_hold(entry->context);
        entry->context->at[entry->to]->next = vacant;
        vacant = entry->context->at[entry->to];
        entry->made = false;
    }
}

static void in_child(void)
{
    vacant = NULL;
    releasing = false;
}

FORK_PART = {.rank = FORK_TABLE, .in_child = in_child};
