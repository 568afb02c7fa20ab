/**
 * Wall-clock time of a whole program natively and under reseat, alternately.
 *
 *   programs [--runs N] -- PROGRAM [ARG...]
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 5, MAX_RUNS = 64 };

int main(int argc, char **argv)
{
    double native[MAX_RUNS], under[MAX_RUNS], ratio[MAX_RUNS];
    size_t runs = RUNS;
    int i = 1;

    if (i + 1 < argc && strcmp(argv[i], "--runs") == 0) {
        runs = strtoul(argv[i + 1], NULL, 10);
        i += 2;
    }
    if (i < argc && strcmp(argv[i], "--") == 0)
        i++;
    if (i >= argc || runs < 1 || runs > MAX_RUNS) {
        fprintf(stderr, "usage: programs [--runs 1..%d] -- PROGRAM [ARG...]\n", MAX_RUNS);
        return 2;
    }
    /* The first of each warms the caches of the drivers and of the file system. */
    bench_time(NULL, argv + i);
    bench_time("programs", argv + i);
    for (size_t run = 0; run < runs; run++) {
        native[run] = bench_time(NULL, argv + i);
        under[run] = bench_time("programs", argv + i);
        ratio[run] = under[run] / native[run];
    }
    /* Sorted by it: the first is the least, the last the most. */
    bench_median(ratio, runs);
    double a = bench_median(native, runs), b = bench_median(under, runs);
    printf("%-34s %10s %10s %7s %14s\n", "program", "native s", "reseat s", "ratio",
           "ratio of pairs");
    printf("%-34s %10.3f %10.3f %7.3f %7.3f-%.3f\n", argv[i], a, b, b / a, ratio[0],
           ratio[runs - 1]);
    return 0;
}
