/** Images of every type, from buffers, and through samplers. */
#include "stress.h"

#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = 24,
    HEIGHT = 12,
    DEPTH = 5,
    PIXEL = 4,
    PIXEL_BYTES = WIDTH * HEIGHT * DEPTH * PIXEL
};

struct shape {
    cl_mem_object_type type;
    const char *name;
    const char *kernel;
    size_t region[3];
    bool array;
};

static const struct shape shapes[] = {
    {CL_MEM_OBJECT_IMAGE1D, "1D image", "flip_1d", {WIDTH, 1, 1}, false},
    {CL_MEM_OBJECT_IMAGE2D, "2D image", "flip_2d", {WIDTH, HEIGHT, 1}, false},
    {CL_MEM_OBJECT_IMAGE3D, "3D image", NULL, {WIDTH, HEIGHT, DEPTH}, false},
    {CL_MEM_OBJECT_IMAGE1D_ARRAY, "1D array", "flip_1d_array", {WIDTH, DEPTH, 1}, true},
    {CL_MEM_OBJECT_IMAGE2D_ARRAY, "2D array", "flip_2d_array", {WIDTH, HEIGHT, DEPTH}, true},
};

static const char image_source[] =
    "#define FLIP(name, image_type, coordinate)\\\n"
    "    __kernel void name(__read_only image_type in, __write_only image_type out) {\\\n"
    "        write_imageui(out, coordinate, 255u - read_imageui(in, coordinate));\\\n"
    "    }\n"
    "#define X (int)get_global_id(0)\n#define Y (int)get_global_id(1)\n"
    "#define Z (int)get_global_id(2)\n"
    "FLIP(flip_1d, image1d_t, X)\n"
    "FLIP(flip_2d, image2d_t, (int2)(X, Y))\n"
    "FLIP(flip_1d_array, image1d_array_t, (int2)(X, Y))\n"
    "FLIP(flip_2d_array, image2d_array_t, (int4)(X, Y, Z, 0))\n"
    "__kernel void sample(__read_only image2d_t in, sampler_t how, __global uint *out, int shift) "
    "{\n"
    "    uint4 p = read_imageui(in, how, (int2)(X + shift, Y + shift));\n"
    "    out[Y * get_global_size(0) + X] = p.x | p.y << 8 | p.z << 16 | p.w << 24;\n"
    "}\n"
    "__kernel void from_buffer(__read_only image1d_buffer_t in, __global uint *out) {\n"
    "    uint4 p = read_imageui(in, X);\n"
    "    out[X] = p.x | p.y << 8 | p.z << 16 | p.w << 24;\n"
    "}\n";

static const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};

static cl_mem make_image(struct worker *w, const struct shape *s, cl_mem_flags flags, void *host)
{
    cl_image_desc desc = {.image_type = s->type, .image_width = s->region[0]};

    if (s->array) {
        desc.image_array_size = s->region[s->type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? 1 : 2];
        desc.image_height = s->type == CL_MEM_OBJECT_IMAGE2D_ARRAY ? HEIGHT : 0;
    } else {
        desc.image_height = s->type == CL_MEM_OBJECT_IMAGE1D ? 0 : s->region[1];
        desc.image_depth = s->type == CL_MEM_OBJECT_IMAGE3D ? s->region[2] : 0;
    }
    return MADE(clCreateImage, w->prog->context, flags, &format, &desc, host);
}

static size_t shape_bytes(const struct shape *s)
{
    return s->region[0] * s->region[1] * s->region[2] * PIXEL;
}

static void verify_image(struct worker *w, const struct shape *s, cl_mem image,
                         const unsigned char *want)
{
    const size_t origin[3] = {0, 0, 0};
    unsigned char got[PIXEL_BYTES];

    OK(clEnqueueReadImage(w->queue, image, CL_TRUE, origin, s->region, 0, 0, got, 0, NULL, NULL));
    prog_same(s->name, got, want, shape_bytes(s));
    sum_bytes(&w->sum, got, shape_bytes(s));
}

static void verify_map(struct worker *w, const struct shape *s, cl_mem image,
                       const unsigned char *want)
{
    const size_t origin[3] = {0, 0, 0};
    size_t row = 0, slice = 0, row_bytes = s->region[0] * PIXEL;
    unsigned char *p = MADE(clEnqueueMapImage, w->queue, image, CL_TRUE, CL_MAP_READ, origin,
                            s->region, &row, &slice, 0, NULL, NULL);
    bool rows_are_slices = s->type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
    for (size_t z = 0; z < s->region[2]; z++) {
        for (size_t y = 0; y < s->region[1]; y++) {
            size_t at = rows_are_slices ? y * slice : z * slice + y * row;
            prog_same(s->name, p + at, want + (z * s->region[1] + y) * row_bytes, row_bytes);
        }
    }
    OK(clEnqueueUnmapMemObject(w->queue, image, p, 0, NULL, NULL));
}

