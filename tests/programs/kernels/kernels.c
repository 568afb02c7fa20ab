/**
 * Programs and kernels, clause by clause, each result compared with what the host computes. Integer
 * arithmetic only, so that the checksum at the end is the same on every device.
 *
 *   kernels [--rounds N] [--seed N] [--parts NAME,NAME…|all] [--without NAME,NAME…]
 */
#include "kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEED_STRIDE = 1000003, VERSION_BYTES = 1024 };

const char kernels_source[] =
    "__kernel void values(__global uchar *out, char3 a, uchar16 b, short2 c, ushort4 d, int8 e,\n"
    "                     uint3 f, long2 g, ulong4 h, float4 i, float16 j, int k, ulong l) {\n"
    "    vstore3(as_uchar3(a), 0, out);\n"
    "    vstore16(b, 0, out + 16);\n"
    "    *(__global short2 *)(out + 32) = c;\n"
    "    *(__global ushort4 *)(out + 40) = d;\n"
    "    *(__global int8 *)(out + 64) = e;\n"
    "    vstore3(f, 0, (__global uint *)(out + 96));\n"
    "    *(__global long2 *)(out + 112) = g;\n"
    "    *(__global ulong4 *)(out + 128) = h;\n"
    "    *(__global float4 *)(out + 160) = i;\n"
    "    *(__global float16 *)(out + 192) = j;\n"
    "    *(__global int *)(out + 256) = k;\n"
    "    *(__global ulong *)(out + 264) = l;\n"
    "}\n"
    "__kernel void null(__global uint *out, __global uint *a, __constant uint *b) {\n"
    "    out[0] = a ? a[0] : 77u;\n"
    "    out[1] = b ? b[0] : 78u;\n"
    "}\n"
    "__kernel void ids(__global uint *out) {\n"
    "    uint w = (uint)get_global_size(0), h = (uint)get_global_size(1);\n"
    "    uint x = (uint)(get_global_id(0) - get_global_offset(0));\n"
    "    uint y = (uint)(get_global_id(1) - get_global_offset(1));\n"
    "    uint z = (uint)(get_global_id(2) - get_global_offset(2));\n"
    "    uint s = get_work_dim();\n"
    "    for (uint d = 0; d < 3; d++) {\n"
    "        s = s * 31u + (uint)get_global_id(d);\n"
    "        s = s * 31u + (uint)get_local_id(d);\n"
    "        s = s * 31u + (uint)get_group_id(d);\n"
    "        s = s * 31u + (uint)get_local_size(d);\n"
    "        s = s * 31u + (uint)get_num_groups(d);\n"
    "        s = s * 31u + (uint)get_global_offset(d);\n"
    "    }\n"
    "    out[x + w * (y + h * z)] = s;\n"
    "}\n"
    "__kernel __attribute__((reqd_work_group_size(4, 2, 1))) void required(__global uint *out) {\n"
    "    out[get_global_id(0) + get_global_size(0) * get_global_id(1)] =\n"
    "        (uint)(get_local_size(0) * 100 + get_local_size(1) * 10 + get_local_id(0));\n"
    "}\n"
    "__kernel void turn(__global uint *out, __local uint *a, __local ushort *b, uint c) {\n"
    "    __local uint d[16];\n"
    "    uint l = (uint)get_local_id(0), n = (uint)get_local_size(0);\n"
    "    a[l] = (uint)get_global_id(0) * c;\n"
    "    b[l] = (ushort)(l * 3u + c);\n"
    "    if (l < 16u)\n"
    "        d[l] = l + c;\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    out[get_global_id(0)] = a[n - 1u - l] + b[(l + 1u) % n] + d[l % 16u % n];\n"
    "}\n"
    "__kernel void add(__global uint *out, uint value) {\n"
    "    out[get_global_id(0)] = out[get_global_id(0)] * 3u + value;\n"
    "}\n"
    "__kernel void say(uint first) {\n"
    "    if (get_global_id(0) == 0)\n"
    "        printf(\"%u %s %5d|%-4x|%c\\n\", first, \"said\", -7, 255, 'c');\n"
    "}\n"
    "#ifdef IMAGES\n"
    "__kernel void sample(__read_only image2d_t in, sampler_t s, __global uint4 *out) {\n"
    "    int x = (int)get_global_id(0), y = (int)get_global_id(1);\n"
    "    out[x + y * (int)get_global_size(0)] = read_imageui(in, s, (int2)(x - 2, y - 2));\n"
    "}\n"
    "#endif\n";

