/**
 * What each OpenCL call costs natively and under reseat, in one run.
 *
 *   bench-calls [--runs N]                   processes of each kind in turn
 *   bench-calls [--runs N] --beside DRIVER   both in each process
 *
 * The first is what a program sees. Where processes differ by more than reseat adds (by where
 * their memory and threads came to lie: up to 30 % on some machines), the second tells more:
 * DRIVER, the vendor's library (libpocl.so.2), is called directly and through reseat in turn.
 *
 * Of one process's repeats the fastest counts, which others on the machine delayed least; of the
 * processes the median.
 */
#include "bench.h"
#include "prog.h"

#include <CL/cl_icd.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH = 1000,
    REPEATS = 21,
    CHEAP = 100,
    MAX_RESULTS = 32,
    PLATFORMS = 8,
    THREADS = 8,
    LARGE = 16 << 20,
    TRANSFERS = 8,
    NS = 1000000000
};

static const char source[] = "__kernel void tiny(__global uint *a, uint k) {\n"
                             "    a[get_global_id(0)] = k;\n"
                             "}\n";

/* What is measured: calls of one table, natively the driver's. Handles begin with it. */
static const cl_icd_dispatch *cl;

struct subject {
    const cl_icd_dispatch *cl;
    cl_context context;
    cl_kernel kernel;
    cl_mem mem;
    cl_mem large;
    char *bytes; /* as many, of the program's */
    cl_command_queue queue;
    /* Of each thread that works beside others. */
    struct lane {
        cl_kernel kernel;
        cl_mem mem;
        cl_command_queue queue;
        int n;
    } lanes[THREADS];
};

struct operation {
    const char *name;
    void (*batch)(struct subject *s, int n);
    int n;
};

static void set_same(struct subject *s, int n)
{
    const cl_uint k = 1;

    while (n--)
        cl->clSetKernelArg(s->kernel, 1, sizeof k, &k);
}

static void set_changing(struct subject *s, int n)
{
    for (cl_uint k = 0; k < (cl_uint)n; k++)
        cl->clSetKernelArg(s->kernel, 1, sizeof k, &k);
}

static void set_buffer(struct subject *s, int n)
{
    while (n--)
        cl->clSetKernelArg(s->kernel, 0, sizeof s->mem, &s->mem);
}

static void query(struct subject *s, int n)
{
    size_t size;

    while (n--)
        cl->clGetMemObjectInfo(s->mem, CL_MEM_SIZE, sizeof size, &size, NULL);
}

static void create_release(struct subject *s, int n)
{
    cl_int err;

    while (n--)
        cl->clReleaseMemObject(cl->clCreateBuffer(s->context, CL_MEM_READ_WRITE, 4096, NULL, &err));
}

static void enqueue(struct subject *s, int n)
{
    const size_t one = 1;

    while (n--)
        cl->clEnqueueNDRangeKernel(s->queue, s->kernel, 1, NULL, &one, &one, 0, NULL, NULL);
    cl->clFinish(s->queue);
}

static void enqueue_event(struct subject *s, int n)
{
    const size_t one = 1;
    cl_event event;

    while (n--) {
        cl->clEnqueueNDRangeKernel(s->queue, s->kernel, 1, NULL, &one, &one, 0, NULL, &event);
        cl->clReleaseEvent(event);
    }
    cl->clFinish(s->queue);
}

/* Each command waits for the one before it, by its event. */
static void enqueue_chain(struct subject *s, int n)
{
    const size_t one = 1;
    cl_event before = NULL, event;

    while (n--) {
        cl->clEnqueueNDRangeKernel(s->queue, s->kernel, 1, NULL, &one, &one, before ? 1 : 0,
                                   before ? &before : NULL, &event);
        if (before)
            cl->clReleaseEvent(before);
        before = event;
    }
    cl->clReleaseEvent(before);
    cl->clFinish(s->queue);
}

static void *lane_run(void *data)
{
    const struct lane *lane = data;
    const size_t one = 1;

    for (cl_uint k = 0; k < (cl_uint)lane->n; k++) {
        cl->clSetKernelArg(lane->kernel, 1, sizeof k, &k);
        cl->clEnqueueNDRangeKernel(lane->queue, lane->kernel, 1, NULL, &one, &one, 0, NULL, NULL);
    }
    cl->clFinish(lane->queue);
    return NULL;
}

