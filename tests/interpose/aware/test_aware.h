#ifndef RESEAT_TESTS_INTERPOSE_AWARE_TEST_AWARE_H
#define RESEAT_TESTS_INTERPOSE_AWARE_TEST_AWARE_H

#include <pthread.h>
#include <stdatomic.h>

#include "policy/reseat.h"
#include "tests/support/engine_rig.h"

/*
 * A program that registered, whose callbacks write down what they were called for: "checkpoint
 * big>small" and so on, in one line. Each can be told to fail, to hang, or to do something.
 */

enum stage { CHECKPOINT, CLEAN_UP, CONFIGURE, RESUME, CANCEL, STAGES };
extern const char *const stage_names[STAGES];

struct aware_program {
    struct engine_rig rig;
    struct reseat_program program;
    int fails[STAGES]; /**< What the next call of it returns. */
    atomic_bool hangs[STAGES];
    void (*acts[STAGES])(struct aware_program *program, const struct reseat_change *change);
    atomic_uint entered[STAGES];
    pthread_mutex_t lock;
    char calls[2048]; /**< Guarded by lock. */
    void *own;        /**< A test's. */
};

/** "big" has 256 work-items in a group, 8 units and 64 MiB; "small" 64, 2 and 16 MiB. */
#define AWARE_DEVICES                                                                              \
    "[big] name=big max_work_group_size=256 compute_units=8 memory=64MiB max_alloc=32MiB "         \
    "local_memory=32KiB\n"                                                                         \
    "[small] name=small max_work_group_size=64 compute_units=2 memory=16MiB max_alloc=8MiB "       \
    "local_memory=16KiB type=cpu\n"                                                                \
    "[other] name=other max_work_group_size=128 compute_units=4 memory=32MiB max_alloc=16MiB\n"

/** On "big", registered, with 10 s for each callback. One a process. */
struct aware_program *aware_program_open(void);
/** The same, not registered yet. */
struct aware_program *aware_program_open_idle(void);

/** Wait until the calls so far are @expected, and nothing more comes for a moment. Fails the test
 * otherwise. They are forgotten then. */
void aware_program_expect(struct aware_program *program, const char *expected);
/** Wait until @stage was entered @count times. */
void aware_program_await(struct aware_program *program, enum stage stage, unsigned count);

/** A move on a thread of its own. */
struct aware_move {
    pthread_t thread;
    struct move_request request;
    struct move_report report;
    atomic_bool cancel;
};
void aware_move_begin(struct aware_program *program, struct aware_move *move, const char *target,
                      enum move_manner manner, unsigned deadline_ms);
enum move_result aware_move_end(struct aware_move *move);
/** Both; NULL: suspend. */
enum move_result aware_program_move(struct aware_program *program, const char *target,
                                    enum move_manner manner, struct move_report *ret_report);
/** Where the first virtual device is; "" when suspended. */
const char *aware_program_place(void);

cl_ulong aware_info(const struct aware_program *program, cl_device_info name);
size_t aware_group(const struct aware_program *program);

#endif
