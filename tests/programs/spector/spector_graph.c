/** What groups write together: a histogram with atomics, and a breadth-first search. */
#include "spector.h"

#include <stdlib.h>
#include <string.h>

/* ---- histogram: of three channels, first in local memory; further rounds count each value
 * moved by 7 ---- */

enum { GROUP = 64, CHANNELS = 3, BINS = 256, STEP = 7, EACH = 16 };
enum { HISTOGRAM_IN, HISTOGRAM_OUT };

static const char histogram_source[] =
    "__kernel void histogram(__global const uint *in, __global uint *out, uint n, uint work) {\n"
    "    __local uint bins[768];\n"
    "    for (uint i = (uint)get_local_id(0); i < 768u; i += (uint)get_local_size(0))\n"
    "        bins[i] = 0;\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    for (uint i = (uint)get_global_id(0); i < n; i += (uint)get_global_size(0)) {\n"
    "        uint pixel = in[i];\n"
    "        for (uint r = 0; r < work; r++) {\n"
    "            atomic_inc(&bins[(pixel + r * 7u) & 255u]);\n"
    "            atomic_inc(&bins[256u + (((pixel >> 8) + r * 7u) & 255u)]);\n"
    "            atomic_inc(&bins[512u + (((pixel >> 16) + r * 7u) & 255u)]);\n"
    "        }\n"
    "    }\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    for (uint i = (uint)get_local_id(0); i < 768u; i += (uint)get_local_size(0))\n"
    "        if (bins[i])\n"
    "            atomic_add(&out[i], bins[i]);\n"
    "}\n";

static void histogram_unit(const struct spector *s, size_t index, uint32_t *ret_words)
{
    const uint32_t *in = s->inputs[HISTOGRAM_IN];
    uint32_t once[CHANNELS][BINS] = {0};

    (void)index; /* there is one */
    for (size_t i = 0; i < s->n; i++)
        for (int c = 0; c < CHANNELS; c++)
            once[c][in[i] >> 8 * c & (BINS - 1)]++;
    memset(ret_words, 0, sizeof once);
    /* Rounds that are 256 apart move by the same. */
    for (cl_uint r = 0; r < BINS && r < s->work; r++) {
        uint32_t times = (s->work - r + BINS - 1) / BINS;
        for (int c = 0; c < CHANNELS; c++)
            for (cl_uint v = 0; v < BINS; v++)
                ret_words[c * BINS + (v + r * STEP) % BINS] += times * once[c][v];
    }
}

static void histogram_make(struct spector *s)
{
    size_t size = s->n * sizeof(uint32_t);
    uint32_t *in = prog_alloc(size);

    /* Values that are less often the greater they are: not every bin alike. */
    for (size_t i = 0; i < s->n; i++) {
        uint32_t a = (uint32_t)rng_next(&s->rng), b = (uint32_t)rng_next(&s->rng);
        in[i] = a & b;
    }
    spector_buffer(s, HISTOGRAM_IN, size, in);
    spector_result(s, 0, HISTOGRAM_OUT,
                   (struct result){.units = 1,
                                   .unit_words = (size_t)CHANNELS * BINS,
                                   .cost = (uint64_t)CHANNELS * s->n,
                                   .unit = histogram_unit});
    spector_args(s, 0, (const int[]){HISTOGRAM_IN, HISTOGRAM_OUT}, 2,
                 (const cl_uint[]){s->n, s->work}, 2);
}

static void histogram_pass(struct spector *s)
{
    spector_fill(s, HISTOGRAM_OUT, 0, (size_t)CHANNELS * BINS * sizeof(uint32_t));
    spector_launch(s, 0, s->n / EACH, 1, GROUP, 1);
}

const struct spector_ops spector_histogram = {
    .name = "histogram",
    .source = histogram_source,
    .kernels = {"histogram"},
    .n = {1 << 13, 1 << 20, 1 << 26},
    .work = {1, 2, 1 << 8},
    .make = histogram_make,
    .pass = histogram_pass,
};

/* ---- bfs: level after level, each launch over the vertices that the last one found ----
 *
 * Who finds a vertex, and in which order they stand in the frontier, differs from run to run; the
 * level of each does not. A vertex that is visited gets a label, which takes the rounds of work.
 */

enum { DEGREE = 8, UNSEEN = 0x7fffffff };
enum { BFS_OFFSETS, BFS_TARGETS, BFS_LEVELS, BFS_LABELS, BFS_FRONTIERS, BFS_TAIL };

static const char bfs_source[] =
    "__kernel void visit(__global const uint *offsets, __global const uint *targets,\n"
    "                    __global uint *levels, __global uint *labels, __global uint *frontiers,\n"
    "                    __global uint *tail, uint from, uint to, uint count, uint level,\n"
    "                    uint work) {\n"
    "    uint i = (uint)get_global_id(0);\n"
    "    if (i >= count)\n"
    "        return;\n"
    "    uint v = frontiers[from + i], label = v;\n"
    "    for (uint r = 0; r < work; r++) {\n"
    "        label = label * 1664525u + 1013904223u;\n"
    "        label ^= label >> 13;\n"
    "    }\n"
    "    labels[v] = label;\n"
    "    for (uint k = offsets[v]; k < offsets[v + 1u]; k++)\n"
    "        if (atomic_cmpxchg(&levels[targets[k]], 0x7fffffffu, level + 1u) == 0x7fffffffu)\n"
    "            frontiers[to + atomic_inc(tail)] = targets[k];\n"
    "}\n";

