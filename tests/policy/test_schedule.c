#include "policy/schedule.h"
#include "tests/support/leaks.h"

TestSuite(schedule, .fini = leaks_check, .timeout = 120);

#define MS 1000000u

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* A GPU that is fast, and an FPGA that takes twice the time at a quarter of the power. */
static void two_devices(struct schedule_candidate *ret)
{
    ret[0] = (struct schedule_candidate){
        .allowed = true, .run_ns = 2 * MS, .energy_uj = 400000, .draw_mw = 200000};
    ret[1] = (struct schedule_candidate){
        .allowed = true, .run_ns = 4 * MS, .energy_uj = 200000, .draw_mw = 50000};
}

static uint32_t chosen(const struct schedule_launch *launch, const struct schedule_candidate *two)
{
    struct schedule_choice choice = schedule_choose(launch, two, 2);
    cr_assert_eq(choice.verdict, SCHEDULE_RUN);
    return choice.candidate;
}

Test(schedule, each_objective_chooses_its_own_device)
{
    struct schedule_candidate two[2];
    struct schedule_launch launch = {.objective = SCHEDULE_TIME};

    two_devices(two);
    cr_expect_eq(chosen(&launch, two), 0);
    launch.objective = SCHEDULE_ENERGY;
    cr_expect_eq(chosen(&launch, two), 1);
    launch.objective = SCHEDULE_ENERGY_AT_NO_LOSS;
    cr_expect_eq(chosen(&launch, two), 0, "it is on the critical path");
    launch.due_ns = 4 * MS;
    cr_expect_eq(chosen(&launch, two), 1, "it may end as late as that");
    launch.due_ns = 4 * MS - 1;
    cr_expect_eq(chosen(&launch, two), 0);
}

Test(schedule, time_counts_what_a_device_was_given_before_and_where_inputs_are)
{
    struct schedule_candidate two[2];
    const struct schedule_launch launch = {.objective = SCHEDULE_TIME};

    two_devices(two);
    two[0].free_ns = 3 * MS;
    cr_expect_eq(chosen(&launch, two), 1);
    two[1].ready_ns = 2 * MS;
    cr_expect_eq(chosen(&launch, two), 0);
}

/* 100 W idle for 2 ms more cost 0.2 J, as much as the slower device saves. */
Test(schedule, energy_counts_what_a_longer_step_draws)
{
    struct schedule_candidate two[2];
    struct schedule_launch launch = {.objective = SCHEDULE_ENERGY, .idle_mw = 99000};

    two_devices(two);
    cr_expect_eq(chosen(&launch, two), 1);
    launch.idle_mw = 101000;
    cr_expect_eq(chosen(&launch, two), 0);
    launch.due_ns = 4 * MS;
    cr_expect_eq(chosen(&launch, two), 1, "the step is no longer for it");
}

Test(schedule, home_is_taken_while_nothing_is_known_to_be_better)
{
    for (unsigned objective = SCHEDULE_TIME; objective <= SCHEDULE_ENERGY_AT_NO_LOSS; objective++) {
        struct schedule_candidate two[2];
        struct schedule_launch launch = {.objective = (enum schedule_objective)objective,
                                         .home = 1};

        two_devices(two);
        two[0].energy_uj = two[1].energy_uj;
        two[0].run_ns = two[1].run_ns;
        cr_expect_eq(chosen(&launch, two), 1, "equal");
        two_devices(two);
        two[1].run_ns = 0;
        cr_expect_eq(chosen(&launch, two), 1, "its time is unknown");
        two_devices(two);
        launch.home = 0;
        two[1].run_ns = 0;
        cr_expect_eq(chosen(&launch, two), 0, "the other one's time is unknown");
        if (objective != SCHEDULE_TIME) {
            two_devices(two);
            launch.due_ns = 9 * MS;
            two[0].energy_uj = 0;
            cr_expect_eq(chosen(&launch, two), 0, "its energy is unknown");
            two_devices(two);
            two[1].energy_uj = 0;
            cr_expect_eq(chosen(&launch, two), 0, "the other one's energy is unknown");
        }
    }
}

