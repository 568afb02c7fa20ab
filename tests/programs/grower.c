/**
 * A program that wants more and more device memory: it begins with a few buffers, adds some
 * after each pass over all it has, and checks every byte against a host computation.
 *
 *   grower [--block-kib N] [--from N] [--to N] [--step N] [--passes N] [--pause-ms N]
 *          [--when FILE] [--settle 1] [--beside FILE]
 *
 * From --from blocks to --to, --step more after each of --passes passes or more; --pause-ms is
 * what it does without OpenCL in each pass. It begins to grow once --when is there. With --settle
 * it makes do with what it has when the device is full. Goes on at its full size while TEST_UNTIL
 * says so. Says "BLOCKS blocks" on stderr as it grows, and prints a checksum that does not depend
 * on how long it was kept busy. Meanwhile another thread computes on a queue of its own, and adds a
 * byte to --beside each time that it found the right result.
 */
#include "prog.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define BESIDE_WORDS    64
#define BESIDE_PAUSE_MS 5
#define WHEN_PAUSE_MS   5

static const char source[] =
    "__kernel void blend(__global uint *own, __global const uint *other, uint n) {\n"
    "    size_t i = get_global_id(0);\n"
    "    own[i] = own[i] * 3 + other[i] + n;\n"
    "}\n";

struct grower {
    struct prog prog;
    cl_kernel mix;
    size_t words;
    long count, to;
    bool settles;
    cl_mem *mem;
    uint32_t **want;
    uint32_t *got;
};

static void sleep_ms(long ms)
{
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&pause, NULL);
}

static bool full(cl_int err)
{
    return err == CL_MEM_OBJECT_ALLOCATION_FAILURE || err == CL_OUT_OF_RESOURCES;
}

static void grow(struct grower *g, long count)
{
    for (; g->count < count; g->count++) {
        size_t size = g->words * sizeof **g->want;
        struct rng r = rng_seed((uint64_t)g->count + 1);
        uint32_t *want = prog_alloc(size);
        cl_int err;

        rng_fill(&r, want, size);
        g->want[g->count] = want;
        g->mem[g->count] = clCreateBuffer(g->prog.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                                          size, want, &err);
        if (g->settles && full(err)) {
            free(want);
            g->to = count = g->count;
            fprintf(stderr, "full: ");
            break;
        }
        CALLS_CHECK("clCreateBuffer", err);
    }
    fprintf(stderr, "%ld blocks\n", g->count);
}

static void pass(struct grower *g, uint32_t n)
{
    for (long b = 0; b < g->count; b++) {
        long other = (b + 1) % g->count;
        cl_uint k = n + (uint32_t)b;

        ARGS(g->mix, g->mem[b], g->mem[other]);
        prog_arg(g->mix, 2, sizeof k, &k);
        prog_run(g->prog.queue, g->mix, g->words);
        for (size_t i = 0; i < g->words; i++)
            g->want[b][i] = g->want[b][i] * 3 + g->want[other][i] + k;
    }
    OK(clFinish(g->prog.queue));
}

static void verify(struct grower *g, uint64_t *sum)
{
    for (long b = 0; b < g->count; b++) {
        size_t size = g->words * sizeof *g->got;

        prog_read(g->prog.queue, g->mem[b], 0, size, g->got);
        prog_same("a block", g->got, g->want[b], size);
        if (sum)
            sum_bytes(sum, g->got, size);
    }
}

/* ---- what goes on beside it ---- */

struct beside {
    pthread_t thread;
    struct prog prog;
    cl_program program;
    const char *path;
    sem_t began;
    atomic_bool ends;
};

