#include "prog.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_PLATFORMS = 16, MAX_DEVICES = 64, LOG_BYTES = 1 << 16 };

_Noreturn void prog_fail(const char *fmt, ...)
{
    va_list args;

    fflush(stdout);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    /* Other threads may be inside OpenCL: running destructors under them would hide the failure. */
    _exit(EXIT_FAILURE);
}

void prog_same(const char *what, const void *got, const void *want, size_t size)
{
    const unsigned char *a = got, *b = want;

    if (memcmp(a, b, size) == 0)
        return;
    size_t at = 0, wrong = 0;
    for (size_t i = size; i-- > 0;) {
        if (a[i] != b[i]) {
            at = i;
            wrong++;
        }
    }
    prog_fail("%s: %zu of %zu bytes differ, the first at %zu: got 0x%02x, want 0x%02x", what, wrong,
              size, at, a[at], b[at]);
}

bool prog_listed(const char *list, const char *name)
{
    size_t size = strlen(name);

    for (const char *at = list; (at = strstr(at, name)); at += size)
        if ((at == list || at[-1] == ',') && (at[size] == ',' || at[size] == '\0'))
            return true;
    return false;
}

void *prog_alloc(size_t size)
{
    void *p = malloc(size ? size : 1);

    if (!p)
        prog_fail("out of memory for %zu bytes", size);
    return p;
}

static cl_device_id pick_device(cl_platform_id *ret_platform)
{
    cl_platform_id platforms[MAX_PLATFORMS];
    cl_uint n_platforms = 0;
    const char *text = getenv("TEST_DEVICE");
    cl_uint wanted = text ? (cl_uint)strtoul(text, NULL, 10) : 0;

    OK(clGetPlatformIDs(MAX_PLATFORMS, platforms, &n_platforms));
    for (cl_uint i = 0; i < n_platforms && i < MAX_PLATFORMS; i++) {
        cl_device_id devices[MAX_DEVICES];
        cl_uint n = 0;
        if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, MAX_DEVICES, devices, &n) ||
            n > MAX_DEVICES)
            continue;
        if (wanted < n) {
            *ret_platform = platforms[i];
            return devices[wanted];
        }
        wanted -= n;
    }
    prog_fail("no OpenCL device of that index");
}

void prog_open(struct prog *p)
{
    p->device = pick_device(&p->platform);
    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                                (cl_context_properties)p->platform, 0};
    p->context = MADE(clCreateContext, properties, 1, &p->device, NULL, NULL);
    p->queue = prog_queue(p, CL_QUEUE_PROFILING_ENABLE);
}

void prog_close(struct prog *p)
{
    OK(clFinish(p->queue));
    RELEASE(p->queue, p->context);
}

cl_program prog_build(const struct prog *p, const char *source, const char *options)
{
    cl_int err;
    cl_program program = MADE(clCreateProgramWithSource, p->context, 1, &source, NULL);
    err = clBuildProgram(program, 1, &p->device, options, NULL, NULL);
    if (err) {
        char *log = prog_alloc(LOG_BYTES);
        log[0] = '\0';
        clGetProgramBuildInfo(program, p->device, CL_PROGRAM_BUILD_LOG, LOG_BYTES, log, NULL);
        prog_fail("build failed (%d): %s", err, log);
    }
    return program;
}

cl_kernel prog_kernel(cl_program program, const char *name)
{
    return MADE(clCreateKernel, program, name);
}

cl_mem prog_buffer(cl_context context, cl_mem_flags flags, size_t size, void *host)
{
    return MADE(clCreateBuffer, context, flags, size, host);
}

cl_command_queue prog_queue(const struct prog *p, cl_command_queue_properties properties)
{
    return MADE(clCreateCommandQueue, p->context, p->device, properties);
}

cl_command_queue prog_queue_out_of_order(const struct prog *p)
{
    cl_command_queue_properties offered = 0;

    OK(clGetDeviceInfo(p->device, CL_DEVICE_QUEUE_PROPERTIES, sizeof offered, &offered, NULL));
    return prog_queue(p, offered & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
}

void prog_read(cl_command_queue queue, cl_mem buffer, size_t offset, size_t size, void *to)
{
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, offset, size, to, 0, NULL, NULL));
}

void prog_arg(cl_kernel kernel, cl_uint index, size_t size, const void *value)
{
    OK(clSetKernelArg(kernel, index, size, value));
}

void prog_run(cl_command_queue queue, cl_kernel kernel, size_t items)
{
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
}

struct rng rng_seed(uint64_t seed)
{
    return (struct rng){seed * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u};
}

uint64_t rng_next(struct rng *r)
{
    /* splitmix64: any seed is a good one. */
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint32_t rng_below(struct rng *r, uint32_t n)
{
    return n ? (uint32_t)(rng_next(r) % n) : 0;
}

void rng_fill(struct rng *r, void *to, size_t size)
{
    unsigned char *p = to;

    while (size) {
        uint64_t word = rng_next(r);
        size_t part = size < sizeof word ? size : sizeof word;
        memcpy(p, &word, part);
        p += part;
        size -= part;
    }
}

void sum_word(uint64_t *sum, uint64_t word)
{
    uint64_t z = (*sum ^ word) * 0xff51afd7ed558ccdu;

    *sum = z ^ (z >> 29);
}

void sum_bytes(uint64_t *sum, const void *from, size_t size)
{
    const unsigned char *p = from;

    for (; size >= sizeof(uint64_t); size -= sizeof(uint64_t), p += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, p, sizeof word);
        sum_word(sum, word);
    }
    for (; size; size--)
        sum_word(sum, *p++);
}

double prog_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

bool prog_again(void)
{
    const char *path = getenv("TEST_UNTIL");

    return path && access(path, F_OK) != 0;
}

const char *prog_option_text(int argc, char **argv, const char *name, const char *otherwise)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return argv[i + 1];
    return otherwise;
}

long prog_option(int argc, char **argv, const char *name, long otherwise)
{
    const char *text = prog_option_text(argc, argv, name, NULL);

    if (!text)
        return otherwise;
    char *end;
    long value = strtol(text, &end, 0);
    if (*end || end == text)
        prog_fail("%s: not a number: %s", name, text);
    return value;
}
