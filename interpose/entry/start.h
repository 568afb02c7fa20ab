#ifndef RESEAT_INTERPOSE_ENTRY_START_H
#define RESEAT_INTERPOSE_ENTRY_START_H

#include "state/object/context.h"
#include "state/present/present.h"

/*
 * The first use of OpenCL. Before it the library is a mapping and nothing else: no thread, no
 * descriptor, no driver, no memory.
 */

/** Environment, beside control.h's and driver.h's. */
#define START_ENV_INVENTORY "RESEAT_INVENTORY" /**< A file of inventory_write: all devices. */
#define START_ENV_PRESENT   "RESEAT_PRESENT" /**< gpu, cpu, accelerator or native: the type told. */
#define START_ENV_DEVICES   "RESEAT_DEVICES" /**< How many virtual devices; 1 without it. */
#define START_ENV_PROFILE   "RESEAT_PROFILE" /**< portable or native. */
#define START_ENV_MEMORY                                                                           \
    "RESEAT_MEMORY" /**< A size (agent/wire/size.h): device memory to tell.                        \
                     */

/** What the program is told about its devices, the same of each; constant once start() returned 0.
 */
extern struct present the_present;

/** Of the_present, what every launch is compared with. */
struct start_limits {
    bool uniform_groups; /**< Work-groups of one launch all have the same size. */
    bool subgroups;      /**< The device has any. */
    bool empty_commands; /**< Launches of no work-items and transfers of no bytes do nothing (2.1),
                              instead of failing. */
};
extern struct start_limits the_limits;

/** The same of a seat, by its index, and of buffers: of a program that registered (policy/reseat.h)
 *  these follow the device that the seat has. */
struct seat_limits {
    struct group_limits groups;
    _Atomic uint64_t allocation; /**< Bytes of the largest buffer. */
};
extern struct seat_limits seat_limits[SEATS];
/** Those of one device. Not atomic as a whole. */
void seat_limits_set(struct seat_limits *limits, const struct devinfo *device);

/** Of a context: the largest of its seats' (5.2.1: "for all devices in context"). */
static inline uint64_t limits_allocation(const struct context *context)
{
    uint64_t most = 0;
    for (cl_uint i = 0; i < context->seat_count; i++) {
        uint64_t one = atomic_load_explicit(&seat_limits[context->seats[i]->index].allocation,
                                            memory_order_relaxed);
        most = one > most ? one : most;
    }
    return most;
}

/**
 * Open the devices that the program starts on, make the platform and tell the agent, once.
 *
 * Every call that a program can make without a handle of ours begins with it. Thread-safe; blocks
 * on the driver the first time. Returns 0, or -errno when there is no device to run on (the reason
 * is in the log), or -EDEADLK when a driver calls back while it is being opened.
 */
MUST_CHECK int start(void);

#endif
