/**
 * What each OpenCL call costs natively and under reseat, in one run: this program
 * starts itself both ways in turn and prints the medians.
 *
 *   calls [--runs N]        the table
 *   calls --measure         one set of measurements, as lines "NANOSECONDS NAME"
 */
#include "bench.h"
#include "prog.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH = 1000,
    REPEATS = 21,
    CHEAP = 100,
    NAME_BYTES = 64,
    MAX_RESULTS = 16,
    THREADS = 8,
    NS = 1000000000
};

static const char source[] = "__kernel void tiny(__global uint *a, uint k) {\n"
                             "    a[get_global_id(0)] = k;\n"
                             "}\n";

struct subject {
    struct prog prog;
    cl_kernel kernel;
    cl_mem mem;
    cl_command_queue queue; /* without profiling */
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
        clSetKernelArg(s->kernel, 1, sizeof k, &k);
}

static void set_changing(struct subject *s, int n)
{
    for (cl_uint k = 0; k < (cl_uint)n; k++)
        clSetKernelArg(s->kernel, 1, sizeof k, &k);
}

static void set_buffer(struct subject *s, int n)
{
    while (n--)
        clSetKernelArg(s->kernel, 0, sizeof s->mem, &s->mem);
}

static void query(struct subject *s, int n)
{
    size_t size;

    while (n--)
        clGetMemObjectInfo(s->mem, CL_MEM_SIZE, sizeof size, &size, NULL);
}

static void create_release(struct subject *s, int n)
{
    cl_int err;

    while (n--)
        clReleaseMemObject(clCreateBuffer(s->prog.context, CL_MEM_READ_WRITE, 4096, NULL, &err));
}

static void enqueue(struct subject *s, int n)
{
    const size_t one = 1;

    while (n--)
        clEnqueueNDRangeKernel(s->queue, s->kernel, 1, NULL, &one, &one, 0, NULL, NULL);
    clFinish(s->queue);
}

static void enqueue_event(struct subject *s, int n)
{
    const size_t one = 1;
    cl_event event;

    while (n--) {
        clEnqueueNDRangeKernel(s->queue, s->kernel, 1, NULL, &one, &one, 0, NULL, &event);
        clReleaseEvent(event);
    }
    clFinish(s->queue);
}

/* Each command waits for the one before it, by its event. */
static void enqueue_chain(struct subject *s, int n)
{
    const size_t one = 1;
    cl_event before = NULL, event;

    while (n--) {
        clEnqueueNDRangeKernel(s->queue, s->kernel, 1, NULL, &one, &one, before ? 1 : 0,
                               before ? &before : NULL, &event);
        if (before)
            clReleaseEvent(before);
        before = event;
    }
    clReleaseEvent(before);
    clFinish(s->queue);
}

static void *lane_run(void *data)
{
    const struct lane *lane = data;
    const size_t one = 1;

    for (cl_uint k = 0; k < (cl_uint)lane->n; k++) {
        clSetKernelArg(lane->kernel, 1, sizeof k, &k);
        clEnqueueNDRangeKernel(lane->queue, lane->kernel, 1, NULL, &one, &one, 0, NULL, NULL);
    }
    clFinish(lane->queue);
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
        clEnqueueNDRangeKernel(s->queue, s->kernel, 1, NULL, &one, &one, 0, NULL, NULL);
        clFinish(s->queue);
    }
}

static void blocking_write(struct subject *s, int n)
{
    for (cl_uint k = 0; k < (cl_uint)n; k++)
        clEnqueueWriteBuffer(s->queue, s->mem, CL_TRUE, 0, sizeof k, &k, 0, NULL, NULL);
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
    {"set and enqueue, 1 thread", one_thread, BATCH},
    {"set and enqueue, each of 8 threads", all_threads, BATCH},
};
enum { N_OPERATIONS = sizeof operations / sizeof *operations };

static void measure(void)
{
    static struct subject s;
    const cl_uint k = 0;

    prog_open(&s.prog);
    cl_program program = prog_build(&s.prog, source, "");
    s.kernel = prog_kernel(program, "tiny");
    s.mem = prog_buffer(s.prog.context, CL_MEM_READ_WRITE, 4096, NULL);
    s.queue = prog_queue(&s.prog, 0);
    prog_arg(s.kernel, 0, sizeof s.mem, &s.mem);
    prog_arg(s.kernel, 1, sizeof k, &k);
    for (int i = 0; i < THREADS; i++) {
        struct lane *lane = &s.lanes[i];
        lane->kernel = prog_kernel(program, "tiny");
        lane->mem = prog_buffer(s.prog.context, CL_MEM_READ_WRITE, 4096, NULL);
        lane->queue = prog_queue(&s.prog, 0);
        prog_arg(lane->kernel, 0, sizeof lane->mem, &lane->mem);
    }
    for (size_t i = 0; i < N_OPERATIONS; i++) {
        double took[REPEATS];
        operations[i].batch(&s, operations[i].n);
        for (int r = 0; r < REPEATS; r++) {
            double begin = prog_now();
            operations[i].batch(&s, operations[i].n);
            took[r] = (prog_now() - begin) * NS / operations[i].n;
        }
        printf("%.3f %s\n", bench_median(took, REPEATS), operations[i].name);
    }
}

/** Run one set of measurements and put each into the row of its operation. */
static void collect(const char *self, const char *name, double results[N_OPERATIONS][MAX_RESULTS],
                    int run)
{
    char *const argv[] = {(char *)self, "--measure", NULL};
    int out, i = 0;
    pid_t pid = bench_start(name, NULL, argv, &out);
    char *text = bench_collect(pid, out), *state = NULL;

    for (char *line = strtok_r(text, "\n", &state); line && i < N_OPERATIONS;
         line = strtok_r(NULL, "\n", &state))
        results[i++][run] = strtod(line, NULL);
    free(text);
    if (i != N_OPERATIONS)
        bench_fail("a measurement is missing");
}

int main(int argc, char **argv)
{
    static double native[N_OPERATIONS][MAX_RESULTS], under[N_OPERATIONS][MAX_RESULTS];
    int runs = (int)prog_option(argc, argv, "--runs", 5);

    if (argc == 2 && strcmp(argv[1], "--measure") == 0) {
        measure();
        return 0;
    }
    if (runs < 1 || runs > MAX_RESULTS)
        bench_fail("--runs must be 1 to %d", MAX_RESULTS);
    /* Once each way first, so that every build is in the drivers' caches. */
    collect(argv[0], NULL, native, 0);
    collect(argv[0], "calls", under, 0);
    for (int run = 0; run < runs; run++) {
        collect(argv[0], NULL, native, run);
        collect(argv[0], "calls", under, run);
    }
    printf("%-34s %12s %12s %10s %7s\n", "call", "native ns", "reseat ns", "added ns", "ratio");
    for (size_t i = 0; i < N_OPERATIONS; i++) {
        double a = bench_median(native[i], (size_t)runs), b = bench_median(under[i], (size_t)runs);
        printf("%-34s %12.1f %12.1f %+10.1f %7.3f\n", operations[i].name, a, b, b - a, b / a);
    }
    return 0;
}