static void one_shape(struct worker *w, const struct shape *s, cl_program program)
{
    const size_t origin[3] = {0, 0, 0};
    unsigned char host[PIXEL_BYTES];
    size_t size = shape_bytes(s);

    rng_fill(&w->rng, host, sizeof host);
    cl_mem a = make_image(w, s, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, host);
    cl_mem b = make_image(w, s, CL_MEM_READ_WRITE, NULL);
    verify_image(w, s, a, host);
    if (s->kernel) {
        cl_kernel kernel = prog_kernel(program, s->kernel);
        prog_arg(kernel, 0, sizeof a, &a);
        prog_arg(kernel, 1, sizeof b, &b);
        OK(clEnqueueNDRangeKernel(w->queue, kernel, 3, NULL, s->region, NULL, 0, NULL, NULL));
        OK(clReleaseKernel(kernel));
        for (size_t i = 0; i < size; i++)
            host[i] = (unsigned char)(255 - host[i]);
    } else {
        OK(clEnqueueCopyImage(w->queue, a, b, origin, origin, s->region, 0, NULL, NULL));
    }
    verify_image(w, s, b, host);
    verify_map(w, s, b, host);

    cl_uint color[4] = {rng_below(&w->rng, 256), 2, 3, 4};
    size_t part[3] = {s->region[0] / 2, s->region[1], s->region[2]};
    OK(clEnqueueFillImage(w->queue, b, color, origin, part, 0, NULL, NULL));
    for (size_t i = 0; i < size / PIXEL; i++)
        for (size_t c = 0; c < PIXEL && i % s->region[0] < part[0]; c++)
            host[i * PIXEL + c] = (unsigned char)color[c];
    verify_image(w, s, b, host);

    cl_mem linear = prog_buffer(w->prog->context, CL_MEM_READ_WRITE, size, NULL);
    OK(clEnqueueCopyImageToBuffer(w->queue, b, linear, origin, s->region, 0, 0, NULL, NULL));
    OK(clEnqueueCopyBufferToImage(w->queue, linear, a, 0, origin, s->region, 0, NULL, NULL));
    stress_verify(w, s->name, linear, host, size);
    verify_image(w, s, a, host);
    rng_fill(&w->rng, host, size);
    OK(clEnqueueWriteImage(w->queue, a, CL_FALSE, origin, s->region, 0, 0, host, 0, NULL, NULL));
    verify_image(w, s, a, host);
    RELEASE(linear, a, b);
}

void stress_images(struct worker *w)
{
    cl_program program = prog_build(w->prog, image_source, "");

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        one_shape(w, &shapes[i], program);
    OK(clReleaseProgram(program));
}

static uint32_t sampled(const unsigned char *pixels, int x, int y, bool clamp)
{
    uint32_t p;

    if (clamp) {
        x = x < 0 ? 0 : x >= WIDTH ? WIDTH - 1 : x;
        y = y < 0 ? 0 : y >= HEIGHT ? HEIGHT - 1 : y;
    } else if (x < 0 || y < 0 || x >= WIDTH || y >= HEIGHT) {
        return 0;
    }
    memcpy(&p, pixels + (y * WIDTH + x) * PIXEL, sizeof p);
    return p;
}

void stress_samplers(struct worker *w)
{
    const size_t items[2] = {WIDTH, HEIGHT};
    cl_program program = prog_build(w->prog, image_source, "");
    cl_kernel kernel = prog_kernel(program, "sample");
    uint32_t pixels[WIDTH * HEIGHT], want[WIDTH * HEIGHT];

    rng_fill(&w->rng, pixels, sizeof pixels);
    cl_mem image = make_image(w, &shapes[1], CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, pixels);
    cl_mem out = prog_buffer(w->prog->context, CL_MEM_READ_WRITE, sizeof want, NULL);
    for (int mode = 0; mode < 2; mode++) {
        cl_int shift = (cl_int)rng_below(&w->rng, 9) - 4;
        cl_sampler sampler =
            MADE(clCreateSampler, w->prog->context, CL_FALSE,
                 mode ? CL_ADDRESS_CLAMP_TO_EDGE : CL_ADDRESS_CLAMP, CL_FILTER_NEAREST);
        prog_arg(kernel, 0, sizeof image, &image);
        prog_arg(kernel, 1, sizeof sampler, &sampler);
        prog_arg(kernel, 2, sizeof out, &out);
        prog_arg(kernel, 3, sizeof shift, &shift);
        OK(clEnqueueNDRangeKernel(w->queue, kernel, 2, NULL, items, NULL, 0, NULL, NULL));
        for (int y = 0; y < HEIGHT; y++) {
            for (int x = 0; x < WIDTH; x++)
                want[y * WIDTH + x] =
                    sampled((const unsigned char *)pixels, x + shift, y + shift, mode);
        }
        stress_verify(w, mode ? "sampler, clamp to edge" : "sampler, clamp", out, want,
                      sizeof want);
        /* Not earlier: POCL 3.1 frees a sampler that a queued kernel still uses. */
        OK(clReleaseSampler(sampler));
    }
    RELEASE(image, out, kernel, program);
}

void stress_bufferimages(struct worker *w)
{
    cl_program program = prog_build(w->prog, image_source, "");
    cl_kernel kernel = prog_kernel(program, "from_buffer");
    size_t n = w->elements < 2048 ? w->elements : 2048;
    uint32_t *host, key = (uint32_t)rng_next(&w->rng);
    cl_mem buffer = stress_random_buffer(w, CL_MEM_READ_WRITE, n, &host);
    cl_mem out = prog_buffer(w->prog->context, CL_MEM_READ_WRITE, n * sizeof *host, NULL);
    cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .image_width = n, .buffer = buffer};
    cl_mem image = MADE(clCreateImage, w->prog->context, CL_MEM_READ_WRITE, &format, &desc, NULL);
    /* A write through the buffer is seen through the image. */
    stress_enqueue(w, w->queue, buffer, buffer, n, key, 0, NULL, NULL);
    stress_scramble(host, host, n, key);
    prog_arg(kernel, 0, sizeof image, &image);
    prog_arg(kernel, 1, sizeof out, &out);
    prog_run(w->queue, kernel, n);
    stress_verify(w, "image over a buffer", out, host, n * sizeof *host);
    RELEASE(image, buffer, out, kernel, program);
    free(host);
}
