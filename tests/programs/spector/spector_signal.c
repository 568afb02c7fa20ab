/** Signals: a complex FIR filter, and the discrete cosine transform of 8 by 8 blocks. */
#include "spector.h"

#include <stdlib.h>

enum { GROUP = 64, TAPS = 32, SIDE = 8, BLOCK = SIDE * SIDE, SHIFT = 13 };

/* ---- fir: out[i] is the sum of in[i + t] * tap[t] over 32 taps for each round ---- */

enum { FIR_IN, FIR_TAPS, FIR_OUT };

static const char fir_source[] =
    "__kernel void fir(__global const short2 *in, __global const short2 *taps,\n"
    "                  __global uint2 *out, uint n_taps) {\n"
    "    uint i = (uint)get_global_id(0), re = 0, im = 0;\n"
    "    for (uint t = 0; t < n_taps; t++) {\n"
    "        int2 a = convert_int2(in[i + t]), b = convert_int2(taps[t]);\n"
    "        re += (uint)(a.x * b.x) - (uint)(a.y * b.y);\n"
    "        im += (uint)(a.x * b.y) + (uint)(a.y * b.x);\n"
    "    }\n"
    "    out[i] = (uint2)(re, im);\n"
    "}\n";

static void fir_unit(const struct spector *s, size_t index, uint32_t *ret_words)
{
    const int16_t *in = s->inputs[FIR_IN], *taps = s->inputs[FIR_TAPS];

    ret_words[0] = ret_words[1] = 0;
    for (size_t t = 0; t < (size_t)TAPS * s->work; t++) {
        int32_t ax = in[2 * (index + t)], ay = in[2 * (index + t) + 1];
        int32_t bx = taps[2 * t], by = taps[2 * t + 1];
        ret_words[0] += (uint32_t)(ax * bx) - (uint32_t)(ay * by);
        ret_words[1] += (uint32_t)(ax * by) + (uint32_t)(ay * bx);
    }
}

/** Complex samples with parts that are less than 2^14, so that no product of two overflows. */
static int16_t *samples(struct spector *s, size_t n)
{
    int16_t *p = prog_alloc(n * 2 * sizeof *p);

    rng_fill(&s->rng, p, n * 2 * sizeof *p);
    for (size_t i = 0; i < 2 * n; i++)
        p[i] /= 2;
    return p;
}

static void fir_make(struct spector *s)
{
    size_t taps = (size_t)TAPS * s->work, n = s->n + taps;

    spector_buffer(s, FIR_IN, n * 2 * sizeof(int16_t), samples(s, n));
    spector_buffer(s, FIR_TAPS, taps * 2 * sizeof(int16_t), samples(s, taps));
    spector_result(s, 0, FIR_OUT,
                   (struct result){.units = s->n, .unit_words = 2, .cost = taps, .unit = fir_unit});
    spector_args(s, 0, (const int[]){FIR_IN, FIR_TAPS, FIR_OUT}, 3, (cl_uint[]){(cl_uint)taps}, 1);
}

static void fir_pass(struct spector *s)
{
    spector_launch(s, 0, s->n, 1, GROUP, 1);
}

const struct spector_ops spector_fir = {
    .name = "fir",
    .source = fir_source,
    .kernels = {"fir"},
    .n = {1 << 10, 1 << 16, 1 << 20},
    .work = {1, 8, 1 << 12},
    .make = fir_make,
    .pass = fir_pass,
};

/* ---- dct: each block of an image, in fixed point; further rounds transform the transformed ----
 */

enum { DCT_IN, DCT_TABLE, DCT_OUT };

static const char dct_source[] =
    "__kernel __attribute__((reqd_work_group_size(8, 8, 1)))\n"
    "void dct(__global const uchar *in, __global const int *table, __global int *out, uint work) "
    "{\n"
    "    __local int block[64], rows[64];\n"
    "    uint x = (uint)get_local_id(0), y = (uint)get_local_id(1);\n"
    "    uint width = (uint)get_global_size(0), row = (uint)get_global_id(1);\n"
    "    block[y * 8u + x] = (int)in[row * width + (uint)get_global_id(0)] - 128;\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    for (uint r = 0; r < work; r++) {\n"
    "        uint sum = 1u << 12;\n"
    "        for (uint k = 0; k < 8u; k++)\n"
    "            sum += (uint)table[x * 8u + k] * (uint)block[y * 8u + k];\n"
    "        rows[y * 8u + x] = as_int(sum) >> 13;\n"
    "        barrier(CLK_LOCAL_MEM_FENCE);\n"
    "        sum = 1u << 12;\n"
    "        for (uint k = 0; k < 8u; k++)\n"
    "            sum += (uint)table[y * 8u + k] * (uint)rows[k * 8u + x];\n"
    "        block[y * 8u + x] = as_int(sum) >> 13;\n"
    "        barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    }\n"
    "    uint group = (uint)(get_group_id(1) * get_num_groups(0) + get_group_id(0));\n"
    "    out[group * 64u + y * 8u + x] = block[y * 8u + x];\n"
    "}\n"
    /* The same by a work-item for each block. */
    "__kernel void dct_blocks(__global const uchar *in, __global const int *table,\n"
    "                         __global int *out, uint work) {\n"
    "    int block[64], rows[64];\n"
    "    uint across = (uint)get_global_size(0), left = (uint)get_global_id(0);\n"
    "    uint top = (uint)get_global_id(1), at = (top * across + left) * 64u;\n"
    "    for (uint i = 0; i < 64u; i++)\n"
    "        block[i] = (int)in[(top * 8u + i / 8u) * across * 8u + left * 8u + i % 8u] - 128;\n"
    "    for (uint r = 0; r < work; r++) {\n"
    "        for (uint i = 0; i < 64u; i++) {\n"
    "            uint sum = 1u << 12;\n"
    "            for (uint k = 0; k < 8u; k++)\n"
    "                sum += (uint)table[i % 8u * 8u + k] * (uint)block[i / 8u * 8u + k];\n"
    "            rows[i] = as_int(sum) >> 13;\n"
    "        }\n"
    "        for (uint i = 0; i < 64u; i++) {\n"
    "            uint sum = 1u << 12;\n"
    "            for (uint k = 0; k < 8u; k++)\n"
    "                sum += (uint)table[i / 8u * 8u + k] * (uint)rows[k * 8u + i % 8u];\n"
    "            block[i] = as_int(sum) >> 13;\n"
    "        }\n"
    "    }\n"
    "    for (uint i = 0; i < 64u; i++) out[at + i] = block[i];\n"
    "}\n";

