#ifndef RESEAT_AGENT_SIMULATE_SIM_HEAP_H
#define RESEAT_AGENT_SIMULATE_SIM_HEAP_H

#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

/* What is going to happen, soonest first; of one time, what was said first. */

enum sim_due_kind {
    SIM_DUE_PROGRAM,
    SIM_DUE_STEP,
    SIM_DUE_REST,
    SIM_DUE_NODE,
    SIM_DUE_BALANCE,
    SIM_DUE_CLUSTER,
};

struct sim_due {
    uint64_t time_ms;
    uint64_t number;     /**< Set by sim_heap_push(). */
    uint32_t generation; /**< Of what it is about: out of date when that has another one. */
    uint32_t index;
    uint32_t cell;
    enum sim_due_kind kind;
};

struct sim_heap {
    struct sim_due *items;
    size_t count, room;
    uint64_t numbers;
};

void sim_heap_finish(struct sim_heap *heap);
/** Returns 0 or -ENOMEM. */
MUST_CHECK int sim_heap_push(struct sim_heap *heap, struct sim_due due);
/** The soonest, which stays; NULL when there is none. */
const struct sim_due *sim_heap_peek(const struct sim_heap *heap);
/** Drop the soonest; there must be one. */
void sim_heap_pop(struct sim_heap *heap);

#endif
