/**
 * A solver with a given amount of state: integer diffusion on slabs of cells,
 * each with two buffers. Only the active slabs are stepped; the others are
 * state that has to survive.
 *
 *   solver [--mib N] [--active SLABS] [--steps N] [--every N] [--sums 1] [--end FILE] [--tiles N]
 *          [--seed N] [--pulse 1]
 *
 * It says where it is after every so many steps; with --sums 1 also a checksum of all cells there.
 * When it has said so and the number in FILE was reached, it takes no more steps: so a run that was
 * ended early can be compared with another.
 * Every cell is checked when the state is small. With --tiles N, for large state,
 * N tiles of each slab are checked, each computed on the host from the initial
 * cells that it depends on; with -1 none is. With --pulse each step of each pass is a dot on the
 * standard error.
 */
#include "prog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 2048, SLAB_MIB = 256, TILE = 16, MIB = 1 << 20 };

static const char source[] =
    "uint first(uint x, uint y, uint seed) {\n"
    "    uint h = x * 2654435761u + y * 2246822519u + seed;\n"
    "    h ^= h >> 15; h *= 2654435761u; h ^= h >> 13;\n"
    "    return h & 0xffffffu;\n"
    "}\n"
    "__kernel void start(__global uint *a, uint seed) {\n"
    "    uint x = (uint)get_global_id(0), y = (uint)get_global_id(1);\n"
    "    a[y * (uint)get_global_size(0) + x] = first(x, y, seed);\n"
    "}\n"
    "__kernel void advance(__global const uint *a, __global uint *b) {\n"
    "    uint x = (uint)get_global_id(0), y = (uint)get_global_id(1);\n"
    "    uint w = (uint)get_global_size(0), h = (uint)get_global_size(1), c = y * w + x;\n"
    "    uint l = x ? a[c - 1u] : 0u, r = x + 1u < w ? a[c + 1u] : 0u;\n"
    "    uint u = y ? a[c - w] : 0u, d = y + 1u < h ? a[c + w] : 0u;\n"
    "    b[c] = (4u * a[c] + l + r + u + d + 3u) >> 3;\n"
    "}\n";

struct slab {
    cl_mem cells[2];
    uint32_t seed;
    long steps;
};

struct solver {
    struct prog prog;
    cl_kernel start, step;
    struct slab *slabs;
    size_t n_slabs, active, height;
    long steps, every, tiles;
    bool sums;
    const char *end; /**< NULL: all steps are taken. */
    uint64_t seed;
    bool pulse;
};

static uint32_t first_cell(uint32_t x, uint32_t y, uint32_t seed)
{
    uint32_t h = x * 2654435761u + y * 2246822519u + seed;

    h ^= h >> 15;
    h *= 2654435761u;
    h ^= h >> 13;
    return h & 0xffffff;
}

/** The cells of one rectangle at one time, with its position in the slab. */
struct area {
    long x, y, width, height;
    uint32_t *cells;
};

static uint32_t cell_of(const struct area *a, long x, long y, long slab_height)
{
    if (x < 0 || y < 0 || x >= WIDTH || y >= slab_height)
        return 0;
    if (x < a->x || y < a->y || x >= a->x + a->width || y >= a->y + a->height)
        return 0; /* outside the cone: does not reach the tile */
    return a->cells[(y - a->y) * a->width + x - a->x];
}

