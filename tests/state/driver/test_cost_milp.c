#include "tests/support/cases.h"
#include <glpk.h>
#include <math.h>

#include "tests/state/driver/cost_worlds.h"

/*
 * The same choice as a mixed integer program, solved by GLPK. With a ring r for each chunk size and
 * number of chunks, and t threads for each work i:
 *
 *   x_r, a_r in {0, 1}    that ring is taken, with threads, or with the caller doing all work
 *   y_it in {0, 1}        work i has t threads
 *   z_irt >= 0            both; sum over t is x_r, sum over r is y_it: with these whole, a product
 *   p_r >= 0              the period with that ring, 0 when it is not taken
 *
 *   sum x_r + sum a_r = 1,   sum t y_it <= cores
 *   p_r >= s_j x_r                            for each link j
 *   p_r >= sum over t of s_irt z_irt          for each work i
 *   (k - 1) p_r >= sum_j s_j x_r + sum over i and t of s_irt z_irt
 *   minimise sum over r of (once_r + sum_j s_j) x_r + s_irt z_irt + (steps_r - 1) p_r
 *            + sum of COST_THREAD_START t y_it + alone_r a_r
 *
 * Its coefficients are computed here, from the words of cost.h.
 */

struct ring {
    size_t chunk;
    unsigned chunks;
    double steps, bytes, once;
};

struct model {
    const struct cost_problem *problem;
    glp_prob *program;
    struct ring rings[11 * COST_CHUNKS_MAX];
    int ring_count;
    size_t works[COST_STAGES_MAX];
    int work_count;
};

static double taken(const struct cost_stage *stage, double bytes, unsigned threads)
{
    if (stage->kind == COST_HAND)
        return stage->setup;
    return stage->setup + bytes / stage->bandwidth / (1 + (threads - 1) * COST_EFFICIENCY);
}

static void find_rings(struct model *model)
{
    const struct cost_problem *problem = model->problem;
    for (size_t chunk = COST_CHUNK_MIN; chunk <= COST_CHUNK_MAX; chunk *= 2) {
        double steps = ceil((double)problem->total / (double)chunk);
        for (unsigned chunks = 1; chunks <= COST_CHUNKS_MAX && chunks <= steps; chunks++) {
            struct ring ring = {chunk, chunks, steps, (double)problem->total / steps};
            if (chunk * chunks > problem->ring)
                continue;
            for (size_t i = 0; i < problem->count; i++)
                if (problem->stages[i].kind == COST_RING)
                    ring.once += problem->stages[i].setup +
                                 (double)(chunk * chunks) / problem->stages[i].bandwidth;
            model->rings[model->ring_count++] = ring;
        }
        if (steps == 1)
            break;
    }
}

static int column(struct model *model, bool whole, double cost)
{
    int at = glp_add_cols(model->program, 1);
    glp_set_col_bnds(model->program, at, whole ? GLP_DB : GLP_LO, 0, 1);
    glp_set_col_kind(model->program, at, whole ? GLP_BV : GLP_CV);
    glp_set_obj_coef(model->program, at, cost);
    return at;
}

struct row {
    int index[1024];
    double value[1024];
    int count; /* from 1 on */
};

static void put(struct row *row, int at, double value)
{
    row->index[++row->count] = at;
    row->value[row->count] = value;
}

static void add_row(struct model *model, const struct row *row, int kind, double bound)
{
    int at = glp_add_rows(model->program, 1);
    glp_set_row_bnds(model->program, at, kind, bound, bound);
    glp_set_mat_row(model->program, at, row->count, row->index, row->value);
}

static unsigned threads_of(const struct model *model, int work)
{
    unsigned most = model->problem->stages[model->works[work]].most;
    return most && most < model->problem->cores ? most : model->problem->cores;
}

/* The caller does all work, as one stage. */
static double alone(const struct model *model, const struct ring *ring)
{
    double sum = 0, slowest = COST_TURN, work = 0;
    for (size_t i = 0; i < model->problem->count; i++) {
        const struct cost_stage *stage = &model->problem->stages[i];
        double seconds = stage->kind == COST_RING ? 0 : taken(stage, ring->bytes, 1);
        sum += seconds;
        work += stage->kind == COST_WORK ? seconds : 0;
        slowest = stage->kind == COST_LINK ? fmax(slowest, seconds) : slowest;
    }
    double around = (sum + COST_LATE) / (ring->chunks > 1 ? ring->chunks - 1 : 1);
    return ring->once + sum + (ring->steps - 1) * fmax(around, fmax(slowest, work));
}

