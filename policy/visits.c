#include "policy/visits.h"

#include <stddef.h>

/* A program that returns later than this multiple of the time it could is not oscillating. */
#define LATE_TIMES 4
/* Time after a move until the measured load is of the new device only. Below the minimum stay. */
#define SETTLE_S 10
/* Programs report their load in steps of 50; a difference of one step is no change. */
#define BUSY_STEP 50

const struct policy_visit *visits_find(const struct policy_visits *visits, uint32_t device)
{
    for (uint32_t i = 0; visits && i < visits->count; i++)
        if (visits->visits[i].device == device)
            return &visits->visits[i];
    return NULL;
}

uint64_t visits_bar_s(const struct policy_visits *visits, uint32_t device, uint64_t return_s,
                      uint64_t now_s)
{
    const struct policy_visit *visit = visits_find(visits, device);
    uint64_t bar_s;

    if (!visit || !visit->by_policy)
        return 0;
    bar_s = return_s << visits->returns;
    bar_s = bar_s > visit->bar_s ? bar_s : visit->bar_s;
    return now_s - visit->left_s < bar_s ? bar_s - (now_s - visit->left_s) : 0;
}

static void visits_returned(struct policy_visits *visits, const struct policy_visit *visit,
                            uint64_t return_s, uint64_t now_s)
{
    if (now_s - visit->left_s > LATE_TIMES * (return_s << visits->returns))
        visits->returns = 0;
    else if (visits->returns < POLICY_RETURNS_MAX)
        visits->returns++;
}

/* The slot for @device: its own, a free one, or the oldest. */
static struct policy_visit *visits_slot(struct policy_visits *visits, uint32_t device)
{
    struct policy_visit *first = &visits->visits[0];

    for (uint32_t i = 0; i < visits->count; i++) {
        struct policy_visit *one = &visits->visits[i];

        if (one->device == device)
            return one;
        if (one->left_s < first->left_s)
            first = one;
    }
    return visits->count < POLICY_VISITS_MAX ? &visits->visits[visits->count++] : first;
}

void visits_moved(struct policy_visits *visits, const struct policy_visit *from, uint32_t to,
                  uint64_t return_s)
{
    const struct policy_visit *back = visits_find(visits, to);

    if (from->by_policy && back && back->by_policy)
        visits_returned(visits, back, return_s, from->left_s);
    *visits_slot(visits, from->device) = *from;
    visits->is_settled = false;
}

void visits_stayed(struct policy_visits *visits, uint32_t busy, uint64_t stayed_s)
{
    if (visits->is_settled || stayed_s < SETTLE_S)
        return;
    visits->settled = busy;
    visits->is_settled = true;
}

bool visits_load(const struct policy_visits *visits, uint32_t device, uint32_t busy,
                 uint32_t *ret_load)
{
    const struct policy_visit *visit = visits_find(visits, device);
    uint32_t change;

    if (!visit || !visit->busy)
        return false;
    change = busy > visits->settled ? busy - visits->settled : visits->settled - busy;
    if (visits->is_settled && change > BUSY_STEP && change > visits->settled / 2)
        return false;
    *ret_load = visit->busy;
    return true;
}