Test(schedule, without_a_home_what_is_known_is_taken)
{
    struct schedule_candidate two[2];
    struct schedule_launch launch = {.objective = SCHEDULE_ENERGY, .home = SCHEDULE_NONE};

    two_devices(two);
    two[1].energy_uj = 0;
    cr_expect_eq(chosen(&launch, two), 0);
    two[0].energy_uj = 0;
    cr_expect_eq(chosen(&launch, two), 0, "the earliest end");
    two[0].run_ns = 0;
    cr_expect_eq(chosen(&launch, two), 1);
    two[1].allowed = false;
    struct schedule_choice choice = schedule_choose(&launch, two, 2);
    cr_expect_eq(choice.candidate, 0);
    cr_expect_eq(choice.end_ns, 0, "unknown");
    two[0].allowed = false;
    cr_expect_eq(schedule_choose(&launch, two, 2).verdict, SCHEDULE_REFUSE);
}

Test(schedule, a_cap_makes_it_take_less_or_wait_or_is_refused)
{
    struct schedule_candidate two[2];
    struct schedule_launch launch = {
        .objective = SCHEDULE_TIME, .idle_mw = 30000, .drawn_mw = 30000, .cap_mw = 230000};

    two_devices(two);
    cr_expect_eq(chosen(&launch, two), 0);
    launch.cap_mw--;
    cr_expect_eq(chosen(&launch, two), 1);
    launch.drawn_mw = 200000;
    struct schedule_choice choice = schedule_choose(&launch, two, 2);
    cr_expect_eq(choice.verdict, SCHEDULE_WAIT);
    cr_expect_eq(choice.candidate, SCHEDULE_NONE);
    cr_expect_eq(choice.least_mw, 80000);
    launch.cap_mw = 79999;
    launch.drawn_mw = launch.idle_mw;
    choice = schedule_choose(&launch, two, 2);
    cr_expect_eq(choice.verdict, SCHEDULE_REFUSE);
    cr_expect_eq(choice.least_mw, 80000);
    two[1].draw_mw = 0;
    cr_expect_eq(schedule_choose(&launch, two, 2).least_mw, 230000);
    two[0].draw_mw = 0;
    cr_expect_eq(schedule_choose(&launch, two, 2).least_mw, 0, "no power is known");
}

/* The GPU is busy, and what it draws ends before the launch starts there. */
Test(schedule, under_a_cap_a_busy_device_counts_as_when_it_is_free)
{
    struct schedule_candidate two[2];
    struct schedule_launch launch = {
        .objective = SCHEDULE_TIME, .idle_mw = 30000, .drawn_mw = 230000, .cap_mw = 280000};

    two_devices(two);
    two[0].free_ns = MS;
    cr_expect_eq(chosen(&launch, two), 1, "both would draw 430 W");
    two[0].relieved_mw = 200000;
    cr_expect_eq(chosen(&launch, two), 0);
}

/* Values from a file or a meter may be anything. */
static uint64_t any_value(uint64_t *state)
{
    uint64_t value = next_random(state) % 1000;
    return next_random(state) % 16 ? value : next_random(state) % 2 ? UINT64_MAX - value : 0;
}

