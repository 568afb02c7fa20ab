/** What the benchmarks share: starting programs, medians, asking reseat. */
#ifndef TESTS_BENCH_BENCH_H
#define TESTS_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/** The reseat command: $RESEAT, or beside this program, or on the path. Static storage. */
const char *bench_reseat(void);

/**
 * Start @argv (NULL-terminated), under `reseat run` when @name is not NULL, then
 * called @name and on @device unless that is NULL. Standard output goes to a pipe.
 *
 * @ret_out  The pipe's end to read; the caller closes it.
 */
pid_t bench_start(const char *name, const char *device, char *const argv[], int *ret_out);

/** Read @fd to its end into a string that the caller frees; waits for @pid, which must exit 0. */
char *bench_collect(pid_t pid, int fd);

/** Run to the end; the seconds it took. */
double bench_time(const char *name, char *const argv[]);

/** Read from @fd until a line that begins with @text has come; the number behind it, else 0. */
double bench_await_line(int fd, const char *text);

/** Where a test program is: in $PROGRAMS, beside this one, or in the build's folder. Ends the
 * process where it is not. The string lives until the process ends. */
char *bench_program(const char *name);

/** What `reseat move --json` says a move cost. */
struct bench_move {
    double total_s, arrived_s, downtime_s;
    uint64_t bytes;
};

/** Move the program @name to @device; ends the process when that is not done. */
struct bench_move bench_move(const char *name, const char *device);

/** The same, into host memory, and from there to @device. */
struct bench_move bench_suspend(const char *name);
struct bench_move bench_resume(const char *name, const char *device);

/** Make @device ready for the program @name; the seconds that took. Ends the process as above. */
double bench_prewarm(const char *name, const char *device);

/**
 * Names of devices that reseat shows, at most @n; a program started without one runs on the first.
 * Returns how many there are. The strings live until the process ends.
 */
size_t bench_devices(const char **ret_names, size_t n);

double bench_median(double *values, size_t n);

_Noreturn void bench_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
