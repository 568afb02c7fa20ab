
#include "state/base/clock.h"
#include "state/base/threads/thread.h"
#include "state/base/threads/work.h"
#include "state/command/command.h"
#include "state/move/move_priv.h"

/* How long the gate may be closed to take out a residence that nobody needs. */
#define PATIENCE_NS 5000000u
/* Pause between two tries: a driver call may last for seconds. */
#define PAUSE_LEAST_NS 10000000
#define PAUSE_MOST_NS  500000000

/* Vacant residences, still in the tables of their contexts, which are held. Guarded by the movers'
 * lock. */
static struct residence *vacant;
static bool releasing; /* the thread below runs */

bool move_take_vacant(const struct residence *residence)
{
    struct residence **at = &vacant;
    while (*at && *at != residence)
        at = &(*at)->next;
    if (!*at)
        return false;
    *at = residence->next;
    object_unhold(residence->owner); /* the caller holds it as well */
    return true;
}

/* Take the first residence out of its context's table; false when threads do not leave in time. */
static bool move_undo_release_first(void)
{
    struct residence *residence = vacant;
    struct context *context = residence->owner;
    uint8_t residence_index = 0;
    if (gate_close(clock_now_ns() + PATIENCE_NS) != 0)
        return false;
    while (context->at[residence_index] != residence)
        residence_index++;
    context->at[residence_index] = NULL;
    gate_open();
    vacant = residence->next;
    residence_unref(residence);
    object_unhold(context);
    return true;
}

static void *move_undo_release_thread(void *unused)
{
    uint64_t pause = PAUSE_LEAST_NS;
    bool more = true;
    (void)unused;
    while (more) {
        clock_sleep(pause);
        if (pause < PAUSE_MOST_NS)
            pause += pause / 2;
        move_lock();
        /* When the process exits, these residences go with it. */
        bool goes_on = work_begin();
        while (goes_on && vacant && move_undo_release_first())
            ;
        work_end();
        more = releasing = goes_on && vacant != NULL;
        move_unlock();
    }
    return NULL;
}

void move_release_vacant(void)
{
    while (vacant && move_undo_release_first())
        ;
    if (!vacant || releasing)
        return;
    /* If no thread can be started, the next move tries again. */
    releasing = thread_start("reseat-undo", 0, move_undo_release_thread, NULL, NULL) == 0;
}

static struct move_context *move_walk_entry_of(const struct move *move,
                                               const struct object_class *class,
                                               const struct object *object)
{
    struct context *const *context =
        (struct context *const *)(const void *)((const char *)object + class->context);
    for (size_t i = 0; i < move->context_count; i++)
        if (move->contexts[i].context == *context)
            return &move->contexts[i];
    return NULL;
}

/* Visit either the objects made from others of their type (@parts), or the others. */
static int move_walk_class(struct move *move, const struct move_walk *walk,
                           const struct object_class *class, bool parts)
{
    uintptr_t cursor = 0;
    struct object *object;
    int error = 0;
    while (error == 0 && (object = object_next(class->type, &cursor))) {
        struct move_context *entry = move_walk_entry_of(move, class, object);
        if (entry && (!class->is_part || class->is_part(object) == parts))
            error = walk->act(move, class, object, entry);
        object_unhold(object);
    }
    return error;
}

int move_walk(struct move *move, const struct move_walk *walk)
{
    int error = 0;
    for (int i = 1; error == 0 && i < OBJECT_TYPES; i++) {
        const struct object_class *class = object_classes[walk->back ? OBJECT_TYPES - i : i];
        if (!class || !class->release || (walk->takes && !walk->takes(class)))
            continue;
        error = move_walk_class(move, walk, class, walk->back);
        if (error == 0 && class->is_part)
            error = move_walk_class(move, walk, class, !walk->back);
    }
    return error;
}

/* The gate may be open: only movers look at an object's real part in the target, and they hold the
 * lock. */
static int move_undo_vacate(struct move *move, const struct object_class *class,
                            struct object *object, struct move_context *entry)
{
    (void)move;
    if (entry->to != RESIDENCE_HOST)
        class->vacate(object, entry, entry->to);
    return 0;
}

void move_undo(struct move *move)
{
    static const struct move_walk all = {
        .back = true, .takes = move_is_made, .act = move_undo_vacate};
    (void)move_walk(move, &all);
    for (size_t i = 0; i < move->context_count; i++) {
        struct move_context *entry = &move->contexts[i];
        bool made = entry->made && !entry->returns;
        entry->made = false;
        if (!made)
            continue;
        object_hold(entry->context);
        entry->context->at[entry->to]->next = vacant;
        vacant = entry->context->at[entry->to];
    }
}
