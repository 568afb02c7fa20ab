#ifndef RESEAT_INTERPOSE_AWARE_AWARE_H
#define RESEAT_INTERPOSE_AWARE_AWARE_H

#include <CL/cl.h>
#include <stdbool.h>
#include <stdint.h>

#include "policy/reseat.h"
#include "state/driver/devinfo.h"

/*
 * The program's side of policy/reseat.h: who registered, and the thread that calls it back.
 */

/** What the agent is told of a program that registered. */
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
 * @vdev  UINT32_MAX: of none.
 * @text  Copied.
 */
void aware_notice(uint32_t what, uint32_t vdev, uint64_t in_ns, uint64_t value, const char *text);

/** The program's virtual devices are there. */
void aware_started(void);

/** What clGetDeviceInfo says of what follows the device; NULL: what every program is told. */
const struct devinfo_value *aware_answer(uint32_t vdev, cl_device_info name);

struct device;
/** @device: NULL is none. */
void aware_describe(const struct device *device, struct reseat_device *ret_device);
/** Bytes that @vdev was granted where it is. */
uint64_t aware_granted(uint32_t vdev);

/* What policy/reseat.h calls, with its results; the agent is to be told after it. Thread-safe. */

int aware_register(const struct reseat_program *program);
/** Blocks while a callback of the program runs, unless it calls this itself. */
int aware_unregister(void);
int aware_save(const void *bytes, size_t size);
/** NULL: as it was. */
int aware_change_wish(const struct reseat_limits *minimum, const struct reseat_limits *preferred);

#endif
