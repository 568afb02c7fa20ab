/** Images: Sobel's gradient at several distances, and the normals of a surface seen as depths. */
#include "spector.h"

#include <stdlib.h>

enum { GROUP = 16, DISTANCES = 16, WORDS = 3, FRACTION = 14 };

/* A pixel that many away in each direction, kept inside the image. */
#define BETWEEN "int between(int at, int n) { return at < 0 ? 0 : at < n ? at : n - 1; }\n"

static int between(int at, int n)
{
    return at < 0 ? 0 : at < n ? at : n - 1;
}

/* ---- sobel: |gx| + |gy|, added up over distances of 1 to 16 pixels, one for each round ---- */

enum { SOBEL_IN, SOBEL_OUT };

static const char sobel_source[] =
    BETWEEN "__kernel void sobel(__global const uchar *in, __global uint *out, uint work) {\n"
            "    int x = (int)get_global_id(0), y = (int)get_global_id(1);\n"
            "    int w = (int)get_global_size(0), h = (int)get_global_size(1);\n"
            "    uint sum = 0;\n"
            "    for (uint r = 0; r < work; r++) {\n"
            "        int d = 1 + (int)(r % 16u);\n"
            "        int l = between(x - d, w), m = between(x + d, w);\n"
            "        int u = between(y - d, h) * w, v = between(y + d, h) * w, c = y * w;\n"
            "        int gx = in[u + m] + 2 * in[c + m] + in[v + m] - in[u + l] - 2 * in[c + l] - "
            "in[v + l];\n"
            "        int gy = in[v + l] + 2 * in[v + x] + in[v + m] - in[u + l] - 2 * in[u + x] - "
            "in[u + m];\n"
            "        sum = sum * 3u + abs(gx) + abs(gy);\n"
            "    }\n"
            "    out[get_global_id(1) * get_global_size(0) + get_global_id(0)] = sum;\n"
            "}\n";

static void sobel_unit(const struct spector *s, size_t index, uint32_t *ret_words)
{
    /* Weights of the gradient to the right; the one downwards has them turned. */
    static const int weights[3][3] = {{-1, 0, 1}, {-2, 0, 2}, {-1, 0, 1}};
    const uint8_t *in = s->inputs[SOBEL_IN];
    int n = (int)s->n, x = (int)(index % s->n), y = (int)(index / s->n);

    ret_words[0] = 0;
    for (cl_uint r = 0; r < s->work; r++) {
        int d = 1 + (int)(r % DISTANCES), gx = 0, gy = 0;
        for (int j = 0; j < 3; j++) {
            for (int i = 0; i < 3; i++) {
                int pixel = in[between(y + (j - 1) * d, n) * n + between(x + (i - 1) * d, n)];
                gx += weights[j][i] * pixel;
                gy += weights[i][j] * pixel;
            }
        }
        ret_words[0] = ret_words[0] * 3 + (uint32_t)abs(gx) + (uint32_t)abs(gy);
    }
}

static void sobel_make(struct spector *s)
{
    size_t size = (size_t)s->n * s->n;
    uint8_t *in = prog_alloc(size);

    rng_fill(&s->rng, in, size);
    spector_buffer(s, SOBEL_IN, size, in);
    spector_result(
        s, 0, SOBEL_OUT,
        (struct result){
            .units = size, .unit_words = 1, .cost = (uint64_t)3 * 3 * s->work, .unit = sobel_unit});
    spector_args(s, 0, (const int[]){SOBEL_IN, SOBEL_OUT}, 2, &s->work, 1);
}

static void image_pass(struct spector *s)
{
    spector_launch(s, 0, s->n, s->n, GROUP, GROUP);
}

const struct spector_ops spector_sobel = {
    .name = "sobel",
    .source = sobel_source,
    .kernels = {"sobel"},
    .n = {1 << 6, 1 << 9, 1 << 12},
    .work = {2, 4, 1 << 12},
    .make = sobel_make,
    .pass = image_pass,
};

/* ---- normals: of a depth image by cross products, in fixed point; their mean over distances ----
 *
 * The length's root is an integer one, and so is the division by it: no float, and nothing that
 * devices may round each in their way.
 */

enum { NORMALS_IN, NORMALS_OUT };