static const struct part {
    const char *name;
    void (*run)(struct bench *b);
    bool needs_images;
} parts[] = {
    {"values", kernels_values, false},
    {"null", kernels_null, false},
    {"changes", kernels_changes, false},
    {"samplers", kernels_samplers, true},
    {"info", kernels_info, false},
    {"refusals", kernels_refusals, false},
    {"threads", kernels_threads, false},
    {"ids", kernels_ids, false},
    {"empty", kernels_empty, false},
    {"required", kernels_required, false},
    {"unsized", kernels_unsized, false},
    {"local", kernels_local, false},
    {"held", kernels_held, false},
    {"printf", kernels_printf, false},
    {"headers", kernels_headers, false},
    {"libraries", kernels_libraries, false},
    {"background", kernels_background, false},
    {"failures", kernels_failures, false},
    {"binaries", kernels_binaries, false},
    {"all_at_once", kernels_all_at_once, false},
};

void kernels_verify(struct bench *b, const char *what, cl_mem mem, const void *want, size_t size)
{
    void *got = prog_alloc(size);

    prog_read(b->prog->queue, mem, 0, size, got);
    prog_same(what, got, want, size);
    sum_bytes(&b->sum, got, size);
    free(got);
}

static void open_bench(struct bench *b, struct prog *p)
{
    char text[VERSION_BYTES] = "";
    unsigned major = 1, minor = 0;
    cl_bool images = CL_FALSE;

    prog_open(p);
    OK(clGetDeviceInfo(p->device, CL_DEVICE_VERSION, sizeof text, text, NULL));
    REQUIRE(sscanf(text, "OpenCL %u.%u", &major, &minor) == 2);
    OK(clGetDeviceInfo(p->device, CL_DEVICE_IMAGE_SUPPORT, sizeof images, &images, NULL));
    *b = (struct bench){
        .prog = p, .images = images != CL_FALSE, .version = CL_MAKE_VERSION(major, minor, 0)};
    b->program = prog_build(p, kernels_source,
                            images ? "-cl-kernel-arg-info -DIMAGES" : "-cl-kernel-arg-info");
}

static uint64_t pass(struct bench *b, unsigned rounds, uint64_t seed, const char *with,
                     const char *without)
{
    b->sum = 0;
    for (unsigned round = 0; round < rounds; round++) {
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            const struct part *part = &parts[i];
            if ((strcmp(with, "all") != 0 && !prog_listed(with, part->name)) ||
                prog_listed(without, part->name) || (part->needs_images && !b->images))
                continue;
            if (getenv("TEST_TRACE"))
                fprintf(stderr, "round %u %s\n", round, part->name);
            b->rng = rng_seed(seed + round * (uint64_t)SEED_STRIDE + i);
            part->run(b);
        }
    }
    return b->sum;
}

int main(int argc, char **argv)
{
    unsigned rounds = (unsigned)prog_option(argc, argv, "--rounds", 2);
    uint64_t seed = (uint64_t)prog_option(argc, argv, "--seed", 1);
    const char *with = prog_option_text(argc, argv, "--parts", "all");
    const char *without = prog_option_text(argc, argv, "--without", "");
    struct prog p;
    struct bench b;

    open_bench(&b, &p);
    uint64_t sum = pass(&b, rounds, seed, with, without);
    while (prog_again())
        REQUIRE(pass(&b, rounds, seed, with, without) == sum);
    OK(clReleaseProgram(b.program));
    prog_close(&p);
    printf("kernels checksum %016lx\n", (unsigned long)sum);
    return 0;
}