/* Nothing over the cap, nothing that is not allowed, and the verdict follows from the powers. */
Test(schedule, random_launches_never_exceed_the_cap)
{
    uint64_t state = 3;

    for (unsigned round = 0; round < 300000; round++) {
        struct schedule_candidate candidates[SCHEDULE_CANDIDATES];
        uint32_t count = (uint32_t)(next_random(&state) % (SCHEDULE_CANDIDATES + 1));
        struct schedule_launch launch = {
            .objective = (enum schedule_objective)(next_random(&state) % 3),
            .home = (uint32_t)(next_random(&state) % (SCHEDULE_CANDIDATES + 2)),
            .now_ns = any_value(&state),
            .due_ns = any_value(&state),
            .idle_mw = next_random(&state) % 500,
            .drawn_mw = any_value(&state),
            .cap_mw = next_random(&state) % 4 ? 1 + next_random(&state) % 2000 : 0};
        bool fits = false, fits_alone = false;
        uint64_t earliest = UINT64_MAX;
        for (uint32_t i = 0; i < count; i++) {
            struct schedule_candidate *c = &candidates[i];
            *c = (struct schedule_candidate){next_random(&state) % 4 > 0,
                                             any_value(&state),
                                             any_value(&state),
                                             any_value(&state),
                                             any_value(&state),
                                             any_value(&state),
                                             any_value(&state)};
            uint64_t left = launch.drawn_mw > c->relieved_mw ? launch.drawn_mw - c->relieved_mw : 0;
            unsigned __int128 now = (unsigned __int128)left + c->draw_mw,
                              alone = (unsigned __int128)launch.idle_mw + c->draw_mw;
            if (!c->allowed)
                continue;
            bool open = !launch.cap_mw || (c->draw_mw && now <= launch.cap_mw);
            fits |= open;
            fits_alone |= !launch.cap_mw || (c->draw_mw && alone <= launch.cap_mw);
            uint64_t start = c->ready_ns > c->free_ns ? c->ready_ns : c->free_ns;
            start = start > launch.now_ns ? start : launch.now_ns;
            uint64_t end = start > UINT64_MAX - c->run_ns ? UINT64_MAX : start + c->run_ns;
            if (open && c->run_ns && end < earliest)
                earliest = end;
        }
        struct schedule_choice choice = schedule_choose(&launch, candidates, count);
        cr_assert_eq(choice.verdict, fits         ? SCHEDULE_RUN
                                     : fits_alone ? SCHEDULE_WAIT
                                                  : SCHEDULE_REFUSE);
        if (choice.verdict != SCHEDULE_RUN) {
            cr_assert_eq(choice.candidate, SCHEDULE_NONE);
            continue;
        }
        cr_assert_lt(choice.candidate, count);
        const struct schedule_candidate *c = &candidates[choice.candidate];
        cr_assert(c->allowed);
        if (launch.cap_mw) {
            uint64_t left = launch.drawn_mw > c->relieved_mw ? launch.drawn_mw - c->relieved_mw : 0;
            cr_assert(c->draw_mw && left <= launch.cap_mw && c->draw_mw <= launch.cap_mw - left);
        }
        if (c->run_ns && launch.objective == SCHEDULE_TIME)
            cr_assert_eq(choice.end_ns, earliest);
        uint64_t due = launch.due_ns > earliest ? launch.due_ns : earliest;
        if (c->run_ns && launch.objective == SCHEDULE_ENERGY_AT_NO_LOSS &&
            choice.candidate != launch.home)
            cr_assert_leq(choice.end_ns, due);
    }
}

/* ---- graphs ---- */

#define LAUNCHES_MAX 40
#define EDGES_MAX    (LAUNCHES_MAX * 3)

struct world {
    struct schedule_graph graph;
    struct schedule_cost costs[LAUNCHES_MAX * SCHEDULE_CANDIDATES];
    struct schedule_edge edges[EDGES_MAX];
    uint32_t first[LAUNCHES_MAX + 1];
    struct schedule_slot slots[LAUNCHES_MAX], spare[LAUNCHES_MAX];
};

/* Some launches run on one candidate only; two candidates may be one device at two clocks. */
static void random_world(struct world *world, uint64_t *state)
{
    struct schedule_graph *graph = &world->graph;
    uint32_t edges = 0;

    *graph = (struct schedule_graph){.launches = 1 + (uint32_t)(next_random(state) % LAUNCHES_MAX),
                                     .candidates = 1 + (uint32_t)(next_random(state) % 4),
                                     .costs = world->costs,
                                     .edges = world->edges,
                                     .first = world->first,
                                     .idle_mw = next_random(state) % 100000};
    for (uint32_t c = 0; c < graph->candidates; c++) {
        graph->unit[c] = c && next_random(state) % 4 == 0 ? c - 1 : c;
        graph->links[c] = (struct schedule_link){.setup_ns = next_random(state) % MS,
                                                 .bytes_per_ms = next_random(state) % 3 * 1000000,
                                                 .draw_mw = next_random(state) % 20000};
    }
    for (uint32_t i = 0; i < graph->launches; i++) {
        uint32_t sure = (uint32_t)(next_random(state) % graph->candidates);
        world->first[i] = edges;
        for (unsigned e = 0; i && e < 3; e++)
            if (next_random(state) % 2)
                world->edges[edges++] = (struct schedule_edge){(uint32_t)(next_random(state) % i),
                                                               next_random(state) % 3 * 500000};
        for (uint32_t c = 0; c < graph->candidates; c++) {
            uint64_t ns = 1 + next_random(state) % (5 * MS), mw = 1 + next_random(state) % 300000;
            bool can = c == sure || next_random(state) % 6;
            world->costs[i * graph->candidates + c] = (struct schedule_cost){
                can ? ns : 0, can ? schedule_energy(mw, ns) + 1 : 0, can ? mw : 0};
        }
    }
    world->first[graph->launches] = edges;
}

