#include <stdio.h>

#include "state/memory/compare.h"
#include "state/memory/mapping.h"
#include "state/memory/memory_priv.h"
#include "state/memory/registered.h"

/* What a move does with memory objects, but for their content. */

void memory_describe(const struct object *object, char *ret_text, size_t size)
{
    const struct memory *memory = (const struct memory *)object;
    (void)!snprintf(ret_text, size, "%s of %zu bytes", memory->image ? "an image" : "a buffer",
                    memory->size);
}

bool memory_is_part(const struct object *object)
{
    const struct memory *memory = (const struct memory *)object;
    return memory->root != memory;
}

static void memory_move_release_now(struct memory *memory, struct residence *residence,
                                    uint8_t residence_index)
{
    residence_release(residence->cl, OBJECT_MEMORY, memory->real[residence_index]);
    memory_left(memory, residence, residence_index);
}

/*
 * What was to work on the program's memory has been written elsewhere since, so that its bytes
 * would have to be brought there: it is made anew beside it, and so is what was made from it.
 */
static void memory_move_part_from_host_copy(struct memory *root, struct residence *residence,
                                            uint8_t residence_index)
{
    uintptr_t cursor = 0;
    struct memory *memory;
    for (; (memory = object_next(OBJECT_MEMORY, &cursor)); object_unhold(memory))
        if (memory->root == root && memory != root)
            memory_move_release_now(memory, residence, residence_index);
    memory_move_release_now(root, residence, residence_index);
    extents_dropped(root, residence_index);
}

cl_int memory_prepare(struct object *object, struct move_context *move)
{
    struct memory *memory = (struct memory *)object;
    struct residence *target = move->context->at[move->to];
    bool paused = the_thread.gate.owner;
    if (paused && move->made && memory->root == memory && memory_would_write(memory, move->to))
        memory_move_part_from_host_copy(memory, target, move->to);
    /* Where the virtual device never used it its bytes are elsewhere: it is made when it is first
     * used. */
    if (move_is_busy(move) || memory->real[move->to] ||
        (move->from != RESIDENCE_HOST && !memory->real[move->from]))
        return CL_SUCCESS;
    /* What it is made from is made with it; inside the gate, lest a command of another virtual
     * device that is there already makes it at the same time. */
    gate_enter();
    cl_int error = memory_make_real(memory, target, move->to);
    gate_leave();
    /* More than it may have there: it stays in host memory until a command needs it. */
    if (error == OVER_BUDGET) {
        atomic_store(&target->device->budget.tight, true);
        return CL_SUCCESS;
    }
    /* The program may have freed its memory since it released the object. */
    return !paused && object_refs(memory->root) == 0 ? CL_SUCCESS : error;
}

cl_int memory_arrive(struct object *object, const struct move_context *move)
{
    struct memory *memory = (struct memory *)object;
    if (!move_carries_maps(move) || memory->root != memory || !map_any(memory))
        return CL_SUCCESS;
    return map_arrive(memory, move->context->at[move->to], move->from, move->to);
}

/* Its real object goes, with a hold on the host copy that it was made over. */
static void memory_move_leave(struct memory *memory, const struct move_context *move,
                              uint8_t residence_index)
{
    struct residence *residence = move->context->at[residence_index];
    bool root = memory->root == memory, committed = residence_index == move->from;
    bool over_host = memory->root->backed & (1u << residence_index);
    if (root && committed)
        (void)map_leave(memory, residence, residence_index); /* what its driver mapped it unmaps */
    if (over_host && move->drained)
        residence_release(residence->cl, OBJECT_MEMORY, memory->real[residence_index]);
    else
        residence_retire(residence, OBJECT_MEMORY, memory->real[residence_index],
                         root && over_host ? host_copy_ref(memory->host_copy) : NULL);
    memory_left(memory, residence, residence_index);
    extents_dropped(memory, residence_index);
}

/* What `from` alone has stays to be fetched, and what a move back found at `to`; views do not. */
static bool memory_move_stays(const struct memory *memory, const struct move_context *move,
                              uint8_t residence_index)
{
    if (memory->root != memory)
        return false;
    return residence_index == move->from
               ? move->stays && memory_only_at(memory, residence_index) != 0
               : move->returns;
}

void memory_vacate(struct object *object, const struct move_context *move, uint8_t residence_index)
{
    struct memory *memory = (struct memory *)object;
    /* Where the program was not while it moved it is from now on, perhaps. */
    if (memory->backed != 0)
        compare_forget(memory);
    else if (move->to != RESIDENCE_HOST)
        compare_forget_at(memory, move->to);
    /* Also where its bytes stay: what maps it from now on is another residence. */
    if (move_empties(move, residence_index) && memory->root == memory)
        registered_leave(memory, move->context->at[residence_index], move->drained);
    if (move_empties(move, residence_index) && !memory_move_stays(memory, move, residence_index))
        memory_move_leave(memory, move, residence_index);
    if (memory->root != memory || residence_index != move->from)
        return;
    if (move->leaves || residence_index == RESIDENCE_HOST)
        map_moved(memory, residence_index, move_carries_maps(move) ? move->to : RESIDENCE_HOST);
    memory_host_copy_drop(memory, residence_index);
}
