/**
 * The eight kernels of the Spector benchmark, written anew: signal (fir, dct), image (sobel,
 * normals), algebra (spmv, matmul), counting (histogram) and graph (bfs).
 *
 *   spector [--kernel NAME|all] [--size small|medium|large] [--work N] [--repeat N] [--seed N]
 *           [--check] [--offer] [--times FILE]
 *
 * --work has each item do its work N times over, so that a launch takes as long as wanted. Every
 * pass has to give the bytes of the first. --check compares with the host's own results: all of
 * them as long as that takes no more than a second or so, beyond that a sample by the seed. --offer
 * offers another implementation of dct, with eight times fewer work-items in a group (reseat.h).
 *
 * Arithmetic is exact: integers, and in matmul floats that are small integers, whose sums are exact
 * in any order and contracted or not. So every device gives the same bytes.
 *
 * FILE gets a line with the device's name, and one for each pass: the kernel, and when it began and
 * ended by the monotonic clock, in seconds. What is known of a line is there at once.
 */
#include "spector.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct spector_ops *const all[] = {
    &spector_fir,  &spector_dct,    &spector_sobel,     &spector_normals,
    &spector_spmv, &spector_matmul, &spector_histogram, &spector_bfs,
};
enum { KERNELS = sizeof all / sizeof *all, LEAST_CHECKED = 8, MAX_UNIT_WORDS = 1024 };

static const uint64_t host_steps = UINT64_C(1) << 29;

void spector_buffer(struct spector *s, size_t index, size_t size, void *input)
{
    REQUIRE(index < MAX_BUFFERS && !s->buffers[index]);
    s->buffers[index] = prog_buffer(
        s->prog->context, CL_MEM_READ_WRITE | (input ? CL_MEM_COPY_HOST_PTR : 0), size, input);
    s->inputs[index] = input;
}

void spector_result(struct spector *s, size_t result, size_t index, struct result r)
{
    REQUIRE(r.unit_words <= MAX_UNIT_WORDS);
    spector_buffer(s, index, r.units * r.unit_words * sizeof(uint32_t), NULL);
    r.mem = s->buffers[index];
    s->results[result] = r;
}

void spector_args(struct spector *s, size_t kernel, const int *buffers, size_t n_buffers,
                  const cl_uint *numbers, size_t n_numbers)
{
    cl_uint at = 0;

    for (size_t i = 0; i < n_buffers; i++)
        prog_arg(s->kernels[kernel], at++, sizeof(cl_mem), &s->buffers[buffers[i]]);
    for (size_t i = 0; i < n_numbers; i++)
        prog_arg(s->kernels[kernel], at++, sizeof *numbers, &numbers[i]);
}

void spector_offer(struct spector *s, const struct reseat_implementation *implementation)
{
    int error = reseat_offer(s->kernels[0], s->kernels[1], implementation);

    if (error != RESEAT_OK && error != RESEAT_NOT_UNDER)
        prog_fail("%s: no other implementation: %s", s->ops->name, reseat_error_text(error));
}

void spector_launch(struct spector *s, size_t kernel, size_t x, size_t y, size_t group,
                    size_t group_y)
{
    const size_t global[2] = {x, y}, local[2] = {group, group_y};

    OK(clEnqueueNDRangeKernel(s->prog->queue, s->kernels[kernel], y > 1 ? 2 : 1, NULL, global,
                              local, 0, NULL, NULL));
}

void spector_fill(struct spector *s, size_t index, cl_uint word, size_t size)
{
    OK(clEnqueueFillBuffer(s->prog->queue, s->buffers[index], &word, sizeof word, 0, size, 0, NULL,
                           NULL));
}

static void make(struct spector *s)
{
    cl_program program = prog_build(s->prog, s->ops->source, "");

    for (int i = 0; i < MAX_KERNELS && s->ops->kernels[i]; i++)
        s->kernels[i] = prog_kernel(program, s->ops->kernels[i]);
    OK(clReleaseProgram(program));
    s->ops->make(s);
}

static void release(struct spector *s)
{
    for (int i = 0; i < MAX_KERNELS && s->kernels[i]; i++)
        OK(clReleaseKernel(s->kernels[i]));
    for (int i = 0; i < MAX_BUFFERS; i++) {
        if (s->buffers[i])
            OK(clReleaseMemObject(s->buffers[i]));
        free(s->inputs[i]);
    }
}

static void check_unit(const struct spector *s, const struct result *r, const uint32_t *got,
                       size_t index)
{
    char what[64];
    uint32_t want[MAX_UNIT_WORDS];

    snprintf(what, sizeof what, "%s, unit %zu", s->ops->name, index);
    r->unit(s, index, want);
    prog_same(what, got + index * r->unit_words, want, r->unit_words * sizeof *want);
}

