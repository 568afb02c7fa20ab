/**
 * Very many live objects: buffers that each keep a pattern of their own, kernels
 * that each keep their arguments.
 *
 *   manyobjects [--buffers N] [--kernels N] [--bytes N] [--seed N]
 *
 * Prints "ready" when all exist, then goes on using them while TEST_UNTIL says so.
 */
#include "prog.h"

#include <stdio.h>
#include <stdlib.h>

static const char source[] = "__kernel void add(__global uint *a, uint k) {\n"
                             "    a[get_global_id(0)] += k;\n"
                             "}\n";

struct set {
    long buffers, kernels;
    size_t words;
    uint64_t seed;
    cl_mem *mem;
    cl_kernel *kernel;
    uint32_t *added; /* what kernels have added to each buffer so far */
    uint32_t *got, *want;
};

/** Each kernel runs on the buffer that it was given long ago. */
static void run_all(const struct prog *p, struct set *s)
{
    for (long i = 0; i < s->kernels; i++) {
        prog_run(p->queue, s->kernel[i], s->words);
        s->added[i % s->buffers] += (uint32_t)i + 1;
    }
    OK(clFinish(p->queue));
}

static uint64_t verify_all(const struct prog *p, struct set *s)
{
    uint64_t sum = 0;
    size_t size = s->words * sizeof *s->got;

    for (long i = 0; i < s->buffers; i++) {
        struct rng r = rng_seed(s->seed + (uint64_t)i);
        prog_read(p->queue, s->mem[i], 0, size, s->got);
        rng_fill(&r, s->want, size);
        sum_bytes(&sum, s->want, size);
        for (size_t k = 0; k < s->words; k++)
            s->want[k] += s->added[i];
        prog_same("one of many buffers", s->got, s->want, size);
    }
    return sum;
}

int main(int argc, char **argv)
{
    struct set s = {
        .buffers = prog_option(argc, argv, "--buffers", 10000),
        .kernels = prog_option(argc, argv, "--kernels", 1000),
        .words = (size_t)prog_option(argc, argv, "--bytes", 4096) / sizeof(uint32_t),
        .seed = (uint64_t)prog_option(argc, argv, "--seed", 1),
    };
    struct prog p;

    REQUIRE(s.buffers > 0 && s.kernels >= 0 && s.words > 0);
    prog_open(&p);
    s.mem = prog_alloc((size_t)s.buffers * sizeof *s.mem);
    s.kernel = prog_alloc((size_t)s.kernels * sizeof *s.kernel);
    s.added = prog_alloc((size_t)s.buffers * sizeof *s.added);
    s.got = prog_alloc(s.words * sizeof *s.got);
    s.want = prog_alloc(s.words * sizeof *s.want);
    for (long i = 0; i < s.buffers; i++) {
        struct rng r = rng_seed(s.seed + (uint64_t)i);
        rng_fill(&r, s.want, s.words * sizeof *s.want);
        s.mem[i] = prog_buffer(p.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                               s.words * sizeof *s.want, s.want);
        s.added[i] = 0;
    }
    cl_program program = prog_build(&p, source, "");
    for (long i = 0; i < s.kernels; i++) {
        cl_uint k = (cl_uint)i + 1;
        s.kernel[i] = prog_kernel(program, "add");
        prog_arg(s.kernel[i], 0, sizeof(cl_mem), &s.mem[i % s.buffers]);
        prog_arg(s.kernel[i], 1, sizeof k, &k);
    }
    puts("ready");
    fflush(stdout);
    uint64_t sum = 0;
    do {
        run_all(&p, &s);
        sum = verify_all(&p, &s);
    } while (prog_again());
    for (long i = 0; i < s.kernels; i++)
        OK(clReleaseKernel(s.kernel[i]));
    for (long i = 0; i < s.buffers; i++)
        OK(clReleaseMemObject(s.mem[i]));
    OK(clReleaseProgram(program));
    prog_close(&p);
    free(s.mem);
    free(s.kernel);
    free(s.added);
    free(s.got);
    free(s.want);
    printf("manyobjects checksum %016lx\n", (unsigned long)sum);
    return 0;
}
