/**
 * What calls cost, as lines of a name and microseconds, or GB/s, each the best of several repeats:
 * run by isolate.py natively and isolated.
 *
 *   bench-isolate [--mib N]
 */
#include "prog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 500, REPEATS = 15, SINGLES = 200, LARGE = 9 };

static const char source[] = "kernel void tiny(global uint *a, uint k) {\n"
                             "    a[get_global_id(0)] = k;\n"
                             "}\n";

static struct prog prog;
static cl_command_queue queue;
static cl_kernel kernel;
static cl_mem small, large;
static size_t bytes;
static char *host;

static void launch(cl_uint k)
{
    const size_t items = 64;
    OK(clSetKernelArg(kernel, 1, sizeof(k), &k));
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, &items, 0, NULL, NULL));
}

/* Microseconds of a call each, of a batch that nobody waits for; the wait is not counted. */
static double batched(void)
{
    double begin = prog_now();
    for (cl_uint i = 0; i < BATCH; i++)
        launch(i);
    double took = prog_now() - begin;
    OK(clFinish(queue));
    return took / BATCH * 1e6;
}

static double launch_finish(void)
{
    double begin = prog_now();
    for (cl_uint i = 0; i < SINGLES; i++) {
        launch(i);
        OK(clFinish(queue));
    }
    return (prog_now() - begin) / SINGLES * 1e6;
}

static double read_four(void)
{
    cl_uint got;
    double begin = prog_now();
    for (int i = 0; i < SINGLES; i++)
        OK(clEnqueueReadBuffer(queue, small, CL_TRUE, 0, sizeof(got), &got, 0, NULL, NULL));
    return (prog_now() - begin) / SINGLES * 1e6;
}

static double rate(double begin)
{
    return (double)bytes / (prog_now() - begin) * 1e-9;
}

static double read_large(void)
{
    double begin = prog_now();
    OK(clEnqueueReadBuffer(queue, large, CL_TRUE, 0, bytes, host, 0, NULL, NULL));
    return rate(begin);
}

static double write_large(void)
{
    double begin = prog_now();
    OK(clEnqueueWriteBuffer(queue, large, CL_TRUE, 0, bytes, host, 0, NULL, NULL));
    return rate(begin);
}

/* A blocking map to read of all of @buffer; or, of a map to write, the unmap and its end. */
static double map_rate(cl_mem buffer, bool unmap)
{
    cl_uint fill = 0;
    OK(clEnqueueFillBuffer(queue, buffer, &fill, sizeof(fill), 0, bytes, 0, NULL, NULL));
    OK(clFinish(queue));
    double begin = prog_now();
    char *at = MADE(clEnqueueMapBuffer, queue, buffer, CL_TRUE, unmap ? CL_MAP_WRITE : CL_MAP_READ,
                    0, bytes, 0, NULL, NULL);
    double mapped = rate(begin);
    at[bytes / 2] += unmap;
    begin = prog_now();
    OK(clEnqueueUnmapMemObject(queue, buffer, at, 0, NULL, NULL));
    OK(clFinish(queue));
    return unmap ? rate(begin) : mapped;
}

static double map_large(void)
{
    return map_rate(large, false);
}

static double unmap_large(void)
{
    return map_rate(large, true);
}

static cl_mem allocated;

static double map_allocated(void)
{
    return map_rate(allocated, false);
}

static double unmap_allocated(void)
{
    return map_rate(allocated, true);
}

/* From and to memory that the driver gave for it. */
static cl_mem pinned;
static char *staging;

static double read_pinned(void)
{
    double begin = prog_now();
    OK(clEnqueueReadBuffer(queue, large, CL_TRUE, 0, bytes, staging, 0, NULL, NULL));
    return rate(begin);
}

static double write_pinned(void)
{
    double begin = prog_now();
    OK(clEnqueueWriteBuffer(queue, large, CL_TRUE, 0, bytes, staging, 0, NULL, NULL));
    return rate(begin);
}

static void print(const char *name, double (*measure)(void), int repeats, bool most)
{
    double best = 0;
    measure(); /* What is made at the first use is no part of it. */
    for (int i = 0; i < repeats; i++) {
        double value = measure();
        if (i == 0 || (most ? value > best : value < best))
            best = value;
    }
    printf("%s %.4f\n", name, best);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    bytes = 64u << 20;
    if (argc == 3 && strcmp(argv[1], "--mib") == 0)
        bytes = strtoul(argv[2], NULL, 10) << 20;
    prog_open(&prog);
    queue = MADE(clCreateCommandQueue, prog.context, prog.device, 0);
    kernel = prog_kernel(prog_build(&prog, source, ""), "tiny");
    small = prog_buffer(prog.context, CL_MEM_READ_WRITE, 4096, NULL);
    large = prog_buffer(prog.context, CL_MEM_READ_WRITE, bytes, NULL);
    allocated = prog_buffer(prog.context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, bytes, NULL);
    pinned = prog_buffer(prog.context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, bytes, NULL);
    staging = MADE(clEnqueueMapBuffer, queue, pinned, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, bytes,
                   0, NULL, NULL);
    memset(staging, 2, bytes);
    host = prog_alloc(bytes);
    memset(host, 1, bytes);
    OK(clSetKernelArg(kernel, 0, sizeof(small), (void *)&small));
    print("batched_us", batched, REPEATS, false);
    print("launch_finish_us", launch_finish, REPEATS, false);
    print("read_4_us", read_four, REPEATS, false);
    print("read_gb_s", read_large, LARGE, true);
    print("write_gb_s", write_large, LARGE, true);
    print("map_gb_s", map_large, LARGE, true);
    print("unmap_gb_s", unmap_large, LARGE, true);
    print("map_allocated_gb_s", map_allocated, LARGE, true);
    print("unmap_allocated_gb_s", unmap_allocated, LARGE, true);
    print("read_pinned_gb_s", read_pinned, LARGE, true);
    print("write_pinned_gb_s", write_pinned, LARGE, true);
    OK(clEnqueueUnmapMemObject(queue, pinned, staging, 0, NULL, NULL));
    OK(clFinish(queue));
    return 0;
}
