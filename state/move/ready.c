#include "state/move/move_priv.h"

#include <errno.h>

#include "state/base/array.h"
#include "state/object/lost.h"

/* Selects residences that were made ahead. */
struct choice {
    const struct device *device; /* NULL: any */
    const struct vdev *vdev;     /* NULL: any */
    bool lost;                   /* only on lost devices */
};

static bool ready_is_chosen(const struct context *context, uint8_t residence_index,
                            const struct choice *choice)
{
    const struct device *device = atomic_load(&context->ready[residence_index]);
    return device && (!choice->device || choice->device == device) &&
           (!choice->vdev || context_vdev_index(context, choice->vdev) >= 0) &&
           (!choice->lost || residence_is_lost(context->at[residence_index]));
}

/* Choose at most one residence in each context, as a move has. */
static void ready_choose(const struct choice *choice, struct move *ret_move)
{
    uintptr_t cursor = 0;
    struct context *context;
    for (; (context = object_next(OBJECT_CONTEXT, &cursor)); object_unhold(context)) {
        uint8_t residence_index = 0;
        while (residence_index < context->residences &&
               !ready_is_chosen(context, residence_index, choice))
            residence_index++;
        if (residence_index == context->residences ||
            !array_make_room(&ret_move->contexts, ret_move->context_count,
                             sizeof(ret_move->contexts[0])))
            continue; /* without memory it is kept until the next time */
        object_hold(context);
        atomic_store(&context->ready[residence_index], NULL);
        ret_move->contexts[ret_move->context_count++] =
            (struct move_context){.context = context,
                                  .vdev_index = -1,
                                  .from = RESIDENCE_HOST,
                                  .to = residence_index,
                                  .made = true};
    }
}

/* Release the chosen residences as a rollback releases its target. Returns how many. */
static unsigned ready_drop_chosen(const struct choice *choice)
{
    unsigned all = 0;
    size_t count;
    do {
        struct move move = {0};
        ready_choose(choice, &move);
        count = move.context_count;
        all += (unsigned)count;
        move_undo(&move);
        move_forget_contexts(&move);
    } while (count != 0);
    if (all != 0)
        move_release_vacant();
    return all;
}

unsigned ready_drop(const struct device *device, const struct vdev *vdev)
{
    const struct choice choice = {.device = device, .vdev = vdev};
    return ready_drop_chosen(&choice);
}

void ready_examine(const struct device *device)
{
    const struct choice ours = {.device = device}, lost = {.device = device, .lost = true};
    uintptr_t cursor = 0;
    struct context *context;
    for (; (context = object_next(OBJECT_CONTEXT, &cursor)); object_unhold(context))
        for (uint8_t residence_index = 0; residence_index < context->residences; residence_index++)
            if (ready_is_chosen(context, residence_index, &ours))
                residence_doubt(context->at[residence_index]);
    (void)ready_drop_chosen(&lost);
}

bool ready_take(struct context *context, uint8_t residence_index)
{
    return atomic_exchange(&context->ready[residence_index], NULL) != NULL;
}

/* Mark the residences that the move made or took over as made ahead, for a later move. */
static void ready_keep(struct move *move)
{
    for (size_t i = 0; i < move->context_count; i++) {
        struct move_context *entry = &move->contexts[i];
        if (entry->made)
            atomic_store(&entry->context->ready[entry->to], move->target);
        entry->made = false;
    }
}

int ready_make(struct move *move)
{
    move_enter_phase(move, MOVE_PREPARE);
    int error = move_prepare_code(move);
    move->gave_way = error == -EAGAIN;
    if (error == 0 || move->gave_way) {
        ready_keep(move);
    } else {
        if (error == -EIO)
            move_examine_target(move);
        move_undo(move);
    }
    move_forget_contexts(move);
    move_release_vacant();
    return error;
}
