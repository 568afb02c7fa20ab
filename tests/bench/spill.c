/**
 * What it costs to have less device memory than a program uses.
 *
 *   spill [--mib N] [--passes N] [--link-mb-s N] [--real]
 *
 * A program makes buffers of 2 * --mib MiB and goes over them in turn, a launch that reads and
 * writes each. Measured in one run: the time of a pass natively, under reseat without a limit, with
 * a quota that holds what the passes use (the other half is spilled once), and with a quota of half
 * of what they use. For the last the bound is the time of plain blocking copies of as many bytes
 * out and in. On an emulated device with a link of --link-mb-s each way unless --real.
 */
#include "bench.h"
#include "prog.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MIB = 1 << 20, BLOCK = 4 * MIB, MAX_PASSES = 64, NUMBER_BYTES = 32 };

static const char source[] = "__kernel void touch(__global uint *a) {\n"
                             "    size_t i = get_global_id(0);\n"
                             "    a[i * 16] += 1;\n"
                             "}\n";

struct work {
    struct prog prog;
    cl_kernel touch;
    cl_mem *mem;
    size_t count;
};

static double pass(const struct work *w, size_t used)
{
    double begin = prog_now();

    for (size_t b = 0; b < used; b++) {
        prog_arg(w->touch, 0, sizeof(cl_mem), &w->mem[b]);
        prog_run(w->prog.queue, w->touch, BLOCK / 64);
    }
    OK(clFinish(w->prog.queue));
    return prog_now() - begin;
}

/* Every byte once out and once in. */
static double copy(const struct work *w, char *host)
{
    double begin = prog_now();

    for (size_t b = 0; b < w->count; b++) {
        OK(clEnqueueReadBuffer(w->prog.queue, w->mem[b], CL_TRUE, 0, BLOCK, host, 0, NULL, NULL));
        OK(clEnqueueWriteBuffer(w->prog.queue, w->mem[b], CL_TRUE, 0, BLOCK, host, 0, NULL, NULL));
    }
    return prog_now() - begin;
}

static void check(const struct work *w, size_t used, int passes)
{
    uint32_t *got = prog_alloc(BLOCK);

    for (size_t b = 0; b < used; b++) {
        prog_read(w->prog.queue, w->mem[b], 0, BLOCK, got);
        for (size_t i = 0; i < BLOCK / sizeof *got; i += 16)
            REQUIRE(got[i] == (uint32_t)passes);
    }
    free(got);
}

/** The program that is measured: says the median time of a pass over the first @used blocks, and of
 *  a copy of all. */
static int work(size_t blocks, size_t used, int passes)
{
    struct work w = {.count = blocks};
    double times[MAX_PASSES];
    char *host = prog_alloc(BLOCK);

    memset(host, 0, BLOCK);
    prog_open(&w.prog);
    w.mem = prog_alloc(blocks * sizeof *w.mem);
    cl_program program = prog_build(&w.prog, source, "");
    w.touch = prog_kernel(program, "touch");
    for (size_t b = 0; b < blocks; b++)
        w.mem[b] =
            prog_buffer(w.prog.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, BLOCK, host);
    (void)pass(&w, used);
    for (int i = 0; i < passes; i++)
        times[i] = pass(&w, used);
    check(&w, used, passes + 1);
    printf("%.9f %.9f\n", bench_median(times, (size_t)passes), copy(&w, host));
    for (size_t b = 0; b < blocks; b++)
        OK(clReleaseMemObject(w.mem[b]));
    RELEASE(w.touch, program);
    prog_close(&w.prog);
    free(w.mem);
    free(host);
    return 0;
}

struct times {
    double pass, copy;
};

/** @quota_mib  0: natively; LONG_MAX: without one. */
static struct times measure(size_t blocks, size_t used, int passes, long quota_mib)
{
    char self[PATH_MAX], numbers[3][NUMBER_BYTES], quota[NUMBER_BYTES];
    char *const child[] = {self,       (char *)"--work",   numbers[0], (char *)"--used",
                           numbers[1], (char *)"--passes", numbers[2], NULL};
    char *argv[16];
    struct times times;
    int out, n = 0;