static void lanes(struct subject *s, int n, int count)
{
    pthread_t threads[THREADS];

    for (int i = 0; i < count; i++) {
        s->lanes[i].n = n;
        if (pthread_create(&threads[i], NULL, lane_run, &s->lanes[i]) != 0)
            bench_fail("no thread");
    }
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

static void one_thread(struct subject *s, int n)
{
    lanes(s, n, 1);
}

static void all_threads(struct subject *s, int n)
{
    lanes(s, n, THREADS);
}

static void enqueue_finish(struct subject *s, int n)
{
    const size_t one = 1;

    while (n--) {
        cl->clEnqueueNDRangeKernel(s->queue, s->kernel, 1, NULL, &one, &one, 0, NULL, NULL);
        cl->clFinish(s->queue);
    }
}

static void blocking_write(struct subject *s, int n)
{
    for (cl_uint k = 0; k < (cl_uint)n; k++)
        cl->clEnqueueWriteBuffer(s->queue, s->mem, CL_TRUE, 0, sizeof k, &k, 0, NULL, NULL);
}

static void blocking_read(struct subject *s, int n)
{
    cl_uint word;

    while (n--)
        cl->clEnqueueReadBuffer(s->queue, s->mem, CL_TRUE, 0, sizeof(word), &word, 0, NULL, NULL);
}

static void map_large(struct subject *s, int n, cl_map_flags flags)
{
    while (n--) {
        char *map = MADE(cl->clEnqueueMapBuffer, s->queue, s->large, CL_TRUE, flags, 0, LARGE, 0,
                         NULL, NULL);
        if (flags == CL_MAP_WRITE)
            map[n]++;
        OK(cl->clEnqueueUnmapMemObject(s->queue, s->large, map, 0, NULL, NULL));
        cl->clFinish(s->queue);
    }
}

static void map_read(struct subject *s, int n)
{
    map_large(s, n, CL_MAP_READ);
}

static void map_write(struct subject *s, int n)
{
    map_large(s, n, CL_MAP_WRITE);
}

static void blocking_read_large(struct subject *s, int n)
{
    while (n--)
        cl->clEnqueueReadBuffer(s->queue, s->large, CL_TRUE, 0, LARGE, s->bytes, 0, NULL, NULL);
}

static void blocking_write_large(struct subject *s, int n)
{
    while (n--)
        cl->clEnqueueWriteBuffer(s->queue, s->large, CL_TRUE, 0, LARGE, s->bytes, 0, NULL, NULL);
}

static const struct operation operations[] = {
    {"clSetKernelArg, same value", set_same, CHEAP *BATCH},
    {"clSetKernelArg, new value", set_changing, CHEAP *BATCH},
    {"clSetKernelArg, same buffer", set_buffer, CHEAP *BATCH},
    {"clGetMemObjectInfo", query, CHEAP *BATCH},
    {"create and release a buffer", create_release, BATCH},
    {"clEnqueueNDRangeKernel, batched", enqueue, BATCH},
    {"the same with an event", enqueue_event, BATCH},
    {"the same behind the last event", enqueue_chain, BATCH},
    {"enqueue and clFinish", enqueue_finish, BATCH},
    {"blocking 4-byte write", blocking_write, BATCH},
    {"blocking 4-byte read", blocking_read, BATCH},
    {"set and enqueue, 1 thread", one_thread, BATCH},
    {"set and enqueue, each of 8 threads", all_threads, BATCH},
    {"map 16 MiB to read, unmap", map_read, TRANSFERS},
    {"map 16 MiB to write, unmap", map_write, TRANSFERS},
    {"blocking read of 16 MiB", blocking_read_large, TRANSFERS},
    {"blocking write of 16 MiB", blocking_write_large, TRANSFERS},
};
enum { N_OPERATIONS = sizeof operations / sizeof *operations };

static cl_kernel make_kernel(const struct subject *s, cl_program program, cl_mem *ret_mem)
{
    const cl_uint k = 0;
    cl_kernel kernel = MADE(s->cl->clCreateKernel, program, "tiny");
    *ret_mem = MADE(s->cl->clCreateBuffer, s->context, CL_MEM_READ_WRITE, 4096, NULL);
    OK(s->cl->clSetKernelArg(kernel, 0, sizeof *ret_mem, ret_mem));
    OK(s->cl->clSetKernelArg(kernel, 1, sizeof k, &k));
    return kernel;
}

static cl_command_queue make_queue(const struct subject *s, cl_device_id device)
{
    return MADE(s->cl->clCreateCommandQueue, s->context, device, 0);
}

/** On the first device of the first of @platforms that has one. */
static void open_subject(struct subject *s, const cl_platform_id *platforms, cl_uint count)
{
    cl_device_id device = NULL;
    const char *text = source;

    for (cl_uint i = 0; i < count && !device; i++) {
        s->cl = *(const cl_icd_dispatch *const *)platforms[i];
        if (s->cl->clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 1, &device, NULL) != CL_SUCCESS)
            device = NULL;
    }
    if (!device)
        bench_fail("no device");
    s->context = MADE(s->cl->clCreateContext, NULL, 1, &device, NULL, NULL);
    cl_program program = MADE(s->cl->clCreateProgramWithSource, s->context, 1, &text, NULL);
    OK(s->cl->clBuildProgram(program, 1, &device, "", NULL, NULL));
    s->kernel = make_kernel(s, program, &s->mem);
    s->queue = make_queue(s, device);
    s->large = MADE(s->cl->clCreateBuffer, s->context, CL_MEM_READ_WRITE, LARGE, NULL);
    s->bytes = malloc(LARGE);
    if (!s->bytes)
        bench_fail("no memory");
    memset(s->bytes, 1, LARGE);
    OK(s->cl->clEnqueueWriteBuffer(s->queue, s->large, CL_TRUE, 0, LARGE, s->bytes, 0, NULL, NULL));
    for (int i = 0; i < THREADS; i++) {
        struct lane *lane = &s->lanes[i];
        lane->kernel = make_kernel(s, program, &lane->mem);
        lane->queue = make_queue(s, device);
    }
}

