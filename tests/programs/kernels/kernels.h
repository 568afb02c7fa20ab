/** Programs and kernels as a conformance suite would try them: what each part has in hand. */
#ifndef TESTS_PROGRAMS_KERNELS_H
#define TESTS_PROGRAMS_KERNELS_H

#include "prog.h"

struct bench {
    struct prog *prog;
    struct rng rng;
    uint64_t sum;       /**< Of everything that was read. */
    cl_program program; /**< kernels_source, built with -cl-kernel-arg-info. */
    bool images;
    cl_version version; /**< The device's; as CL_MAKE_VERSION. */
};

extern const char kernels_source[];

/** Read a buffer, compare it with @want and add it to the checksum. */
void kernels_verify(struct bench *b, const char *what, cl_mem mem, const void *want, size_t size);

/* kernels_args.c */
void kernels_values(struct bench *b);
void kernels_null(struct bench *b);
void kernels_changes(struct bench *b);
void kernels_samplers(struct bench *b);
void kernels_info(struct bench *b);
void kernels_refusals(struct bench *b);
void kernels_threads(struct bench *b);
/* kernels_launch.c */
void kernels_ids(struct bench *b);
void kernels_empty(struct bench *b);
void kernels_required(struct bench *b);
void kernels_unsized(struct bench *b);
void kernels_local(struct bench *b);
void kernels_held(struct bench *b);
void kernels_printf(struct bench *b);
/* kernels_build.c */
void kernels_headers(struct bench *b);
void kernels_libraries(struct bench *b);
void kernels_background(struct bench *b);
void kernels_failures(struct bench *b);
void kernels_binaries(struct bench *b);
void kernels_all_at_once(struct bench *b);

#endif
