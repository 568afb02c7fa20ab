#ifndef RESEAT_TESTS_STATE_MOVE_TEST_MOVES_STATE_H
#define RESEAT_TESTS_STATE_MOVE_TEST_MOVES_STATE_H

#include "tests/support/engine_rig.h"

/*
 * A program with something of everything that a move carries, and a model of it in host memory:
 * buffers of every kind, a sub-buffer, images with storage of their own and over a buffer, a
 * sampler, a program that was compiled and linked, kernels with every kind of argument, an in-order
 * and an out-of-order queue, events, deferred commands, outstanding maps, a second context.
 */

#define STATE_ITEMS 64 /* work-items, and words of most buffers */
#define STATE_BIG   (64u << 10)

struct state {
    cl_device_id device;
    cl_context context, other;
    cl_command_queue in_order, out_of_order, others;
    cl_program library, object, program, plain;
    cl_kernel every, add;
    cl_sampler sampler;
    cl_mem in, out, used, big, sub, never, mapped, table, texture, target, view, others_buffer;
    cl_event early, user, held[2];
    cl_uint *mapped_pointer; /* write map of the second half of `mapped` */
    cl_uchar *image_pointer; /* write map of the third row of `target` */
    size_t image_row;
    cl_uint *used_pointer; /* CL_MEM_USE_HOST_PTR's */
    cl_uint add_value;
    /* The model. */
    cl_uint in_bytes[STATE_ITEMS], out_bytes[STATE_ITEMS], used_bytes[STATE_ITEMS];
    cl_uint big_bytes[STATE_BIG / 4], mapped_bytes[STATE_ITEMS], table_bytes[STATE_ITEMS];
    cl_uint others_bytes[STATE_ITEMS];
    cl_uchar texture_bytes[STATE_ITEMS * 4], target_bytes[STATE_ITEMS * 4];
    /* What the program was told at first. */
    unsigned char *told;
    size_t told_size;
    cl_uint steps;
};

void state_make(const struct engine_rig *rig, struct state *ret_state);
/** Enqueue what waits for a new user event. Once, until state_let_go. */
void state_hold(struct state *s);
/** Set the user event; what was held must have run. */
void state_let_go(struct state *s);
/** Everything that the program can see is as it was: contents, pointers, answers. */
void state_check(struct state *s, const char *when);
/** Go on computing: new results, which must be the model's. Writes through the maps too. */
void state_step(struct state *s, const char *when);
/** Unmap and release everything. */
void state_finish(struct state *s);

#endif
