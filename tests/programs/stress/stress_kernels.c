/** Programs and kernels: every kind of argument, rebuilding, linking, binaries, cloning. */
#include "stress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GROUP = 32, VARIANTS = 4, OPTION_BYTES = 64, MAX_BINARY = 1 << 26, LAG_US = 10000 };

const char stress_source[] =
    "__kernel void scramble(__global const uint *in, __global uint *out, uint key) {\n"
    "    uint i = (uint)get_global_id(0);\n"
    "    out[i] = rotate(in[i] * 2654435761u + key, i % 31u + 1u) ^ i;\n"
    "}\n"
    "struct parameters { uint scale; ushort add; uchar shift; };\n"
    "__kernel void by_value(__global uint *out, struct parameters p, uchar a, ushort b,\n"
    "                       ulong c, uint4 v) {\n"
    "    uint i = (uint)get_global_id(0);\n"
    "    out[i] = ((i * p.scale + p.add) >> p.shift) + a + b * 3u + (uint)(c >> 32)\n"
    "             + (uint)c * 5u + v.x + v.y * 7u + v.z * 11u + v.w * 13u;\n"
    "}\n"
    "__kernel void local_sum(__global const uint *in, __global uint *out, __local uint *tile) {\n"
    "    uint l = (uint)get_local_id(0), n = (uint)get_local_size(0);\n"
    "    tile[l] = in[get_global_id(0)];\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    uint s = 0;\n"
    "    for (uint i = 0; i < n; i++)\n"
    "        s += tile[(l + i) % n] * (i + 1u);\n"
    "    out[get_global_id(0)] = s;\n"
    "}\n"
    "__kernel void lookup(__global uint *out, __constant uint *table, uint n) {\n"
    "    uint i = (uint)get_global_id(0);\n"
    "    out[i] = table[i % n] + i;\n"
    "}\n"
    "__kernel void count(__global const uint *in, __global uint *bins) {\n"
    "    atomic_add(&bins[in[get_global_id(0)] % 16u], 1u);\n"
    "}\n";

struct parameters {
    cl_uint scale;
    cl_ushort add;
    cl_uchar shift;
};

void stress_scramble(const uint32_t *in, uint32_t *out, size_t n, uint32_t key)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t v = in[i] * 2654435761u + key;
        unsigned turn = i % 31 + 1;
        out[i] = (v << turn | v >> (32 - turn)) ^ (uint32_t)i;
    }
}

void stress_enqueue(struct worker *w, cl_command_queue queue, cl_mem in, cl_mem out, size_t n,
                    uint32_t key, cl_uint n_waits, const cl_event *waits, cl_event *ret_event)
{
    prog_arg(w->scramble, 0, sizeof in, &in);
    prog_arg(w->scramble, 1, sizeof out, &out);
    prog_arg(w->scramble, 2, sizeof key, &key);
    OK(clEnqueueNDRangeKernel(queue, w->scramble, 1, NULL, &n, NULL, n_waits, waits, ret_event));
}

cl_mem stress_random_buffer(struct worker *w, cl_mem_flags flags, size_t words, uint32_t **ret_copy)
{
    uint32_t *copy = prog_alloc(words * sizeof *copy);

    rng_fill(&w->rng, copy, words * sizeof *copy);
    cl_mem mem =
        prog_buffer(w->prog->context, flags | CL_MEM_COPY_HOST_PTR, words * sizeof *copy, copy);
    *ret_copy = copy;
    return mem;
}

void stress_verify(struct worker *w, const char *what, cl_mem mem, const void *want, size_t size)
{
    void *got = prog_alloc(size);

    prog_read(w->queue, mem, 0, size, got);
    prog_same(what, got, want, size);
    sum_bytes(&w->sum, got, size);
    free(got);
}

void stress_structs(struct worker *w)
{
    uint32_t *want = prog_alloc(w->elements * sizeof *want);
    cl_mem out = prog_buffer(w->prog->context, CL_MEM_READ_WRITE, w->elements * sizeof *want, NULL);
    struct parameters p = {(cl_uint)rng_next(&w->rng), (cl_ushort)rng_next(&w->rng),
                           (cl_uchar)rng_below(&w->rng, 31)};
    cl_uchar a = (cl_uchar)rng_next(&w->rng);
    cl_ushort b = (cl_ushort)rng_next(&w->rng);
    cl_ulong c = rng_next(&w->rng);
    cl_uint4 v = {.s = {(cl_uint)rng_next(&w->rng), (cl_uint)rng_next(&w->rng), 3, 5}};
    cl_kernel kernel = prog_kernel(w->program, "by_value");

    prog_arg(kernel, 0, sizeof out, &out);
    prog_arg(kernel, 1, sizeof p, &p);
    prog_arg(kernel, 2, sizeof a, &a);
    prog_arg(kernel, 3, sizeof b, &b);
    prog_arg(kernel, 4, sizeof c, &c);
    prog_arg(kernel, 5, sizeof v, &v);
    prog_run(w->queue, kernel, w->elements);
    OK(clReleaseKernel(kernel));
    for (uint32_t i = 0; i < w->elements; i++)
        want[i] = ((i * p.scale + p.add) >> p.shift) + a + b * 3u + (uint32_t)(c >> 32) +
                  (uint32_t)c * 5u + v.s[0] + v.s[1] * 7u + v.s[2] * 11u + v.s[3] * 13u;
    stress_verify(w, "by-value arguments", out, want, w->elements * sizeof *want);
    OK(clReleaseMemObject(out));
    free(want);
}

