#include "simulate/published.h"

/*
 * A bound by Lagrange multipliers. No device is busy for longer than the step is, nor do the
 * launches of one path take longer. Each of these gets a price of its time: a power. Whatever the
 * prices are, no schedule takes less energy than this: all launches where they are cheapest with
 * the prices added, and the idle power less the prices over the step. Prices are changed for as
 * long as that makes the bound higher.
 */

#define BOUND_PRICES (SCHEDULE_CANDIDATES + 1) /* Of each device, and of the longest path. */
#define BOUND_PATH   SCHEDULE_CANDIDATES
#define BOUND_LEAST  1e-4 /* W, the last change of prices. */

struct bound {
    const struct schedule_graph *graph;
    const struct schedule_slot *slots; /* `candidate` says whether a launch is on the path. */
    double shortest_s, limit_s;
    double prices[BOUND_PRICES]; /* W */
};

static double published_bound_value(const struct bound *bound)
{
    const struct schedule_graph *graph = bound->graph;
    double rest_w = (double)graph->idle_mw / 1e3, joules = 0;

    for (unsigned i = 0; i < BOUND_PRICES; i++)
        rest_w -= bound->prices[i];
    joules = rest_w * (rest_w > 0 ? bound->shortest_s : bound->limit_s);
    for (uint32_t i = 0; i < graph->launches; i++) {
        double path_w = bound->slots[i].candidate ? bound->prices[BOUND_PATH] : 0, least = 1e300;
        for (uint32_t c = 0; c < graph->candidates; c++) {
            const struct schedule_cost *cost = &graph->costs[(size_t)i * graph->candidates + c];
            double price_w = bound->prices[graph->unit[c]] + path_w;
            double value = (double)cost->energy_uj / 1e6 + price_w * (double)cost->run_ns / 1e9;
            if (cost->run_ns && value < least)
                least = value;
        }
        joules += least;
    }
    return joules;
}

/* The longest path begins at the first launch of the order; each next one has the rest of its rank.
 */
static void published_bound_mark_path(const struct schedule_graph *graph,
                                      struct schedule_slot *slots)
{
    uint32_t last = slots[0].order;

    for (uint32_t i = 0; i < graph->launches; i++)
        slots[i].candidate = i == last;
    for (uint32_t at = 1; at < graph->launches; at++) {
        uint32_t launch = slots[at].order;
        uint64_t rest = slots[last].rank_ns - schedule_fastest(graph, last);
        bool follows = false;
        for (uint32_t e = graph->first[launch]; e < graph->first[launch + 1]; e++)
            follows |= graph->edges[e].from == last;
        if (follows && slots[launch].rank_ns == rest) {
            slots[launch].candidate = true;
            last = launch;
        }
    }
}

double published_bound(const struct schedule_graph *graph, uint64_t limit_ns,
                       struct schedule_slot *slots)
{
    struct bound bound = {.graph = graph, .slots = slots, .limit_s = (double)limit_ns / 1e9};

    bound.shortest_s = (double)schedule_rank(graph, slots) / 1e9;
    published_bound_mark_path(graph, slots);
    double best = published_bound_value(&bound);
    for (double change = 128; change >= BOUND_LEAST; change /= 2) {
        for (bool better = true; better;) {
            better = false;
            for (unsigned i = 0; i < 2 * BOUND_PRICES; i++) {
                double old = bound.prices[i / 2], next = old + (i % 2 ? -change : change);
                bound.prices[i / 2] = next > 0 ? next : 0;
                double value = published_bound_value(&bound);
                if (value > best + 1e-9 * best) {
                    best = value;
                    better = true;
                } else {
                    bound.prices[i / 2] = old;
                }
            }
        }
    }
    return best;
}
