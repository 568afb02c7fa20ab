/** The parts of the memory program: what a conformance suite asks of memory objects, at random. */
#ifndef TESTS_PROGRAMS_MEMORY_H
#define TESTS_PROGRAMS_MEMORY_H

#include "prog.h"

struct memory_run {
    struct prog prog;
    cl_command_queue other; /* a second queue of the same device */
    cl_program program;
    struct rng rng; /* seeded anew for each part of a round */
    uint64_t sum;   /* of what was read back */
    bool no_views;  /* Mesa 22.3 transfers a quarter of the pixels of an image over a buffer */
};

/** The source of every kernel. */
extern const char memory_source[];

/** Enqueue @kernel in groups of one item: POCL compiles a kernel again for each size of a group. */
void memory_launch(cl_command_queue queue, cl_kernel kernel, const size_t items[3]);

/** Random commands on buffers, parts of them, images over them, and maps of all of these. */
void memory_buffers(struct memory_run *run);
/** Every type of image in every format that OpenCL requires, and in others that there are. */
void memory_images(struct memory_run *run);
/** How objects end: callbacks, references, the program's own memory. */
void memory_ends(struct memory_run *run);

#endif
