#include "tests/support/cases.h"
#include <glpk.h>

#include "simulate/published.h"

/*
 * Plans and the bound, compared with the best schedule of small graphs, found by an integer
 * program. Of launch i: x_i is 1 when it runs on the second device, s_i is when it starts, and r_i
 * what it takes there. d_ij is 1 when i and j run on different devices, y_ij when i goes before j.
 *
 *   s_j >= s_i + r_i + move_ij d_ij                     j needs i
 *   s_j >= s_i + r_i - M (1 - y_ij) - M d_ij            otherwise; and the same with i and j
 * changed s_i >= s_j + r_j - M y_ij - M d_ij T >= s_i + r_i minimise T; or the energy, with T no
 * more than the limit
 *
 * Times are in milliseconds, energies in joules.
 */

#define LAUNCHES 6
#define EDGES    10
#define GRAPHS   30

struct small {
    struct schedule_graph graph;
    struct schedule_cost costs[LAUNCHES][2];
    struct schedule_edge edges[EDGES];
    uint32_t first[LAUNCHES + 1];
    struct schedule_slot slots[LAUNCHES], spare[LAUNCHES];
};

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* A fast device that draws much, a slower one, and moves between them that take a while. */
static void make_small(struct small *small, uint64_t *state)
{
    uint32_t edges = 0;

    small->graph = (struct schedule_graph){.launches = LAUNCHES,
                                           .candidates = 2,
                                           .costs = small->costs[0],
                                           .edges = small->edges,
                                           .first = small->first,
                                           .unit = {0, 1},
                                           .idle_mw = 20000};
    for (unsigned i = 0; i < 2; i++)
        small->graph.links[i] =
            (struct schedule_link){.setup_ns = 100000, .bytes_per_ms = 1000000, .draw_mw = 5000};
    for (uint32_t i = 0; i < LAUNCHES; i++) {
        uint64_t ns = 1000000 * (1 + next_random(state) % 9);
        uint64_t slower = ns * (80 + next_random(state) % 200) / 100;
        small->costs[i][0] = (struct schedule_cost){ns, schedule_energy(200000, ns), 200000};
        small->costs[i][1] = (struct schedule_cost){slower, schedule_energy(60000, slower), 60000};
        small->first[i] = edges;
        for (uint32_t from = 0; from < i && edges < EDGES; from++)
            if (next_random(state) % 3 == 0)
                small->edges[edges++] =
                    (struct schedule_edge){from, 100000 + next_random(state) % 400000};
    }
    small->first[LAUNCHES] = edges;
}

struct program {
    glp_prob *glpk;
    int x[LAUNCHES], start[LAUNCHES], differ[LAUNCHES][LAUNCHES], length;
};

static int column(struct program *program, bool whole)
{
    int at = glp_add_cols(program->glpk, 1);
    glp_set_col_bnds(program->glpk, at, whole ? GLP_DB : GLP_LO, 0, 1);
    glp_set_col_kind(program->glpk, at, whole ? GLP_BV : GLP_CV);
    return at;
}

/* Sum of values times columns, up to a column of 0, is at least @bound. */
static void at_least(struct program *program, double bound, const int *columns,
                     const double *values)
{
    int index[8], count = 0, at = glp_add_rows(program->glpk, 1);
    double value[8];
    for (; columns[count]; count++) {
        index[count + 1] = columns[count];
        value[count + 1] = values[count];
    }
    glp_set_row_bnds(program->glpk, at, GLP_LO, bound, 0);
    glp_set_mat_row(program->glpk, at, count, index, value);
}

static double ms(uint64_t ns)
{
    return (double)ns / 1e6;
}

static double joules(uint64_t uj)
{
    return (double)uj / 1e6;
}

/* s_j - s_i - (r1 - r0) x_i + more times a column >= r0 - slack */
static void after(struct program *program, const struct small *small, uint32_t i, uint32_t j,
                  int also, double more, double move, double slack)
{
    double one = ms(small->costs[i][0].run_ns), other = ms(small->costs[i][1].run_ns);
    const int columns[] = {program->start[j],
                           program->start[i],
                           program->x[i],
                           program->differ[i < j ? i : j][i < j ? j : i],
                           also,
                           0};
    const double values[] = {1, -1, one - other, -move, more};
    at_least(program, one - slack, columns, values);
}

