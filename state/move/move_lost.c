#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "state/memory/extents.h"
#include "state/memory/memory.h"
#include "state/move/move_priv.h"
#include "state/object/lost.h"
#include "state/object/upcalls.h"

/*
 * Moves from a lost device. Its commands have ended with an error, and nothing can be read there.
 * So the move is possible only when the latest bytes of every object that was written exist
 * elsewhere: in host memory, in another virtual device's residence, or in the target, copied ahead.
 */

/* Number of objects that the reason lists. */
#define NAMED 3

uint8_t move_source(const struct move_context *entry, uint8_t from)
{
    bool lost = from != RESIDENCE_HOST && residence_is_lost(entry->context->at[from]);
    return lost ? RESIDENCE_HOST : from;
}

/* True when the residence of @vdev in @root's context is lost. */
static bool move_lost_is_concerned(const struct memory *root, const struct vdev *vdev)
{
    const struct context *context = root->context;
    int index = context_vdev_index(context, vdev);
    uint8_t residence_index =
        index < 0 ? RESIDENCE_NONE : atomic_load(&context->residence_index[index]);
    return residence_index != RESIDENCE_NONE && residence_is_lost(context->at[residence_index]);
}

static const char *move_lost_kind_of(const struct memory *memory)
{
    return memory->image ? "an image" : "a buffer";
}

bool move_can_recover(const struct move *move)
{
    return move->request->target && !move->request->prewarm && the_upcalls->can_recover(move->vdev);
}

int move_recover(struct move *move)
{
    char reason[256] = "";
    int error = the_upcalls->recover(move->contexts, move->context_count, move->left, reason,
                                     sizeof(reason));
    return error == 0 ? 0 : move_fail(move, error, "%s", reason);
}

int move_check_survivors(struct move *move)
{
    const struct device *device = atomic_load(&move->vdev->device);
    unsigned count = 0;
    char named[256] = "";
    size_t length = 0;
    uintptr_t cursor = 0;
    struct memory *memory;
    if (move->recovers)
        return 0;
    /* A recovery would replay unfinished commands. A move that began before the loss, or one to
     * host memory, does not, so it must fail and leave the recovery to another move. */
    if ((move->report->reached != MOVE_PLAN || !move->request->target) &&
        the_upcalls->can_recover(move->vdev))
        return move_fail(move, -EPERM, "%s was lost", device ? device_name(device) : "the device");
    gate_enter();
    for (; (memory = object_next(OBJECT_MEMORY, &cursor)); object_unhold(memory)) {
        if (memory->root != memory || !move_lost_is_concerned(memory, move->vdev) ||
            memory_only_at(memory, RESIDENCE_NONE) == 0)
            continue;
        if (count++ < NAMED && length < sizeof(named))
            length += (size_t)snprintf(named + length, sizeof(named) - length,
                                       "%s%s of %zu bytes (%p)", count > 1 ? ", " : "",
                                       move_lost_kind_of(memory), memory->size, (void *)memory);
    }
    gate_leave();
    if (count == 0)
        return 0;
    move->report->lasting = true;
    return move_fail(move, -EPERM, "%s is lost, and with it the latest bytes of %u object%s: %s%s",
                     device ? device_name(device) : "the device", count, count == 1 ? "" : "s",
                     named, count > NAMED ? ", ..." : "");
}

void move_examine_target(const struct move *move)
{
    for (size_t i = 0; i < move->context_count; i++)
        if (move->contexts[i].made)
            (void)residence_failed(move->contexts[i].context->at[move->contexts[i].to],
                                   CL_OUT_OF_RESOURCES);
}