static void build(struct model *model)
{
    int y[COST_STAGES_MAX][COST_THREADS_MAX + 1];
    static struct row one, cores, by_threads[COST_STAGES_MAX][COST_THREADS_MAX + 1];
    bool threads = model->work_count && model->problem->cores > 1;
    one.count = cores.count = 0;
    for (int i = 0; threads && i < model->work_count; i++) {
        for (unsigned t = 1; t <= threads_of(model, i); t++) {
            y[i][t] = column(model, true, t * COST_THREAD_START);
            put(&cores, y[i][t], t);
            by_threads[i][t].count = 0;
            put(&by_threads[i][t], y[i][t], -1);
        }
    }
    for (int r = 0; r < model->ring_count; r++) {
        const struct ring *ring = &model->rings[r];
        put(&one, column(model, true, alone(model, ring)), 1);
        if (!threads)
            continue;
        static struct row around, slowest, whole;
        double links = 0;
        int p = column(model, false, ring->steps - 1), x = column(model, true, 0);
        put(&one, x, 1);
        around.count = 0;
        for (size_t j = 0; j < model->problem->count; j++) {
            enum cost_kind kind = model->problem->stages[j].kind;
            if (kind != COST_LINK && kind != COST_HAND)
                continue;
            double seconds = taken(&model->problem->stages[j], ring->bytes, 1);
            links += seconds;
            if (kind == COST_HAND)
                continue; /* it keeps nobody from the next chunk */
            slowest.count = 0;
            put(&slowest, p, 1);
            put(&slowest, x, -seconds);
            add_row(model, &slowest, GLP_LO, 0);
        }
        slowest.count = 0;
        put(&slowest, p, 1);
        put(&slowest, x, -COST_TURN);
        add_row(model, &slowest, GLP_LO, 0);
        glp_set_obj_coef(model->program, x, ring->once + links);
        put(&around, p, ring->chunks > 1 ? ring->chunks - 1 : 1);
        put(&around, x, -links - COST_LATE);
        for (int i = 0; i < model->work_count; i++) {
            slowest.count = whole.count = 0;
            put(&slowest, p, 1);
            put(&whole, x, -1);
            for (unsigned t = 1; t <= threads_of(model, i); t++) {
                double seconds = taken(&model->problem->stages[model->works[i]], ring->bytes, t);
                int z = column(model, false, seconds);
                put(&slowest, z, -seconds);
                put(&around, z, -seconds);
                put(&whole, z, 1);
                put(&by_threads[i][t], z, 1);
            }
            add_row(model, &slowest, GLP_LO, 0);
            add_row(model, &whole, GLP_FX, 0);
        }
        add_row(model, &around, GLP_LO, 0);
    }
    add_row(model, &one, GLP_FX, 1);
    if (!threads)
        return;
    add_row(model, &cores, GLP_UP, model->problem->cores);
    for (int i = 0; i < model->work_count; i++)
        for (unsigned t = 1; t <= threads_of(model, i); t++)
            add_row(model, &by_threads[i][t], GLP_FX, 0);
}

static double solve(const struct cost_problem *problem, unsigned seed)
{
    struct model model = {.problem = problem, .program = glp_create_prob()};
    glp_iocp how;
    for (size_t i = 0; i < problem->count; i++)
        if (problem->stages[i].kind == COST_WORK)
            model.works[model.work_count++] = i;
    find_rings(&model);
    build(&model);
    glp_term_out(GLP_OFF);
    glp_init_iocp(&how);
    how.presolve = GLP_ON;
    how.mip_gap = 0;
    int error = glp_intopt(model.program, &how);
    cr_assert_eq(error, 0, "seed %u: GLPK says %d", seed, error);
    cr_assert_eq(glp_mip_status(model.program), GLP_OPT, "seed %u", seed);
    double least = glp_mip_obj_val(model.program);
    glp_delete_prob(model.program);
    return least;
}

Test(cost_milp, a_solver_of_integer_programs_finds_nothing_better_and_nothing_else, .timeout = 240)
{
    unsigned with_threads = 0;
    for (unsigned seed = 1000; seed < 1040; seed++) {
        struct cost_problem problem = cost_world(seed, 6);
        struct cost_choice choice;
        cost_choose(&problem, 0, &choice);
        double least = solve(&problem, seed);
        cr_assert_float_eq(choice.seconds, least, least * 1e-9, "seed %u: %.17g, GLPK %.17g", seed,
                           choice.seconds, least);
        with_threads += choice.threads > 0;
    }
    cr_assert_gt(with_threads, 5, "or the larger part of the program was never asked");
}
