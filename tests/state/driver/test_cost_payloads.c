#include "tests/support/cases.h"
#include <errno.h>
#include <glpk.h>
#include <math.h>

#include "tests/state/driver/cost_worlds.h"

#define WORLDS 300

static unsigned below(unsigned *seed, unsigned bound)
{
    return (unsigned)rand_r(seed) % bound;
}

/* Stages with set-up and bandwidth, or measured and less regular; half of them with little memory;
 * the same for each seed. */
static struct cost_flow flow_world(unsigned seed, size_t stages, uint64_t most)
{
    struct cost_flow flow = {.count = stages, .cores = below(&seed, 5)};
    for (size_t i = 0; i < stages; i++) {
        struct cost_flow_stage *stage = &flow.stages[i];
        struct cost_stage figures = {.kind = below(&seed, 2) ? COST_WORK : COST_LINK,
                                     .setup = (1 + below(&seed, 300)) * 1e-6,
                                     .bandwidth = (1 + below(&seed, 100)) * 0.1 * GB};
        stage->record = 256 << below(&seed, 3);
        stage->depth = 1 + below(&seed, 3);
        stage->memory = below(&seed, 2) ? COST_DEVICE : COST_HOST;
        cost_payloads_fill(&figures, most, stage);
        for (size_t j = 0; seed % 2 && j < stage->count; j++)
            stage->payloads[j].seconds *= 0.5 + below(&seed, 1000) / 1000.0;
    }
    for (size_t i = 0; i < 2; i++)
        flow.memory[i] = below(&seed, 2) ? GIB : 16384 + below(&seed, 2 * (unsigned)most);
    return flow;
}

static double record_seconds(const struct cost_flow_stage *stage, size_t i)
{
    return stage->payloads[i].seconds / (double)stage->payloads[i].records;
}

static double bytes_of(const struct cost_flow_stage *stage, size_t i)
{
    return (double)stage->payloads[i].records * stage->record * stage->depth;
}

/* Rows of the integer program below, after one a stage. */
enum { CORES = 1, HOST, DEVICE, TIME, ROWS };

/*
 * The paper's formulation, solved by GLPK: x_ij in {0, 1}, stage i has payload j; T the time of a
 * record, in units of @scale seconds:
 *
 *   sum over j of x_ij = 1                         for each i
 *   T >= sum over j of t_ij x_ij                   for each i
 *   cores T >= sum over i in WORK, j of t_ij x_ij
 *   sum over i in a memory, j of b_ij x_ij <= that memory
 *   minimise T; or with T <= @limit, the sum of all b_ij x_ij
 *
 * Returns the least seconds or bytes, or a negative number: no choice fits.
 */
static double solve(const struct cost_flow *flow, double scale, double limit)
{
    int index[1 + 1024], row[1 + 1024], count = 0, stages = (int)flow->count;
    double value[1 + 1024];
    glp_prob *program = glp_create_prob();
    glp_set_obj_dir(program, GLP_MIN);
    glp_add_rows(program, 2 * stages + ROWS - 1);
    int period = glp_add_cols(program, 1);
    glp_set_col_bnds(program, period, limit > 0 ? GLP_DB : GLP_LO, 0, limit / scale);
    glp_set_obj_coef(program, period, limit > 0 ? 0 : 1);
#define PUT(at_row, at_column, what)                                                               \
    (row[++count] = (at_row), index[count] = (at_column), value[count] = (what))
    for (int i = 0; i < stages; i++) {
        const struct cost_flow_stage *stage = &flow->stages[i];
        int one = i + 1, slowest = stages + i + 1;
        glp_set_row_bnds(program, one, GLP_FX, 1, 1);
        glp_set_row_bnds(program, slowest, GLP_LO, 0, 0);
        PUT(slowest, period, 1);
        for (size_t j = 0; j < stage->count; j++) {
            int x = glp_add_cols(program, 1);
            double seconds = record_seconds(stage, j) / scale, mib = bytes_of(stage, j) / MIB;
            glp_set_col_kind(program, x, GLP_BV);
            glp_set_obj_coef(program, x, limit > 0 ? mib : 0);
            PUT(one, x, 1);
            PUT(slowest, x, -seconds);
            PUT(2 * stages + (stage->memory == COST_HOST ? HOST : DEVICE), x, mib);
            if (flow->cores && stage->kind == COST_WORK)
                PUT(2 * stages + CORES, x, -seconds);
        }
    }
    PUT(2 * stages + CORES, period, flow->cores);
#undef PUT
    glp_set_row_bnds(program, 2 * stages + CORES, GLP_LO, 0, 0);
    glp_set_row_bnds(program, 2 * stages + HOST, GLP_UP, 0, (double)flow->memory[COST_HOST] / MIB);
    glp_set_row_bnds(program, 2 * stages + DEVICE, GLP_UP, 0,
                     (double)flow->memory[COST_DEVICE] / MIB);
    glp_load_matrix(program, count, row, index, value);
    glp_iocp how;
    glp_term_out(GLP_OFF);
    glp_init_iocp(&how);
    how.presolve = GLP_ON;
    how.tol_int = 1e-9;
    int error = glp_intopt(program, &how);
    double least = -1;
    if (error != GLP_ENOPFS) {
        cr_assert_eq(error, 0, "GLPK says %d", error);
        if (glp_mip_status(program) == GLP_OPT)
            least = glp_mip_obj_val(program) * (limit > 0 ? MIB : scale);
    }
    glp_delete_prob(program);
    return least;
}

static double all_memory(const struct cost_flow_choice *choice)
{
    return (double)(choice->memory[COST_HOST] + choice->memory[COST_DEVICE]);
}

