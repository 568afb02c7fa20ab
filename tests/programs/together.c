/**
 * Work shared by all devices of a platform in one context: slices of one buffer written at once
 * through sub-buffers, steps that need what all others did in the step before, a chain that goes
 * round all devices by events alone, maps made by one device and unmapped by another, copies and
 * fills from wherever, and a thread for each device. Each result is compared with the host's own.
 *
 *   together [--steps N] [--least N]
 *
 * --least: fail when the platform has fewer devices. The output does not depend on their number.
 */
#include "prog.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 32, WORDS = 32768, BYTES = WORDS * 4, CHAIN = MOST + 4, THREAD_STEPS = 16 };

static const char source[] = "__kernel void advance(__global uint *a, uint first, uint k) {\n"
                             "    uint i = get_global_id(0);\n"
                             "    a[i] = a[i] * 5u + (first + i) * k + 1u;\n"
                             "}\n"
                             "__kernel void gather(__global const uint *all, __global uint *mine, "
                             "uint first, uint words) {\n"
                             "    uint i = get_global_id(0);\n"
                             "    mine[i] = all[first + i] * 3u + all[(first + i + 1u) % words];\n"
                             "}\n";

struct work {
    struct prog p; /* the first device's */
    cl_uint count;
    cl_device_id devices[MOST];
    cl_context context;
    cl_command_queue queues[MOST];
    cl_program program;
    cl_kernel advance[MOST], gather[MOST];
    size_t first[MOST], words[MOST]; /* of each device's slice */
};

static void work_open(struct work *w, cl_uint least)
{
    cl_uint found;

    prog_open(&w->p);
    OK(clGetDeviceIDs(w->p.platform, CL_DEVICE_TYPE_ALL, MOST, w->devices, &found));
    w->count = found < MOST ? found : MOST;
    if (w->count < least)
        prog_fail("%u devices, wanted %u", w->count, least);
    for (cl_uint i = 0; i < w->count; i++)
        for (cl_uint j = 0; j < i; j++)
            REQUIRE(w->devices[i] != w->devices[j]);
    w->context = MADE(clCreateContext, NULL, w->count, w->devices, NULL, NULL);
    const char *text = source;
    w->program = MADE(clCreateProgramWithSource, w->context, 1, &text, NULL);
    OK(clBuildProgram(w->program, 0, NULL, "", NULL, NULL));
    for (cl_uint i = 0; i < w->count; i++) {
        cl_build_status status;
        OK(clGetProgramBuildInfo(w->program, w->devices[i], CL_PROGRAM_BUILD_STATUS, sizeof status,
                                 &status, NULL));
        REQUIRE(status == CL_BUILD_SUCCESS);
        w->queues[i] =
            MADE(clCreateCommandQueue, w->context, w->devices[i], CL_QUEUE_PROFILING_ENABLE);
        w->advance[i] = prog_kernel(w->program, "advance");
        w->gather[i] = prog_kernel(w->program, "gather");
        /* Slices begin where every device lets sub-buffers begin. */
        w->first[i] = (size_t)WORDS / 32 * (32 * i / w->count);
        size_t end = (size_t)WORDS / 32 * (32 * (i + 1) / w->count);
        w->words[i] = end - w->first[i];
    }
}

static void work_close(struct work *w)
{
    for (cl_uint i = 0; i < w->count; i++)
        RELEASE(w->advance[i], w->gather[i], w->queues[i]);
    RELEASE(w->program, w->context);
    prog_close(&w->p);
}

static void finish_all(const struct work *w)
{
    for (cl_uint i = 0; i < w->count; i++)
        OK(clFinish(w->queues[i]));
}

static cl_mem slice_of(const struct work *w, cl_mem buffer, cl_uint i)
{
    const cl_buffer_region region = {w->first[i] * 4, w->words[i] * 4};
    return MADE(clCreateSubBuffer, buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &region);
}

static void advance(const struct work *w, cl_uint on, cl_mem mem, size_t first, size_t words,
                    cl_uint k, cl_uint waits, const cl_event *wait_list, cl_event *ret_event)
{
    const cl_uint from = (cl_uint)first;

    prog_arg(w->advance[on], 0, sizeof mem, &mem);
    prog_arg(w->advance[on], 1, sizeof from, &from);
    prog_arg(w->advance[on], 2, sizeof k, &k);
    OK(clEnqueueNDRangeKernel(w->queues[on], w->advance[on], 1, NULL, &words, NULL, waits,
                              wait_list, ret_event));
}

static void host_advance(uint32_t *words, size_t first, size_t count, cl_uint k)
{
    for (size_t i = first; i < first + count; i++)
        words[i] = words[i] * 5 + (uint32_t)i * k + 1;
}