static void local_sum(struct worker *w, cl_mem in, cl_mem out, const uint32_t *from, uint32_t *want)
{
    const size_t items = w->elements, group = GROUP;
    cl_kernel kernel = prog_kernel(w->program, "local_sum");

    prog_arg(kernel, 0, sizeof in, &in);
    prog_arg(kernel, 1, sizeof out, &out);
    prog_arg(kernel, 2, GROUP * sizeof(cl_uint), NULL);
    OK(clEnqueueNDRangeKernel(w->queue, kernel, 1, NULL, &items, &group, 0, NULL, NULL));
    OK(clReleaseKernel(kernel));
    for (size_t i = 0; i < items; i++) {
        want[i] = 0;
        for (uint32_t k = 0; k < GROUP; k++)
            want[i] += from[i / GROUP * GROUP + (i + k) % GROUP] * (k + 1);
    }
    stress_verify(w, "local memory", out, want, items * sizeof *want);
}

static void lookup(struct worker *w, cl_mem out, uint32_t *want)
{
    cl_uint n = 1 + rng_below(&w->rng, 200);
    uint32_t *table;
    cl_mem constant = stress_random_buffer(w, CL_MEM_READ_ONLY, n, &table);
    cl_kernel kernel = prog_kernel(w->program, "lookup");

    prog_arg(kernel, 0, sizeof out, &out);
    prog_arg(kernel, 1, sizeof constant, &constant);
    prog_arg(kernel, 2, sizeof n, &n);
    prog_run(w->queue, kernel, w->elements);
    RELEASE(kernel, constant);
    for (uint32_t i = 0; i < w->elements; i++)
        want[i] = table[i % n] + i;
    stress_verify(w, "constant memory", out, want, w->elements * sizeof *want);
    free(table);
}

static void count(struct worker *w, cl_mem in, const uint32_t *from)
{
    uint32_t bins[16] = {0};
    cl_mem counts =
        prog_buffer(w->prog->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof bins, bins);
    cl_kernel kernel = prog_kernel(w->program, "count");

    prog_arg(kernel, 0, sizeof in, &in);
    prog_arg(kernel, 1, sizeof counts, &counts);
    prog_run(w->queue, kernel, w->elements);
    prog_run(w->queue, kernel, w->elements);
    for (size_t i = 0; i < w->elements; i++)
        bins[from[i] % 16] += 2;
    stress_verify(w, "atomics", counts, bins, sizeof bins);
    RELEASE(kernel, counts);
}

void stress_kernels(struct worker *w)
{
    size_t n = w->elements, size = n * sizeof(uint32_t);
    uint32_t *host, *want = prog_alloc(size);
    cl_mem a = stress_random_buffer(w, CL_MEM_READ_WRITE, n, &host);
    cl_mem b = prog_buffer(w->prog->context, CL_MEM_READ_WRITE, size, NULL);

    local_sum(w, a, b, host, want);
    count(w, a, host);
    lookup(w, b, want);
    for (unsigned step = 3 + rng_below(&w->rng, 6); step--;) {
        uint32_t key = (uint32_t)rng_next(&w->rng);
        stress_enqueue(w, w->queue, a, b, n, key, 0, NULL, NULL);
        stress_enqueue(w, w->queue, b, a, n, ~key, 0, NULL, NULL);
        stress_scramble(host, want, n, key);
        stress_scramble(want, host, n, ~key);
    }
    stress_verify(w, "chain of kernels", a, host, size);
    RELEASE(a, b);
    free(host);
    free(want);
}

static void run_variant(struct worker *w, cl_program program, uint32_t factor, const char *what)
{
    size_t size = w->elements * sizeof(uint32_t);
    uint32_t *host;
    cl_mem mem = stress_random_buffer(w, CL_MEM_READ_WRITE, w->elements, &host);
    cl_kernel kernel = prog_kernel(program, "variant");

    prog_arg(kernel, 0, sizeof mem, &mem);
    prog_run(w->queue, kernel, w->elements);
    for (size_t i = 0; i < w->elements; i++)
        host[i] = host[i] * factor + (uint32_t)i;
    stress_verify(w, what, mem, host, size);
    RELEASE(kernel, mem);
    free(host);
}

static const char variant_source[] =
    "#ifndef FACTOR\n#define FACTOR 3u\n#endif\n"
    "__kernel void variant(__global uint *a) {\n"
    "    a[get_global_id(0)] = a[get_global_id(0)] * FACTOR + (uint)get_global_id(0);\n"
    "}\n";

