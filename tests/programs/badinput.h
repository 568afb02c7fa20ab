/** Bad handles and sizes at every entry point, and the errors that the specification names. */
#ifndef TESTS_PROGRAMS_BADINPUT_H
#define TESTS_PROGRAMS_BADINPUT_H

#include "prog.h"

/** How a handle is bad. */
enum how {
    HOW_NULL,
    HOW_FOREIGN,  /* readable memory that is no object */
    HOW_UNMAPPED, /* an address where nothing is */
    HOW_ODD,      /* inside a live object */
    HOW_FREED,    /* an object of the right type, released */
    HOW_OTHER,    /* a live object of another type */
    HOW_COUNT,
};

extern const char *const how_names[HOW_COUNT];

/** One object of every type. */
struct objects {
    cl_context context;
    cl_command_queue queue;
    cl_mem mem, image;
    cl_sampler sampler;
    cl_program program, compiled; /* the second compiled only: no kernels, not linked */
    cl_kernel kernel;
    cl_event event;
};

struct bad {
    struct prog prog;
    struct objects good, freed;
    enum how how;
    cl_int err; /* where creating calls put their error */
    unsigned checks, wrong;
};

/** Count a check; say so when @got is not @want. */
void bad_expect(struct bad *b, cl_int got, cl_int want, const char *call);
#define EXPECT(b, want, call) bad_expect(b, call, want, #call)

/** The same for a call that returns an object and sets b->err. */
void bad_expect_none(struct bad *b, const void *got, cl_int want, const char *call);
#define EXPECT_NONE(b, want, call) bad_expect_none(b, (const void *)(call), want, #call)

/** A handle that is bad in the way of b->how; @good, @freed and @other have it as material. */
void *bad_handle(const struct bad *b, void *good, void *freed, void *other);

void bad_platforms(struct bad *b);
void bad_devices(struct bad *b);
void bad_contexts(struct bad *b);
void bad_queues(struct bad *b);
void bad_mems(struct bad *b);
void bad_samplers(struct bad *b);
void bad_programs(struct bad *b);
void bad_kernels(struct bad *b);
void bad_events(struct bad *b);

/** Every enqueue with a bad queue, bad memory and bad wait lists. */
void bad_commands_queue(struct bad *b);
void bad_commands_mem(struct bad *b);
void bad_commands_wait(struct bad *b);

/** Wrong sizes, flags, names and NULL pointers on good handles; done once. */
void bad_sizes_queries(struct bad *b);
void bad_sizes_objects(struct bad *b);
void bad_sizes_programs(struct bad *b);
void bad_sizes_commands(struct bad *b);

#endif