static void add_pair(struct program *program, const struct small *small, uint32_t i, uint32_t j,
                     bool energy, double big)
{
    int differ = program->differ[i][j];
    const int both[] = {differ, program->x[i], program->x[j], 0};

    at_least(program, 0, both, (const double[]){1, -1, 1});
    at_least(program, 0, both, (const double[]){1, 1, -1});
    at_least(program, 0, both, (const double[]){-1, 1, 1});
    at_least(program, -2, both, (const double[]){-1, -1, -1});
    double spent = 0;
    bool needs = false;
    for (uint32_t e = small->first[j]; e < small->first[j + 1]; e++) {
        if (small->edges[e].from != i)
            continue;
        struct schedule_cost move = schedule_transfer(&small->graph, 0, 1, small->edges[e].bytes);
        after(program, small, i, j, 0, 0, ms(move.run_ns), 0);
        spent += joules(move.energy_uj);
        needs = true;
    }
    if (energy)
        glp_set_obj_coef(program->glpk, differ, spent);
    if (!needs) {
        int before = column(program, true);
        after(program, small, i, j, before, -big, -big, big);
        after(program, small, j, i, before, big, -big, 0);
    }
}

/* The least length in ms; or the least energy in joules within @limit_ms. */
static double solve(const struct small *small, bool energy, double limit_ms)
{
    struct program program = {.glpk = glp_create_prob()};
    double big = 0, constant = 0;
    glp_iocp how;

    program.length = column(&program, false);
    glp_set_obj_coef(program.glpk, program.length, energy ? (double)small->graph.idle_mw / 1e6 : 1);
    if (energy)
        glp_set_col_bnds(program.glpk, program.length, GLP_DB, 0, limit_ms);
    for (uint32_t i = 0; i < LAUNCHES; i++) {
        const struct schedule_cost *costs = small->costs[i];
        program.x[i] = column(&program, true);
        program.start[i] = column(&program, false);
        big += ms(costs[0].run_ns > costs[1].run_ns ? costs[0].run_ns : costs[1].run_ns) + 2;
        constant += energy ? joules(costs[0].energy_uj) : 0;
        if (energy)
            glp_set_obj_coef(program.glpk, program.x[i],
                             joules(costs[1].energy_uj) - joules(costs[0].energy_uj));
        const int columns[] = {program.length, program.start[i], program.x[i], 0};
        const double values[] = {1, -1, ms(costs[0].run_ns) - ms(costs[1].run_ns)};
        at_least(&program, ms(costs[0].run_ns), columns, values);
    }
    for (uint32_t j = 0; j < LAUNCHES; j++) {
        for (uint32_t i = 0; i < j; i++) {
            program.differ[i][j] = column(&program, true);
            add_pair(&program, small, i, j, energy, big);
        }
    }
    glp_term_out(GLP_OFF);
    glp_init_iocp(&how);
    how.presolve = GLP_ON;
    cr_assert_eq(glp_intopt(program.glpk, &how), 0);
    cr_assert_eq(glp_mip_status(program.glpk), GLP_OPT);
    double best = glp_mip_obj_val(program.glpk) + constant;
    glp_delete_prob(program.glpk);
    return best;
}

/* GLPK's own tolerance, and whole microjoules and nanoseconds. */
#define TOLERANCE 1e-5

Test(published_milp, plans_come_near_the_best_schedule_and_the_bound_is_below_it, .timeout = 240)
{
    double length = 0, energy = 0, bounds = 0;
    uint64_t state = 1;

    for (unsigned round = 0; round < GRAPHS; round++) {
        static struct small small;
        struct schedule_result plan;
        make_small(&small, &state);

        double shortest = solve(&small, false, 0);
        cr_assert(schedule_plan(&small.graph, SCHEDULE_TIME, 0, small.slots, small.spare, &plan));
        cr_assert_geq(ms(plan.length_ns), shortest * (1 - TOLERANCE), "graph %u", round);
        length += ms(plan.length_ns) / shortest / GRAPHS;

        /* As fast as the plan for time, so that both have the same limit. */
        uint64_t limit_ns = plan.length_ns;
        double least = solve(&small, true, ms(limit_ns));
        cr_assert(schedule_plan(&small.graph, SCHEDULE_ENERGY_AT_NO_LOSS, limit_ns, small.slots,
                                small.spare, &plan));
        cr_assert_geq(joules(plan.energy_uj), least * (1 - TOLERANCE), "graph %u", round);
        energy += joules(plan.energy_uj) / least / GRAPHS;

        double bound = published_bound(&small.graph, limit_ns, small.spare);
        cr_assert_leq(bound, least * (1 + TOLERANCE), "graph %u", round);
        bounds += bound / least / GRAPHS;
    }
    printf("on average of the best: length %.4f, energy %.4f, bound %.4f\n", length, energy,
           bounds);
    cr_assert_lt(length, 1.06);
    cr_assert_lt(energy, 1.02);
    cr_assert_gt(bounds, 0.9);
}