/** What the rectangle at (@x, @y) holds after @steps, computed on the host alone. */
static void host_cells(const struct solver *s, const struct slab *slab, long x, long y, long width,
                       long height, uint32_t *ret_cells)
{
    long h = (long)s->height, n = slab->steps;
    long x0 = x - n < 0 ? 0 : x - n, x1 = x + width + n > WIDTH ? WIDTH : x + width + n;
    long y0 = y - n < 0 ? 0 : y - n, y1 = y + height + n > h ? h : y + height + n;
    struct area now = {x0, y0, x1 - x0, y1 - y0, NULL}, next = now;
    size_t size = (size_t)(now.width * now.height) * sizeof(uint32_t);

    now.cells = prog_alloc(size);
    next.cells = prog_alloc(size);
    for (long j = y0; j < y1; j++) {
        for (long i = x0; i < x1; i++)
            now.cells[(j - y0) * now.width + i - x0] =
                first_cell((uint32_t)i, (uint32_t)j, slab->seed);
    }
    for (long t = 0; t < n; t++) {
        for (long j = y0; j < y1; j++) {
            for (long i = x0; i < x1; i++)
                next.cells[(j - y0) * now.width + i - x0] =
                    (4 * cell_of(&now, i, j, h) + cell_of(&now, i - 1, j, h) +
                     cell_of(&now, i + 1, j, h) + cell_of(&now, i, j - 1, h) +
                     cell_of(&now, i, j + 1, h) + 3) >>
                    3;
        }
        uint32_t *swap = now.cells;
        now.cells = next.cells;
        next.cells = swap;
    }
    for (long j = 0; j < height; j++)
        memcpy(ret_cells + j * width, now.cells + (y + j - y0) * now.width + x - x0,
               (size_t)width * sizeof *ret_cells);
    free(now.cells);
    free(next.cells);
}

static void start_slab(struct solver *s, struct slab *slab)
{
    const size_t items[2] = {WIDTH, s->height};

    slab->steps = 0;
    for (int i = 0; i < 2; i++) {
        prog_arg(s->start, 0, sizeof slab->cells[i], &slab->cells[i]);
        prog_arg(s->start, 1, sizeof slab->seed, &slab->seed);
        OK(clEnqueueNDRangeKernel(s->prog.queue, s->start, 2, NULL, items, NULL, 0, NULL, NULL));
    }
}

static void step_slab(struct solver *s, struct slab *slab)
{
    const size_t items[2] = {WIDTH, s->height};
    cl_mem from = slab->cells[slab->steps % 2], to = slab->cells[(slab->steps + 1) % 2];

    prog_arg(s->step, 0, sizeof from, &from);
    prog_arg(s->step, 1, sizeof to, &to);
    OK(clEnqueueNDRangeKernel(s->prog.queue, s->step, 2, NULL, items, NULL, 0, NULL, NULL));
    slab->steps++;
}

static void check_tile(struct solver *s, struct slab *slab, struct rng *r)
{
    uint32_t got[TILE * TILE], want[TILE * TILE];
    const size_t row = WIDTH * sizeof(uint32_t);
    size_t x = rng_below(r, WIDTH - TILE), y = rng_below(r, (uint32_t)s->height - TILE);
    const size_t from[3] = {x * sizeof(uint32_t), y, 0}, to[3] = {0, 0, 0};
    const size_t region[3] = {TILE * sizeof(uint32_t), TILE, 1};

    OK(clEnqueueReadBufferRect(s->prog.queue, slab->cells[slab->steps % 2], CL_TRUE, from, to,
                               region, row, 0, TILE * sizeof(uint32_t), 0, got, 0, NULL, NULL));
    host_cells(s, slab, (long)x, (long)y, TILE, TILE, want);
    prog_same("tile", got, want, sizeof got);
}

/* All its cells now, which are the caller's to free; adds them to @sum. */
static uint32_t *read_slab(struct solver *s, const struct slab *slab, uint64_t *sum)
{
    size_t size = (size_t)WIDTH * s->height * sizeof(uint32_t);
    uint32_t *cells = prog_alloc(size);

    prog_read(s->prog.queue, slab->cells[slab->steps % 2], 0, size, cells);
    sum_bytes(sum, cells, size);
    return cells;
}

static void report_step(struct solver *s, long step)
{
    printf("step %ld of %ld", step, s->steps);
    if (s->sums) {
        uint64_t sum = 0;
        for (size_t i = 0; i < s->n_slabs; i++)
            free(read_slab(s, &s->slabs[i], &sum));
        printf(": %016lx", (unsigned long)sum);
    }
    putchar('\n');
    fflush(stdout);
}

