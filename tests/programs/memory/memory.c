/**
 * Memory objects of all kinds under random commands, each compared with a model in the host's
 * memory.
 *
 *   memory [--rounds N] [--seed N] [--only buffers|images|ends] [--without views]
 *          [--devices 2]
 *
 * Prints a checksum of everything that was read. A seed gives the same commands and the same
 * checksum on every device. With two devices each has a queue
 * of one context, and they take turns.
 */
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char memory_source[] =
    "__kernel void mix_bytes(__global uchar *b, uchar key) {\n"
    "    size_t i = get_global_id(0);\n"
    "    b[i] = (uchar)(b[i] * 3 + key + i);\n"
    "}\n"
    "__kernel void add_bytes(__global const uchar *from, __global uchar *to) {\n"
    "    size_t i = get_global_id(0);\n"
    "    to[i] = (uchar)(to[i] + from[i]);\n"
    "}\n"
    "#define X (int)get_global_id(0)\n#define Y (int)get_global_id(1)\n"
    "#define Z (int)get_global_id(2)\n"
    "__kernel void view_bytes(__read_only image1d_buffer_t in, __global uchar *out) {\n"
    "    uint4 p = read_imageui(in, X);\n"
    "    vstore4(convert_uchar4(p), X, out);\n"
    "}\n"
    "#define COPY(name, image, how, at)\\\n"
    "    __kernel void name##_##how(__read_only image in, __write_only image out) {\\\n"
    "        write_image##how(out, at, read_image##how(in, at));\\\n"
    "    }\n"
    "#define COPIES(name, image, at) COPY(name, image, f, at) COPY(name, image, i, at)\\\n"
    "    COPY(name, image, ui, at)\n"
    "COPIES(copy_1d, image1d_t, X)\n"
    "COPIES(copy_2d, image2d_t, (int2)(X, Y))\n"
    "COPIES(copy_1d_array, image1d_array_t, (int2)(X, Y))\n"
    "COPIES(copy_2d_array, image2d_array_t, (int4)(X, Y, Z, 0))\n";

static const struct {
    const char *name;
    void (*round)(struct memory_run *run);
} parts[] = {{"buffers", memory_buffers}, {"images", memory_images}, {"ends", memory_ends}};

void memory_launch(cl_command_queue queue, cl_kernel kernel, const size_t items[3])
{
    const size_t one[3] = {1, 1, 1};

    OK(clEnqueueNDRangeKernel(queue, kernel, 3, NULL, items, one, 0, NULL, NULL));
}

/* One context of the platform's first two devices, which must be two. */
static void open_two(struct memory_run *run)
{
    cl_device_id devices[2];
    cl_uint count = 0;
    const char *source = memory_source;

    OK(clGetDeviceIDs(run->prog.platform, CL_DEVICE_TYPE_ALL, 2, devices, &count));
    REQUIRE(count >= 2);
    RELEASE(run->prog.queue, run->prog.context);
    run->prog.device = devices[0];
    run->prog.context = MADE(clCreateContext, NULL, 2, devices, NULL, NULL);
    run->prog.queue = MADE(clCreateCommandQueue, run->prog.context, devices[0], 0);
    run->other = MADE(clCreateCommandQueue, run->prog.context, devices[1], 0);
    run->program = MADE(clCreateProgramWithSource, run->prog.context, 1, &source, NULL);
    OK(clBuildProgram(run->program, 2, devices, "", NULL, NULL));
}

int main(int argc, char **argv)
{
    long rounds = prog_option(argc, argv, "--rounds", 4);
    uint64_t seed = (uint64_t)prog_option(argc, argv, "--seed", 1), first = 0;
    const char *only = prog_option_text(argc, argv, "--only", "");
    struct memory_run run = {0};

    run.no_views = strcmp(prog_option_text(argc, argv, "--without", ""), "views") == 0;
    prog_open(&run.prog);
    if (prog_option(argc, argv, "--devices", 1) == 2) {
        open_two(&run);
    } else {
        run.other = prog_queue(&run.prog, 0);
        run.program = prog_build(&run.prog, memory_source, "");
    }
    do {
        run.sum = 0;
        for (long i = 0; i < rounds; i++)
            for (size_t part = 0; part < sizeof parts / sizeof *parts; part++) {
                run.rng = rng_seed(seed * 1000003 + (uint64_t)i * 16 + part);
                if (!only[0] || strcmp(only, parts[part].name) == 0)
                    parts[part].round(&run);
            }
        if (first == 0)
            first = run.sum;
        REQUIRE(run.sum == first);
    } while (prog_again());
    RELEASE(run.program, run.other);
    prog_close(&run.prog);
    printf("memory checksum %016lx\n", (unsigned long)first);
    return 0;
}
