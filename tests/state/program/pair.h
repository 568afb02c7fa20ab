#ifndef RESEAT_TESTS_STATE_PROGRAM_PAIR_H
#define RESEAT_TESTS_STATE_PROGRAM_PAIR_H

#include "state/program/kernel.h"
#include "state/recipe/recipe.h"

/* A context on one of POCL's devices, and a residence on the other as a mover would prepare it. */
struct pair {
    struct context *context;
    struct residence *other; /* at OTHER */
};
#define HOME  0
#define OTHER 1

void pair_init(struct pair *pair);
/* Release whatever the program has handles to, the context last. */
void pair_finish(void);
/* What a mover does at COMMIT, as far as programs and kernels go: OTHER is home from here on. */
void pair_move(struct pair *pair);
struct program *pair_source(struct pair *pair, const char *source);
/* The first @count numbers of a buffer after one work-item of a real kernel, whose first argument
 * the buffer is. */
void pair_run(struct residence *residence, cl_kernel kernel, int *ret_numbers, unsigned count);

#endif
