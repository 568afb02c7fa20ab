/**
 * What moves cost, against plain blocking copies of the same bytes in the same run.
 *
 *   moves [--mib N] [--runs N] [--buffers N] [--kernels N] [--busy PERCENT] [--from DEV] [--to DEV]
 *
 * Prints, for solver's state of --mib, each move's time (also until the program ran there: what
 * follows is the old driver's, that releases), downtime and bytes, also of moves to
 * devices that were made ready before, and
 * the time of copying as many bytes out and in; then the same for very many small
 * objects. With --busy instead for one buffer of --mib, of which a kernel rewrites
 * as many of a hundred chunks all the time, with the bytes copied against it. Needs
 * solver and manyobjects, or busy, beside it or in $PROGRAMS.
 */
#include "bench.h"
#include "prog.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20, CHUNK_MIB = 128, MAX_RUNS = 32, NUMBER_BYTES = 32, MAX_DEVICES = 16 };

struct plan {
    const char *from, *to;
    char until[PATH_MAX];
    int runs;
};

/** Seconds for one blocking read of @mib MiB and one blocking write of it, in buffers of a chunk.
 */
static double plain_copy(const struct prog *p, size_t mib)
{
    size_t n = (mib + CHUNK_MIB - 1) / CHUNK_MIB, size = (size_t)CHUNK_MIB * MIB;
    char *host = prog_alloc(n * size);
    cl_mem *mem = prog_alloc(n * sizeof *mem);

    memset(host, 1, n * size);
    for (size_t i = 0; i < n; i++) {
        mem[i] = prog_buffer(p->context, CL_MEM_READ_WRITE, size, NULL);
        OK(clEnqueueWriteBuffer(p->queue, mem[i], CL_TRUE, 0, size, host, 0, NULL, NULL));
    }
    double begin = prog_now();
    for (size_t i = 0; i < n; i++)
        prog_read(p->queue, mem[i], 0, size, host + i * size);
    for (size_t i = 0; i < n; i++)
        OK(clEnqueueWriteBuffer(p->queue, mem[i], CL_TRUE, 0, size, host + i * size, 0, NULL,
                                NULL));
    double took = prog_now() - begin;
    for (size_t i = 0; i < n; i++)
        OK(clReleaseMemObject(mem[i]));
    free(mem);
    free(host);
    return took * (double)mib / (double)(n * CHUNK_MIB);
}

/** Start @argv, wait for its line @ready, move it to and fro, let it end with its checks. */
static void moved(const struct plan *plan, const char *what, char *const argv[], const char *ready,
                  double copy_s, size_t state_mib)
{
    double downtimes[2 * MAX_RUNS], bytes[2 * MAX_RUNS];
    int out;

    unlink(plan->until);
    pid_t pid = bench_start("moves", plan->from, argv, &out);
    bench_await_line(out, ready);
    for (int i = 0; i < 2 * plan->runs; i++) {
        const char *to = i % 2 ? plan->from : plan->to;
        struct bench_move m = bench_move("moves", to);
        downtimes[i] = m.downtime_s;
        bytes[i] = (double)m.bytes;
        printf("%-26s %-8s %9.3f %9.3f %9.3f %10.1f\n", what, to, m.total_s, m.arrived_s,
               m.downtime_s, (double)m.bytes / MIB);
    }
    /* The same to devices that were made ready, so that only bytes are left to be carried. */
    for (int i = 0; i < 2 * plan->runs; i++) {
        const char *to = i % 2 ? plan->from : plan->to;
        double ready_s = bench_prewarm("moves", to);
        struct bench_move m = bench_move("moves", to);
        printf("%-26s %-8s %9.4f %9.4f %9.4f %10.1f  made ready in %.3f s\n", what, to, m.total_s,
               m.arrived_s, m.downtime_s, (double)m.bytes / MIB, ready_s);
    }
    close(open(plan->until, O_CREAT | O_WRONLY, S_IRUSR | S_IWUSR));
    free(bench_collect(pid, out));
    double median = bench_median(downtimes, (size_t)plan->runs * 2);
    printf("%-26s median downtime %.3f s", what, median);
    if (copy_s > 0)
        printf(", %.2f of a plain copy out and in (%.3f s)", median / copy_s, copy_s);
    if (state_mib > 0)
        printf(", copied %.2f of the state",
               bench_median(bytes, (size_t)plan->runs * 2) / MIB / (double)state_mib);
    printf("; results checked\n");
}

int main(int argc, char **argv)
{
    const char *devices[MAX_DEVICES];
    char mib_text[NUMBER_BYTES], buffers[NUMBER_BYTES], kernels[NUMBER_BYTES];
    long mib = prog_option(argc, argv, "--mib", 1024);
    struct plan plan = {.runs = (int)prog_option(argc, argv, "--runs", 3)};
    struct prog p;

    size_t n = bench_devices(devices, MAX_DEVICES);
    if (n < 2 && !prog_option_text(argc, argv, "--to", NULL))
        bench_fail("two devices are needed to move between");
    if (plan.runs < 1 || plan.runs > MAX_RUNS)
        bench_fail("--runs must be 1 to %d", MAX_RUNS);
    plan.from = prog_option_text(argc, argv, "--from", n ? devices[0] : NULL);
    plan.to = prog_option_text(argc, argv, "--to", n > 1 ? devices[1] : NULL);
    snprintf(plan.until, sizeof plan.until, "%s/reseat-bench-%d", getenv("TMPDIR") ?: "/tmp",
             (int)getpid());
    setenv("TEST_UNTIL", plan.until, 1);
    snprintf(mib_text, sizeof mib_text, "%ld", mib);
    snprintf(buffers, sizeof buffers, "%ld", prog_option(argc, argv, "--buffers", 10000));
    snprintf(kernels, sizeof kernels, "%ld", prog_option(argc, argv, "--kernels", 1000));

    prog_open(&p);
    double copy_s = plain_copy(&p, (size_t)mib);
    prog_close(&p);
    printf("%-26s %-8s %9s %9s %9s %10s\n", "state", "moved to", "total s", "there s", "down s",
           "MiB");
    char what[3 * NUMBER_BYTES];
    const char *percent = prog_option_text(argc, argv, "--busy", NULL);
    if (percent) {
        char *const busy[] = {bench_program("busy"), "--mib",         mib_text,
                              "--percent",           (char *)percent, NULL};
        snprintf(what, sizeof what, "%s MiB, %.8s%% busy", mib_text, percent);
        moved(&plan, what, busy, "ready", copy_s, (size_t)mib);
        unlink(plan.until);
        return 0;
    }
    char *const solver[] = {bench_program("solver"),
                            "--mib",
                            mib_text,
                            "--steps",
                            "4",
                            "--every",
                            "1",
                            "--tiles",
                            "8",
                            NULL};
    snprintf(what, sizeof what, "solver, %s MiB", mib_text);
    moved(&plan, what, solver, "step", copy_s, 0);
    char *const many[] = {
        bench_program("manyobjects"), "--buffers", buffers, "--kernels", kernels, NULL};
    snprintf(what, sizeof what, "%s buffers, %s kernels", buffers, kernels);
    moved(&plan, what, many, "ready", 0, 0);
    unlink(plan.until);
    return 0;
}
