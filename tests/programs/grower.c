/**
 * A program that wants more and more device memory: it begins with a few buffers, adds some
 * after each pass over all it has, and checks every byte against a host computation.
 *
 *   grower [--block-kib N] [--from N] [--to N] [--step N] [--passes N] [--pause-ms N]
 *
 * From --from blocks to --to, --step more after each of --passes passes or more; --pause-ms is
 * what it does without OpenCL in each pass. Goes on at its full size while TEST_UNTIL says so.
 * Says "BLOCKS blocks" on stderr as it grows, and prints a checksum that does not depend on how
 * long it was kept busy.
 */
#include "prog.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const char source[] =
    "__kernel void blend(__global uint *own, __global const uint *other, uint n) {\n"
    "    size_t i = get_global_id(0);\n"
    "    own[i] = own[i] * 3 + other[i] + n;\n"
    "}\n";

struct grower {
    struct prog prog;
    cl_kernel mix;
    size_t words;
    long count;
    cl_mem *mem;
    uint32_t **want;
    uint32_t *got;
};

static void grow(struct grower *g, long count)
{
    for (; g->count < count; g->count++) {
        size_t size = g->words * sizeof **g->want;
        struct rng r = rng_seed((uint64_t)g->count + 1);
        uint32_t *want = prog_alloc(size);

        rng_fill(&r, want, size);
        g->want[g->count] = want;
        g->mem[g->count] =
            prog_buffer(g->prog.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, size, want);
    }
    fprintf(stderr, "%ld blocks\n", g->count);
}

static void pass(struct grower *g, uint32_t n)
{
    for (long b = 0; b < g->count; b++) {
        long other = (b + 1) % g->count;
        cl_uint k = n + (uint32_t)b;

        prog_arg(g->mix, 0, sizeof(cl_mem), &g->mem[b]);
        prog_arg(g->mix, 1, sizeof(cl_mem), &g->mem[other]);
        prog_arg(g->mix, 2, sizeof k, &k);
        prog_run(g->prog.queue, g->mix, g->words);
        for (size_t i = 0; i < g->words; i++)
            g->want[b][i] = g->want[b][i] * 3 + g->want[other][i] + k;
    }
    MUST(clFinish(g->prog.queue));
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

static void sleep_ms(long ms)
{
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&pause, NULL);
}

int main(int argc, char **argv)
{
    long from = prog_option(argc, argv, "--from", 4), to = prog_option(argc, argv, "--to", 24);
    long step = prog_option(argc, argv, "--step", 4),
         passes = prog_option(argc, argv, "--passes", 8);
    long pause_ms = prog_option(argc, argv, "--pause-ms", 0);
    struct grower g = {.words = (size_t)prog_option(argc, argv, "--block-kib", 1024) * 1024 /
                                sizeof(uint32_t)};
    uint64_t sum = 0;

    REQUIRE(from > 1 && to >= from && step > 0 && g.words > 0);
    prog_open(&g.prog);
    g.mem = prog_alloc((size_t)to * sizeof *g.mem);
    g.want = prog_alloc((size_t)to * sizeof *g.want);
    g.got = prog_alloc(g.words * sizeof *g.got);
    cl_program program = prog_build(&g.prog, source, "");
    g.mix = prog_kernel(program, "blend");
    grow(&g, from);
    for (long n = 0; n < passes || g.count < to; n++) {
        pass(&g, (uint32_t)n);
        sleep_ms(pause_ms);
        if (g.count < to)
            grow(&g, g.count + step < to ? g.count + step : to);
    }
    verify(&g, &sum);
    for (uint32_t n = 0; prog_again(); n++) {
        pass(&g, n);
        verify(&g, NULL);
        sleep_ms(pause_ms);
    }
    printf("%016llx\n", (unsigned long long)sum);
    for (long b = 0; b < g.count; b++) {
        MUST(clReleaseMemObject(g.mem[b]));
        free(g.want[b]);
    }
    MUST(clReleaseKernel(g.mix));
    MUST(clReleaseProgram(program));
    prog_close(&g.prog);
    free(g.mem);
    free(g.want);
    free(g.got);
    return 0;
}