static bool is_last(const struct solver *s, long step)
{
    FILE *file = s->end ? fopen(s->end, "re") : NULL;
    char text[24] = "";

    if (!file)
        return false;
    bool said = fgets(text, sizeof text, file) && *text >= '0' && *text <= '9' &&
                step >= strtol(text, NULL, 10);
    fclose(file);
    return said;
}

static void check_slab(struct solver *s, struct slab *slab, uint64_t *sum)
{
    size_t size = (size_t)WIDTH * s->height * sizeof(uint32_t);
    uint32_t *got = read_slab(s, slab, sum);

    if (s->tiles) {
        struct rng r = rng_seed(s->seed + slab->seed);
        for (long i = 0; i < s->tiles; i++)
            check_tile(s, slab, &r);
    } else {
        uint32_t *want = prog_alloc(size);
        host_cells(s, slab, 0, 0, WIDTH, (long)s->height, want);
        prog_same("slab", got, want, size);
        free(want);
    }
    free(got);
}

static uint64_t one_pass(struct solver *s, bool report)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < s->n_slabs; i++)
        start_slab(s, &s->slabs[i]);
    for (long step = 1; step <= s->steps; step++) {
        for (size_t i = 0; i < s->active; i++)
            step_slab(s, &s->slabs[i]);
        /* A bounded queue: no more than one step ahead of the device. */
        OK(clFinish(s->prog.queue));
        if (s->pulse)
            fputc('.', stderr);
        if (report && s->every && step % s->every == 0) {
            report_step(s, step);
            if (is_last(s, step))
                break;
        }
    }
    for (size_t i = 0; i < s->n_slabs; i++)
        check_slab(s, &s->slabs[i], &sum);
    return sum;
}

static void solver_init(struct solver *s, long mib)
{
    size_t slab_mib = mib < SLAB_MIB ? (size_t)mib : SLAB_MIB;

    s->n_slabs = ((size_t)mib + slab_mib - 1) / slab_mib;
    s->height = slab_mib * MIB / 2 / sizeof(uint32_t) / WIDTH;
    if (s->active > s->n_slabs)
        s->active = s->n_slabs;
    prog_open(&s->prog);
    cl_program program = prog_build(&s->prog, source, "");
    s->start = prog_kernel(program, "start");
    s->step = prog_kernel(program, "advance");
    OK(clReleaseProgram(program));
    s->slabs = prog_alloc(s->n_slabs * sizeof *s->slabs);
    for (size_t i = 0; i < s->n_slabs; i++) {
        s->slabs[i].seed = (uint32_t)(s->seed * 7919 + i);
        for (int k = 0; k < 2; k++)
            s->slabs[i].cells[k] = prog_buffer(s->prog.context, CL_MEM_READ_WRITE,
                                               (size_t)WIDTH * s->height * sizeof(uint32_t), NULL);
    }
}

static void solver_finish(struct solver *s)
{
    for (size_t i = 0; i < s->n_slabs; i++)
        for (int k = 0; k < 2; k++)
            OK(clReleaseMemObject(s->slabs[i].cells[k]));
    RELEASE(s->start, s->step);
    prog_close(&s->prog);
    free(s->slabs);
}

int main(int argc, char **argv)
{
    struct solver s = {
        .active = (size_t)prog_option(argc, argv, "--active", 1),
        .steps = prog_option(argc, argv, "--steps", 200),
        .every = prog_option(argc, argv, "--every", 50),
        .sums = prog_option(argc, argv, "--sums", 0),
        .end = prog_option_text(argc, argv, "--end", NULL),
        .tiles = prog_option(argc, argv, "--tiles", 0),
        .seed = (uint64_t)prog_option(argc, argv, "--seed", 1),
        .pulse = prog_option(argc, argv, "--pulse", 0) != 0,
    };
    long mib = prog_option(argc, argv, "--mib", 4);

    REQUIRE(mib >= 1 && s.steps >= 0);
    solver_init(&s, mib);
    uint64_t sum = one_pass(&s, true);
    while (prog_again())
        REQUIRE(one_pass(&s, false) == sum);
    solver_finish(&s);
    printf("solver checksum %016lx\n", (unsigned long)sum);
    return 0;
}
