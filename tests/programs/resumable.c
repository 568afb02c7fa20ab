/**
 * A solver that a new process can go on with: what a program does with reseat.h to be restored from
 * an image.
 *
 *   resumable [--size N] [--steps N] [--seed N] [--pause MS] [--log FILE]
 *
 * Two grids take turns, each step makes one from the other, and every few steps a row is read and
 * folded into a checksum, which with the number of the step is the progress. Under reseat and from
 * however many images it prints what it prints natively. FILE gets a line: the step it began at.
 * With --pause it sleeps for so long after each row, or until the file that TEST_UNTIL names
 * exists.
 */
#include "prog.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "policy/reseat.h"

enum { READ_EVERY = 8 };

static const char source[] =
    "__kernel void relax(__global const uint *from, __global uint *to, uint n) {\n"
    "    uint x = get_global_id(0), y = get_global_id(1);\n"
    "    uint left = from[y * n + (x + n - 1) % n], right = from[y * n + (x + 1) % n];\n"
    "    uint up = from[(y + n - 1) % n * n + x], down = from[(y + 1) % n * n + x];\n"
    "    uint here = from[y * n + x] * 2654435761u;\n"
    "    to[y * n + x] = here + (left ^ right >> 3) * 5u + (up ^ down << 7);\n"
    "}\n";

/* What an image has of the program besides its grids. */
struct progress {
    cl_uint n, steps;
    uint64_t seed, done, sum;
};

struct solver {
    struct prog prog;
    struct progress progress;
    cl_kernel kernel;
    cl_mem grids[2];
    uint32_t *row;
    unsigned pause_ms;
    bool told;            /* It is told by TEST_UNTIL when to pause no more. */
    pthread_mutex_t lock; /* a step and what it does to the progress, or a look at that */
};

/* Between two steps: then the grids are those of `progress`, and the lock keeps it so. */
static int on_save(void *data, const struct reseat_change *change)
{
    struct solver *s = data;
    (void)change;
    pthread_mutex_lock(&s->lock);
    int error = reseat_save(&s->progress, sizeof s->progress);
    pthread_mutex_unlock(&s->lock);
    return error;
}

static void step(struct solver *s)
{
    struct progress *p = &s->progress;
    const size_t items[2] = {p->n, p->n};
    cl_mem from = s->grids[p->done % 2], to = s->grids[(p->done + 1) % 2];
    pthread_mutex_lock(&s->lock);
    prog_arg(s->kernel, 0, sizeof from, &from);
    prog_arg(s->kernel, 1, sizeof to, &to);
    OK(clEnqueueNDRangeKernel(s->prog.queue, s->kernel, 2, NULL, items, NULL, 0, NULL, NULL));
    if (++p->done % READ_EVERY == 0) {
        size_t bytes = p->n * sizeof *s->row;
        prog_read(s->prog.queue, to, p->done / READ_EVERY % p->n * bytes, bytes, s->row);
        sum_bytes(&p->sum, s->row, bytes);
    }
    bool pauses = p->done % READ_EVERY == 0 && s->pause_ms && (!s->told || prog_again());
    pthread_mutex_unlock(&s->lock);
    if (pauses)
        usleep(s->pause_ms * 1000);
}

/* The progress of the process before, if there was one. */
static bool restore(struct solver *s)
{
    struct reseat_restored restored = {.size = sizeof restored};
    int error = reseat_restored(&restored);
    if (error == RESEAT_NO_IMAGE || error == RESEAT_NOT_UNDER)
        return false;
    if (error != RESEAT_OK)
        prog_fail("reseat_restored: %s: %s", reseat_error_text(error), restored.problem);
    struct progress wanted = s->progress;
    if (restored.count != sizeof s->progress)
        prog_fail("the image is of another version");
    memcpy(&s->progress, restored.bytes, sizeof s->progress);
    if (s->progress.n != wanted.n || s->progress.steps != wanted.steps ||
        s->progress.seed != wanted.seed)
        prog_fail("the image is of another run");
    return true;
}

static void make(struct solver *s, bool restored)
{
    size_t bytes = (size_t)s->progress.n * s->progress.n * sizeof(uint32_t);
    uint32_t *first = prog_alloc(bytes);
    struct rng rng = rng_seed(s->progress.seed);
    rng_fill(&rng, first, bytes);
    for (unsigned i = 0; i < 2; i++) {
        const char *name = i == 0 ? "even" : "odd";
        int filled = 0;
        s->grids[i] = prog_buffer(s->prog.context, CL_MEM_READ_WRITE, bytes, NULL);
        int error = reseat_name(s->grids[i], name, &filled);
        if (error != RESEAT_OK && error != RESEAT_NOT_UNDER)
            prog_fail("reseat_name: %s: %s", name, reseat_error_text(error));
        if (restored && !filled)
            prog_fail("the grid %s was not restored", name);
    }
    if (!restored)
        OK(clEnqueueWriteBuffer(s->prog.queue, s->grids[0], CL_TRUE, 0, bytes, first, 0, NULL,
                                NULL));
    free(first);
}

static void take_part(struct solver *s)
{
    struct reseat_program program = {
        .size = sizeof program, .data = s, .save_ms = 60000, .save = on_save};
    int error = reseat_register(&program);
    if (error != RESEAT_OK && error != RESEAT_NOT_UNDER)
        prog_fail("reseat_register: %s", reseat_error_text(error));
}

int main(int argc, char **argv)
{
    static struct solver s = {.lock = PTHREAD_MUTEX_INITIALIZER};
    const char *log = prog_option_text(argc, argv, "--log", NULL);
    s.progress.n = (cl_uint)prog_option(argc, argv, "--size", 64);
    s.progress.steps = (cl_uint)prog_option(argc, argv, "--steps", 500);
    s.pause_ms = (unsigned)prog_option(argc, argv, "--pause", 0);
    s.progress.seed = (uint64_t)prog_option(argc, argv, "--seed", 1);
    s.told = getenv("TEST_UNTIL") != NULL;

    prog_open(&s.prog);
    bool restored = restore(&s);
    size_t bytes = (size_t)s.progress.n * s.progress.n * sizeof(uint32_t);
    s.row = prog_alloc(s.progress.n * sizeof *s.row);
    make(&s, restored);
    cl_program built = prog_build(&s.prog, source, NULL);
    s.kernel = prog_kernel(built, "relax");
    prog_arg(s.kernel, 2, sizeof s.progress.n, &s.progress.n);
    take_part(&s);
    FILE *file = log ? fopen(log, "a") : NULL;
    if (file) {
        fprintf(file, "%llu\n", (unsigned long long)s.progress.done);
        fclose(file);
    }

    while (s.progress.done < s.progress.steps)
        step(&s);
    uint32_t *last = prog_alloc(bytes);
    prog_read(s.prog.queue, s.grids[s.progress.done % 2], 0, bytes, last);
    sum_bytes(&s.progress.sum, last, bytes);
    printf("resumable %016llx\n", (unsigned long long)s.progress.sum);

    int error = reseat_unregister();
    if (error != RESEAT_OK && error != RESEAT_NOT_UNDER)
        prog_fail("reseat_unregister: %s", reseat_error_text(error));
    free(last);
    free(s.row);
    for (unsigned i = 0; i < 2; i++)
        OK(clReleaseMemObject(s.grids[i]));
    RELEASE(s.kernel, built);
    prog_close(&s.prog);
    return 0;
}