static void *beside_main(void *data)
{
    struct beside *b = data;
    uint32_t want[BESIDE_WORDS] = {0}, got[BESIDE_WORDS];
    const uint32_t other[BESIDE_WORDS] = {0};
    cl_mem_flags flags = CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR;
    cl_mem mem = prog_buffer(b->prog.context, flags, sizeof want, want);
    cl_mem zero = prog_buffer(b->prog.context, flags, sizeof other, (void *)other);
    cl_kernel mix = prog_kernel(b->program, "blend");
    FILE *file = fopen(b->path, "w");

    REQUIRE(file);
    setbuf(file, NULL);
    prog_arg(mix, 0, sizeof mem, &mem);
    prog_arg(mix, 1, sizeof zero, &zero);
    for (cl_uint n = 0; !atomic_load(&b->ends); n++) {
        prog_arg(mix, 2, sizeof n, &n);
        prog_run(b->prog.queue, mix, BESIDE_WORDS);
        for (size_t i = 0; i < BESIDE_WORDS; i++)
            want[i] = want[i] * 3 + n;
        prog_read(b->prog.queue, mem, 0, sizeof got, got);
        prog_same("what goes on beside", got, want, sizeof got);
        REQUIRE(fputc('.', file) == '.');
        if (n == 0)
            sem_post(&b->began);
        sleep_ms(BESIDE_PAUSE_MS);
    }
    fclose(file);
    RELEASE(mix, mem, zero);
    return NULL;
}

static void beside_start(struct beside *b, const struct grower *g, cl_program program)
{
    b->prog = g->prog;
    b->prog.queue = prog_queue(&g->prog, 0);
    b->program = program;
    atomic_init(&b->ends, false);
    REQUIRE(sem_init(&b->began, 0, 0) == 0);
    REQUIRE(pthread_create(&b->thread, NULL, beside_main, b) == 0);
    sem_wait(&b->began);
}

static void beside_end(struct beside *b)
{
    atomic_store(&b->ends, true);
    REQUIRE(pthread_join(b->thread, NULL) == 0);
    OK(clReleaseCommandQueue(b->prog.queue));
}

int main(int argc, char **argv)
{
    long from = prog_option(argc, argv, "--from", 4), to = prog_option(argc, argv, "--to", 24);
    long step = prog_option(argc, argv, "--step", 4),
         passes = prog_option(argc, argv, "--passes", 8);
    long pause_ms = prog_option(argc, argv, "--pause-ms", 0);
    const char *when = prog_option_text(argc, argv, "--when", NULL);
    struct grower g = {.words = (size_t)prog_option(argc, argv, "--block-kib", 1024) * 1024 /
                                sizeof(uint32_t),
                       .to = to,
                       .settles = prog_option(argc, argv, "--settle", 0)};
    struct beside beside = {.path = prog_option_text(argc, argv, "--beside", NULL)};
    uint64_t sum = 0;

    REQUIRE(from > 1 && to >= from && step > 0 && g.words > 0);
    prog_open(&g.prog);
    g.mem = prog_alloc((size_t)to * sizeof *g.mem);
    g.want = prog_alloc((size_t)to * sizeof *g.want);
    g.got = prog_alloc(g.words * sizeof *g.got);
    cl_program program = prog_build(&g.prog, source, "");
    g.mix = prog_kernel(program, "blend");
    if (beside.path)
        beside_start(&beside, &g, program);
    grow(&g, from);
    while (when && access(when, F_OK) != 0)
        sleep_ms(WHEN_PAUSE_MS);
    for (long n = 0; n < passes || g.count < g.to; n++) {
        pass(&g, (uint32_t)n);
        sleep_ms(pause_ms);
        if (g.count < g.to)
            grow(&g, g.count + step < g.to ? g.count + step : g.to);
    }
    verify(&g, &sum);
    for (uint32_t n = 0; prog_again(); n++) {
        pass(&g, n);
        verify(&g, NULL);
        sleep_ms(pause_ms);
    }
    if (beside.path)
        beside_end(&beside);
    printf("%016llx\n", (unsigned long long)sum);
    for (long b = 0; b < g.count; b++) {
        OK(clReleaseMemObject(g.mem[b]));
        free(g.want[b]);
    }
    RELEASE(g.mix, program);
    prog_close(&g.prog);
    free(g.mem);
    free(g.want);
    free(g.got);
    return 0;
}
