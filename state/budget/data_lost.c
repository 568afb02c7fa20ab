#include "state/base/log.h"
#include "state/budget/budget.h"
#include "state/memory/memory.h"
#include "state/object/lost.h"

/*
 * A source (a device left on demand) can be lost while it has bytes of the program. The program's
 * present device is fine, but commands that need those bytes can never run. A protected program has
 * everything in its snapshot and journal, so its present device is declared lost too, and the
 * normal recovery follows.
 */

static bool data_lost_of(const struct memory *root)
{
    return root->root == root && root->type != CL_MEM_OBJECT_PIPE && object_refs(root) != 0 &&
           memory_only_at(root, RESIDENCE_NONE) != 0;
}

/* True when some context that is on a device has such objects. Inside the gate, or with it closed.
 */
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
        /* The device is not really lost and still writes to the program's memory: let that end now,
         * not after recovery gave the memory back. */
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
