#include "policy/interval.h"

#include <math.h>

double interval_best(const struct interval_costs *costs)
{
    return sqrt(2 * costs->fault * costs->snapshot);
}

double interval_expected(const struct interval_costs *costs, double work, double interval)
{
    return work * (1 + (costs->down + interval / 2) / costs->fault + costs->snapshot / interval);
}