/* That the slots are a schedule, and what it takes: each launch after its inputs are there, and no
 * device with two at once. */
static struct schedule_result check_plan(const struct world *world)
{
    const struct schedule_graph *graph = &world->graph;
    struct schedule_result result = {0};

    for (uint32_t i = 0; i < graph->launches; i++) {
        const struct schedule_slot *slot = &world->slots[i];
        cr_assert_lt(slot->candidate, graph->candidates);
        const struct schedule_cost *cost = &world->costs[i * graph->candidates + slot->candidate];
        uint32_t unit = graph->unit[slot->candidate];
        cr_assert(cost->run_ns);
        cr_assert_eq(slot->end_ns, slot->start_ns + cost->run_ns);
        result.energy_uj += cost->energy_uj;
        result.length_ns = slot->end_ns > result.length_ns ? slot->end_ns : result.length_ns;
        for (uint32_t e = world->first[i]; e < world->first[i + 1]; e++) {
            const struct schedule_slot *from = &world->slots[world->edges[e].from];
            struct schedule_cost move =
                schedule_transfer(graph, graph->unit[from->candidate], unit, world->edges[e].bytes);
            cr_assert_geq(slot->start_ns, from->end_ns + move.run_ns);
            result.energy_uj += move.energy_uj;
        }
        for (uint32_t j = 0; j < i; j++) {
            const struct schedule_slot *other = &world->slots[j];
            cr_assert(graph->unit[other->candidate] != unit || other->end_ns <= slot->start_ns ||
                      slot->end_ns <= other->start_ns);
        }
    }
    result.energy_uj += schedule_energy(graph->idle_mw, result.length_ns);
    return result;
}

/* With one candidate for all nothing waits but for the device. */
static uint64_t single_length(const struct world *world, uint32_t candidate)
{
    uint64_t length = 0;

    for (uint32_t i = 0; i < world->graph.launches; i++) {
        uint64_t ns = world->costs[i * world->graph.candidates + candidate].run_ns;
        if (!ns)
            return UINT64_MAX;
        length += ns;
    }
    return length;
}

Test(schedule, plans_of_random_graphs_keep_their_promises)
{
    uint64_t state = 11;

    for (unsigned round = 0; round < 3000; round++) {
        static struct world world;
        struct schedule_result plan;

        random_world(&world, &state);
        cr_assert(schedule_plan(&world.graph, SCHEDULE_TIME, 0, world.slots, world.spare, &plan));
        struct schedule_result shortest = check_plan(&world);
        cr_assert_eq(plan.length_ns, shortest.length_ns);
        cr_assert_eq(plan.energy_uj, shortest.energy_uj);
        cr_assert_geq(shortest.length_ns, schedule_rank(&world.graph, world.spare));
        for (uint32_t c = 0; c < world.graph.candidates; c++)
            cr_assert_leq(shortest.length_ns, single_length(&world, c));

        cr_assert(schedule_plan(&world.graph, SCHEDULE_ENERGY_AT_NO_LOSS, 0, world.slots,
                                world.spare, &plan));
        struct schedule_result same = check_plan(&world);
        cr_assert_eq(plan.energy_uj, same.energy_uj);
        cr_assert_leq(same.length_ns, shortest.length_ns);
        cr_assert_leq(same.energy_uj, shortest.energy_uj);

        cr_assert(schedule_plan(&world.graph, SCHEDULE_ENERGY, 0, world.slots, world.spare, &plan));
        struct schedule_result least = check_plan(&world);
        cr_assert_eq(plan.energy_uj, least.energy_uj);
        cr_assert_leq(least.energy_uj, shortest.energy_uj);
    }
}

Test(schedule, a_launch_that_runs_nowhere_has_no_plan)
{
    static struct world world;
    struct schedule_result plan = {7, 7};
    uint64_t state = 5;

    random_world(&world, &state);
    for (uint32_t c = 0; c < world.graph.candidates; c++)
        world.costs[c].run_ns = 0;
    cr_expect_not(schedule_plan(&world.graph, SCHEDULE_TIME, 0, world.slots, world.spare, &plan));
    cr_expect_eq(plan.length_ns, 7);
}

