/** Algebra: a sparse matrix times a vector, in two formats, and a product of dense matrices. */
#include "spector.h"

#include <stdlib.h>

enum { GROUP = 64, WIDTH = 16, TILE = 16, TURN = 17 };

/* ---- spmv: as compressed rows (CSR), and as rows of one width (ELL), of which both must agree
 * with the host; each further round takes the vector turned by 17 elements, and folds ---- */

enum { SPMV_OFFSETS, SPMV_COLUMNS, SPMV_VALUES, SPMV_VECTOR, SPMV_CSR, SPMV_ELL };

/* CSR's arrays and ELL's lie one behind the other in the same buffers: ELL begins at first. */
static const char spmv_source[] =
    "__kernel void csr(__global const uint *offsets, __global const uint *columns,\n"
    "                  __global const uint *values, __global const uint *vector,\n"
    "                  __global uint *out, uint n, uint work) {\n"
    "    uint row = (uint)get_global_id(0), sum = 0;\n"
    "    for (uint r = 0; r < work; r++) {\n"
    "        uint dot = 0;\n"
    "        for (uint k = offsets[row]; k < offsets[row + 1u]; k++)\n"
    "            dot += values[k] * vector[(columns[k] + r * 17u) & (n - 1u)];\n"
    "        sum = sum * 3u + dot;\n"
    "    }\n"
    "    out[row] = sum;\n"
    "}\n"
    "__kernel void ell(__global const uint *columns, __global const uint *values,\n"
    "                  __global const uint *vector, __global uint *out, uint n, uint work,\n"
    "                  uint first) {\n"
    "    uint row = (uint)get_global_id(0), sum = 0;\n"
    "    for (uint r = 0; r < work; r++) {\n"
    "        uint dot = 0;\n"
    "        for (uint k = first + row; k < first + 16u * n; k += n)\n"
    "            dot += values[k] * vector[(columns[k] + r * 17u) & (n - 1u)];\n"
    "        sum = sum * 3u + dot;\n"
    "    }\n"
    "    out[row] = sum;\n"
    "}\n";

static void spmv_unit(const struct spector *s, size_t index, uint32_t *ret_words)
{
    const uint32_t *offsets = s->inputs[SPMV_OFFSETS], *columns = s->inputs[SPMV_COLUMNS];
    const uint32_t *values = s->inputs[SPMV_VALUES], *vector = s->inputs[SPMV_VECTOR];

    ret_words[0] = 0;
    for (cl_uint r = 0; r < s->work; r++) {
        uint32_t dot = 0;
        for (uint32_t k = offsets[index]; k < offsets[index + 1]; k++)
            dot += values[k] * vector[(columns[k] + r * TURN) % s->n];
        ret_words[0] = ret_words[0] * 3 + dot;
    }
}

static void spmv_make(struct spector *s)
{
    size_t n = s->n, filled = 0;
    uint32_t *offsets = prog_alloc((n + 1) * sizeof *offsets);

    offsets[0] = 0;
    for (size_t row = 0; row < n; row++) {
        filled += rng_below(&s->rng, WIDTH + 1);
        offsets[row + 1] = (uint32_t)filled;
    }
    size_t size = (filled + n * WIDTH) * sizeof(uint32_t);
    uint32_t *columns = prog_alloc(size), *values = prog_alloc(size);
    for (size_t k = 0; k < filled; k++) {
        columns[k] = rng_below(&s->rng, s->n);
        values[k] = (uint32_t)rng_next(&s->rng);
    }
    for (size_t row = 0; row < n; row++) {
        for (size_t i = 0; i < WIDTH; i++) {
            size_t from = offsets[row] + i, to = filled + i * n + row;
            bool is = from < offsets[row + 1];
            columns[to] = is ? columns[from] : (uint32_t)row;
            values[to] = is ? values[from] : 0;
        }
    }
    uint32_t *vector = prog_alloc(n * sizeof *vector);
    rng_fill(&s->rng, vector, n * sizeof *vector);
    spector_buffer(s, SPMV_OFFSETS, (n + 1) * sizeof *offsets, offsets);
    spector_buffer(s, SPMV_COLUMNS, size, columns);
    spector_buffer(s, SPMV_VALUES, size, values);
    spector_buffer(s, SPMV_VECTOR, n * sizeof *vector, vector);
    struct result r = {
        .units = n, .unit_words = 1, .cost = (uint64_t)WIDTH * s->work, .unit = spmv_unit};
    spector_result(s, 0, SPMV_CSR, r);
    spector_result(s, 1, SPMV_ELL, r);
    const cl_uint numbers[] = {s->n, s->work, (cl_uint)filled};
    spector_args(s, 0,
                 (const int[]){SPMV_OFFSETS, SPMV_COLUMNS, SPMV_VALUES, SPMV_VECTOR, SPMV_CSR}, 5,
                 numbers, 2);
    spector_args(s, 1, (const int[]){SPMV_COLUMNS, SPMV_VALUES, SPMV_VECTOR, SPMV_ELL}, 4, numbers,
                 3);
}

