/**
 * Keeps one page-locked buffer mapped for its whole life, as x264 does: the map
 * is the host memory that all its transfers go through.
 *
 *   longmap [--rounds N] [--seed N]
 */
#include "prog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 16384, BYTES = WORDS * 4, PARTS = 4 };

static const char source[] = "__kernel void triple(__global uint *a) {\n"
                             "    a[get_global_id(0)] = a[get_global_id(0)] * 3u + 1u;\n"
                             "}\n";

static void one_round(const struct prog *p, cl_kernel kernel, cl_mem work, uint32_t *locked,
                      uint32_t *want, struct rng *r)
{
    rng_fill(r, want, BYTES);
    memcpy(locked, want, BYTES);
    OK(clEnqueueWriteBuffer(p->queue, work, CL_FALSE, 0, BYTES, locked, 0, NULL, NULL));
    prog_arg(kernel, 0, sizeof work, &work);
    prog_run(p->queue, kernel, WORDS);
    /* The result goes to the second half of the locked memory, in parts that are waited for once.
     */
    for (size_t i = 0; i < PARTS; i++) {
        size_t at = i * (BYTES / PARTS);
        OK(clEnqueueReadBuffer(p->queue, work, CL_FALSE, at, BYTES / PARTS,
                               (unsigned char *)(locked + WORDS) + at, 0, NULL, NULL));
    }
    OK(clFinish(p->queue));
    for (size_t i = 0; i < WORDS; i++)
        want[i] = want[i] * 3 + 1;
    prog_same("read into the long map", locked + WORDS, want, BYTES);
}

int main(int argc, char **argv)
{
    long rounds = prog_option(argc, argv, "--rounds", 50);
    uint64_t seed = (uint64_t)prog_option(argc, argv, "--seed", 1), first = 0;
    uint32_t *want = prog_alloc(BYTES);
    struct prog p;

    prog_open(&p);
    cl_program program = prog_build(&p, source, "");
    cl_kernel kernel = prog_kernel(program, "triple");
    cl_mem work = prog_buffer(p.context, CL_MEM_READ_WRITE, BYTES, NULL);
    cl_mem page_locked =
        prog_buffer(p.context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, 2 * BYTES, NULL);
    uint32_t *locked = MADE(clEnqueueMapBuffer, p.queue, page_locked, CL_TRUE,
                            CL_MAP_READ | CL_MAP_WRITE, 0, 2 * BYTES, 0, NULL, NULL);
    do {
        struct rng r = rng_seed(seed);
        uint64_t sum = 0;
        for (long i = 0; i < rounds; i++) {
            one_round(&p, kernel, work, locked, want, &r);
            sum_bytes(&sum, locked + WORDS, BYTES);
        }
        REQUIRE(first == 0 || sum == first);
        first = sum;
    } while (prog_again());
    OK(clEnqueueUnmapMemObject(p.queue, page_locked, locked, 0, NULL, NULL));
    OK(clFinish(p.queue));
    RELEASE(page_locked, work, kernel, program);
    prog_close(&p);
    free(want);
    printf("longmap checksum %016lx\n", (unsigned long)first);
    return 0;
}
