#include "policy/schedule.h"

#include <string.h>

const char *const schedule_objective_names[] = {"none", "time", "energy", "energy-at-no-loss",
                                                NULL};

/* Lengths that a plan for energy is tried with: up to three times the shortest plan's, in so many
 * steps; in fewer where launches times steps would be more than TARGET_WORK. */
#define TARGETS       192
#define TARGETS_LEAST 12
#define TARGET_TIMES  3
#define TARGET_WORK   (1u << 20)

static uint64_t schedule_sum(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t schedule_later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

uint64_t schedule_energy(uint64_t mw, uint64_t ns)
{
    unsigned __int128 uj = (unsigned __int128)mw * ns / 1000000;

    return uj < UINT64_MAX ? (uint64_t)uj : UINT64_MAX;
}

static uint64_t schedule_end(const struct schedule_launch *launch,
                             const struct schedule_candidate *candidate)
{
    uint64_t start = schedule_later(candidate->ready_ns, candidate->free_ns);

    return schedule_sum(schedule_later(start, launch->now_ns), candidate->run_ns);
}

static bool schedule_fits(const struct schedule_launch *launch,
                          const struct schedule_candidate *candidate)
{
    uint64_t relieved = candidate->relieved_mw, drawn = launch->drawn_mw;

    drawn -= relieved < drawn ? relieved : drawn;
    return !launch->cap_mw ||
           (candidate->draw_mw && schedule_sum(drawn, candidate->draw_mw) <= launch->cap_mw);
}

/* The least cap that one of the candidates fits under while nothing else runs; 0: unknown. */
static uint64_t schedule_least(const struct schedule_launch *launch,
                               const struct schedule_candidate *candidates, uint32_t count)
{
    uint64_t least = 0;

    for (uint32_t i = 0; i < count; i++) {
        uint64_t mw = schedule_sum(launch->idle_mw, candidates[i].draw_mw);
        if (candidates[i].allowed && candidates[i].draw_mw && (!least || mw < least))
            least = mw;
    }
    return least;
}

/* What the objective counts of a launch that ends at @end_ns; UINT64_MAX: it may not run there.
 * @due_ns: until then it is not late. */
static uint64_t schedule_objective_cost(const struct schedule_launch *launch,
                                        const struct schedule_candidate *candidate, uint64_t end_ns,
                                        uint64_t due_ns)
{
    uint64_t late = end_ns > due_ns ? end_ns - due_ns : 0, energy = candidate->energy_uj;

    if (!candidate->run_ns)
        return UINT64_MAX;
    if (launch->objective == SCHEDULE_TIME)
        return end_ns;
    if (!energy || (launch->objective == SCHEDULE_ENERGY_AT_NO_LOSS && late))
        return UINT64_MAX;
    return launch->objective == SCHEDULE_ENERGY
               ? schedule_sum(energy, schedule_energy(launch->idle_mw, late))
               : energy;
}

/* Of two candidates that cost the same: home, or what is better by what the objective does not
 * count. */
static bool schedule_breaks_tie(const struct schedule_launch *launch,
                                const struct schedule_candidate *candidates, const uint64_t *ends,
                                uint32_t one, uint32_t other)
{
    uint64_t energy = candidates[one].energy_uj;

    if (one == launch->home || other == launch->home)
        return one == launch->home;
    return launch->objective == SCHEDULE_TIME ? energy && energy < candidates[other].energy_uj
                                              : ends[one] < ends[other];
}

/* Where home cannot be compared, nothing is known to be better. */
static bool schedule_home_is_known(const struct schedule_launch *launch,
                                   const struct schedule_candidate *home)
{
    return home->run_ns && (launch->objective == SCHEDULE_TIME || home->energy_uj);
}

/* Those of the candidates that may run the launch now. */
struct schedule_open {
    uint32_t which;                               /* a bit for each */
    uint64_t ends[SCHEDULE_CANDIDATES], earliest; /* UINT64_MAX: not known */
};

static struct schedule_open schedule_find_open(const struct schedule_launch *launch,
                                               const struct schedule_candidate *candidates,
                                               uint32_t count)
{
    struct schedule_open open = {.earliest = UINT64_MAX};

    for (uint32_t i = 0; i < count; i++) {
        if (!candidates[i].allowed || !schedule_fits(launch, &candidates[i]))
            continue;
        open.which |= 1u << i;
        open.ends[i] = candidates[i].run_ns ? schedule_end(launch, &candidates[i]) : UINT64_MAX;
        open.earliest = open.ends[i] < open.earliest ? open.ends[i] : open.earliest;
    }
    return open;
}

/* The one that is best for the objective; SCHEDULE_NONE: it is not known. */
static uint32_t schedule_find_best(const struct schedule_launch *launch,
                                   const struct schedule_candidate *candidates, uint32_t count,
                                   const struct schedule_open *open)
{
    uint64_t due = schedule_later(launch->due_ns, open->earliest), best_cost = UINT64_MAX;
    uint32_t best = SCHEDULE_NONE;

    for (uint32_t i = 0; i < count; i++) {
        if (!(open->which & 1u << i))
            continue;
        uint64_t cost = schedule_objective_cost(launch, &candidates[i], open->ends[i], due);
        if (cost < best_cost || (cost == best_cost && best != SCHEDULE_NONE &&
                                 schedule_breaks_tie(launch, candidates, open->ends, i, best))) {
            best = i;
            best_cost = cost;
        }
    }
    return best;
}

struct schedule_choice schedule_choose(const struct schedule_launch *launch,
                                       const struct schedule_candidate *candidates, uint32_t count)
{
    uint32_t best = SCHEDULE_NONE, home = launch->home;

    count = count < SCHEDULE_CANDIDATES ? count : SCHEDULE_CANDIDATES;
    struct schedule_open open = schedule_find_open(launch, candidates, count);
    if (!open.which) {
        uint64_t least = schedule_least(launch, candidates, count);
        return (struct schedule_choice){
            .verdict = least && least <= launch->cap_mw ? SCHEDULE_WAIT : SCHEDULE_REFUSE,
            .candidate = SCHEDULE_NONE,
            .least_mw = least};
    }
    bool home_open = home < count && open.which & 1u << home;
    if (!home_open || schedule_home_is_known(launch, &candidates[home]))
        best = schedule_find_best(launch, candidates, count, &open);
    if (best == SCHEDULE_NONE && home_open)
        best = home;
    /* The earliest end where no energy is known; else any. */
    for (uint32_t i = 0; best == SCHEDULE_NONE && i < count; i++)
        if (open.which & 1u << i && open.ends[i] == open.earliest)
            best = i;
    return (struct schedule_choice){.verdict = SCHEDULE_RUN,
                                    .candidate = best,
                                    .end_ns = candidates[best].run_ns ? open.ends[best] : 0};
}

/* ---- graphs ---- */

struct schedule_cost schedule_transfer(const struct schedule_graph *graph, uint32_t from,
                                       uint32_t to, uint64_t bytes)
{
    struct schedule_cost cost = {0};

    if (from == to || !bytes)
        return cost;
    for (unsigned i = 0; i < 2; i++) {
        const struct schedule_link *link = &graph->links[i ? to : from];
        uint64_t ns = link->setup_ns;
        if (link->bytes_per_ms) {
            unsigned __int128 copy = (unsigned __int128)bytes * 1000000 / link->bytes_per_ms;
            ns = schedule_sum(ns, copy < UINT64_MAX ? (uint64_t)copy : UINT64_MAX);
        }
        cost.run_ns = schedule_sum(cost.run_ns, ns);
        cost.energy_uj = schedule_sum(cost.energy_uj, schedule_energy(link->draw_mw, ns));
        cost.draw_mw = schedule_later(cost.draw_mw, link->draw_mw);
    }
    return cost;
}

static const struct schedule_cost *schedule_costs(const struct schedule_graph *graph,
                                                  uint32_t launch)
{
    return &graph->costs[(size_t)launch * graph->candidates];
}

uint64_t schedule_fastest(const struct schedule_graph *graph, uint32_t launch)
{
    const struct schedule_cost *costs = schedule_costs(graph, launch);
    uint64_t ns = UINT64_MAX;

    for (uint32_t i = 0; i < graph->candidates; i++)
        ns = costs[i].run_ns && costs[i].run_ns < ns ? costs[i].run_ns : ns;
    return ns;
}

/* Whether launch @one comes before @other: of equal ranks the one that was given first. */
static bool schedule_before(const struct schedule_slot *slots, uint32_t one, uint32_t other)
{
    uint64_t a = slots[one].rank_ns, b = slots[other].rank_ns;

    return a != b ? a > b : one < other;
}

/* Restore the heap below @at: at its top is the launch that comes last. */
static void schedule_sift(struct schedule_slot *slots, uint32_t at, uint32_t count)
{
    uint32_t launch = slots[at].order;

    for (;;) {
        uint64_t child = 2 * (uint64_t)at + 1;
        if (child + 1 < count && schedule_before(slots, slots[child].order, slots[child + 1].order))
            child++;
        if (child >= count || !schedule_before(slots, launch, slots[child].order))
            break;
        slots[at].order = slots[child].order;
        at = (uint32_t)child;
    }
    slots[at].order = launch;
}

/* A heap sort: it needs no memory, and its time does not depend on the graph. */
static void schedule_sort(struct schedule_slot *slots, uint32_t count)
{
    for (uint32_t i = count / 2; i--;)
        schedule_sift(slots, i, count);
    for (uint32_t end = count; end-- > 1;) {
        uint32_t last = slots[0].order;
        slots[0].order = slots[end].order;
        slots[end].order = last;
        schedule_sift(slots, 0, end);
    }
}

uint64_t schedule_rank(const struct schedule_graph *graph, struct schedule_slot *slots)
{
    uint64_t longest = 0;

    for (uint32_t i = 0; i < graph->launches; i++)
        slots[i].rank_ns = 0;
    /* Edges come from earlier launches: backwards, all that need a launch are done before it. */
    for (uint32_t i = graph->launches; i--;) {
        slots[i].order = i;
        slots[i].rank_ns = schedule_sum(slots[i].rank_ns, schedule_fastest(graph, i));
        longest = schedule_later(longest, slots[i].rank_ns);
        for (uint32_t e = graph->first[i]; e < graph->first[i + 1]; e++) {
            struct schedule_slot *from = &slots[graph->edges[e].from];
            from->rank_ns = schedule_later(from->rank_ns, slots[i].rank_ns);
        }
    }
    schedule_sort(slots, graph->launches);
    return longest;
}

/* How a plan is laid out. */
struct schedule_way {
    enum schedule_objective objective;
    uint32_t only;      /**< Candidate of every launch; SCHEDULE_NONE: chosen for each. */
    uint64_t target_ns; /**< Length from which launches have their due times. */
};

/* When a device is free, and when it was idle before, the last times only. */
#define GAPS 4
struct schedule_device {
    uint64_t free_ns;
    struct {
        uint64_t from_ns, to_ns;
    } gaps[GAPS];
};

/* The first gap that a launch fits into; GAPS: none. */
static unsigned schedule_gap(const struct schedule_device *device, uint64_t ready_ns,
                             uint64_t run_ns)
{
    unsigned found = GAPS;

    for (unsigned i = 0; i < GAPS; i++) {
        uint64_t start = schedule_later(device->gaps[i].from_ns, ready_ns);
        if (schedule_sum(start, run_ns) <= device->gaps[i].to_ns &&
            (found == GAPS || device->gaps[i].from_ns < device->gaps[found].from_ns))
            found = i;
    }
    return found;
}

/* Remember a gap instead of the shortest one that is known. */
static void schedule_add_gap(struct schedule_device *device, uint64_t from_ns, uint64_t to_ns)
{
    unsigned least = 0;

    for (unsigned i = 1; i < GAPS; i++)
        if (device->gaps[i].to_ns - device->gaps[i].from_ns <
            device->gaps[least].to_ns - device->gaps[least].from_ns)
            least = i;
    if (to_ns - from_ns > device->gaps[least].to_ns - device->gaps[least].from_ns) {
        device->gaps[least].from_ns = from_ns;
        device->gaps[least].to_ns = to_ns;
    }
}

static void schedule_occupy(struct schedule_device *device, uint64_t start_ns, uint64_t end_ns)
{
    if (start_ns >= device->free_ns) {
        schedule_add_gap(device, device->free_ns, start_ns);
        device->free_ns = end_ns;
        return;
    }
    for (unsigned i = 0; i < GAPS; i++) {
        uint64_t from = device->gaps[i].from_ns, to = device->gaps[i].to_ns;
        if (from <= start_ns && end_ns <= to) {
            device->gaps[i].to_ns = start_ns;
            schedule_add_gap(device, end_ns, to);
            return;
        }
    }
}

/* Give @launch of the graph its slot. False: it cannot run anywhere. */
static bool schedule_put(const struct schedule_graph *graph, const struct schedule_way *way,
                         uint32_t index, struct schedule_device *devices,
                         struct schedule_slot *slots, uint64_t *energy_uj)
{
    struct schedule_candidate candidates[SCHEDULE_CANDIDATES];
    const struct schedule_cost *costs = schedule_costs(graph, index);
    struct schedule_slot *slot = &slots[index];
    uint64_t rest = slot->rank_ns - schedule_fastest(graph, index);

    slot->due_ns = way->target_ns > rest ? way->target_ns - rest : 0;
    for (uint32_t c = 0; c < graph->candidates; c++) {
        struct schedule_candidate *candidate = &candidates[c];
        *candidate = (struct schedule_candidate){
            .allowed = costs[c].run_ns && (way->only == SCHEDULE_NONE || way->only == c),
            .run_ns = costs[c].run_ns,
            .energy_uj = costs[c].energy_uj};
        for (uint32_t e = graph->first[index]; candidate->allowed && e < graph->first[index + 1];
             e++) {
            const struct schedule_slot *from = &slots[graph->edges[e].from];
            struct schedule_cost move = schedule_transfer(graph, graph->unit[from->candidate],
                                                          graph->unit[c], graph->edges[e].bytes);
            candidate->ready_ns =
                schedule_later(candidate->ready_ns, schedule_sum(from->end_ns, move.run_ns));
            candidate->energy_uj = schedule_sum(candidate->energy_uj, move.energy_uj);
        }
        const struct schedule_device *device = &devices[graph->unit[c]];
        unsigned gap = schedule_gap(device, candidate->ready_ns, candidate->run_ns);
        candidate->free_ns = gap < GAPS ? device->gaps[gap].from_ns : device->free_ns;
    }
    const struct schedule_launch launch = {.objective = way->objective,
                                           .home = graph->home,
                                           .due_ns = slot->due_ns,
                                           .idle_mw = graph->idle_mw};
    struct schedule_choice choice = schedule_choose(&launch, candidates, graph->candidates);
    if (choice.verdict != SCHEDULE_RUN)
        return false;
    slot->candidate = choice.candidate;
    slot->end_ns = choice.end_ns;
    slot->start_ns = choice.end_ns - costs[choice.candidate].run_ns;
    schedule_occupy(&devices[graph->unit[choice.candidate]], slot->start_ns, slot->end_ns);
    *energy_uj = schedule_sum(*energy_uj, candidates[choice.candidate].energy_uj);
    return true;
}

static bool schedule_lay(const struct schedule_graph *graph, const struct schedule_way *way,
                         struct schedule_slot *slots, struct schedule_result *ret_result)
{
    struct schedule_device devices[SCHEDULE_CANDIDATES] = {0};
    struct schedule_result result = {0};

    for (uint32_t i = 0; i < graph->launches; i++) {
        uint32_t launch = slots[i].order;
        if (!schedule_put(graph, way, launch, devices, slots, &result.energy_uj))
            return false;
        result.length_ns = schedule_later(result.length_ns, slots[launch].end_ns);
    }
    result.energy_uj =
        schedule_sum(result.energy_uj, schedule_energy(graph->idle_mw, result.length_ns));
    *ret_result = result;
    return true;
}

/* Whether a plan is better than the best so far, which may be longer than @limit_ns. */
static bool schedule_better(enum schedule_objective objective, uint64_t limit_ns,
                            const struct schedule_result *plan, const struct schedule_result *best)
{
    bool shorter = plan->length_ns < best->length_ns ||
                   (plan->length_ns == best->length_ns && plan->energy_uj < best->energy_uj);
    bool cheaper = plan->energy_uj < best->energy_uj ||
                   (plan->energy_uj == best->energy_uj && plan->length_ns < best->length_ns);

    if (objective == SCHEDULE_TIME)
        return shorter;
    if (objective == SCHEDULE_ENERGY)
        return cheaper;
    if (best->length_ns > limit_ns)
        return plan->length_ns <= limit_ns || shorter;
    return plan->length_ns <= limit_ns && cheaper;
}

/* Lay out one more plan in @spare, and keep it in @slots where it is better. */
static bool schedule_try(const struct schedule_graph *graph, enum schedule_objective objective,
                         uint64_t limit_ns, const struct schedule_way *way,
                         struct schedule_slot *slots, struct schedule_slot *spare,
                         struct schedule_result *best)
{
    struct schedule_result plan;

    if (!schedule_lay(graph, way, spare, &plan))
        return false;
    if (best->length_ns == UINT64_MAX || schedule_better(objective, limit_ns, &plan, best)) {
        *best = plan;
        memcpy(slots, spare, graph->launches * sizeof(*slots));
    }
    return true;
}

bool schedule_plan(const struct schedule_graph *graph, enum schedule_objective objective,
                   uint64_t limit_ns, struct schedule_slot *slots, struct schedule_slot *spare,
                   struct schedule_result *ret_result)
{
    struct schedule_result best = {UINT64_MAX, UINT64_MAX};
    struct schedule_way way = {.objective = SCHEDULE_TIME, .only = SCHEDULE_NONE};

    schedule_rank(graph, spare);
    if (!schedule_try(graph, SCHEDULE_TIME, 0, &way, slots, spare, &best))
        return false;
    for (way.only = 0; way.only < graph->candidates; way.only++)
        schedule_try(graph, SCHEDULE_TIME, 0, &way, slots, spare, &best);
    /* From the shortest plan on: those that take longer, and draw less. */
    uint64_t shortest = best.length_ns;
    limit_ns = limit_ns ? limit_ns : shortest;
    if (objective != SCHEDULE_TIME) {
        for (way.only = 0; way.only < graph->candidates; way.only++)
            schedule_try(graph, objective, limit_ns, &way, slots, spare, &best);
        way.only = SCHEDULE_NONE;
        unsigned targets = TARGETS;
        while (targets > TARGETS_LEAST && (uint64_t)targets * graph->launches > TARGET_WORK)
            targets /= 2;
        for (unsigned i = 1; i <= targets; i++) {
            way.target_ns = shortest / targets * TARGET_TIMES * i;
            way.objective = SCHEDULE_ENERGY_AT_NO_LOSS;
            schedule_try(graph, objective, limit_ns, &way, slots, spare, &best);
            way.objective = SCHEDULE_ENERGY;
            schedule_try(graph, objective, limit_ns, &way, slots, spare, &best);
        }
    }
    *ret_result = best;
    return true;
}
