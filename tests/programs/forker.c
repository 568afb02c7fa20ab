/**
 * Forks before and after it uses OpenCL. Children that never call OpenCL exit
 * or exec as they like; a child forked before the first call uses OpenCL itself;
 * the parent goes on undisturbed.
 *
 *   forker [--rounds N]
 */
#include "prog.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 2048, CHILD_STATUS = 7 };

static const char source[] = "__kernel void twice(__global uint *a) {\n"
                             "    a[get_global_id(0)] *= 2u;\n"
                             "}\n";

static uint64_t compute(const struct prog *p, uint64_t seed)
{
    struct rng r = rng_seed(seed);
    uint32_t want[WORDS], got[WORDS];
    uint64_t sum = 0;

    rng_fill(&r, want, sizeof want);
    cl_program program = prog_build(p, source, "");
    cl_kernel kernel = prog_kernel(program, "twice");
    cl_mem mem =
        prog_buffer(p->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof want, want);
    prog_arg(kernel, 0, sizeof mem, &mem);
    prog_run(p->queue, kernel, WORDS);
    prog_read(p->queue, mem, 0, sizeof got, got);
    for (int i = 0; i < WORDS; i++)
        want[i] *= 2;
    prog_same("kernel", got, want, sizeof got);
    sum_bytes(&sum, got, sizeof got);
    RELEASE(mem, kernel, program);
    return sum;
}

static void await_child(pid_t child, int wanted)
{
    int status;

    REQUIRE(child > 0);
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    REQUIRE(WEXITSTATUS(status) == wanted);
}

int main(int argc, char **argv)
{
    long rounds = prog_option(argc, argv, "--rounds", 5);
    struct prog p;
    uint64_t sum = 0;

    pid_t early = fork();
    if (early == 0) {
        prog_open(&p);
        compute(&p, 1);
        prog_close(&p);
        _exit(CHILD_STATUS);
    }
    prog_open(&p);
    sum_word(&sum, compute(&p, 1));
    await_child(early, CHILD_STATUS);
    do {
        for (long i = 0; i < rounds; i++) {
            pid_t quiet = fork();
            if (quiet == 0)
                _exit(CHILD_STATUS);
            pid_t leaving = fork();
            if (leaving == 0)
                exit(CHILD_STATUS); /* with all that the parent has for its end */
            pid_t other = fork();
            if (other == 0) {
                execl("/bin/true", "true", (char *)NULL);
                _exit(EXIT_FAILURE);
            }
            uint64_t one = compute(&p, (uint64_t)i);
            await_child(quiet, CHILD_STATUS);
            await_child(leaving, CHILD_STATUS);
            await_child(other, 0);
            REQUIRE(one == compute(&p, (uint64_t)i));
        }
    } while (prog_again());
    prog_close(&p);
    printf("forker checksum %016lx\n", (unsigned long)sum);
    return 0;
}
