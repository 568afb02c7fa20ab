/** What the test programs share: set-up, checks, random numbers, checksums. */
#ifndef TESTS_PROGRAMS_PROG_H
#define TESTS_PROGRAMS_PROG_H

#include <CL/cl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** One device with a context and an in-order profiling queue. */
struct prog {
    cl_platform_id platform;
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;
};

/**
 * Open the device that TEST_DEVICE (an index over all devices of all platforms,
 * 0 by default) names. Ends the process when there is none.
 */
void prog_open(struct prog *p);

/** Release what prog_open() made; a final clFinish comes first. */
void prog_close(struct prog *p);

/** Say what went wrong on stderr and end the process at once with status 1. */
void prog_fail(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* What calls.h has ends the process. */
#define CALLS_FAIL(call, error) prog_fail("%s:%d: %s: %d", __FILE__, __LINE__, call, error)
#include "tests/support/calls.h"

/** End the process unless @ok; use REQUIRE(). */
#define REQUIRE(what)                                                                              \
    do {                                                                                           \
        if (!(what))                                                                               \
            prog_fail("%s:%d: not so: %s", __FILE__, __LINE__, #what);                             \
    } while (0)

/** End the process, naming the first byte that differs, unless the bytes agree. */
void prog_same(const char *what, const void *got, const void *want, size_t size);

/** Whether @name is in a list of names that commas part. */
bool prog_listed(const char *list, const char *name);

/** malloc() that ends the process when there is no memory. */
void *prog_alloc(size_t size);

/** Build @source for @p's device; prints the log and ends the process on failure. */
cl_program prog_build(const struct prog *p, const char *source, const char *options);

cl_kernel prog_kernel(cl_program program, const char *name);
cl_mem prog_buffer(cl_context context, cl_mem_flags flags, size_t size, void *host);
cl_command_queue prog_queue(const struct prog *p, cl_command_queue_properties properties);

/** A queue that runs out of order where the device has such, in order elsewhere. */
cl_command_queue prog_queue_out_of_order(const struct prog *p);

/** Blocking read of a whole range. */
void prog_read(cl_command_queue queue, cl_mem buffer, size_t offset, size_t size, void *to);

void prog_arg(cl_kernel kernel, cl_uint index, size_t size, const void *value);

/** One-dimensional launch without events. */
void prog_run(cl_command_queue queue, cl_kernel kernel, size_t items);

/** Random numbers that depend on nothing but the seed. */
struct rng {
    uint64_t state;
};
struct rng rng_seed(uint64_t seed);
uint64_t rng_next(struct rng *r);

/** A number in [0, @n). */
uint32_t rng_below(struct rng *r, uint32_t n);
void rng_fill(struct rng *r, void *to, size_t size);

/** Fold @size bytes into the 64-bit checksum @sum; the order of calls matters. */
void sum_bytes(uint64_t *sum, const void *from, size_t size);
void sum_word(uint64_t *sum, uint64_t word);

/** Monotonic time in seconds. */
double prog_now(void);

/**
 * Whether the work should be repeated: TEST_UNTIL names a file, and it does not
 * exist yet. Without TEST_UNTIL the answer is no. A program asks after each pass
 * over its work, and every pass must give the checksum of the first, so that
 * its output does not depend on how long it was kept busy.
 */
bool prog_again(void);

/** The number after option @name, or @otherwise; ends the process when it is not a number. */
long prog_option(int argc, char **argv, const char *name, long otherwise);

/** The text after option @name, or @otherwise. */
const char *prog_option_text(int argc, char **argv, const char *name, const char *otherwise);

#endif
