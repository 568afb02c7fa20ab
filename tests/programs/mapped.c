/**
 * Maps large buffers, plain ones and such with CL_MEM_ALLOC_HOST_PTR, again and again, over several
 * commands, and forks meanwhile. Children see what is mapped as it was when they were forked.
 *
 *   mapped [--rounds N] [--shared 1] [--pause MS]
 *
 * It pauses while something is mapped.
 * With --shared it cannot touch the mapped memory itself while it is mapped and unmapped: only a
 * driver of another process, or a device, may copy there.
 */
#include "prog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 1 << 20, BYTES = WORDS * 4, BUFFERS = 2, CHILD_STATUS = 7 };

static const char source[] = "__kernel void advance(__global uint *a, uint k) {\n"
                             "    a[get_global_id(0)] = a[get_global_id(0)] * 5u + k;\n"
                             "}\n";

static bool shared;
static useconds_t pause_us;
static struct prog prog;
static cl_kernel kernel;

static void touchable(void *at, bool may)
{
    if (at && shared)
        REQUIRE(mprotect(at, BYTES, may ? PROT_READ | PROT_WRITE : PROT_NONE) == 0);
}

/* @before: where it was mapped last, or NULL. */
static uint32_t *map(cl_mem buffer, cl_map_flags flags, uint32_t *before)
{
    cl_int error;
    touchable(before, false);
    uint32_t *at =
        clEnqueueMapBuffer(prog.queue, buffer, CL_TRUE, flags, 0, BYTES, 0, NULL, NULL, &error);
    touchable(before, true);
    OK(error);
    REQUIRE(!before || !shared || at == before);
    return at;
}

static void unmap(cl_mem buffer, uint32_t *at)
{
    touchable(at, false);
    OK(clEnqueueUnmapMemObject(prog.queue, buffer, at, 0, NULL, NULL));
    OK(clFinish(prog.queue));
    touchable(at, true);
}

/* A child looks at @at after its parent has written there. */
static void fork_over(uint32_t *at, const uint32_t *want)
{
    int go[2], status;
    char word;
    REQUIRE(pipe(go) == 0);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        bool good = read(go[0], &word, 1) == 1 && memcmp(at, want, BYTES) == 0;
        memset(at, 0x55, BYTES);
        _exit(good ? CHILD_STATUS : EXIT_FAILURE);
    }
    for (size_t i = 0; i < WORDS; i++)
        at[i] ^= 0x10001u;
    REQUIRE(write(go[1], "", 1) == 1);
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == CHILD_STATUS);
    close(go[0]);
    close(go[1]);
}

static void compute(cl_mem buffer, uint32_t *want, uint32_t k)
{
    ARGS(kernel, buffer, k);
    prog_run(prog.queue, kernel, WORDS);
    for (size_t i = 0; i < WORDS; i++)
        want[i] = want[i] * 5 + k;
}

static void one_round(cl_mem buffer, cl_mem other, uint32_t **at, uint32_t *want, uint32_t *others,
                      uint32_t round)
{
    compute(buffer, want, round);
    *at = map(buffer, CL_MAP_READ | CL_MAP_WRITE, *at);
    prog_same("map", *at, want, BYTES);
    compute(other, others, round + 1); /* The pointer is valid over that, and over what comes. */
    OK(clFinish(prog.queue));
    usleep(pause_us);
    if (round % 4 == 1) {
        fork_over(*at, want);
        for (size_t i = 0; i < WORDS; i++)
            want[i] ^= 0x10001u;
    }
    for (size_t i = 0; i < WORDS; i += 3)
        want[i] = (*at)[i] += round;
    prog_same("what is mapped", *at, want, BYTES);
    unmap(buffer, *at);
    compute(buffer, want, round);
    *at = map(buffer, CL_MAP_READ, *at);
    prog_same("map to read", *at, want, BYTES);
    unmap(buffer, *at);
}

int main(int argc, char **argv)
{
    long rounds = prog_option(argc, argv, "--rounds", 6);
    shared = prog_option(argc, argv, "--shared", 0) != 0;
    pause_us = (useconds_t)prog_option(argc, argv, "--pause", 0) * 1000;
    uint32_t *want[BUFFERS], *at[BUFFERS] = {NULL};
    uint64_t first = 0;
    cl_mem buffers[BUFFERS];

    prog_open(&prog);
    cl_program program = prog_build(&prog, source, "");
    kernel = prog_kernel(program, "advance");
    for (int i = 0; i < BUFFERS; i++) {
        want[i] = prog_alloc(BYTES);
        buffers[i] = prog_buffer(prog.context, i ? CL_MEM_ALLOC_HOST_PTR : 0, BYTES, NULL);
    }
    do {
        struct rng r = rng_seed(5);
        uint64_t sum = 0;
        for (int i = 0; i < BUFFERS; i++) {
            rng_fill(&r, want[i], BYTES);
            OK(clEnqueueWriteBuffer(prog.queue, buffers[i], CL_TRUE, 0, BYTES, want[i], 0, NULL,
                                    NULL));
        }
        for (long k = 0; k < rounds; k++)
            for (int i = 0; i < BUFFERS; i++)
                one_round(buffers[i], buffers[!i], &at[i], want[i], want[!i], (uint32_t)(k + i));
        for (int i = 0; i < BUFFERS; i++)
            sum_bytes(&sum, want[i], BYTES);
        REQUIRE(first == 0 || sum == first);
        first = sum;
    } while (prog_again());
    for (int i = 0; i < BUFFERS; i++) {
        OK(clReleaseMemObject(buffers[i]));
        free(want[i]);
    }
    RELEASE(kernel, program);
    prog_close(&prog);
    printf("mapped checksum %016lx\n", (unsigned long)first);
    return 0;
}
