#ifndef RESEAT_TESTS_STATE_RECOVERY_RECOVER_PLAY_H
#define RESEAT_TESTS_STATE_RECOVERY_RECOVER_PLAY_H

#include "tests/support/engine_rig.h"

/* A protected program that computes, and knows what its buffers are to have. */

#define COUNT 1024
#define BYTES (COUNT * sizeof(cl_uint))

extern struct engine_rig rig;

/** Of its program: kernels `add` and `idle`. */
extern const char *const play_source;

struct play {
    struct engine_program program;
    cl_kernel kernel;
    cl_mem a, b;
    cl_uint a_is[COUNT], b_is[COUNT];
    atomic_int called, failed;
    int registered;
};

/** Devices a, where it begins, b and c; @a, @b: more of what the first two are like. */
void open_rig_with(const char *a, const char *b);
void open_rig(const char *a);
void open_play(struct play *play, cl_command_queue_properties properties);
void close_play(struct play *play);

/** Each word of `b` becomes five times as much, and three times that of `a`, and @n, more. */
void launch(struct play *play, cl_uint n, cl_uint waits, const cl_event *wait_list,
            cl_event *ret_event);
void has(struct play *play, cl_mem buffer, const cl_uint *is);
/** A callback of it is to come, once. */
void watch(struct play *play, cl_event event);
/** Each has come, with success. */
void called_once(const struct play *play);

bool is_on(const char *name);
/** Whoever moves the program, or makes a point of it, does so while much of it is under way. */
void go(const char *name);
/** What it needs next is where it was: that may be lost before a command needs it, or a snapshot.
 */
void leave_on_demand(const char *name);
uint64_t recoveries(void);
/** The device is back for the next round, and so is the program. */
void again(void);

#endif