static void check(struct spector *s, const struct result *r, const uint32_t *got)
{
    uint64_t n = host_steps / r->cost;
    size_t checked = n < LEAST_CHECKED ? LEAST_CHECKED : n < r->units ? (size_t)n : r->units;

    checked = checked < r->units ? checked : r->units;
    for (size_t i = 0; i < checked; i++)
        check_unit(s, r, got, checked == r->units ? i : rng_below(&s->rng, (uint32_t)r->units));
    printf("%s: %zu of %zu results checked\n", s->ops->name, checked, r->units);
}

/** Read the results of a pass: the first's are kept as a sum, and checked. */
static void look(struct spector *s, bool checks)
{
    uint64_t sum = 0;

    if (checks && !s->again && s->ops->answer)
        s->ops->answer(s);
    for (int i = 0; i < MAX_RESULTS && s->results[i].mem; i++) {
        const struct result *r = &s->results[i];
        size_t size = r->units * r->unit_words * sizeof(uint32_t);
        uint32_t *got = prog_alloc(size);
        prog_read(s->prog->queue, r->mem, 0, size, got);
        sum_bytes(&sum, got, size);
        if (checks && !s->again)
            check(s, r, got);
        free(got);
    }
    if (s->again && s->sum != sum)
        prog_fail("%s: a later pass gave other bytes than the first", s->ops->name);
    s->sum = sum;
    s->again = true;
}

static void pass(struct spector *s, FILE *times)
{
    OK(clFinish(s->prog->queue));
    if (times) {
        fprintf(times, "%s %.9f", s->ops->name, prog_now());
        fflush(times);
    }
    s->ops->pass(s);
    OK(clFinish(s->prog->queue));
    if (times) {
        fprintf(times, " %.9f\n", prog_now());
        fflush(times);
    }
}

static FILE *times_open(const char *path, cl_device_id device)
{
    FILE *times = fopen(path, "w");
    char name[1024] = "";

    if (!times)
        prog_fail("cannot write %s", path);
    OK(clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name, name, NULL));
    fprintf(times, "%s\n", name);
    fflush(times);
    return times;
}

static enum spector_size size_named(const char *name)
{
    static const char *const names[SPECTOR_SIZES] = {"small", "medium", "large"};

    for (int i = 0; i < SPECTOR_SIZES; i++)
        if (strcmp(name, names[i]) == 0)
            return (enum spector_size)i;
    prog_fail("--size: not small, medium or large: %s", name);
}

int main(int argc, char **argv)
{
    const char *only = prog_option_text(argc, argv, "--kernel", "all");
    const char *path = prog_option_text(argc, argv, "--times", NULL);
    enum spector_size size = size_named(prog_option_text(argc, argv, "--size", "small"));
    uint64_t seed = (uint64_t)prog_option(argc, argv, "--seed", 1);
    long repeat = prog_option(argc, argv, "--repeat", 1);
    long work = prog_option(argc, argv, "--work", 0);
    struct spector chosen[KERNELS];
    struct prog prog;
    size_t n = 0;
    bool checks = false, offers = false;

    for (int i = 1; i < argc; i++) {
        checks = checks || strcmp(argv[i], "--check") == 0;
        offers = offers || strcmp(argv[i], "--offer") == 0;
    }
    REQUIRE(repeat >= 1 && work >= 0 && work <= INT32_MAX);
    prog_open(&prog);
    FILE *times = path ? times_open(path, prog.device) : NULL;
    for (size_t i = 0; i < KERNELS; i++) {
        if (strcmp(only, "all") != 0 && strcmp(only, all[i]->name) != 0)
            continue;
        struct spector *s = &chosen[n++];
        *s = (struct spector){.ops = all[i], .prog = &prog, .rng = rng_seed(seed + i)};
        s->n = all[i]->n[size];
        s->work = work ? (cl_uint)work : all[i]->work[size];
        make(s);
        if (offers && s->ops->offer)
            s->ops->offer(s);
    }
    if (n == 0)
        prog_fail("--kernel: no such kernel: %s", only);
    do {
        for (size_t i = 0; i < n; i++) {
            for (long k = 0; k < repeat; k++) {
                pass(&chosen[i], times);
                look(&chosen[i], checks);
            }
        }
    } while (prog_again());
    for (size_t i = 0; i < n; i++) {
        printf("%s checksum %016llx\n", chosen[i].ops->name, (unsigned long long)chosen[i].sum);
        release(&chosen[i]);
    }
    prog_close(&prog);
    if (times)
        fclose(times);
    return 0;
}