/** All devices write their slices of one buffer at once; then one reads it whole. */
static void slices(const struct work *w, struct rng *r, uint32_t *words, uint32_t *got,
                   uint64_t *sum)
{
    cl_mem parts[MOST];

    rng_fill(r, words, BYTES);
    cl_mem buffer = prog_buffer(w->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, BYTES, words);
    for (cl_uint i = 0; i < w->count; i++)
        parts[i] = slice_of(w, buffer, i);
    for (cl_uint round = 0; round < 3; round++) {
        for (cl_uint step = 0; step < 4; step++) {
            for (cl_uint i = 0; i < w->count; i++)
                advance(w, i, parts[i], w->first[i], w->words[i], step + round, 0, NULL, NULL);
            host_advance(words, 0, WORDS, step + round);
        }
        finish_all(w);
        prog_read(w->queues[round % w->count], buffer, 0, BYTES, got);
        prog_same("slices", got, words, BYTES);
        sum_bytes(sum, got, BYTES);
    }
    for (cl_uint i = 0; i < w->count; i++)
        OK(clReleaseMemObject(parts[i]));
    OK(clReleaseMemObject(buffer));
}

/** Each step of each device waits for the step before of all, by events. */
static void exchange(const struct work *w, struct rng *r, uint32_t *words, uint32_t *got,
                     long steps, uint64_t *sum)
{
    cl_mem buffers[2], parts[2][MOST];
    cl_event done[2][MOST] = {{NULL}};
    const cl_uint all = WORDS;

    rng_fill(r, words, BYTES);
    for (int b = 0; b < 2; b++) {
        buffers[b] =
            prog_buffer(w->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, BYTES, words);
        for (cl_uint i = 0; i < w->count; i++)
            parts[b][i] = slice_of(w, buffers[b], i);
    }
    for (long step = 0; step < steps; step++) {
        int from = (int)(step % 2), to = 1 - from;
        for (cl_uint i = 0; i < w->count; i++) {
            const cl_uint first = (cl_uint)w->first[i];
            ARGS(w->gather[i], buffers[from], parts[to][i]);
            prog_arg(w->gather[i], 2, sizeof first, &first);
            prog_arg(w->gather[i], 3, sizeof all, &all);
            OK(clEnqueueNDRangeKernel(w->queues[i], w->gather[i], 1, NULL, &w->words[i], NULL,
                                      step ? w->count : 0, step ? done[from] : NULL, &done[to][i]));
        }
        for (cl_uint i = 0; i < w->count; i++) {
            OK(clFlush(w->queues[i]));
            if (step)
                OK(clReleaseEvent(done[from][i]));
        }
        for (size_t i = 0; i < WORDS; i++)
            got[i] = words[i] * 3 + words[(i + 1) % WORDS];
        memcpy(words, got, BYTES);
    }
    OK(clWaitForEvents(w->count, done[steps % 2]));
    prog_read(w->queues[w->count - 1], buffers[steps % 2], 0, BYTES, got);
    prog_same("exchange", got, words, BYTES);
    sum_bytes(sum, got, BYTES);
    for (cl_uint i = 0; i < w->count; i++) {
        OK(clReleaseEvent(done[steps % 2][i]));
        for (int b = 0; b < 2; b++)
            OK(clReleaseMemObject(parts[b][i]));
    }
    for (int b = 0; b < 2; b++)
        OK(clReleaseMemObject(buffers[b]));
}

/** One buffer goes round the devices without the host ever waiting. */
static void chain(const struct work *w, struct rng *r, uint32_t *words, uint32_t *got,
                  uint64_t *sum)
{
    cl_event last = NULL, next, marker;

    rng_fill(r, words, BYTES);
    cl_mem buffer = prog_buffer(w->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, BYTES, words);
    for (cl_uint i = 0; i < CHAIN; i++) {
        cl_uint on = i % w->count;
        advance(w, on, buffer, 0, WORDS, i, last ? 1 : 0, last ? &last : NULL, &next);
        OK(clFlush(w->queues[on]));
        host_advance(words, 0, WORDS, i);
        if (last)
            OK(clReleaseEvent(last));
        last = next;
    }
    cl_command_queue end = w->queues[CHAIN % w->count];
    OK(clEnqueueMarkerWithWaitList(end, 1, &last, &marker));
    OK(clEnqueueReadBuffer(end, buffer, CL_FALSE, 0, BYTES, got, 1, &marker, &next));
    OK(clWaitForEvents(1, &next));
    prog_same("chain", got, words, BYTES);
    sum_bytes(sum, got, BYTES);
    cl_ulong from = 0, to = 0;
    OK(clGetEventProfilingInfo(last, CL_PROFILING_COMMAND_START, sizeof from, &from, NULL));
    OK(clGetEventProfilingInfo(last, CL_PROFILING_COMMAND_END, sizeof to, &to, NULL));
    REQUIRE(from <= to);
    RELEASE(last, marker, next, buffer);
}