/*
 * All kernels of @program are released and their commands ended, but POCL's worker may let the last
 * one go a moment after it said so, and refuses a build until then. Under reseat none is refused.
 */
static cl_int rebuild(struct worker *w, cl_program program, const char *options)
{
    cl_int err = CL_INVALID_OPERATION;
    int tries = getenv("RESEAT_ID") ? 1 : 100;

    for (int try = 0; try < tries && err == CL_INVALID_OPERATION; try++) {
        if (try > 0)
            usleep(LAG_US);
        err = clBuildProgram(program, 1, &w->prog->device, options, NULL, NULL);
    }
    return err;
}

void stress_programs(struct worker *w)
{
    const char *parts[] = {variant_source, "\n"};
    cl_program program = MADE(clCreateProgramWithSource, w->prog->context, 2, parts, NULL);
    for (unsigned i = 0; i < 2; i++) {
        char options[OPTION_BYTES];
        uint32_t factor = 5 + 2 * rng_below(&w->rng, VARIANTS);
        snprintf(options, sizeof options, "-DFACTOR=%uu", factor);
        OK(rebuild(w, program, options));
        run_variant(w, program, factor, "rebuilt program");
        cl_build_status status;
        OK(clGetProgramBuildInfo(program, w->prog->device, CL_PROGRAM_BUILD_STATUS, sizeof status,
                                 &status, NULL));
        REQUIRE(status == CL_BUILD_SUCCESS);
    }
    OK(clReleaseProgram(program));
}

void stress_link(struct worker *w)
{
    const char *header = "uint scaled(uint a, uint i);\n";
    const char *library = "uint scaled(uint a, uint i) { return a * 9u + i; }\n";
    const char *user = "#include \"scaled.h\"\n"
                       "__kernel void variant(__global uint *a) {\n"
                       "    uint i = (uint)get_global_id(0);\n"
                       "    a[i] = scaled(a[i], i);\n"
                       "}\n";
    const char *header_name = "scaled.h";
    cl_device_id device = w->prog->device;
    cl_context context = w->prog->context;
    cl_program h = MADE(clCreateProgramWithSource, context, 1, &header, NULL);
    cl_program objects[2];
    objects[0] = MADE(clCreateProgramWithSource, context, 1, &library, NULL);
    objects[1] = MADE(clCreateProgramWithSource, context, 1, &user, NULL);
    OK(clCompileProgram(objects[0], 1, &device, "", 0, NULL, NULL, NULL, NULL));
    OK(clCompileProgram(objects[1], 1, &device, "", 1, &h, &header_name, NULL, NULL));
    cl_program linked = MADE(clLinkProgram, context, 1, &device, "", 2, objects, NULL, NULL);
    run_variant(w, linked, 9, "linked program");
    RELEASE(linked, objects[0], objects[1], h);
}

void stress_binaries(struct worker *w)
{
    cl_program first = prog_build(w->prog, variant_source, "-DFACTOR=7u");
    size_t size = 0;
    cl_int status;

    OK(clGetProgramInfo(first, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL));
    REQUIRE(size > 0 && size < MAX_BINARY);
    unsigned char *binary = prog_alloc(size);
    OK(clGetProgramInfo(first, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL));
    OK(clReleaseProgram(first));
    const unsigned char *binaries = binary;
    cl_program second = MADE(clCreateProgramWithBinary, w->prog->context, 1, &w->prog->device,
                             &size, &binaries, &status);
    OK(status);
    OK(clBuildProgram(second, 1, &w->prog->device, "", NULL, NULL));
    run_variant(w, second, 7, "program from its binary");
    OK(clReleaseProgram(second));
    free(binary);
}

void stress_clone(struct worker *w)
{
    size_t n = w->elements, size = n * sizeof(uint32_t);
    uint32_t *host, *want = prog_alloc(size), key = 17, other = 23;
    cl_mem a = stress_random_buffer(w, CL_MEM_READ_WRITE, n, &host);
    cl_mem b = prog_buffer(w->prog->context, CL_MEM_READ_WRITE, size, NULL);

    prog_arg(w->scramble, 0, sizeof a, &a);
    prog_arg(w->scramble, 1, sizeof b, &b);
    prog_arg(w->scramble, 2, sizeof key, &key);
    cl_kernel clone = MADE(clCloneKernel, w->scramble);
    /* The clone keeps the arguments of the moment it was made. */
    prog_arg(w->scramble, 2, sizeof other, &other);
    prog_run(w->queue, clone, n);
    stress_scramble(host, want, n, key);
    stress_verify(w, "cloned kernel", b, want, size);
    prog_run(w->queue, w->scramble, n);
    stress_scramble(host, want, n, other);
    stress_verify(w, "kernel that was cloned", b, want, size);
    RELEASE(clone, a, b);
    free(host);
    free(want);
}