/** The driver's own platforms, past every loader. */
static cl_uint own_platforms(const char *driver, cl_platform_id *ret_platforms, cl_uint size)
{
    void *library = dlopen(driver, RTLD_NOW | RTLD_LOCAL);
    void *(*find)(const char *) = NULL;
    cl_int (*ask)(cl_uint, cl_platform_id *, cl_uint *) = NULL;
    cl_uint count = 0;

    if (!library)
        bench_fail("%s: %s", driver, dlerror());
    *(void **)&find = dlsym(library, "clGetExtensionFunctionAddress");
    if (find)
        *(void **)&ask = find("clIcdGetPlatformIDsKHR");
    if (!ask || ask(size, ret_platforms, &count) != CL_SUCCESS)
        bench_fail("%s: not an OpenCL driver", driver);
    return count < size ? count : size;
}

/** A line an operation: what the calls of the program cost, and, with @driver, the driver's own. */
static void measure(const char *driver)
{
    static struct subject subjects[2];
    cl_platform_id platforms[PLATFORMS];
    cl_uint count = 0;
    int sides = driver ? 2 : 1;

    OK(clGetPlatformIDs(PLATFORMS, platforms, &count));
    open_subject(&subjects[0], platforms, count < PLATFORMS ? count : PLATFORMS);
    if (driver) {
        count = own_platforms(driver, platforms, PLATFORMS);
        open_subject(&subjects[1], platforms, count);
    }
    for (size_t i = 0; i < N_OPERATIONS; i++) {
        double best[2] = {0};
        for (int r = -1; r < REPEATS; r++) { /* the first warms up */
            for (int side = 0; side < sides; side++) {
                cl = subjects[side].cl;
                double begin = prog_now();
                operations[i].batch(&subjects[side], operations[i].n);
                double took = (prog_now() - begin) * NS / operations[i].n;
                best[side] = r <= 0 || took < best[side] ? took : best[side];
            }
        }
        printf("%.3f %.3f %s\n", best[0], best[1], operations[i].name);
    }
}

struct results {
    double first[N_OPERATIONS][MAX_RESULTS], second[N_OPERATIONS][MAX_RESULTS];
};

/** Run one set of measurements and put each into the row of its operation. */
static void collect(const char *self, const char *name, const char *driver, struct results *results,
                    int run)
{
    char *const argv[] = {(char *)self, "--measure", (char *)driver, NULL};
    int out, i = 0;
    pid_t pid = bench_start(name, NULL, argv, &out);
    char *text = bench_collect(pid, out), *state = NULL, *end;

    for (char *line = strtok_r(text, "\n", &state); line && i < N_OPERATIONS;
         line = strtok_r(NULL, "\n", &state)) {
        results->first[i][run] = strtod(line, &end);
        results->second[i++][run] = strtod(end, NULL);
    }
    free(text);
    if (i != N_OPERATIONS)
        bench_fail("a measurement is missing");
}

int main(int argc, char **argv)
{
    static struct results under, native;
    int runs = (int)prog_option(argc, argv, "--runs", 9);
    const char *driver = prog_option_text(argc, argv, "--beside", NULL);

    if (argc > 1 && strcmp(argv[1], "--measure") == 0) {
        measure(argv[2]);
        return 0;
    }
    if (runs < 1 || runs > MAX_RESULTS)
        bench_fail("--runs must be 1 to %d", MAX_RESULTS);
    /* The first of each kind, which puts every build into the drivers' caches, does not count. */
    for (int run = -1; run < runs; run++) {
        collect(argv[0], "calls", driver, &under, run < 0 ? 0 : run);
        if (!driver)
            collect(argv[0], NULL, NULL, &native, run < 0 ? 0 : run);
    }
    printf("%-34s %12s %12s %10s %7s\n", "call", "native ns", "reseat ns", "added ns", "ratio");
    for (size_t i = 0; i < N_OPERATIONS; i++) {
        double b = bench_median(under.first[i], (size_t)runs);
        double a = bench_median(driver ? under.second[i] : native.first[i], (size_t)runs);
        printf("%-34s %12.1f %12.1f %+10.1f %7.3f\n", operations[i].name, a, b, b - a, b / a);
    }
    return 0;
}