    ssize_t size = readlink("/proc/self/exe", self, sizeof self - 1);
    self[size > 0 ? size : 0] = '\0';
    snprintf(numbers[0], NUMBER_BYTES, "%zu", blocks);
    snprintf(numbers[1], NUMBER_BYTES, "%zu", used);
    snprintf(numbers[2], NUMBER_BYTES, "%d", passes);
    snprintf(quota, NUMBER_BYTES, "%ldMiB", quota_mib);
    if (quota_mib != 0) {
        argv[n++] = (char *)bench_reseat();
        argv[n++] = (char *)"run";
        if (quota_mib != LONG_MAX) {
            argv[n++] = (char *)"--quota";
            argv[n++] = quota;
        }
        argv[n++] = (char *)"--on-full";
        argv[n++] = (char *)"spill";
        argv[n++] = (char *)"--";
    }
    memcpy(&argv[n], child, sizeof child);
    pid_t pid = bench_start(NULL, NULL, argv, &out);
    char *text = bench_collect(pid, out);
    if (sscanf(text, "%lf %lf", &times.pass, &times.copy) != 2)
        bench_fail("a program that was measured said: %s", text);
    free(text);
    return times;
}

static void row(const char *what, double seconds, double ratio)
{
    printf("%-52s %9.1f ms", what, seconds * 1e3);
    if (ratio > 0)
        printf("   %.3f", ratio);
    putchar('\n');
}

/** The programs that are measured find one emulated device. @path: for mkstemp. */
static void emulate(char *path, const char *config)
{
    int file = mkstemp(path);

    if (file < 0 || write(file, config, strlen(config)) != (ssize_t)strlen(config))
        bench_fail("%s cannot be written", path);
    close(file);
    setenv("OCL_ICD_VENDORS", EMU_VENDORS, 1);
    setenv("EMU_CONFIG", path, 1);
}

int main(int argc, char **argv)
{
    long mib = prog_option(argc, argv, "--mib", 128), blocks = prog_option(argc, argv, "--work", 0);
    int passes = (int)prog_option(argc, argv, "--passes", 5);
    char config[128];

    REQUIRE(mib >= 8 && passes > 0 && passes <= MAX_PASSES);
    if (blocks > 0)
        return work((size_t)blocks, (size_t)prog_option(argc, argv, "--used", blocks), passes);
    snprintf(config, sizeof config, "[emulated] name=emulated link_mb_s=%ld",
             prog_option(argc, argv, "--link-mb-s", 2000));
    bool real = false;
    for (int i = 1; i < argc; i++)
        real = real || strcmp(argv[i], "--real") == 0;
    char path[] = "/tmp/spill-emu-XXXXXX";
    if (!real)
        emulate(path, config);
    size_t half = (size_t)mib * MIB / BLOCK;
    struct times native = measure(2 * half, half, passes, 0);
    struct times all = measure(2 * half, half, passes, LONG_MAX);
    struct times fits = measure(2 * half, half, passes, mib + 16);
    struct times twice = measure(2 * half, 2 * half, passes, mib);
    printf("%ld MiB in blocks of %d MiB, %s\n\n%-52s %12s   ratio\n", 2 * mib, BLOCK / MIB,
           real ? "this machine's device" : config, "", "a pass");
    row("half of them, natively", native.pass, 0);
    row("under reseat, no limit", all.pass, native.pass / all.pass);
    row("a quota that holds them (goal: 0.95)", fits.pass, native.pass / fits.pass);
    row("all of them, plain blocking copies out and in", native.copy, 0);
    row("a quota of half (goal: 0.7)", twice.pass, native.copy / twice.pass);
    if (!real)
        unlink(path);
    return 0;
}
