#ifndef RESEAT_INTERPOSE_AWARE_AWARE_H
#define RESEAT_INTERPOSE_AWARE_AWARE_H

#include <CL/cl.h>
#include <stdbool.h>
#include <stdint.h>

#include "policy/reseat.h"
#include "state/driver/devinfo.h"

/* The program's side of policy/reseat.h: registration, and the thread that makes the callbacks. */

/** What the agent is told about a program that registered. */
struct aware_wish {
    uint64_t edition; /**< Changes with the rest. */
    bool registered;
    struct reseat_limits minimum, preferred;
};
/** Thread-safe. */
void aware_wish(struct aware_wish *ret_wish);

/**
 * Have the program notified, if it registered and wants to be. Never blocks.
 *
 * @what  RESEAT_DEVICE_ADDED...
 * @vdev  UINT32_MAX: about no virtual device.
 * @text  Copied.
 */
void aware_notice(uint32_t what, uint32_t vdev, uint64_t in_ns, uint64_t value, const char *text);

/** The program's virtual devices exist from now on. */
void aware_started(void);

/** The answer of clGetDeviceInfo for parameters that follow the present device; NULL: use the
 * constant answer. */
const struct devinfo_value *aware_answer(uint32_t vdev, cl_device_info name);

struct device;
/** Describe @device, which may be NULL, for the program. */
void aware_describe(const struct device *device, struct reseat_device *ret_device);
/** Bytes granted to @vdev on its present device. */
uint64_t aware_granted(uint32_t vdev);

/* The functions behind policy/reseat.h, with its results; the caller then informs the agent.
 * Thread-safe. */

int aware_register(const struct reseat_program *program);
/** Blocks while a callback of the program runs, unless it calls this itself. */
int aware_unregister(void);
int aware_save(const void *bytes, size_t size);
/** NULL: unchanged. */
int aware_change_wish(const struct reseat_limits *minimum, const struct reseat_limits *preferred);

#endif
