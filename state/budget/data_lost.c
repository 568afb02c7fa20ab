#include "state/base/log.h"
#include "state/budget/budget.h"
#include "state/memory/memory.h"
#include "state/object/lost.h"

/*
 * A program that left a device on demand has bytes there, and that device can be lost as well.
 * Nothing is wrong where the program is, but what needs those bytes can never run. Of a protected
 * program they are in its point and its journal, from which everything is done again, once: so the
 * device where it is counts as lost too, and all is as it is after such a loss.
 */

static bool data_lost_of(const struct memory *root)
{
    return root->root == root && root->type != CL_MEM_OBJECT_PIPE && object_refs(root) != 0 &&
           memory_only_at(root, RESIDENCE_NONE) != 0;
}

/* Some context that a device has has objects like that. Inside the gate, or with it closed. */
static bool data_lost_any(void)
{
    bool any = false;
    uintptr_t cursor = 0;
    struct memory *memory;
    for (; (memory = object_next(OBJECT_MEMORY, &cursor)); object_unhold(memory))
        any = any || (context_lives(memory->context, context_home(memory->context)) &&
                      data_lost_of(memory));
    return any;
}

bool budget_lose_data_lost(void)
{
    uintptr_t cursor = 0;
    struct context *context;
    if (!the_upcalls || !the_upcalls->is_protected() || !data_lost_any())
        return false;
    for (; (context = object_next(OBJECT_CONTEXT, &cursor)); object_unhold(context)) {
        uint8_t residence_index = context_home(context);
        if (!context_lives(context, residence_index))
            continue;
        /* It is not: what it reads for the program it does now, not when the program has its
         * memory. */
        (void)queue_drain(context, residence_index);
        residence_lose(context->at[residence_index], "what the program left elsewhere is lost",
                       true);
    }
    return true;
}

bool budget_find_data_lost(void)
{
    gate_enter();
    bool data_lost = data_lost_any();
    gate_leave();
    if (!data_lost || gate_close(0) != 0)
        return false;
    data_lost = budget_lose_data_lost();
    gate_open();
    return data_lost;
}
