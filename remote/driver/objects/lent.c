#include "remote/driver/objects/lent.h"

#include <stdlib.h>

#include "remote/driver/objects/objects.h"

/* Loans are at most so much of a session's shared memory: transfers need the rest. */
#define LENT_MOST (WIRE_BULK_BYTES / 2)

struct lent {
    struct lent_memory base;
    struct bulk_loan *loan;
};

struct lent_memory *lent_take(cl_context context, size_t size)
{
    const struct context *c = context_get(context);
    struct lent *lent = c ? calloc(1, sizeof(*lent)) : NULL;
    if (!lent)
        return NULL;
    lent->loan = block_lend(c->base.client, c->areas_before, size, LENT_MOST, &lent->base.maps);
    if (!lent->loan) {
        free(lent);
        return NULL;
    }
    lent->base.bytes = bulk_loan_block(lent->loan)->bytes;
    return &lent->base;
}

void lent_give(struct lent_memory *memory)
{
    struct lent *lent = container_of(memory, struct lent, base);
    bulk_return(lent->loan);
    free(lent);
}
