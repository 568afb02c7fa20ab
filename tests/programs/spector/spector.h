/** The eight kernels of spector, and what they share: buffers, launches, and checks by units. */
#ifndef TESTS_PROGRAMS_SPECTOR_H
#define TESTS_PROGRAMS_SPECTOR_H

#include "policy/reseat.h"
#include "prog.h"

enum spector_size { SMALL, MEDIUM, LARGE, SPECTOR_SIZES };
enum { MAX_BUFFERS = 6, MAX_RESULTS = 2, MAX_KERNELS = 2 };

struct spector;

/**
 * A buffer that is checked. It is made of units, words that are computed together: a pixel, a
 * block, a row. A large one is checked in a sample of them.
 */
struct result {
    cl_mem mem;
    size_t units, unit_words;
    uint64_t cost; /* about how many steps one unit takes on the host */
    void (*unit)(const struct spector *s, size_t index, uint32_t *ret_words);
};

/** What a kernel is: its source, how large it is, how it runs. */
struct spector_ops {
    const char *name, *source;
    const char *kernels[MAX_KERNELS]; /* names in @source; the second may be NULL */
    cl_uint n[SPECTOR_SIZES];         /* items, or the side of what is square: a power of two */
    cl_uint work[SPECTOR_SIZES];      /* rounds of each item, unless --work says */

    /** Make the input, the buffers and the results. */
    void (*make)(struct spector *s);

    /** Offer the second kernel as another implementation of the first; may be NULL. */
    void (*offer)(struct spector *s);

    /** Enqueue everything once; what a pass needs to find as it was is restored by it. */
    void (*pass)(struct spector *s);

    /** Work out on the host what units are compared with, before the first is; may be NULL. */
    void (*answer)(struct spector *s);
};

/** One kernel at one size. */
struct spector {
    const struct spector_ops *ops;
    const struct prog *prog;
    struct rng rng;
    cl_uint n, work;
    cl_kernel kernels[MAX_KERNELS];
    cl_mem buffers[MAX_BUFFERS];
    void *inputs[MAX_BUFFERS]; /* what the host put there, by the same index; NULL for others */
    struct result results[MAX_RESULTS];
    uint64_t sum; /* of the results of the first pass */
    bool again;   /* there was one */
};

extern const struct spector_ops spector_fir, spector_dct, spector_sobel, spector_normals;
extern const struct spector_ops spector_spmv, spector_matmul, spector_histogram, spector_bfs;

/**
 * A buffer of @size bytes at @index. With @input, which becomes @s's and is freed with it, the
 * buffer begins with these bytes, and the host keeps them to compute with.
 */
void spector_buffer(struct spector *s, size_t index, size_t size, void *input);

/** Have the buffer at @index checked; makes it. */
void spector_result(struct spector *s, size_t result, size_t index, struct result r);

/** Arguments of a kernel from the first: buffers by index, then numbers. */
void spector_args(struct spector *s, size_t kernel, const int *buffers, size_t n_buffers,
                  const cl_uint *numbers, size_t n_numbers);

/** Offer the second kernel as another implementation of the first, where the program runs under
 *  reseat. */
void spector_offer(struct spector *s, const struct reseat_implementation *implementation);

/** Enqueue a kernel over @x by @y items in groups of @group by @group_y. */
void spector_launch(struct spector *s, size_t kernel, size_t x, size_t y, size_t group,
                    size_t group_y);

/** Fill a buffer with one word. */
void spector_fill(struct spector *s, size_t index, cl_uint word, size_t size);

#endif
