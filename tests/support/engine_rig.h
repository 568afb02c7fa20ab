#ifndef RESEAT_TESTS_SUPPORT_ENGINE_RIG_H
#define RESEAT_TESTS_SUPPORT_ENGINE_RIG_H

#include <CL/cl.h>

#include "state/move/move.h"
#include "state/move/status.h"
#include "state/object/context.h"
#include "tests/emu/emu.h"
#include "tests/support/calls.h"

/*
 * The whole engine in the test's own process: the entry points (cl*) beside what stands behind them
 * (move_run, status_vdev, the objects), on emulated devices or on POCL's. Without an agent. One
 * engine a process: each test has its own.
 */
struct engine_rig {
    struct emu_shared *emu; /**< For emu_shared_*; NULL on POCL. */
    cl_platform_id platform;
    cl_device_id device; /**< The first virtual device. */
    uint32_t device_count;
    struct device **devices; /**< What there is to move to. */
};

/**
 * Start the engine on the first emulated device of @config (tests/emu/README.md). Sections must
 * have their own `name`, by which the functions below know them; engine_rig_key() finds them by it.
 */
void engine_rig_open(struct engine_rig *rig, const char *config);
/** The same in the portable profile, with @memory as RESEAT_MEMORY. */
void engine_rig_open_told(struct engine_rig *rig, const char *config, const char *memory);
/** Natively on POCL, with @devices of it ("basic pthread"). */
void engine_rig_open_pocl(struct engine_rig *rig, const char *devices);
/** The same, starting on the device whose name begins with @first. */
void engine_rig_open_pocl_on(struct engine_rig *rig, const char *devices, const char *first);
/** One more virtual device for the program, on the device named @name. Before any context. */
cl_device_id engine_rig_vdev(struct engine_rig *rig, const char *name);
/** The same on one of rig->devices[]. */
cl_device_id engine_rig_vdev_on(struct device *device);

/** Fails the test when there is no device of that name. @name may be the end of the name. */
const struct device_key *engine_rig_key(const struct engine_rig *rig, const char *name);

/** Move the first virtual device to @name, or to host memory when NULL, without limits. */
enum move_result engine_rig_move(const struct engine_rig *rig, const char *name,
                                 struct move_report *ret_report);
/** The same, which must succeed. */
void engine_rig_moves(const struct engine_rig *rig, const char *name);

/** Have the next residence on the device named @name find out again what the first one did there.
 */
void engine_rig_forget(const struct engine_rig *rig, const char *name);

/** A driver's way between its devices (state/driver/between.h), which the rig plays by reads and
 * writes. */
struct engine_between {
    _Atomic unsigned passed; /**< Copies so far, and... */
    _Atomic unsigned held;   /**< ...those that wait for engine_between_go. */
    unsigned failing;        /**< The one that the driver refuses, from 1; 0: none. */
    bool holds;              /**< Copies wait. */
};
extern struct engine_between engine_between;
/** All devices get it. */
void engine_between_play(const struct engine_rig *rig);
/** Let the @n-th of the copies that wait, from 0, end; @status is CL_COMPLETE, or the error that it
 * ends in without having written. */
void engine_between_go(unsigned n, cl_int status);

/** Wait until @live objects are alive on the emulated device @name. False when there are others
 * after some seconds, or more than @more others. */
bool engine_rig_settles(const struct engine_rig *rig, const char *name, int64_t live, int64_t more);
/** Wait until nothing is. */
bool engine_rig_empties(const struct engine_rig *rig, const char *name);
/** Fails the test unless so it is on every device. */
void engine_rig_ends_empty(const struct engine_rig *rig);
/** "2 contexts, 1 queue..." of what is alive there. Static. */
const char *engine_rig_alive(const struct engine_rig *rig, const char *name);

uint64_t engine_rig_now(void);
void engine_rig_sleep(unsigned ms);

/** A context on the first virtual device, a queue with @properties, a program from @source (NULL:
 * none). */
struct engine_program {
    cl_context context;
    cl_command_queue queue;
    cl_program program;
};
void engine_program_open(const struct engine_rig *rig, cl_command_queue_properties properties,
                         const char *source, struct engine_program *ret_program);
void engine_program_close(struct engine_program *program);
cl_mem engine_buffer(cl_context context, cl_mem_flags flags, size_t size, void *host_ptr);
/** Read on the device of @queue itself, to which the bytes are brought: by a copy made there. A
 *  plain read goes to where they are. */
void engine_read_there(cl_command_queue queue, cl_mem buffer, size_t offset, size_t size,
                       void *ret_bytes);
cl_kernel engine_kernel(cl_program program, const char *name);

#endif