static const char normals_source[] =
    BETWEEN "ulong root(ulong a) {\n"
            "    ulong r = 0;\n"
            "    for (ulong bit = 1ul << 31; bit; bit >>= 1)\n"
            "        if ((r + bit) * (r + bit) <= a)\n"
            "            r += bit;\n"
            "    return r;\n"
            "}\n"
            "int4 point(__global const ushort *in, int x, int y, int w, int h) {\n"
            "    int i = between(x, w), j = between(y, h), z = in[j * w + i];\n"
            "    return (int4)((i - w / 2) * z >> 9, (j - h / 2) * z >> 9, z, 0);\n"
            "}\n"
            "__kernel void normals(__global const ushort *in, __global int *out, uint work) {\n"
            "    int x = (int)get_global_id(0), y = (int)get_global_id(1);\n"
            "    int w = (int)get_global_size(0), h = (int)get_global_size(1);\n"
            "    long sx = 0, sy = 0, sz = 0;\n"
            "    for (uint r = 0; r < work; r++) {\n"
            "        int d = 1 + (int)(r % 16u);\n"
            "        int4 a = point(in, x + d, y, w, h) - point(in, x - d, y, w, h);\n"
            "        int4 b = point(in, x, y + d, w, h) - point(in, x, y - d, w, h);\n"
            "        long nx = (long)a.y * b.z - (long)a.z * b.y;\n"
            "        long ny = (long)a.z * b.x - (long)a.x * b.z;\n"
            "        long nz = (long)a.x * b.y - (long)a.y * b.x;\n"
            "        long size = (long)root((ulong)(nx * nx + ny * ny + nz * nz)) + 1;\n"
            "        sx += nx * 16384 / size;\n"
            "        sy += ny * 16384 / size;\n"
            "        sz += nz * 16384 / size;\n"
            "    }\n"
            "    vstore3((int3)(sx, sy, sz) / (int)work,\n"
            "            get_global_id(1) * get_global_size(0) + get_global_id(0), out);\n"
            "}\n";

static uint64_t root(uint64_t a)
{
    uint64_t r = 0;

    for (uint64_t bit = UINT64_C(1) << 31; bit; bit >>= 1)
        if ((r + bit) * (r + bit) <= a)
            r += bit;
    return r;
}

struct point {
    int64_t at[WORDS];
};

static struct point point_at(const struct spector *s, int x, int y)
{
    const uint16_t *in = s->inputs[NORMALS_IN];
    int n = (int)s->n, i = between(x, n), j = between(y, n), z = in[j * n + i];

    return (struct point){{(i - n / 2) * z >> 9, (j - n / 2) * z >> 9, z}};
}

static void normals_unit(const struct spector *s, size_t index, uint32_t *ret_words)
{
    int x = (int)(index % s->n), y = (int)(index / s->n);
    int64_t sums[WORDS] = {0};

    for (cl_uint r = 0; r < s->work; r++) {
        int d = 1 + (int)(r % DISTANCES);
        struct point east = point_at(s, x + d, y), west = point_at(s, x - d, y);
        struct point south = point_at(s, x, y + d), north = point_at(s, x, y - d);
        int64_t a[WORDS], b[WORDS], n[WORDS], square = 0;
        for (int k = 0; k < WORDS; k++) {
            a[k] = east.at[k] - west.at[k];
            b[k] = south.at[k] - north.at[k];
        }
        for (int k = 0; k < WORDS; k++) {
            int next = (k + 1) % WORDS, last = (k + 2) % WORDS;
            n[k] = a[next] * b[last] - a[last] * b[next];
            square += n[k] * n[k];
        }
        int64_t size = (int64_t)root((uint64_t)square) + 1;
        for (int k = 0; k < WORDS; k++)
            sums[k] += n[k] * (1 << FRACTION) / size;
    }
    for (int k = 0; k < WORDS; k++)
        ret_words[k] = (uint32_t)(sums[k] / (int64_t)s->work);
}

/** A rolling surface with a little noise: depths of less than 2^12, so that squares fit. */
static uint16_t *depths(struct spector *s)
{
    uint16_t *in = prog_alloc((size_t)s->n * s->n * sizeof *in);

    for (size_t i = 0; i < (size_t)s->n * s->n; i++) {
        uint32_t x = (uint32_t)(i % s->n), y = (uint32_t)(i / s->n);
        uint32_t wave = (x & 128 ? ~x : x) % 128 + (y & 64 ? ~y : y) % 64;
        in[i] = (uint16_t)(1024 + 8 * wave + rng_below(&s->rng, 16));
    }
    return in;
}

static void normals_make(struct spector *s)
{
    size_t units = (size_t)s->n * s->n;

    spector_buffer(s, NORMALS_IN, units * sizeof(uint16_t), depths(s));
    spector_result(s, 0, NORMALS_OUT,
                   (struct result){.units = units,
                                   .unit_words = WORDS,
                                   .cost = (uint64_t)128 * s->work,
                                   .unit = normals_unit});
    spector_args(s, 0, (const int[]){NORMALS_IN, NORMALS_OUT}, 2, &s->work, 1);
}

const struct spector_ops spector_normals = {
    .name = "normals",
    .source = normals_source,
    .kernels = {"normals"},
    .n = {1 << 6, 1 << 9, 1 << 12},
    .work = {1, 2, 1 << 9},
    .make = normals_make,
    .pass = image_pass,
};
