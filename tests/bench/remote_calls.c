/**
 * What a device of another process costs, where TEST_DEVICE is one (remote_tcp.py), or one of this
 * process.
 *
 *   remote_calls launches COUNT RUNS   small launches with changing arguments, then one clFinish
 *   remote_calls bulk MIB RUNS         blocking writes and reads
 *   remote_calls trip RUNS             a blocking read of 4 bytes
 *
 * Prints the best run: seconds; bytes a second of writes and of reads; seconds.
 */
#include "prog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char source[] = "__kernel void add(__global uint *a, uint b, uint c) {"
                             "    a[get_global_id(0)] += b * c; }";

static double launches(const struct prog *p, long count)
{
    enum { ITEMS = 64 };
    uint32_t zero[ITEMS] = {0}, got = 0, want = 0;
    const size_t global = ITEMS;
    cl_program program = prog_build(p, source, "");
    cl_kernel kernel = prog_kernel(program, "add");
    cl_mem memory =
        prog_buffer(p->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof zero, zero);
    prog_arg(kernel, 0, sizeof memory, &memory);
    for (cl_uint i = 0; i < 2; i++)
        prog_arg(kernel, i + 1, sizeof got, &got);
    prog_run(p->queue, kernel, ITEMS);
    OK(clFinish(p->queue));
    double begin = prog_now();
    for (long i = 0; i < count; i++) {
        const uint32_t b = (uint32_t)i, c = (uint32_t)i * 3 + 1;
        prog_arg(kernel, 1, sizeof b, &b);
        prog_arg(kernel, 2, sizeof c, &c);
        OK(clEnqueueNDRangeKernel(p->queue, kernel, 1, NULL, &global, NULL, 0, NULL, NULL));
        want += b * c;
    }
    OK(clFinish(p->queue));
    double seconds = prog_now() - begin;
    prog_read(p->queue, memory, 0, sizeof got, &got);
    REQUIRE(got == want);
    RELEASE(memory, kernel, program);
    return seconds;
}

static void bulk(const struct prog *p, size_t size, double ret_speeds[2])
{
    unsigned char *bytes = malloc(size), *got = malloc(size);
    REQUIRE(bytes && got);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(i ^ i >> 9);
    memset(got, 0, size);
    cl_mem memory = prog_buffer(p->context, CL_MEM_READ_WRITE, size, NULL);
    OK(clEnqueueWriteBuffer(p->queue, memory, CL_TRUE, 0, size, got, 0, NULL, NULL));
    double begin = prog_now();
    OK(clEnqueueWriteBuffer(p->queue, memory, CL_TRUE, 0, size, bytes, 0, NULL, NULL));
    double written = prog_now();
    OK(clEnqueueReadBuffer(p->queue, memory, CL_TRUE, 0, size, got, 0, NULL, NULL));
    double read = prog_now();
    REQUIRE(memcmp(bytes, got, size) == 0);
    ret_speeds[0] = (double)size / (written - begin);
    ret_speeds[1] = (double)size / (read - written);
    OK(clReleaseMemObject(memory));
    free(bytes);
    free(got);
}

static double trip(const struct prog *p)
{
    uint32_t word = 0;
    cl_mem memory = prog_buffer(p->context, CL_MEM_READ_WRITE, 4096, NULL);
    prog_read(p->queue, memory, 0, sizeof word, &word);
    double begin = prog_now();
    prog_read(p->queue, memory, 0, sizeof word, &word);
    double seconds = prog_now() - begin;
    OK(clReleaseMemObject(memory));
    return seconds;
}

int main(int argc, char **argv)
{
    struct prog p;
    REQUIRE(argc >= 3);
    bool is_trip = strcmp(argv[1], "trip") == 0, is_bulk = strcmp(argv[1], "bulk") == 0;
    long count = atol(argv[2]), runs = is_trip ? count : argc > 3 ? atol(argv[3]) : 1;
    double best[2] = {0};
    prog_open(&p);
    for (long i = 0; i < runs; i++) {
        double now[2] = {0};
        if (is_bulk)
            bulk(&p, (size_t)count << 20, now);
        else
            now[0] = is_trip ? trip(&p) : launches(&p, count);
        for (int j = 0; j < 2; j++)
            if (i == 0 || (is_bulk ? now[j] > best[j] : now[j] < best[j]))
                best[j] = now[j];
    }
    printf("%.9g %.9g\n", best[0], best[1]);
    prog_close(&p);
    return 0;
}
