/** The parts of the stress program: a worker for each thread, a table of features. */
#ifndef TESTS_PROGRAMS_STRESS_H
#define TESTS_PROGRAMS_STRESS_H

#include "prog.h"

/** What one thread owns. Workers share the context and nothing else. */
struct worker {
    const struct prog *prog;
    unsigned id;
    unsigned elements; /* 32-bit words in a typical buffer, a multiple of 64 */
    struct rng rng;    /* seeded anew for every round and feature */
    uint64_t sum;      /* everything read back in this pass */

    cl_command_queue queue; /* in order, with profiling */
    cl_command_queue other; /* out of order where the device has such */
    cl_program program;
    cl_kernel scramble;

    cl_mem held; /* mapped for reading from one call of the feature to a later one, or NULL */
    const unsigned char *held_at;
    unsigned char *held_want;
    cl_ulong last_times[4]; /* queued, submit, start and end of the newest seen on queue */
};

struct feature {
    const char *name;
    void (*round)(struct worker *w);
};

/** Ends with an entry whose name is NULL. */
extern const struct feature stress_features[];

/** The source of the kernels below. */
extern const char stress_source[];

/**
 * What kernel scramble computes: out[i] = rotate(in[i] * 2654435761 + key, i % 31 + 1) ^ i.
 * @in and @out may be the same.
 */
void stress_scramble(const uint32_t *in, uint32_t *out, size_t n, uint32_t key);

/** Set the arguments of the worker's scramble kernel and enqueue it over @n words; waits for
 * @n_waits, gives @ret_event if asked. */
void stress_enqueue(struct worker *w, cl_command_queue queue, cl_mem in, cl_mem out, size_t n,
                    uint32_t key, cl_uint n_waits, const cl_event *waits, cl_event *ret_event);

/** A buffer with random content, of which the host keeps @ret_copy (to be freed by the caller). */
cl_mem stress_random_buffer(struct worker *w, cl_mem_flags flags, size_t words,
                            uint32_t **ret_copy);

/** Read @mem back, compare it with @want and fold it into the worker's checksum. */
void stress_verify(struct worker *w, const char *what, cl_mem mem, const void *want, size_t size);

void stress_kernels(struct worker *w);
void stress_structs(struct worker *w);
void stress_programs(struct worker *w);
void stress_link(struct worker *w);
void stress_binaries(struct worker *w);
void stress_clone(struct worker *w);
void stress_copies(struct worker *w);
void stress_rects(struct worker *w);
void stress_subbuffers(struct worker *w);
void stress_maps(struct worker *w);
void stress_heldmap(struct worker *w);
void stress_hostptr(struct worker *w);
void stress_images(struct worker *w);
void stress_samplers(struct worker *w);
void stress_bufferimages(struct worker *w);
void stress_userevents(struct worker *w);
void stress_waits(struct worker *w);
void stress_callbacks(struct worker *w);
void stress_profiling(struct worker *w);
void stress_inflight(struct worker *w);
void stress_queries(struct worker *w);

#endif
