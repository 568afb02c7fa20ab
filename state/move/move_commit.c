#include "state/budget/budget.h"
#include "state/command/parts.h"
#include "state/move/move_priv.h"
#include "state/move/source.h"
#include "state/program/program.h"
#include "state/program/program_cut.h"

int move_reserve(struct move *move)
{
    size_t all = 0;
    for (int type = OBJECT_CONTEXT + 1; type < OBJECT_TYPES; type++)
        all += object_count(type);
    int error = 0;
    for (size_t i = 0; error == 0 && i < move->context_count; i++)
        if (move->contexts[i].from != RESIDENCE_HOST)
            error = residence_reserve(move->contexts[i].context->at[move->contexts[i].from],
                                      all + parts_real_count() + program_cut_count());
    return error;
}

static int move_commit_vacate(struct move *move, const struct object_class *class,
                              struct object *object, struct move_context *entry)
{
    (void)move;
    class->vacate(object, entry, entry->from);
    return 0;
}

/* Profiling times continue from the source's last time (M3). */
static void move_commit_carry_clock(struct move *move)
{
    const struct move_context *first = move->context_count != 0 ? &move->contexts[0] : NULL;
    struct device_clock *clock = &move->vdev->clock;
    device_clock_leave(
        clock, first && first->from != RESIDENCE_HOST ? first->context->at[first->from] : NULL);
    device_clock_arrive(clock, first && first->to != RESIDENCE_HOST ? first->context->at[first->to]
                                                                    : NULL);
}

/* All objects have been switched to the target: switch the context. */
static void move_commit_arrive(struct move *move, struct move_context *entry)
{
    struct context *context = entry->context;
    atomic_store(&context->residence_index[entry->vdev_index],
                 entry->to == RESIDENCE_HOST ? RESIDENCE_NONE : entry->to);
    if (entry->to != RESIDENCE_HOST) {
        residence_lives(context->at[entry->to], RESIDENCE_LIVE);
        context->at[entry->to]->left_by = NULL;
        atomic_store(&context->at[entry->to]->recovered,
                     false); /* left by an earlier move that set it */
    }
    if (entry->leaves) {
        struct residence *from = context->at[entry->from];
        (void)residence_await_queue(from,
                                    from->io); /* wait for the unmap commands of vacated objects */
        /* All commands of the source have ended. A thread that is still inside its driver when the
         * device is lost (building a program, for example) must retry on the target instead of
         * failing: `recovered` says so. The source may also have been lost since this move last
         * looked; without protection, the program then gets the errors of the loss. */
        if (!move->recovers && (!residence_is_lost(from) || the_upcalls->is_protected()))
            atomic_store(&from->recovered, true);
        if (entry->stays) {
            from->left_by = move->vdev;
            residence_lives(from, RESIDENCE_SOURCE);
        } else {
            residence_lives(from, RESIDENCE_DRAINING);
            from->next = move->left;
            move->left = from;
            context->at[entry->from] = NULL;
        }
    }
    source_release(move->vdev, context, &move->left);
    for (uint8_t residence_index = 0; residence_index < context->residences; residence_index++)
        if (context->at[residence_index])
            residence_take_retired(context->at[residence_index], &move->retired);
    entry->made = false; /* it belongs to the context from here on */
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

/* Bytes that one command needs at once are the same on every device, so take over that mark, unless
 * the program released its objects to be moved. */
static void move_commit_keep_least(const struct move *move)
{
    const struct device *from = atomic_load(&move->vdev->device);
    if (!from)
        from = atomic_load(&move->vdev->last);
    if (from && move->target && move->basis != MOVE_BY_REST)
        mark_raise(&move->target->budget.least, atomic_load(&from->budget.least));
}

void move_commit(struct move *move)
{
    static const struct move_walk all = {.back = true, .act = move_commit_vacate};
    program_flush_output();
    for (size_t i = 0; i < move->context_count; i++) {
        struct move_context *entry = &move->contexts[i];
        entry->drained = entry->leaves && queue_drain_siblings(entry->context->at[entry->from]);
    }
    (void)move_walk(move, &all);
    move_commit_carry_clock(move);
    for (size_t i = 0; i < move->context_count; i++)
        move_commit_arrive(move, &move->contexts[i]);
    if (move->target)
        reach_read(&move->target->reach);
    move_commit_keep_least(move);
    budget_arrive(move->vdev, move->target, move->request->grant);
    atomic_fetch_add(&move->vdev->moves, 1);
}