/** What one device's queue maps another's unmaps; a third works on it; copies and fills. */
static void maps_and_copies(const struct work *w, struct rng *r, uint32_t *words, uint32_t *got,
                            uint64_t *sum)
{
    const cl_uint pattern = 0x01020304;

    rng_fill(r, words, BYTES);
    cl_mem buffer = prog_buffer(w->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, BYTES, words);
    cl_mem copy = prog_buffer(w->context, CL_MEM_READ_WRITE, BYTES, NULL);
    for (cl_uint i = 0; i < 2 * w->count; i++) {
        cl_command_queue a = w->queues[i % w->count], b = w->queues[(i + 1) % w->count];
        uint32_t *map = MADE(clEnqueueMapBuffer, a, buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE,
                             4096, BYTES / 2, 0, NULL, NULL);
        prog_same("a map", map, words + 1024, BYTES / 2);
        for (size_t k = 0; k < BYTES / 8; k++) {
            map[k] ^= 0x55aa0000 + i;
            words[1024 + k] = map[k];
        }
        OK(clEnqueueUnmapMemObject(b, buffer, map, 0, NULL, NULL));
        OK(clFinish(b));
        advance(w, (i + 2) % w->count, buffer, 0, WORDS, i, 0, NULL, NULL);
        host_advance(words, 0, WORDS, i);
        OK(clFinish(w->queues[(i + 2) % w->count]));
        OK(clEnqueueMigrateMemObjects(a, 1, &buffer, 0, 0, NULL, NULL));
        OK(clEnqueueCopyBuffer(a, buffer, copy, 0, 0, BYTES, 0, NULL, NULL));
        OK(clFinish(a));
        OK(clEnqueueFillBuffer(b, buffer, &pattern, 4, 0, 4096, 0, NULL, NULL));
        OK(clFinish(b));
        prog_read(b, copy, 0, BYTES, got);
        prog_same("a copy", got, words, BYTES);
        for (size_t k = 0; k < 1024; k++)
            words[k] = pattern;
        prog_read(w->queues[(i + 2) % w->count], buffer, 0, BYTES, got);
        prog_same("after a fill", got, words, BYTES);
    }
    /* How often the loop went depends on the number of devices: the checks above are all. */
    sum_word(sum, 1);
    RELEASE(copy, buffer);
}

struct thread {
    const struct work *w;
    cl_uint on;
    cl_mem buffer, slice;
    uint32_t *words;
};

static void *thread_main(void *arg)
{
    const struct thread *t = arg;
    const struct work *w = t->w;
    size_t bytes = w->words[t->on] * 4;
    uint32_t *got = prog_alloc(bytes);

    for (cl_uint step = 0; step < THREAD_STEPS; step++) {
        advance(w, t->on, t->slice, w->first[t->on], w->words[t->on], step, 0, NULL, NULL);
        host_advance(t->words, w->first[t->on], w->words[t->on], step);
        if (step % 5 == 4) {
            prog_read(w->queues[t->on], t->slice, 0, bytes, got);
            prog_same("a thread's slice", got, t->words + w->first[t->on], bytes);
        }
    }
    OK(clFinish(w->queues[t->on]));
    free(got);
    return NULL;
}

/** Slices again, each device fed by a thread of its own. */
static void threads(const struct work *w, struct rng *r, uint32_t *words, uint32_t *got,
                    uint64_t *sum)
{
    struct thread each[MOST];
    pthread_t running[MOST];

    rng_fill(r, words, BYTES);
    cl_mem buffer = prog_buffer(w->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, BYTES, words);
    for (cl_uint i = 0; i < w->count; i++) {
        each[i] = (struct thread){w, i, buffer, slice_of(w, buffer, i), words};
        REQUIRE(pthread_create(&running[i], NULL, thread_main, &each[i]) == 0);
    }
    for (cl_uint i = 0; i < w->count; i++)
        REQUIRE(pthread_join(running[i], NULL) == 0);
    prog_read(w->queues[0], buffer, 0, BYTES, got);
    prog_same("after the threads", got, words, BYTES);
    sum_bytes(sum, got, BYTES);
    for (cl_uint i = 0; i < w->count; i++)
        OK(clReleaseMemObject(each[i].slice));
    OK(clReleaseMemObject(buffer));
}

int main(int argc, char **argv)
{
    long steps = prog_option(argc, argv, "--steps", 9);
    cl_uint least = (cl_uint)prog_option(argc, argv, "--least", 1);
    uint32_t *words = prog_alloc(BYTES), *got = prog_alloc(BYTES);
    uint64_t first = 0;
    struct work w;

    work_open(&w, least);
    do {
        struct rng r = rng_seed(7);
        uint64_t sum = 0;
        slices(&w, &r, words, got, &sum);
        exchange(&w, &r, words, got, steps, &sum);
        chain(&w, &r, words, got, &sum);
        maps_and_copies(&w, &r, words, got, &sum);
        threads(&w, &r, words, got, &sum);
        REQUIRE(first == 0 || sum == first);
        first = sum;
    } while (prog_again());
    work_close(&w);
    free(words);
    free(got);
    printf("together checksum %016lx\n", (unsigned long)first);
    return 0;
}