Test(cost_payloads, a_solver_of_integer_programs_finds_the_same_time, .timeout = 240)
{
    unsigned without = 0, short_of_memory = 0;
    for (unsigned seed = 1; seed <= WORLDS; seed++) {
        struct cost_flow flow = flow_world(seed, 1 + seed % COST_FLOW_STAGES, 256 << 10);
        struct cost_flow_choice choice, plenty;
        double least = solve(&flow, 1e-6, 0);
        if (cost_payloads(&flow, 0, &choice)) {
            cr_assert_lt(least, 0, "seed %u: GLPK finds a choice", seed);
            without++;
            continue;
        }
        cr_assert_float_eq(choice.seconds, least, least * 1e-7, "seed %u: %.17g, GLPK %.17g", seed,
                           choice.seconds, least);
        flow.memory[COST_HOST] = flow.memory[COST_DEVICE] = UINT64_MAX / 2;
        cr_assert_eq(cost_payloads(&flow, 0, &plenty), 0);
        short_of_memory += plenty.seconds < choice.seconds;
    }
    cr_assert_lt(without, WORLDS / 2);
    cr_assert_gt(short_of_memory, WORLDS / 10, "or the memory was never asked");
}

Test(cost_payloads, a_solver_of_integer_programs_finds_the_same_memory_a_little_slower,
     .timeout = 240)
{
    for (unsigned seed = 1; seed <= WORLDS / 3; seed++) {
        struct cost_flow flow = flow_world(seed, 1 + seed % COST_FLOW_STAGES, 256 << 10);
        struct cost_flow_choice fastest, choice;
        if (cost_payloads(&flow, 0, &fastest))
            continue;
        cr_assert_eq(cost_payloads(&flow, 0.0312, &choice), 0);
        cr_assert_leq(choice.seconds, fastest.seconds * 1.0312);
        cr_assert_float_eq(all_memory(&choice), solve(&flow, 1e-6, fastest.seconds * 1.0312), 1,
                           "seed %u", seed);
    }
}

/* Each combination of payloads, counted up as digits are. */
static bool exhaust(const struct cost_flow *flow, double *ret_seconds, double *ret_memory)
{
    size_t at[COST_FLOW_STAGES] = {0}, i;
    double best = INFINITY, best_memory = INFINITY;
    do {
        double slowest = 0, work = 0, memory[2] = {0};
        for (i = 0; i < flow->count; i++) {
            double seconds = record_seconds(&flow->stages[i], at[i]);
            slowest = fmax(slowest, seconds);
            work += flow->stages[i].kind == COST_WORK ? seconds : 0;
            memory[flow->stages[i].memory] += bytes_of(&flow->stages[i], at[i]);
        }
        slowest = flow->cores ? fmax(slowest, work / flow->cores) : slowest;
        double bytes = memory[COST_HOST] + memory[COST_DEVICE];
        if (memory[COST_HOST] <= (double)flow->memory[COST_HOST] &&
            memory[COST_DEVICE] <= (double)flow->memory[COST_DEVICE] &&
            (slowest < best || (slowest == best && bytes < best_memory))) {
            best = slowest;
            best_memory = bytes;
        }
        for (i = 0; i < flow->count && ++at[i] == flow->stages[i].count; i++)
            at[i] = 0;
    } while (i < flow->count);
    *ret_seconds = best;
    *ret_memory = best_memory;
    return best < INFINITY;
}

Test(cost_payloads, trying_all_finds_nothing_faster_and_nothing_as_fast_in_less_memory)
{
    for (unsigned seed = 1; seed <= 2 * WORLDS; seed++) {
        struct cost_flow flow = flow_world(seed, 1 + seed % 4, 32 << 10);
        struct cost_flow_choice choice;
        double seconds, memory;
        int error = cost_payloads(&flow, 0, &choice);
        cr_assert_eq(error, exhaust(&flow, &seconds, &memory) ? 0 : -ENOMEM, "seed %u", seed);
        if (error)
            continue;
        cr_assert_float_eq(choice.seconds, seconds, seconds * 1e-12, "seed %u", seed);
        cr_assert_eq(all_memory(&choice), memory, "seed %u", seed);
    }
}

Test(cost_payloads, payloads_double_up_to_the_most_bytes)
{
    struct cost_flow_stage stage = {.record = 48};
    cost_payloads_fill(&(struct cost_stage){COST_LINK, 10e-6, 1 * GB}, 1024, &stage);
    cr_assert_eq(stage.count, 5);
    cr_assert_eq(stage.payloads[4].records, 16);
    cr_assert_float_eq(stage.payloads[4].seconds, 10e-6 + 768e-9, 1e-12);
    cost_payloads_fill(&(struct cost_stage){COST_LINK, 10e-6, 1 * GB}, 47, &stage);
    cr_assert_eq(stage.count, 1, "a record alone may be larger");
    cost_payloads_fill(&(struct cost_stage){COST_LINK, 10e-6, 1 * GB}, UINT64_MAX, &stage);
    cr_assert_eq(stage.count, COST_PAYLOADS_MAX);
}

/* Seven stages with all sizes up to a gigabyte, as a worker may have, with memory for few of them.
 */
Test(cost_payloads, a_choice_takes_milliseconds, .timeout = 60)
{
    for (unsigned seed = 1; seed <= 50; seed++) {
        struct cost_flow flow = flow_world(seed, COST_FLOW_STAGES, 1u << 30);
        struct cost_flow_choice choice;
        flow.memory[COST_HOST] = flow.memory[COST_DEVICE] = 4 * MIB;
        cr_assert_eq(cost_payloads(&flow, COST_SLACK, &choice), 0);
        cr_assert_leq(choice.memory[COST_HOST], 4 * MIB);
        cr_assert_leq(choice.memory[COST_DEVICE], 4 * MIB);
    }
}