/** Half the cosine of m * pi / 16, times 2^SHIFT. */
static int32_t half_cosine(unsigned m)
{
    static const int32_t first[SIDE + 1] = {4096, 4017, 3784, 3406, 2896, 2276, 1567, 799, 0};

    m %= 4 * SIDE;
    if (m > 2 * SIDE)
        m = 4 * SIDE - m;
    return m > SIDE ? -first[2 * SIDE - m] : first[m];
}

static void dct_unit(const struct spector *s, size_t index, uint32_t *ret_words)
{
    const uint8_t *in = s->inputs[DCT_IN];
    const int32_t *table = s->inputs[DCT_TABLE];
    size_t across = s->n / SIDE, left = index % across * SIDE, top = index / across * SIDE;
    uint32_t rows[BLOCK];

    for (size_t i = 0; i < BLOCK; i++)
        ret_words[i] = (uint32_t)(in[(top + i / SIDE) * s->n + left + i % SIDE] - 128);
    for (cl_uint r = 0; r < s->work; r++) {
        for (size_t i = 0; i < BLOCK; i++) {
            uint32_t sum = 1 << (SHIFT - 1);
            for (size_t k = 0; k < SIDE; k++)
                sum += (uint32_t)table[i % SIDE * SIDE + k] * ret_words[i / SIDE * SIDE + k];
            rows[i] = (uint32_t)((int32_t)sum >> SHIFT);
        }
        for (size_t i = 0; i < BLOCK; i++) {
            uint32_t sum = 1 << (SHIFT - 1);
            for (size_t k = 0; k < SIDE; k++)
                sum += (uint32_t)table[i / SIDE * SIDE + k] * rows[k * SIDE + i % SIDE];
            ret_words[i] = (uint32_t)((int32_t)sum >> SHIFT);
        }
    }
}

static void dct_make(struct spector *s)
{
    size_t size = (size_t)s->n * s->n;
    uint8_t *in = prog_alloc(size);
    int32_t *table = prog_alloc(BLOCK * sizeof *table);

    rng_fill(&s->rng, in, size);
    for (unsigned u = 0; u < SIDE; u++)
        for (unsigned x = 0; x < SIDE; x++)
            table[u * SIDE + x] = u ? half_cosine((2 * x + 1) * u) : half_cosine(SIDE / 2);
    spector_buffer(s, DCT_IN, size, in);
    spector_buffer(s, DCT_TABLE, BLOCK * sizeof *table, table);
    spector_result(s, 0, DCT_OUT,
                   (struct result){.units = size / BLOCK,
                                   .unit_words = BLOCK,
                                   .cost = (uint64_t)2 * SIDE * BLOCK * s->work,
                                   .unit = dct_unit});
    spector_args(s, 0, (const int[]){DCT_IN, DCT_TABLE, DCT_OUT}, 3, &s->work, 1);
}

static void dct_offer(struct spector *s)
{
    const struct reseat_implementation eight = {
        .size = sizeof eight, .dims = 2, .replaces = {SIDE * SIDE, SIDE}, .local = {SIDE, 1}};

    spector_offer(s, &eight);
}

static void dct_pass(struct spector *s)
{
    spector_launch(s, 0, s->n, s->n, SIDE, SIDE);
}

const struct spector_ops spector_dct = {
    .name = "dct",
    .source = dct_source,
    .kernels = {"dct", "dct_blocks"},
    .n = {1 << 6, 1 << 9, 1 << 12},
    .work = {1, 2, 1 << 10},
    .make = dct_make,
    .offer = dct_offer,
    .pass = dct_pass,
};