/** The level of every vertex, by the host; kept where the buffer of the device's has no input. */
static void bfs_answer(struct spector *s)
{
    const uint32_t *offsets = s->inputs[BFS_OFFSETS], *targets = s->inputs[BFS_TARGETS];
    uint32_t *levels = prog_alloc(s->n * sizeof *levels), *queue = prog_alloc(s->n * sizeof *queue);
    size_t head = 0, tail = 1;

    for (size_t v = 0; v < s->n; v++)
        levels[v] = UNSEEN;
    levels[0] = 0;
    queue[0] = 0;
    while (head < tail) {
        uint32_t v = queue[head++];
        for (uint32_t k = offsets[v]; k < offsets[v + 1]; k++) {
            if (levels[targets[k]] == UNSEEN) {
                levels[targets[k]] = levels[v] + 1;
                queue[tail++] = targets[k];
            }
        }
    }
    free(queue);
    s->inputs[BFS_LEVELS] = levels;
}

static void level_unit(const struct spector *s, size_t index, uint32_t *ret_words)
{
    const uint32_t *levels = s->inputs[BFS_LEVELS];

    ret_words[0] = levels[index];
}

static void label_unit(const struct spector *s, size_t index, uint32_t *ret_words)
{
    const uint32_t *levels = s->inputs[BFS_LEVELS];
    uint32_t label = (uint32_t)index;

    for (cl_uint r = 0; r < s->work; r++) {
        label = label * 1664525u + 1013904223u;
        label ^= label >> 13;
    }
    ret_words[0] = levels[index] == UNSEEN ? 0 : label;
}

static void bfs_make(struct spector *s)
{
    size_t n = s->n, size = n * sizeof(uint32_t);
    uint32_t *offsets = prog_alloc(size + sizeof *offsets);
    uint32_t *targets = prog_alloc(size * DEGREE);
    size_t edges = 0;

    offsets[0] = 0;
    /* Edges lead to a sixteenth of the vertices ahead: some tens of levels; some are never reached.
     */
    for (size_t v = 0; v < n; v++) {
        for (uint32_t k = rng_below(&s->rng, DEGREE) + !v; k; k--)
            targets[edges++] = (uint32_t)((v + 1 + rng_below(&s->rng, s->n / 16)) % n);
        offsets[v + 1] = (uint32_t)edges;
    }
    spector_buffer(s, BFS_OFFSETS, size + sizeof *offsets, offsets);
    spector_buffer(s, BFS_TARGETS, edges * sizeof *targets, targets);
    spector_result(s, 0, BFS_LEVELS,
                   (struct result){.units = n, .unit_words = 1, .cost = 1, .unit = level_unit});
    spector_result(
        s, 1, BFS_LABELS,
        (struct result){.units = n, .unit_words = 1, .cost = s->work, .unit = label_unit});
    spector_buffer(s, BFS_FRONTIERS, 2 * size, NULL);
    spector_buffer(s, BFS_TAIL, sizeof(uint32_t), NULL);
}

static void bfs_pass(struct spector *s)
{
    static const int buffers[] = {BFS_OFFSETS, BFS_TARGETS,   BFS_LEVELS,
                                  BFS_LABELS,  BFS_FRONTIERS, BFS_TAIL};
    static const uint32_t zero;
    cl_uint count = 1, level = 0;

    spector_fill(s, BFS_LEVELS, UNSEEN, s->n * sizeof(uint32_t));
    spector_fill(s, BFS_LABELS, 0, s->n * sizeof(uint32_t));
    spector_fill(s, BFS_FRONTIERS, 0, sizeof(uint32_t)); /* it begins with the first vertex */
    OK(clEnqueueWriteBuffer(s->prog->queue, s->buffers[BFS_LEVELS], CL_FALSE, 0, sizeof zero, &zero,
                            0, NULL, NULL));
    for (; count; level++) {
        const cl_uint here = level % 2 ? s->n : 0, there = level % 2 ? 0 : s->n;
        spector_fill(s, BFS_TAIL, 0, sizeof(uint32_t));
        spector_args(s, 0, buffers, sizeof buffers / sizeof *buffers,
                     (const cl_uint[]){here, there, count, level, s->work}, 5);
        spector_launch(s, 0, (count + GROUP - 1) / GROUP * GROUP, 1, GROUP, 1);
        prog_read(s->prog->queue, s->buffers[BFS_TAIL], 0, sizeof count, &count);
        REQUIRE(count <= s->n);
    }
}

const struct spector_ops spector_bfs = {
    .name = "bfs",
    .source = bfs_source,
    .kernels = {"visit"},
    .n = {1 << 10, 1 << 16, 1 << 24},
    .work = {1, 16, 1 << 14},
    .make = bfs_make,
    .pass = bfs_pass,
    .answer = bfs_answer,
};