static void spmv_pass(struct spector *s)
{
    spector_launch(s, 0, s->n, 1, GROUP, 1);
    spector_launch(s, 1, s->n, 1, GROUP, 1);
}

const struct spector_ops spector_spmv = {
    .name = "spmv",
    .source = spmv_source,
    .kernels = {"csr", "ell"},
    .n = {1 << 10, 1 << 16, 1 << 22},
    .work = {1, 4, 1 << 11},
    .make = spmv_make,
    .pass = spmv_pass,
};

/* ---- matmul: tiles in local memory; further rounds take the second matrix turned by a tile of
 * rows ----
 *
 * Floats in [-8, 8) that are integers: no sum of 2^17 products reaches 2^24, so each is exact.
 */

enum { MATMUL_A, MATMUL_B, MATMUL_OUT };

static const char matmul_source[] =
    "#pragma OPENCL FP_CONTRACT OFF\n"
    "__kernel __attribute__((reqd_work_group_size(16, 16, 1)))\n"
    "void matmul(__global const float *a, __global const float *b, __global uint *out, uint n,\n"
    "            uint work) {\n"
    "    __local float left[16][16], right[16][16];\n"
    "    uint i = (uint)get_local_id(0), j = (uint)get_local_id(1);\n"
    "    uint x = (uint)get_global_id(0), y = (uint)get_global_id(1), sum = 0;\n"
    "    for (uint r = 0; r < work; r++) {\n"
    "        float dot = 0.0f;\n"
    "        for (uint t = 0; t < n; t += 16u) {\n"
    "            left[j][i] = a[y * n + t + i];\n"
    "            right[j][i] = b[((t + r * 16u + j) & (n - 1u)) * n + x];\n"
    "            barrier(CLK_LOCAL_MEM_FENCE);\n"
    "            for (uint k = 0; k < 16u; k++)\n"
    "                dot += left[j][k] * right[k][i];\n"
    "            barrier(CLK_LOCAL_MEM_FENCE);\n"
    "        }\n"
    "        sum = sum * 3u + (uint)(int)dot;\n"
    "    }\n"
    "    out[y * n + x] = sum;\n"
    "}\n";

static void matmul_unit(const struct spector *s, size_t index, uint32_t *ret_words)
{
    const float *a = s->inputs[MATMUL_A], *b = s->inputs[MATMUL_B];
    size_t n = s->n, x = index % n, y = index / n;

    ret_words[0] = 0;
    for (cl_uint r = 0; r < s->work; r++) {
        int32_t dot = 0;
        for (size_t k = 0; k < n; k++)
            dot += (int32_t)a[y * n + k] * (int32_t)b[(k + (size_t)r * TILE) % n * n + x];
        ret_words[0] = ret_words[0] * 3 + (uint32_t)dot;
    }
}

static float *small_integers(struct spector *s)
{
    size_t n = (size_t)s->n * s->n;
    float *p = prog_alloc(n * sizeof *p);

    for (size_t i = 0; i < n; i++)
        p[i] = (float)rng_below(&s->rng, 16) - 8;
    return p;
}

static void matmul_make(struct spector *s)
{
    size_t units = (size_t)s->n * s->n;

    spector_buffer(s, MATMUL_A, units * sizeof(float), small_integers(s));
    spector_buffer(s, MATMUL_B, units * sizeof(float), small_integers(s));
    spector_result(s, 0, MATMUL_OUT,
                   (struct result){.units = units,
                                   .unit_words = 1,
                                   .cost = (uint64_t)4 * s->n * s->work,
                                   .unit = matmul_unit});
    spector_args(s, 0, (const int[]){MATMUL_A, MATMUL_B, MATMUL_OUT}, 3,
                 (const cl_uint[]){s->n, s->work}, 2);
}

static void matmul_pass(struct spector *s)
{
    spector_launch(s, 0, s->n, s->n, TILE, TILE);
}

const struct spector_ops spector_matmul = {
    .name = "matmul",
    .source = matmul_source,
    .kernels = {"matmul"},
    .n = {1 << 6, 1 << 9, 1 << 13},
    .work = {1, 1, 8},
    .make = matmul_make,
    .pass = matmul_pass,
};