#define MANY         100000u
#define MANY_EDGES   3u
#define MANY_KERNELS 10000u
#define MANY_DEVICES 3u

static const struct schedule_slot *sorted_slots;

static int by_device_and_start(const void *a, const void *b)
{
    const struct schedule_slot *one = &sorted_slots[*(const uint32_t *)a],
                               *other = &sorted_slots[*(const uint32_t *)b];
    if (one->candidate != other->candidate)
        return one->candidate < other->candidate ? -1 : 1;
    return (one->start_ns > other->start_ns) - (one->start_ns < other->start_ns);
}

/* No device has two launches at once, and each launch has its inputs. */
static void check_many(const struct schedule_graph *graph, const struct schedule_slot *slots,
                       uint32_t *order)
{
    for (uint32_t i = 0; i < MANY; i++) {
        order[i] = i;
        for (uint32_t e = graph->first[i]; e < graph->first[i + 1]; e++)
            cr_assert_leq(slots[graph->edges[e].from].end_ns, slots[i].start_ns);
    }
    sorted_slots = slots;
    qsort(order, MANY, sizeof(*order), by_device_and_start);
    for (uint32_t i = 1; i < MANY; i++) {
        const struct schedule_slot *before = &slots[order[i - 1]], *slot = &slots[order[i]];
        cr_assert(before->candidate != slot->candidate || before->end_ns <= slot->start_ns);
    }
}

/* Launches of 10,000 kernels, each needs the results of up to three of the 1000 before it. */
Test(schedule, a_hundred_thousand_launches_of_ten_thousand_kernels_are_planned)
{
    struct schedule_cost *kernels = calloc(MANY_KERNELS * MANY_DEVICES, sizeof(*kernels));
    struct schedule_cost *costs = calloc(MANY * MANY_DEVICES, sizeof(*costs));
    struct schedule_edge *edges = calloc(MANY * MANY_EDGES, sizeof(*edges));
    uint32_t *first = calloc(MANY + 1, sizeof(*first)), *order = calloc(MANY, sizeof(*order));
    struct schedule_slot *slots = calloc(MANY, sizeof(*slots)),
                         *spare = calloc(MANY, sizeof(*spare));
    uint64_t state = 9, alone[MANY_DEVICES] = {0};

    for (size_t i = 0; i < MANY_KERNELS * MANY_DEVICES; i++) {
        uint64_t ns = 1000 + next_random(&state) % 100000;
        kernels[i] = (struct schedule_cost){
            ns, schedule_energy(1 + next_random(&state) % 300000, ns) + 1, 1};
    }
    for (uint32_t i = 0; i < MANY; i++) {
        size_t kernel = next_random(&state) % MANY_KERNELS * MANY_DEVICES;
        for (uint32_t e = 0; e < MANY_EDGES; e++)
            if (i && next_random(&state) % 2)
                edges[first[i + 1]++] = (struct schedule_edge){
                    i - 1 - (uint32_t)(next_random(&state) % (i < 1000 ? i : 1000)), 0};
        if (i + 1 < MANY)
            first[i + 2] = first[i + 1];
        for (uint32_t d = 0; d < MANY_DEVICES; d++) {
            costs[i * MANY_DEVICES + d] = kernels[kernel + d];
            alone[d] += kernels[kernel + d].run_ns;
        }
    }
    const struct schedule_graph graph = {.launches = MANY,
                                         .candidates = MANY_DEVICES,
                                         .costs = costs,
                                         .edges = edges,
                                         .first = first,
                                         .unit = {0, 1, 2},
                                         .idle_mw = 30000};
    struct schedule_result time, energy;
    cr_assert(schedule_plan(&graph, SCHEDULE_TIME, 0, slots, spare, &time));
    check_many(&graph, slots, order);
    for (uint32_t d = 0; d < MANY_DEVICES; d++)
        cr_assert_lt(time.length_ns, alone[d]);
    cr_assert(schedule_plan(&graph, SCHEDULE_ENERGY_AT_NO_LOSS, 0, slots, spare, &energy));
    check_many(&graph, slots, order);
    cr_assert_leq(energy.length_ns, time.length_ns);
    cr_assert_leq(energy.energy_uj, time.energy_uj);
    free(kernels);
    free(costs);
    free(edges);
    free(first);
    free(order);
    free(slots);
    free(spare);
}
