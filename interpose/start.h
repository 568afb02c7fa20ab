#ifndef RESEAT_INTERPOSE_START_H
#define RESEAT_INTERPOSE_START_H

#include "interpose/present.h"

/*
 * The first use of OpenCL. Before it the library is a mapping and nothing else: no thread, no
 * descriptor, no driver, no memory.
 */

/** Environment, beside control.h's and driver.h's. */
#define START_ENV_INVENTORY "RESEAT_INVENTORY" /**< A file of inventory_write: all devices. */
#define START_ENV_PRESENT   "RESEAT_PRESENT" /**< gpu, cpu, accelerator or native: the type told. */
#define START_ENV_DEVICES   "RESEAT_DEVICES" /**< How many virtual devices; 1 without it. */
#define START_ENV_PROFILE   "RESEAT_PROFILE" /**< portable or native. */

/** What the program is told about its devices, the same of each; constant once start() returned 0.
 */
extern struct present the_present;

/** Of the_present, what every launch and every buffer is compared with. */
struct start_limits {
    size_t work_group_size;
    size_t work_item_sizes[3];
    uint64_t allocation; /**< Bytes of the largest buffer. */
    bool uniform_groups; /**< Work-groups of one launch all have the same size. */
    bool subgroups;      /**< The device has any. */
    bool empty_launches; /**< A launch of no work-items does nothing (2.1), instead of failing. */
};
extern struct start_limits the_limits;

/**
 * Open the devices that the program starts on, make the platform and tell the agent, once.
 *
 * Every call that a program can make without a handle of ours begins with it. Thread-safe; blocks
 * on the driver the first time. Returns 0, or -errno when there is no device to run on (the reason
 * is in the log), or -EDEADLK when a driver calls back while it is being opened.
 */
MUST_CHECK int start(void);

#endif
